#!/bin/bash
# Where nothing happens nothing is written and nobody wakes up but for the clock's sake, with the
# sweep on.
. "${0%/*}/brain-lib.sh"

brain_up
mkdir tree
for d in $(seq 40); do
	mkdir "tree/$d"
	for f in $(seq 50); do echo "$f" >"tree/$d/$f"; done
done
limb create box --provider local --root "$T/tree" >/dev/null || test_result 'not ok' create
# All is looked at once in the time that is watched below.
limb set box sweep=20 >/dev/null
limb exec box -- true

# wakes NAME: how often it went to sleep, over all of its threads
wakes() {
	local -
	set +x
	cat "/proc/$(pid_of box "$1")/task/"*/status | awk '/^voluntary/ { n += $2 } END { print n }'
}
# All bytes of the logs, and when they were last written.
logs() {
	find "$LIMB_STATE/brain/log" "$LIMB_STATE"/envs/*/log -type f -printf '%p %s %T@\n' \
		-exec sha256sum {} + | sort
}
daemons='limbd syncd ingest'
! have fuse || daemons="$daemons fs"
export daemons

test_expect 'for 20 s: not a byte of a log, hardly a wake-up, and the sweep has seen all' '
	limb sync box
	wait_for "test \"\$(status_of box .counts.pending_changes)\" = 0"
	logs >before
	for d in $daemons; do wakes $d; done >wakes.before
	sleep 20
	for d in $daemons; do wakes $d; done >wakes.after
	logs >after
	diff before after
	# limbd and limb-ingest hear a STATUS each 5 s; limb-syncd looks at the root each second, and
	# its threads at a directory of forty each half one; limb-fs has nothing to do.
	set -- 100 240 60 20
	paste wakes.before wakes.after | while read -r b a; do
		echo "$((a - b)) wake-ups, at most $1"
		test $((a - b)) -le "$1"
		shift
	done
	test "$(status_of box .counts.audit_differences)" = 0
	test "$(status_of box .counts.sweep_period_ms)" = 20000
'

test_done
