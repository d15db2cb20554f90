#!/bin/bash
# A brain whose disk fills at one stroke acknowledges nothing that it does not have, and goes
# on by itself when there is room; both sides are equal then.
. "${0%/*}/brain-lib.sh"
need faults

allow_error 'limbd: error: environment .*(cannot|nothing more is taken)'
export LIMB_ANEW_MS=200

now=$T/now
now_say "$now"
export LIMB_FAULT_NOW=$now
brain_up
unset LIMB_FAULT_NOW

limb create f --provider local >/dev/null
R=$(root_of f)
pid=$(pid_of f limbd)
export R pid
for point in log.append log.sync pack.sync; do
	test_expect "no space at $point, then there is: what came meanwhile is taken" '
		echo before >"$R/before"
		wait_for "limb sync f"
		now_say "$now" "'$point':error=ENOSPC"
		echo "kept '$point'" >"$T/kept"
		mv "$T/kept" "$R/kept"
		wait_for "status_of f .reasons[].code | grep -qx no_space"
		# Its log may name what its pack has, so the end of the line ends no pack.
		kill_9 "$(inspect_of f .pids.ingest)"
		refute limb sync f --timeout 2
		# Other changes than those that its log may have.
		echo first >"$R/x"
		echo second >"$R/y.new"
		mv "$R/y.new" "$R/x"
		echo third >"$R/z"
		now_say "$now"
		wait_for "limb sync f"
		verify_equal f
		test "$(limb cp f:x -)" = second
		limb cp f:kept - | cmp - "$R/kept"
		limb journal verify f
		rm "$R/x" "$R/z"
	'
done
test_expect 'it is the same process, and commands run' '
	test "$(pid_of f limbd)" = "$pid"
	limb exec f -- true
'

small() {
	unshare -m sh -c "mount -t tmpfs -o size=24m none small && exec \"\$@\"" sh "$@"
}
# In a mount namespace of its own: limbd, and the file that fills it.
cat >fill <<'END'
set -eu
export LIMB_STATE=$T/small/state LIMB_MOUNT=$T/small.mnt
limb up -q
limb create f --provider local --root "$T/full" -q >/dev/null
limb sync f
head -c 100000000 /dev/zero >small/filler 2>/dev/null || true
i=0
while [ $i -lt 60 ]; do
	head -c 300000 /dev/urandom >"$T/full/f$i"
	i=$((i + 1))
done
i=0
until { limb status f --json || true; } | grep -o '"code":"no_space"'; do
	sleep 0.05
	i=$((i + 1))
	test $i -lt 200
done
rm small/filler
rm "$T"/full/f[1-5]?
echo after >"$T/full/after"
i=0
until limb sync f --timeout 5 >/dev/null 2>&1; do
	sleep 0.1
	i=$((i + 1))
	test $i -lt 300
done
limb verify f
limb cp f:after -
limb down --stop
END
if unshare -m true 2>/dev/null; then
	mkdir small full small.mnt
	test_expect 'a tmpfs of a few megabytes fills, and is given room: nothing has to be done' '
		LIMB_TIME_S=100 small bash fill >fill.out 2>&1 || { cat fill.out; false; }
		cat fill.out
		grep -qx "\"code\":\"no_space\"" fill.out
		grep -qx after fill.out
	'
else
	test_skip 'a tmpfs of a few megabytes fills, and is given room' 'needs a mount namespace'
fi
test_done
