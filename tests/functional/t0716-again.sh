#!/bin/bash
# What failed is tried again, for ever and ever less often: nothing stays away because its
# cause was there for a while.
. "${0%/*}/brain-lib.sh"
need fuse

mkdir -p state/mnt/.at
touch state/mnt/.at/mine
brain_up
limb create f --provider local >/dev/null
test_expect 'there is no past as long as its place is taken, and then there is' '
	wait_for "grep -q \"there are no past views\" state/limbd.log"
	mountpoint state/mnt/.at && exit 1
	rm state/mnt/.at/mine
	wait_for "mountpoint state/mnt/.at"
	wait_for "test -d state/mnt/.at/f@HEAD/"
'
test_expect 'a limb-fs of the past that dies again and again comes back' '
	for n in 1 2 3; do
		pid=$(pids_with "$T/state" "--past")
		kill_9 "$pid"
		wait_for "[[ \$(pids_with $T/state --past) != @(|$pid) ]] && mountpoint state/mnt/.at"
		wait_for "test -d state/mnt/.at/f@HEAD/"
	done
'
allow_error 'limb-fs: error: .*not empty'
test_done
