#!/bin/bash
# What is changed on the brain's side while an environment is away waits, survives every
# crash, and is made there in order when it is back, once.
. "${0%/*}/away-lib.sh"
brain_up
away_create box || test_result 'not ok' create
root=$(away_root box)
export root

test_expect 'cp, mv and rm into an environment that is away are accepted and counted' '
	limb exec box -- sh -c "echo old >keep; echo move >m; echo gone >r; mkdir d; echo in >d/in"
	away box
	mkdir -p host/sub
	echo one >host/a
	echo two >host/sub/b
	ln -s a host/link
	limb cp host box:tree --json >out
	jq -e ".pending and .files == 3 and .bytes == 8" out
	echo new | limb cp - box:keep
	limb mv box:m box:d/moved --json >out
	jq -e .pending out
	limb rm box:r
	limb rm box:tree/sub/b
	echo again | limb cp - box:tree/sub/b
	test "$(status_of box .counts.pending_changes)" -ge 9
	test "$(status_of box .counts.pending_bytes)" -ge 8
	test "$(cat "$root/keep")" = old
'
test_expect 'what the system would refuse is refused at once, also over what waits' '
	expect_code 125 limb rm box:r
	expect_code 125 limb mv box:nothing box:x
	expect_code 125 limb mv box:d box:d/e
	expect_code 125 limb mv box:keep box:d
	expect_code 125 limb mv box:d box:tree
	expect_code 125 limb cp host/a box:no/such/directory
	limb rm box:tree/sub
	expect_code 125 limb cp host/a box:tree/sub/c
	limb cp host/sub box:tree
'
test_expect 'it survives limbd, and all of it is there when the line is back' '
	kill_9 "$(pid_of box limbd)"
	limb up -q
	test "$(status_of box .counts.pending_changes)" -ge 9
	back box
	drained box
	limb sync box
	test "$(cat "$root/keep")" = new
	test "$(cat "$root/d/moved")" = move
	test ! -e "$root/m"
	test ! -e "$root/r"
	test "$(cat "$root/tree/a")" = one
	test "$(readlink "$root/tree/link")" = a
	test "$(cat "$root/tree/sub/b")" = two
	test "$(status_of box .counts.conflicts)" = 0
	verify_equal box
	limb exec box -- sh -c "cat keep tree/sub/b"
'
test_expect 'appends of both sides over one base are joined' '
	limb exec box -- sh -c "echo base >log; for i in 1 2 3; do echo line \$i >>log; done"
	cp "$root/log" log
	away box
	echo brain >>log
	limb cp log box:log
	echo environment >>"$root/log"
	back box
	drained box
	limb sync box
	test "$(tail -n 2 "$root/log" | tr "\n" " ")" = "environment brain "
	test "$(wc -l <"$root/log")" = 6
	test "$(status_of box .counts.conflicts)" = 0
	verify_equal box
'
test_expect 'the environment moved a file: it is written where it is now' '
	away box
	echo fresh | limb cp - box:keep
	mkdir "$root/other"
	mv "$root/keep" "$root/other/kept"
	back box
	drained box
	limb sync box
	test "$(cat "$root/other/kept")" = fresh
	test ! -e "$root/keep"
	verify_equal box
'
test_expect 'a job that comes after changes that wait sees them' '
	away box
	echo later | limb cp - box:later
	limb exec box --queue -- cat later >out &
	back box
	wait $!
	test "$(cat out)" = later
'
test_expect 'an environment for which something waits is not removed by mistake' '
	away box
	echo precious | limb cp - box:precious
	r=0
	limb rm box --json >out || r=$?
	test $r = 125
	jq -e ".error == \"unsynced\"" out
	back box
	drained box
	test "$(cat "$root/precious")" = precious
'
test_expect 'a stopped environment takes nothing' '
	limb stop box
	expect_code 125 limb cp host/a box:x
	limb start box
'
test_expect 'limb journal dump shows what was wanted and what became of it' '
	limb journal dump box --json >dump
	jq -es "[.[] | select(.type == \"intent\")] | length >= 15" dump
	jq -es "([.[] | select(.type == \"intent\")] | length) == ([.[] | select(.type == \"intent_end\")] | length)" dump
	jq -es "[.[] | select(.type == \"intent\" and .wants == \"move\" and .to_path == \"d/moved\")] | length == 1" dump
	limb journal verify box
'
test_expect 'thousands are queued in one call, and nobody waits for limbd meanwhile' '
	away_create heap
	away heap
	mkdir many
	(cd many; seq 20000 | xargs touch; ln -s x link)
	timeout 60 limb cp many heap:many --json >out
	jq -e ".pending and .files == 20001" out
	test "$(status_of heap .counts.pending_changes)" = 20002
'
if have long; then
	test_expect 'what takes two changes is refused whole where one has room' '
		mkdir more
		(cd more; seq 79996 | xargs touch)
		LIMB_TIME_S=300 limb cp more heap:more
		test "$(status_of heap .counts.pending_changes)" = 99999
		echo file >file
		expect_code 125 limb cp file heap:many/link
		test "$(status_of heap .counts.pending_changes)" = 99999
	'
fi
test_expect 'an environment for which much waits can be removed' '
	back heap
	limb rm heap --force
'
test_done
