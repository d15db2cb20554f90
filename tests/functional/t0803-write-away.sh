#!/bin/bash
# While an environment is away its view can be written: what was written is read there, waits,
# is counted, and arrives in order when the environment is back; what both sides changed is a
# conflict of which both versions are kept, and what the environment refuses is unapplied.
. "${0%/*}/away-lib.sh"
need fuse
brain_up
away_view '{"view": {"write": true}}'

test_expect 'what is written while it is away is read at once, and counted' '
	limb exec box -- sh -c "for i in \$(seq 10); do echo base \$i >f\$i; done; mkdir d; echo in >d/in"
	away box
	for i in 1 2 3; do echo "here $i" >"$V/f$i"; done
	mkdir "$V/new"
	echo deep >"$V/new/file"
	mv "$V/d" "$V/e"
	rm "$V/f10"
	ln -s f1 "$V/link"
	chmod 711 "$V"
	cat "$V/f1" "$V/new/file" "$V/e/in" "$V/link" >out
	printf "here 1\ndeep\nin\nhere 1\n" | cmp out -
	test ! -e "$V/f10"
	wait_for "test \$(status_of box .counts.pending_changes) -ge 8"
	test "$(cat "$R/f1")" = "base 1"
	test "$(getfattr --only-values -n user.limb.state "$V/f1")" = away
'
test_expect 'it survives limbd and limb-fs' '
	kill -9 "$(pid_of box limbd)" "$(pid_of box fs)"
	limb up -q >/dev/null
	wait_for "mountpoint -q $V && test -e $V/new/file"
	printf "here 1\ndeep\nin\nhere 1\n" >want
	cat "$V/f1" "$V/new/file" "$V/e/in" "$V/link" | cmp - want
	test ! -e "$V/f10"
	test "$(stat -c %a "$V")" = 711
	echo later >"$V/f4"
'
test_expect 'what both sides changed is kept twice' '
	echo theirs >"$R/f1"
	echo more >>"$R/f9"
	back box
	limb sync box >/dev/null
	wait_for "test \"\$(cat $V/f1)\" = theirs"
	test "$(cat "$R/f1")" = theirs
	limb conflicts box --json >out
	jq -e ".conflicts | length == 1 and .[0].path == \"f1\" and (.[0].versions | length) == 2" out
	test "$(getfattr --only-values -n user.limb.conflict "$V/f1")" = "$(jq -r ".conflicts[0].conflict_id" out)"
	expect_code 1 getfattr -n user.limb.conflict "$V/f2"
'
test_expect 'the rest has arrived' '
	test "$(cat "$R/f2" "$R/f3" "$R/f4" "$R/new/file" "$R/e/in")" = "here 2
here 3
later
deep
in"
	test ! -e "$R/f10"
	test ! -e "$R/d"
	test "$(readlink "$R/link")" = f1
	test "$(stat -c %a "$R")" = 711
	test "$(cat "$V/f9")" = "base 9
more"
	verify_equal box
	tree_list "$R" >there
	tree_list "$V" >here
	same_tree here there
'
test_expect 'of a mode and of a name, too, either version can be taken' '
	away box
	chmod 600 "$V/f2"
	chmod 640 "$R/f2"
	ln "$V/f3" "$V/name"
	echo taken >"$R/name"
	back box
	limb sync box >/dev/null
	limb conflicts box --json >out
	jq -e "[.conflicts[].path] | sort == [\"f1\", \"f2\", \"f3\"]" out
	test "$(stat -c %a "$R/f2")" = 640
	limb resolve box f2 --take brain
	limb resolve box f3 --take brain
	limb resolve box f1 --take brain
	test "$(stat -c %a "$R/f2" "$V/f2")" = "600
600"
	test "$R/name" -ef "$R/f3"
	test "$(cat "$R/f1")" = "here 1"
	test "$(status_of box .counts.conflicts)" = 0
	verify_equal box
'
if have immutable; then
	test_expect 'what the environment refuses is unapplied, and holds up nothing else' '
		echo fixed >"$R/fixed"
		limb sync box >/dev/null
		chattr +i "$R/fixed"
		echo other >"$V/fixed"
		echo after >"$V/after"
		wait_for "test -e $R/after"
		wait_for "test \$(status_of box .counts.unapplied) -ge 1"
		expect_code 125 limb exec box -- true
		limb exec box --despite-unapplied -- test -e after
		wait_for "test \"\$(cat $V/fixed)\" = fixed"
		chattr -i "$R/fixed"
		limb retry box fixed
		test "$(cat "$R/fixed")" = other
		wait_for "test \"\$(cat $V/fixed)\" = other"
	'
else
	test_skip 'what the environment refuses is unapplied, and holds up nothing else' 'no file can be made immutable here'
fi
test_done
