#!/bin/bash
# What an environment refuses is kept and listed, holds up nothing but what builds on it, is
# said by a command that comes after it, and goes by a person's word: retried or dropped.
. "${0%/*}/away-lib.sh"
need prlimit
# There, no file may become larger than 64 KiB: who writes more is told, not killed.
echo "trap '' XFSZ" >"$T/far/box.rc"
brain_up
away_create box || test_result 'not ok' create
root=$(away_root box)
export root
head -c 100000 /dev/zero | tr '\0' x >big

allow() {
	local pid
	for pid in $(pids_with 'daemon --dir' "$T/far/box"); do
		prlimit --pid "$pid" --fsize="$1":
	done
}
allow 65536

test_expect 'it is listed; what came before and after is there' '
	limb exec box -- sh -c "echo old >grows"
	away box
	echo 1 | limb cp - box:before
	limb cp big box:big
	limb cp big box:grows
	limb mv box:big box:big2
	echo 2 | limb cp - box:after
	back box
	drained box
	test "$(cat "$root/before" "$root/after")" = "1
2"
	test ! -e "$root/big"
	test "$(cat "$root/grows")" = old
	test "$(status_of box .counts.unapplied)" = 3
	test "$(status_of box .counts.pending_changes)" = 0
	test "$(status_of box .counts.conflicts)" = 0
	ls -A "$root"
	test "$(find "$root" -name ".limb-*" | wc -l)" = 0
'
test_expect 'the journal says why' '
	limb journal dump box >dumped
	test "$(grep -c "errno\":27\b" dumped)" = 2
	limb journal dump box --json | jq -s -e "map(select(.type == \"unapplied\" and .errno == 27)) | length == 2"
'
test_expect 'a command after it fails with the list, unless it is told' '
	r=0
	limb exec box --json -- true >out || r=$?
	test $r = 125
	jq -e ".error == \"unapplied\" and (.unapplied | length) == 3 and (.unapplied[0].path == \"big\") and (.next_steps | length) > 0" out
	limb exec box --despite-unapplied -- true
'
test_expect 'it outlives limbd; retried too early it is refused again' '
	kill_9 "$(pid_of box limbd)"
	limb up -q
	wait_state box live
	test "$(status_of box .counts.unapplied)" = 3
	r=0
	limb retry box grows --json >out || r=$?
	test $r = 125
	jq -e ".error == \"unapplied\"" out
	test "$(status_of box .counts.unapplied)" = 3
	expect_code 125 limb retry box after
	expect_code 125 limb drop box nothing
'
test_expect 'B17 retried when there is room: the complete file, and what built on it' '
	allow unlimited
	limb retry box big
	drained box
	limb sync box
	cmp big "$root/big2"
	test ! -e "$root/big"
	test "$(status_of box .counts.unapplied)" = 1
'
test_expect 'dropped, it is gone, and nothing else' '
	limb drop box grows --json >out
	jq -e ".path == \"grows\" and .seq > 0" out
	test "$(status_of box .counts.unapplied)" = 0
	limb exec box -- true
	test "$(cat "$root/grows")" = old
	limb journal verify box
	verify_equal box
'
test_done
