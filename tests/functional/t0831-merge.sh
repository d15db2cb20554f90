#!/bin/bash
# What was done in a fork comes back into the environment that it is of, once: made, written,
# renamed, linked, removed, with modes, times and attributes; what both did is kept twice
# and listed; away it waits; and a limbd that is killed in the middle loses and doubles nothing.
. "${0%/*}/away-lib.sh"
need prlimit
brain_up

mkdir tree
(
	cd tree || exit
	for d in a b c d e; do
		mkdir $d
		for i in 1 2 3 4; do echo "$d $i" >$d/f$i; done
	done
	ln a/f1 b/link
	ln -s a sym
	touch -d '2001-02-03 04:05:06.123456789' a/f2
)
# files_of NAME: tree_list without the times of directories, which names in them change
files_of() {
	tree_list "$(root_of "$1")" | sed -E 's/( d [0-7]+ [0-9]+ [0-9]+ )[0-9.]+ /\1/'
}
same_files() {
	files_of "$1" >one
	files_of "$2" >two
	same_tree one two
}
# merged JQ: of the last answer, out
merged() {
	cat out
	jq -e "$1" out
}

test_expect 'all that was done in a fork comes back, with the origin merge' '
	limb create a --provider local --from tree >/dev/null
	limb fork a b >/dev/null
	limb exec b -- sh -ec "
		echo new >new
		mkdir -p deep/er
		echo deep >deep/er/file
		ln -s nowhere deep/sym
		ln deep/er/file deep/hard
		mkfifo deep/fifo
		echo edited >>a/f1
		printf replaced >tmp; mv tmp a/f3
		chmod 4751 a/f4
		touch -d 2002-02-02 a/f4
		mv b/f1 b/g1
		mv c cc
		echo inside >>cc/f1
		mv cc/f2 d/from-c
		rm d/f1
		rm -r e
		rm sym; ln -s b sym
		mkdir closed; echo x >closed/x; chmod 555 closed
		mv d/f2 t; mv d/f3 d/f2; mv t d/f3"
	! command -v setfattr >/dev/null || setfattr -n user.note -v hello "$(root_of b)/b/f2" || true
	limb merge b --into a --json >out
	merged ".clean and .conflicts == 0 and .applied > 15 and .environment == \"a\""
	same_files a b
	verify_equal a
	test "$(limb why a new --json | jq -r .origin)" = merge
	limb merge b --into a --json >out
	merged ".clean and .applied == 0"
'
test_expect 'a second merge brings what is new since, and what was undone meanwhile stays undone' '
	limb exec a -- sh -ec "rm new; rm -r deep; echo mine >a/mine; mv cc ccc"
	limb exec b -- sh -ec "echo second >second; echo again >>cc/f1; rm a/f4; echo more >>d/from-c; mv b/g1 b/h1"
	limb merge b --into a --json >out
	merged ".clean and .conflicts == 0"
	A=$(root_of a)
	test ! -e "$A/new"
	test ! -e "$A/deep"
	test ! -e "$A/a/f4"
	test "$(cat "$A/a/mine" "$A/second")" = "mine
second"
	test "$(cat "$A/ccc/f1")" = "c 1
inside
again"
	test "$(tail -n 1 "$A/d/from-c")" = more
	test -e "$A/b/h1"
	limb merge b --into a --json >out
	merged ".applied == 0"
	# what the first one made, the fork may remove
	limb exec b -- sh -c "chmod 755 closed; rm -r closed"
	limb merge b --into a --json >out
	merged ".clean and .applied > 0"
	test ! -e "$A/closed"
	verify_equal a
'
test_expect 'conflicts: both are kept and listed, status 1; a deletion never beats an edit' '
	limb create n --provider local --from tree >/dev/null
	limb fork n m >/dev/null
	limb exec n -- sh -ec "echo N >a/f1; echo N >both; rm a/f2; echo N >>a/f3; echo N >d/new; echo N >>e/f1; mv b/f2 b/n2; chmod 600 b/f3; echo file >t; rm c/f2"
	limb exec m -- sh -ec "echo M >a/f1; echo M >both; echo M >a/f2; echo M >>a/f3; rm -r d; rm -r e; mv b/f2 b/m2; chmod 640 b/f4; mkdir t; echo M >t/in; rm c/f2; echo M >>c/f1"
	expect_code 1 limb merge m --into n --json >out
	merged "(.clean | not) and .conflicts >= 6"
	N=$(root_of n)
	test "$(cat "$N/a/f1" "$N/both")" = "N
N"
	# the edit beats the deletion, on either side
	test "$(cat "$N/a/f2")" = M
	test "$(cat "$N/d/new")" = N
	test "$(tail -n 1 "$N/e/f1")" = N
	# appends are joined
	test "$(cat "$N/a/f3")" = "a 3
N
M"
	test "$(stat -c %a "$N/b/f3" "$N/b/f4")" = "600
640"
	test -f "$N/t"
	test "$(tail -n 1 "$N/c/f1")" = M
	limb conflicts n --json >conflicts
	jq -e "[.conflicts[].path] | contains([\"a/f1\", \"both\", \"d\", \"e\", \"t\"])" conflicts
	jq -e ".conflicts[] | select(.path == \"a/f1\") | .kind == \"edit_edit\" and ([.versions[].side] | sort) == [\"brain\", \"environment\"]" conflicts
	hash=$(echo M | sha256sum | cut -d" " -f1)
	jq -e ".conflicts[] | select(.path == \"both\") | [.versions[].sha256] | index(\"sha256:$hash\")" conflicts
	limb resolve n a/f1 --take brain >/dev/null
	test "$(cat "$N/a/f1")" = M
	verify_equal n
	# it was said once
	limb merge m --into n --json >out
	merged ".clean and .applied == 0"
	# what N did is not what M has seen: M may not remove it
	limb exec m -- rm -r a both
	expect_code 1 limb merge m --into n --json >out
	test "$(cat "$N/both")" = N
	test -e "$N/a/f3"
'
test_expect 'PATH... restricts it; the rest comes with the next one' '
	limb create p --provider local --from tree >/dev/null
	limb fork p q >/dev/null
	limb exec q -- sh -ec "echo q >>a/f1; echo q >>b/f2; mkdir -p new/sub; echo q >new/sub/x; echo q >new/y; rm c/f1; rm -r d; mv e/f1 a/moved"
	limb merge q --into p a new/sub --json >out
	merged ".clean"
	P=$(root_of p)
	test "$(tail -n 1 "$P/a/f1")" = q
	test "$(cat "$P/new/sub/x" "$P/a/moved")" = "q
e 1"
	test ! -e "$P/new/y"
	test -e "$P/c/f1"
	test -e "$P/d/f1"
	limb merge q --into p a --json >out
	merged ".applied == 0"
	limb exec p -- rm a/moved
	limb exec q -- sh -ec "echo q2 >>new/sub/x"
	limb merge q --into p --json >out
	merged ".clean"
	test ! -e "$P/a/moved"
	rm -f "$(root_of q)/a/moved"
	limb sync q >/dev/null
	same_files p q
	limb merge q --into p --json >out
	same_files p q
'
test_expect 'into one that is away it waits, over a restart of limbd, and drains when it is back' '
	away_create far
	limb cp tree far: >/dev/null
	limb exec far -- sh -ec "mv tree/* .; rmdir tree"
	limb fork far here --provider local >/dev/null
	R=$(away_root far)
	away far
	limb exec here -- sh -ec "echo here >a/f1; rm a/f2; mkdir x; echo x >x/y; mv b bb"
	echo far >>"$R/a/f2"
	echo far >"$R/far"
	limb merge here --into far --json >out
	merged ".pending and .clean and .pending_changes >= 5"
	expect_code 125 limb merge here --into far 2>err
	grep wait err
	kill_9 "$(pid_of here limbd)"
	limb up -q >/dev/null
	test "$(status_of far .counts.pending_changes)" -ge 5
	back far
	drained far
	test "$(cat "$R/a/f1" "$R/x/y" "$R/far")" = "here
x
far"
	test "$(tail -n 1 "$R/a/f2")" = far
	test -d "$R/bb"
	test ! -e "$R/b"
	conflicts_of far ".conflicts[] | .path + \" \" + .kind" >list
	grep -x "a/f2 edit_delete" list
	test "$(wc -l <list)" = 1
	wait_state here live
	limb merge here --into far --json >out
	merged ".clean and .applied == 0"
	verify_equal far
'
test_expect 'limbd killed in the middle, again and again: nothing is lost, nothing comes twice' '
	limb create k --provider local --from tree >/dev/null
	limb fork k l >/dev/null
	K=$(root_of k)
	for ms in 5 60 120 200 350; do
		limb exec l -- sh -ec "for i in \$(seq 12); do echo $ms \$i >>log\$i; done; mkdir -p r$ms/s; mv log1 r$ms/log; cp r$ms/log log1"
		limb merge l --into k >/dev/null 2>&1 &
		sleep "$(printf "0.%03d" "$ms")"
		kill_9 "$(pid_of k limbd)"
		wait $! || true
		limb up -q >/dev/null
		wait_state k live
		wait_state l live
		limb merge l --into k --json >out
		merged ".clean"
		same_files k l
	done
	conflicts_of k ".conflicts | length" >n
	test "$(cat n)" = 0
	verify_equal k
'
# There, no file may become larger than 64 KiB.
allow() {
	local pid
	for pid in $(pids_with 'daemon --dir' "$T/far/box"); do
		prlimit --pid "$pid" --fsize="$1":
	done
}
test_expect 'refused, and tried again after another fork was merged: what the one did the other does not remove' '
	echo "trap \"\" XFSZ" >"$T/far/box.rc"
	away_create box
	limb exec box -- sh -ec "echo old >grows; echo old >other"
	limb fork box one --provider local >/dev/null
	limb fork box two --provider local >/dev/null
	allow 65536
	limb exec one -- sh -ec "head -c 100000 /dev/zero >grows; echo one >other"
	expect_code 1 limb merge one --into box --json >out
	merged ".unapplied > 0"
	limb exec two -- sh -ec "rm grows; echo two >mine"
	expect_code 1 limb merge two --into box --json >out
	allow unlimited
	limb retry box grows >/dev/null || true
	drained box
	limb sync box >/dev/null
	test "$(stat -c %s "$(away_root box)/grows")" = 100000
	test "$(cat "$(away_root box)/mine")" = two
	conflicts_of box ".conflicts[] | .path + \" \" + .kind" >list
	test "$(cat list)" = "grows edit_delete"
	verify_equal box
'
test_expect 'only a fork can be merged, into what it is of' '
	expect_code 125 limb merge a --into b 2>err
	grep "no fork" err
	expect_code 125 limb merge l --into a 2>err
	expect_code 2 limb merge l 2>err
	expect_code 125 limb merge l --into nobody 2>err
	limb stop k >/dev/null
	limb exec l -- sh -c "echo 1 >one"
	expect_code 125 limb merge l --into k 2>err
	grep "limb start" err
	limb start k >/dev/null
	limb merge l --into k >/dev/null
	same_files k l
'
test_done
