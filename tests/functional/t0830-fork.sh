#!/bin/bash
# A fork is made of the journal alone: its files are those that the other had at the point,
# byte for byte and field by field, also while the other is away, stopped or halted; it says whose
# fork it is, costs next to nothing, and each goes its own way from then on.
. "${0%/*}/away-lib.sh"
brain_up

mkdir tree
(
	cd tree || exit
	for i in $(seq 20); do
		mkdir "d$i"
		seq "$i" 400 | split -l 20 - "d$i/f"
	done
	head -c 3000000 /dev/urandom >random
	ln d1/faa d2/link
	ln -s d3 link
	mkfifo fifo
	: >empty
	truncate -s 5M hole
	touch -d '2001-02-03 04:05:06.123456789' d4/faa
	chmod 4751 d5/faa
	chmod 1777 d6
	[ "$(id -u)" != 0 ] || chown 4242:4243 d7/faa
	! command -v setfattr >/dev/null || setfattr -n user.note -v hello d8/faa || true
)
# what the store takes
stored() {
	du -s -B1 --apparent-size "$T/state/store" | cut -f1
}
# forked_as NAME: tree.list is what NAME has
forked_as() {
	tree_list "$(root_of "$1")" >there
	same_tree tree.list there
	verify_equal "$1"
}

test_expect 'a fork has the same files, shares the store, and says whose it is' '
	limb create a --provider local --from tree >/dev/null
	tree_list tree >tree.list
	seq=$(limb sync a --json | jq .seq)
	before=$(stored)
	limb fork a b --json >out
	jq -e ".environment == \"b\" and .equal and .state == \"live\" and .provider == \"local\"" out
	jq -e ".forked_from.environment == \"a\" and .forked_from.seq >= $seq" out
	forked_as b
	test $(($(stored) - before)) -lt 200000
	test "$(inspect_of b .forked_from.environment)" = a
	test "$(inspect_of a .forked_from)" = null
	test "$(inspect_of b .id)" != "$(inspect_of a .id)"
'
test_expect 'each goes its own way; what was done just before is in it' '
	limb exec a -- sh -c "echo a >mine; rm d1/faa"
	limb exec b -- sh -c "echo b >mine; rm -r d2"
	test "$(cat "$(root_of a)/mine" "$(root_of b)/mine")" = "a
b"
	test -e "$(root_of b)/d1/faa"
	verify_equal a
	verify_equal b
	syncd=$(pid_of a syncd)
	kill -STOP "$syncd"
	echo unheard >"$(root_of a)/just"
	limb fork a c >/dev/null &
	sleep 0.3
	kill -CONT "$syncd"
	wait $!
	test "$(cat "$(root_of c)/just")" = unheard
	test ! -e "$(root_of c)/d1/faa"
	limb rm c --force >/dev/null
'
test_expect 'at a point of the past, by number, label and time; a label of none is refused' '
	tree_list "$(root_of b)" >b.list
	limb label b here >/dev/null
	sleep 0.02
	when=$(date -u +%Y-%m-%dT%H:%M:%S.%NZ)
	limb exec b -- sh -c "rm -r d3 d4; echo more >>random; mv d5 e5"
	seq=$(limb points b --json | jq "[.points[] | select(.label == \"here\")][0].at_seq // [.points[] | select(.label == \"here\")][0].seq")
	for at in here "$when" "$seq"; do
		limb fork b p --at "$at" >/dev/null
		tree_list "$(root_of p)" >there
		same_tree b.list there
		verify_equal p
		limb rm p --force >/dev/null
	done
	r=0
	limb fork b p --at nowhere 2>err || r=$?
	test $r = 125
	r=0
	limb inspect p 2>err || r=$?
	test $r = 125
'
test_expect 'of one that is away, to another provider; and of one that is stopped, and of a fork' '
	away_create far
	limb cp tree far: >/dev/null
	limb exec far -- sh -c "mv tree/* . && rmdir tree"
	tree_list "$(away_root far)" >far.list
	away far
	limb fork far near --provider local --json >out
	jq -e ".equal and .provider == \"local\"" out
	tree_list "$(root_of near)" >there
	same_tree far.list there
	limb exec near -- sh -c "echo offline >work"
	limb stop near >/dev/null
	limb fork near again >/dev/null
	test "$(cat "$(root_of again)/work")" = offline
	test "$(inspect_of again .forked_from.environment)" = near
	limb start near >/dev/null
	back far
	verify_equal far
'
test_expect 'a fork outlives the other, its own rebuild, and limbd' '
	limb rm b --force >/dev/null
	limb rm near --force >/dev/null
	tree_list "$(root_of again)" >again.list
	kill_9 "$(pid_of again limbd)"
	limb up -q >/dev/null
	wait_state again live
	test "$(inspect_of again .forked_from.environment)" = near
	limb rebuild again --force >/dev/null
	tree_list "$(root_of again)" >there
	same_tree again.list there
	limb journal verify again
'
test_expect 'a halted one can be forked' '
	limb create h --provider local --root "$T/tree" >/dev/null
	mv tree elsewhere
	wait_state h halted
	limb fork h hh >/dev/null
	forked_as hh
'
test_expect 'what cannot be forked leaves nothing behind' '
	expect_code 125 limb fork a again 2>err
	grep "already" err
	expect_code 125 limb fork nobody x 2>err
	expect_code 2 limb fork a "A B" 2>err
	expect_code 125 limb fork a x --provider ssh:nowhere.invalid 2>err
	expect_code 125 limb inspect x 2>err
	test "$(ls "$T/state/envs" | wc -l)" = "$(limb ls --json | jq ".environments | length")"
'
test_expect 'limbd killed in the middle: there is no fork, and nothing of one stays' '
	mkdir many
	for i in $(seq 30); do
		mkdir "many/$i"
		(cd "many/$i" && seq 100 | split -l 1 - f)
	done
	limb create m --provider local --from many >/dev/null
	tree_list "$(root_of m)" >m.list
	for ms in 1 30 60 100 200 400; do
		limb fork m mm >/dev/null 2>&1 &
		sleep "$(printf "0.%03d" "$ms")"
		kill_9 "$(pid_of m limbd)"
		r=0
		wait $! || r=$?
		limb up -q >/dev/null
		wait_state m live
		# One that was made, and whose answer alone was lost, is whole.
		wait_for "limb ls -q | refute grep -x mm || test \"\$(state_of mm)\" = live"
		if limb ls -q | grep -x mm; then
			tree_list "$(root_of mm)" >there
			same_tree m.list there
			limb rm mm --force >/dev/null
		else
			test $r != 0
		fi
		wait_for "test \$(ls $T/state/envs | wc -l) = \$(limb ls --json | jq \".environments | length\")"
	done
	limb fork m mm >/dev/null
	tree_list "$(root_of mm)" >there
	same_tree m.list there
	verify_equal mm
	verify_equal m
'
test_done
