#!/bin/bash
# The line to another machine is cut while both sides work: 200 files are changed in the view, 50
# there, 10 of them the same. limbd is begun anew; when the line is back 240 have arrived, and
# the 10 are conflicts that list both contents. A command fails meanwhile, and says how old what
# is known is, or waits.
. "${0%/*}/ssh-lib.sh"
need fuse
ssh_up
ssh_line
brain_up
V=$T/state/mnt/box
mkdir "$T/there"
echo '{"view": {"write": true}}' >spec.json
limb create box --provider "ssh:far:$T/there/box" --spec spec.json >/dev/null
limb trust box >/dev/null
root=$(inspect_of box .root)
export root
wait_for "mountpoint -q $V"

test_expect 'cut: both sides change files, and the view shows its own' '
	limb exec box -- sh -c "mkdir f; for i in \$(seq 250); do echo base \$i >f/\$i; done"
	wait_for "test -e $V/f/250"
	say refuse cut
	wait_state box away
	for i in $(seq 200); do echo "here $i" >"$V/f/$i"; done
	# Whoever writes it anew cuts it, and takes a while.
	{ sleep 0.3; echo "here 199"; } >"$V/f/199"
	for i in $(seq 191 240); do echo "there $i" >"$root/f/$i"; done
	test "$(cat "$V/f/200" "$V/f/201")" = "here 200
base 201"
'
test_expect 'a command fails within 5 s with the age of what is known, or waits for the line' '
	before=$(date +%s%N)
	r=0
	limb exec box --json -- true >out || r=$?
	test $r = 125
	test $((($(date +%s%N) - before) / 1000000)) -lt 8000
	jq -e ".error == \"env_unreachable\" and .age_ms > 0 and (.detail | test(\"is away.* s old\"))" out
	test "$(limb cp box:f/201 - 2>told)" = "base 201"
	grep -q "^limb: .box. could not be synced" told
	(LIMB_TIME_S=200 limb exec box --queue -- sh -c "cat f/1 f/240" >queued) &
	echo $! >queue.pid
'
test_expect 'limbd begins anew; what waits is counted, and the age is still said' '
	kill "$(cat queue.pid)" || true
	kill_9 "$(pid_of box limbd)" "$(pid_of box fs)"
	limb up -q >/dev/null
	# What is up can be looked at: the mount that the killed one left is gone.
	test "$(cat "$V/f/7")" = "here 7"
	wait_for "test \$(status_of box .counts.pending_changes) -ge 200"
	r=0
	limb exec box --json -- true >out || r=$?
	test $r = 125
	jq -e ".age_ms > 0" out
	(LIMB_TIME_S=280 limb exec box --queue -- sh -c "cat f/1 f/240" >queued) &
	echo $! >queue.pid
	wait_for "test \$(status_of box .state) = away"
'
test_expect 'the line is back: 240 arrive, 10 conflicts list both contents' '
	say accept
	limb start box >/dev/null 2>&1 || true
	wait_for -t 120 "test \$(state_of box) = live"
	wait_for -t 240 "test \$(status_of box .counts.pending_changes) = 0"
	limb sync box >/dev/null
	for i in $(seq 190); do echo "here $i"; done >want
	for i in $(seq 191 240); do echo "there $i"; done >>want
	for i in $(seq 240); do cat "$root/f/$i"; done | cmp - want
	for i in $(seq 240); do cat "$V/f/$i"; done >seen
	cmp seen want
	limb conflicts box --json >out
	# A version that was only cut so far is one of its own.
	jq -e "[.conflicts[] | select(any(.versions[]; .side == \"brain\" and .size_bytes > 0))] | length == 10" out
	jq -e "[.conflicts[].path] | unique | length == 10" out
	for i in $(seq 191 200); do
		a=$(echo "here $i" | sha256sum | cut -d" " -f1)
		b=$(echo "there $i" | sha256sum | cut -d" " -f1)
		jq -e "[.conflicts[] | select(.path == \"f/$i\") | .versions[].sha256] | index(\"sha256:$a\") and index(\"sha256:$b\")" out
	done
	verify_equal box
'
test_expect 'the command that waited has seen it all' '
	wait_for -t 60 "test -s queued"
	test "$(cat queued)" = "here 1
there 240"
	limb rm box --force >/dev/null
'
stop_bg line
allow_error '^ssh: '
test_done
