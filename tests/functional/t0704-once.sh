#!/bin/bash
# Whatever dies between the asking for a change and the record of its end, the change is made,
# and never twice: a move that somebody undid meanwhile stays undone.
. "${0%/*}/away-lib.sh"
need faults
brain_up
away_create box || test_result 'not ok' create
root=$(away_root box)
export root
allow_error 'limb-ingest ended|pack stays open'
steps='1 2 3 4 5'
! have long || steps='1 2 3 4 5 6 7 8'

# The one who dies is limbd, as it writes its log for the n'th time from its start on.
export point
for point in log.append log.sync; do
	for step in $steps; do
		export step
		test_expect "limbd dies at $point $step" '
			limb exec box -- sh -c "rm -rf a b w; echo 1 >a; echo 2 >w"
			away box
			limb mv box:a box:b
			echo written | limb cp - box:w
			echo made | limb cp - box:new$step$point
			kill_9 "$(pid_of box limbd)"
			rm "$T/down/box"
			LIMB_FAULT=$point:$step:kill limb up -q || true
			pid=$(pid_of box limbd)
			wait_for -t 5 "test_gone ${pid:-1} || test \"\$(status_of box .counts.pending_changes)\" = 0" || true
			[ -z "$pid" ] || kill_9 "$pid"
			if [ -e "$root/b" ]; then
				moved=1
				mv "$root/b" "$root/a"
			else
				moved=0
			fi
			limb up -q
			wait_state box live
			drained box
			limb sync box
			if [ $moved = 1 ]; then
				test "$(cat "$root/a")" = 1
				test ! -e "$root/b"
			else
				test "$(cat "$root/b")" = 1
				test ! -e "$root/a"
			fi
			test "$(cat "$root/w")" = written
			test "$(cat "$root/new$step$point")" = made
			# Undone meanwhile it may have become another file: then that is said.
			test "$(conflicts_of box "[.conflicts[] | select(.path != \"a\" or .kind != \"rename\")] | length")" = 0
			[ $moved = 1 ] || test "$(status_of box .counts.conflicts)" = 0
			limb resolve box a --take environment || test "$(status_of box .counts.conflicts)" = 0
			test "$(status_of box .counts.unapplied)" = 0
			verify_equal box
		'
	done
done
test_expect 'the journal is whole' '
	limb journal verify box
'
test_done
