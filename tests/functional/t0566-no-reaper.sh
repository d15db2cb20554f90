#!/bin/bash
# Where the machine's first process buries nobody (a container's, often), sandboxes are stopped,
# rebuilt and removed as anywhere.
. "${0%/*}/brain-lib.sh"
have bwrap || skip_all 'bwrap makes no sandbox here'
unshare --pid --fork --mount-proc true 2>/dev/null || skip_all 'no pid namespaces here'

cat >life <<'END'
#!/bin/bash
set -ex
limb up -q
limb create box -q
limb exec box -- sh -c 'echo x >f'
limb stop box -q
limb start box -q
test "$(limb exec box -- cat f)" = x
# What is still there when a sandbox ends
limb exec -d box -- sleep 1000
limb rebuild box --force -q
test "$(limb exec box -- cat f)" = x
limb rm box -q
limb down --stop
END
test_expect 'stop, start, rebuild, rm' '
	cat >first <<END
#!/bin/sh
# From here on nobody is waited for.
{ timeout -k 5 100 bash "$T/life" >"$T/life.log" 2>&1; echo \$? >"$T/status"; } &
exec sleep 110
END
	unshare --pid --fork --kill-child --mount-proc sh "$T/first" &
	pid=$!
	wait_for -t 110 "[ -s status ]"
	cat life.log
	# unshare ignores TERM while its child is there.
	kill -KILL $pid
	wait $pid || true
	test "$(cat status)" = 0
'
test_done
