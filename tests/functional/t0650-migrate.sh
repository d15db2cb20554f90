#!/bin/bash
# An environment moves to another place and back: all that it had is there, only what is
# missing travels, the place that it left is gone or cannot be taken for it, and what was
# done there later is a fork.
. "${0%/*}/brain-lib.sh"

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
tree_list tree >tree.list

# moved NAME JQ: of the answer in moved.json
moved() {
	jq -r "$1" moved.json
}
# wrote: bytes that are written over and over, so that they are dirty at any moment

for to in $providers; do
	export to
	test_expect "local --root, to $to, and back: equal; an older copy is used, and never deleted" '
		cp -a tree lap
		limb create m --provider local --root "$T/lap"
		echo uncommitted >lap/d1/new
		limb migrate m --to $to --json >moved.json
		cat moved.json
		jq -e ".equal and .from.provider == \"local\" and .from.incarnation == 1 and .to.incarnation == 2" moved.json
		jq -e "(.frozen_ms | type) == \"number\" and .bytes_sent > 3000000 and .jobs == []" moved.json
		test "$(inspect_of m .provider)" = $to
		test "$(inspect_of m .incarnation)" = 2
		test "$(root_of m)" != "$T/lap"
		tree_list "$(root_of m)" >there
		tree_list lap >lap.list
		same_tree lap.list there
		# the old root is there, and is not its root any more
		test -e lap/random
		r=0
		limb migrate m --to local:"$T/tree" 2>err || r=$?
		test $r = 125
		grep "not empty" err
		verify_equal m
		limb exec m -- sh -c "echo more >>d9/faa; rm d10/faa; mv d11 d12/moved"
		limb migrate m --to local --json >moved.json
		jq -e ".equal and .to.incarnation == 3 and .bytes_sent < 500000" moved.json
		test "$(root_of m)" = "$T/lap"
		test "$(tail -n 1 lap/d9/faa)" = more
		test ! -e lap/d10/faa
		test -e lap/d12/moved/faa
		test "$(cat lap/d1/new)" = uncommitted
		test "$(stat -c %y lap/d4/faa)" = "2001-02-03 04:05:06.123456789 +0000"
		test "$(stat -c %a:%u lap/d5/faa)" = 4751:$(id -u)
		[ "$(id -u)" != 0 ] || test "$(stat -c %u:%g lap/d7/faa)" = 4242:4243
		test lap/d1/faa -ef lap/d2/link
		verify_equal m
		# nothing of the other place is left
		wait_for "test \"\$(find state/envs/*/ -maxdepth 1 -name \"root*\" | wc -l)\" = 0"
		test "$(find state/envs/*/ -maxdepth 1 -name "hands*" | wc -l)" = 1
		limb journal verify m
		limb journal dump m --json >dump
		test "$(jq -s "[.[] | select((.type | ascii_downcase) == \"lease\")] | length" dump)" = 2
		limb rm m
		test -e lap/random
		rm -rf lap
	'
done

test_expect 'a root of limbfs itself: only the new one stays; past versions are still there' '
	limb create m --provider local --from tree
	limb label m before
	limb exec m -- sh -c "echo new >empty"
	first=$(root_of m)
	limb migrate m --to local
	second=$(root_of m)
	test "$first" != "$second"
	wait_for "test ! -e \"$first\""
	limb migrate m --to local
	wait_for "test ! -e \"$second\""
	verify_equal m
	test "$(limb cp m:empty -)" = new
	limb down
	limb up
	wait_state m live
	verify_equal m
	test "$(limb exec m -- cat empty)" = new
	limb rm m
'

test_expect 'targets that cannot be: one sentence, nothing changed' '
	limb create m --provider local --from tree
	limb create other --provider local --root "$T/tree"
	mkdir full
	echo x >full/x
	fails() {
		local r=0
		limb migrate m "$@" 2>err || r=$?
		cat err
		test "$(wc -l <err)" = 1
		test $r = $code
		wait_state m live
	}
	code=125
	fails --to local:"$T/tree"
	grep other err
	limb rm other
	fails --to local:"$T/full"
	grep "not empty" err
	fails --to local:relative
	fails --to local:"$T/no/such"
	fails --to local:/
	fails --to nosuch
	fails --to "$T/full/x"
	fails --resume
	grep interrupted err
	code=2
	fails --to local --jobs maybe
	fails
	test "$(cat full/x)" = x
	test "$(inspect_of m .incarnation)" = 1
	verify_equal m
	test "$(find state/envs/*/ -maxdepth 1 -name "hands*" | wc -l)" = 1
	limb rm m
'

test_expect 'B63 what was done in the old root later is the fork NAME~1, and overwrites nothing' '
	cp -a tree lap
	limb create m --provider local --root "$T/lap"
	limb migrate m --to local
	echo late >lap/late
	echo changed >lap/empty
	rm lap/d13/faa
	limb exec m -- sh -c "echo current >empty"
	limb migrate m --to local --json >moved.json
	test "$(root_of m)" = "$T/lap"
	test "$(cat lap/empty)" = current
	test ! -e lap/late
	test -e lap/d13/faa
	verify_equal m
	limb ls --json >ls.json
	jq -e "[.environments[].environment] == [\"m\", \"m~1\"]" ls.json
	jq -e ".environments[1].state == \"stopped\"" ls.json
	test "$(limb cp m~1:late -)" = late
	test "$(limb cp m~1:empty -)" = changed
	test "$(limb cp m~1:d1/faa - | sha256sum)" = "$(sha256sum <tree/d1/faa)"
	limb ls m~1:d13 --json >ls.json
	jq -e "[.entries[].name] | index(\"faa\") == null" ls.json
	limb journal verify m~1
	limb rebuild m~1 --json >rebuilt.json
	jq -e .equal rebuilt.json
	test "$(limb exec m~1 -- cat late)" = late
	limb rm m~1
	limb rm m
	rm -rf lap
'

test_expect 'what changes until the last moment is there; a job begins anew where it is told to' '
	limb create m --provider local --from tree
	limb exec -d m -- sh -c "i=0; while :; do i=\$((i + 1)); echo \$i >count.new; mv count.new count; echo x >>grows; sleep 0.01; done"
	wait_for "test -e \"$(root_of m)/grows\""
	limb migrate m --to local --jobs restart --json >moved.json
	jq -e ".equal and .jobs[0].action == \"restarted\"" moved.json
	limb jobs m --json >jobs.json
	jq -e "[.jobs[].job_id] == [\"$(moved .jobs[0].restarted_as)\"]" jobs.json
	wait_for "test \"\$(cat \"$(root_of m)/count\")\" -gt 1"
	limb signal "$(moved .jobs[0].restarted_as)" KILL
	wait_for "test \"\$(status_of m .counts.jobs_running)\" = 0"
	verify_equal m
	limb journal verify m
	limb rm m
'

test_done
