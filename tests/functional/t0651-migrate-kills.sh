#!/bin/bash
# Whatever is killed at whatever step of a move: the environment lives at one side or at the
# other, never at both, never at none; what was durable is there, and the move can go on.
. "${0%/*}/brain-lib.sh"

mkdir tree
(
	cd tree || exit
	for i in $(seq 10); do
		mkdir "d$i"
		seq "$i" 400 | split -l 20 - "d$i/f"
	done
	head -c 2000000 /dev/urandom >random
	ln d1/faa d2/link
)

# syncds ENVIRONMENT-ID: limb-syncd daemons that serve it now
syncds() {
	pids_with "$(inspect_of m .id | tr -d -)" 'daemon --dir'
}
# one_side: the journal's newest incarnation is the one that runs, and no other does
one_side() {
	wait_state m live
	verify_equal m
	test "$(limb cp m:durable -)" = durable
	test "$(limb exec m -- cat durable)" = durable
	wait_for "test \"\$(syncds | wc -l)\" = 1"
	limb journal verify m >/dev/null
}

# Each step begins anew, whatever became of the one before.
fresh() {
	limb down --stop >/dev/null 2>&1 || true
	rm -rf lap state
}
at_exit 'limb down --stop >/dev/null'
have faults || test_skip 'steps of a move' 'no fault points in this build'
steps='begin copy copied freeze final lease handed switched verified cleaned'
have faults || steps=
for step in $steps; do
	export step
	test_expect "B63 limbd killed at $step: one side or the other, and then the move goes on" '
		fresh
		export LIMB_FAULT=migrate.$step:1:kill
		limb up >/dev/null
		unset LIMB_FAULT
		cp -a tree lap
		limb create m --provider local --root "$T/lap"
		limb exec m -- sh -c "echo durable >durable"
		limb exec m -- sh -c "while test ! -e stop; do sleep 0.1; done" >/dev/null 2>&1 &
		job=$!
		wait_for "test \"\$(status_of m .counts.jobs_running)\" = 1"
		r=0
		limb migrate m --to local --jobs stop >out 2>&1 || r=$?
		cat out
		test $r != 0
		limb up >/dev/null
		wait "$job" || true
		one_side
		inspect_of m "[.incarnation, .provider, .host_root]"
		case $step in
		begin|copy|copied|freeze|final|lease)
			test "$(root_of m)" = "$T/lap"
			limb migrate m --resume --jobs stop --json >moved.json
			jq -e .equal moved.json
			;;
		esac
		test "$(root_of m)" != "$T/lap"
		one_side
		# the old place is done with by itself
		wait_for "jq -e \"[.left[]? | select(.done | not)] == []\" state/envs/*/env.json"
		limb migrate m --to local --json >moved.json
		jq -e .equal moved.json
		test "$(root_of m)" = "$T/lap"
		one_side
		test "$(limb ls --json | jq ".environments | length")" = 1
		limb rm m
		limb down --stop
		rm -rf lap
	'
done

test_expect 'limb-syncd of the new place killed while it is made: nothing has changed' '
	have faults || exit 0
	fresh
	export LIMB_FAULT=restore.write:20:kill
	limb up >/dev/null
	unset LIMB_FAULT
	cp -a tree lap
	limb create m --provider local --root "$T/lap"
	limb exec m -- sh -c "echo durable >durable"
	r=0
	limb migrate m --to local 2>err || r=$?
	cat err
	test $r = 125
	grep "it is where it was" err
	one_side
	test "$(inspect_of m .incarnation)" = 1
	wait_for "test \"\$(find state/envs/*/ -maxdepth 1 -name \"root*\" -o -maxdepth 1 -name \"gone*\" | wc -l)\" = 0"
	limb rm m
'

for who in old new; do
	export who
	test_expect "limb-syncd of the $who place killed while jobs are waited for: it stays, and goes on" '
		fresh
		limb up >/dev/null
		cp -a tree lap
		limb create m --provider local --root "$T/lap"
		limb exec m -- sh -c "echo durable >durable"
		limb exec m -- sh -c "while test ! -e stop; do sleep 0.1; done" >/dev/null 2>&1 &
		job=$!
		wait_for "test \"\$(status_of m .counts.jobs_running)\" = 1"
		old=$(syncds)
		limb migrate m --to local >out 2>&1 &
		move=$!
		wait_for "test \"\$(syncds | wc -l)\" = 2"
		wait_for "test -e \"\$(echo state/envs/*/root.2/durable)\""
		# no job begins while they are waited for
		wait_for "! limb exec m -- true 2>exec.err"
		cat exec.err
		if [ $who = old ]; then
			kill_9 "$old"
		else
			kill_9 $(syncds | grep -vx "$old")
		fi
		r=0
		wait "$move" || r=$?
		cat out
		test $r = 125
		touch lap/stop
		wait "$job" || true
		one_side
		test "$(root_of m)" = "$T/lap"
		limb migrate m --to local --json | jq -e .equal
		one_side
		limb rm m
	'
done

test_done
