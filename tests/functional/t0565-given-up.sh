#!/bin/bash
# An environment that is being made can be given up, by ^C or by `rm --force`, at each step and
# after limbd's end: nothing of it stays, and nobody has to wait for it. What could never be
# made, or would not be what it looks like, is refused before it begins.
. "${0%/*}/brain-lib.sh"
brain_up
mkdir "$T/from" "$T/root"
for i in 1 2 3 4 5 6 7 8; do
	head -c 300000 /dev/urandom >"$T/from/$i"
done
# A first sync that takes an hour.
echo '{"rate_bytes": 500}' >slow.json

nothing_of() {
	expect_code 125 limb inspect "$1" --json >out
	jq -e '.error == "environment_not_found"' out
	wait_for 'test -z "$(ls "$LIMB_STATE/envs")"'
	test ! -e "$LIMB_STATE/mnt/$1"
	wait_for "test -z \"\$(pids_with '--hostname $1')\""
}
# slow_create ARG...: in the background, until its first sync goes on
slow_create() {
	limb create slow --spec slow.json "$@" >created 2>created.err &
	pid=$!
	wait_for 'limb inspect slow --json 2>/dev/null |
		jq -e ".state == \"creating\" and .tree.files > 1"'
}

test_expect 'rm --force ends a create; its caller hears why' '
	slow_create --from from
	expect_code 125 limb rm slow 2>err
	grep "not made yet.*limb rm slow --force" err
	limb rm slow --force --json >out
	jq -e ".removed and (.journal_kept | not)" out
	expect_code 125 wait $pid
	grep "cannot create .slow.: it was removed before it was finished" created.err
	nothing_of slow
'
test_expect 'a root of somebody else is as it was' '
	cp -a from/. root
	slow_create --root root
	limb rm slow --force
	expect_code 125 wait $pid
	nothing_of slow
	diff -r from root
	test -z "$(ls -A root | grep -v "^[1-8]$")"
'
test_expect '^C ends a create' '
	slow_create --from from
	# (INT is not for what runs in the background; timeout passes TERM on)
	kill -TERM $pid
	expect_code 143 wait $pid
	grep "^limb: interrupted$" created.err
	nothing_of slow
'
test_expect 'of one whose caller was killed, and whose limbd was, too' '
	slow_create --from from
	kill_9 $pid
	kill_9 "$(limb status --json | jq .limbd.pid)"
	limb up -q
	wait_state slow creating
	wait_for "limb rm slow --force"
	nothing_of slow
'
test_expect 'at whatever moment: it is there, or nothing is' '
	for ms in 002 010 020 040 070 100 150 200 300; do
		r=0
		LIMB_TIME_S=60 timeout -s INT "0.$ms" limb create at --from from >out 2>err || r=$?
		wait_for "! limb inspect at --json >/dev/null 2>&1 || [ \"\$(state_of at)\" = live ]"
		[ $r != 0 ] || test "$(state_of at)" = live
		[ "$(limb ls -q)" = "" ] || limb rm at --force
		nothing_of at
	done
'
test_expect 'while its provider is at work' '
	cat >waits <<END
#!/bin/sh
if [ "\$1" = start ]; then
	touch "$T/started"
	while [ ! -e "$T/go" ]; do sleep 0.05; done
fi
exec "$LIMB_TOP_BUILDDIR/providers/local" "\$1"
END
	chmod 755 waits
	limb create at --provider "$T/waits" >created 2>created.err &
	pid=$!
	wait_for "[ -e started ]"
	limb rm at --force >removed &
	rm=$!
	touch go
	wait $rm
	expect_code 125 wait $pid
	nothing_of at
'

says() {
	local - regex=$1
	set +x
	shift
	expect_code "$@" 2>err >out
	grep -qE -- "$regex" err || { cat err; return 1; }
	[ "$(wc -l <err)" = 1 ]
}
test_expect 'what the kernel makes up is no directory of files' '
	for dir in /proc /proc/self /sys /sys/kernel /dev; do
		says "the kernel.s own.*choose another" 125 limb create no --root $dir
		says "the kernel.s own.*choose another" 125 limb create no --from $dir
	done
	nothing_of no
'
test_expect 'a spec that says what nobody reads is refused' '
	while read -r spec; do
		echo "$spec" >spec.json
		says "the spec.s .[a-z_]*" 2 limb create no --provider local --spec spec.json
	done <<END
{"quota": 1000}
{"limits": "1G"}
{"limits": {"memory_bytes": "1G"}}
{"limits": {"memory_bytes": 0}}
{"view": {"writ": true}}
{"network": true}
{"env": {"LIMB_X": "1"}}
{"Ignore": ["x"]}
END
	nothing_of no
'
test_expect 'places of the system are no state; a view that stays where it is says so' '
	# Of a normal user it is not: that is said first.
	says "state directory (cannot be ./.|./. belongs to)" 125 env LIMB_SOCKET="$T/s" limb --state / up
	limb up --mount "$T/elsewhere" 2>err
	grep "stays at .$LIMB_STATE/mnt.*limb down" err
	limb up --mount "$LIMB_STATE/mnt/." 2>err
	test ! -s err
'
test_done
