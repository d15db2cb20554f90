#!/bin/bash
# restore brings a living environment's files back as they were at a point: all that the
# journal knows and nothing else, after a label, and what anybody wrote meanwhile is kept.
. "${0%/*}/brain-lib.sh"

brain_up
mkdir tree tree/d tree/d/sub tree/e
echo one >tree/a
echo two >tree/d/two
echo three >tree/d/sub/three
head -c 3000000 /dev/urandom >tree/e/big
: >tree/empty
ln -s a tree/link
ln tree/a tree/d/a2
mkfifo tree/fifo
truncate -s 5M tree/sparse
echo end >>tree/sparse
printf x >"tree/e/$(printf 'odd\n\377name')"
chmod 4750 tree/d/two
touch -d '2001-02-03 04:05:06.789 UTC' tree/a tree/d/sub
have_xattrs=
! setfattr -n user.k -v v tree/d/two 2>/dev/null || have_xattrs=yes
export have_xattrs
limb create box --provider local --root "$T/tree" >/dev/null || test_result 'not ok' create

# restore ARGS...: of box, the answer in ./out
restore() {
	local -
	set +x
	limb restore box "$@" --json >out || {
		cat out
		return 1
	}
}
actions() {
	jq -c '[.changes[] | [.action, .path]] | sort' out
}

test_expect 'a directory that was removed comes back with all that is kept of it' '
	limb label box start --json
	tree_list tree >list.start
	rm -r tree/d
	rm "tree/link" tree/fifo tree/sparse
	restore --at start
	jq -e ".environment == \"box\" and .to_seq > 1 and (.dry_run | not) and .seq > .to_seq" out
	jq -r .label out >label
	limb points box --json | jq -e ".points[] | select(.label == \"$(cat label)\" and .kind == \"before_restore\")"
	tree_list tree >list
	same_tree list.start list
	verify_equal box
	test "$(limb restore box --at start --json | jq -c "[.changes, .label]")" = "[[],null]"
'

test_expect 'what it changes is in the journal as of origin restore, and a write beside it is not' '
	limb journal dump box --json >dump
	jq -se "[.[] | select(.origin == \"restore\" and .type == \"change\") | .ops[] | select(.op == \"link\") | .name] | index(\"three\")" dump
	echo mine >tree/mine
	echo brain | limb cp - box:from-brain
	rm tree/d/two
	restore --at start d
	limb journal dump box --json >dump
	for want in "environment mine" "brain from-brain" "restore two"; do
		jq -sr ".[] | select(.type == \"change\") | .origin as \$o | .ops[] | select(.op == \"link\") | \$o + \" \" + .name" dump | grep -Fx "$want"
	done
	test ! -e tree/restored
	cat tree/mine tree/from-brain
	limb rm box:from-brain
	rm tree/mine
'

test_expect 'what was renamed is moved back and not made again' '
	limb label box again
	inode=$(stat -c %i tree/e/big)
	mv tree/e tree/e2
	mv tree/a tree/d/moved
	mv tree/d tree/z
	mv tree/empty tree/e3
	mv tree/link tree/l2
	limb sync box
	restore --at again
	test "$(stat -c %i tree/e/big)" = "$inode"
	jq -c ".changes[]" out
	jq -e "[[\"d\", \"z\"], [\"e\", \"e2\"], [\"empty\", \"e3\"]] - [.changes[] | [.path, .from_path]] == []" out
	test "$(jq "[.changes[] | select(.action == \"create\" or .action == \"remove\")] | length" out)" = 0
	tree_list tree >list
	same_tree list.start list
	verify_equal box
	find tree -name ".limb-*" >litter
	test ! -s litter
'

test_expect 'B62 two that changed places change them again; a file where a directory was, and the other way round' '
	mv tree/d/two t
	mv tree/a tree/d/two
	mv t tree/a
	rm -r tree/e
	echo file >tree/e
	rm tree/empty
	mkdir -p tree/empty/x/y
	echo y >tree/empty/x/y/f
	restore --at start
	tree_list tree >list
	same_tree list.start list
	verify_equal box
'

test_expect 'only modes, owners, times and extended attributes: nothing is written again' '
	inode=$(stat -c %i tree/d/two)
	chmod 600 tree/d/two
	chmod 700 tree/d
	touch tree/a
	touch -h tree/link
	if [ "$have_xattrs" ]; then
		setfattr -n user.k -v other tree/d/two
		setfattr -n user.more -v x tree/a
	fi
	restore --at start
	test "$(jq -r "[.changes[].action] | unique | join(\",\")" out)" = metadata
	test "$(stat -c %i tree/d/two)" = "$inode"
	tree_list tree >list
	same_tree list.start list
	verify_equal box
'

test_expect 'one path: what is beneath it and nothing else' '
	echo changed >tree/empty
	echo changed >tree/e/big
	rm -r tree/d/sub
	echo new >tree/d/new
	echo stays >tree/other
	restore d --at start
	test "$(actions)" = "[[\"create\",\"d/sub\"],[\"create\",\"d/sub/three\"],[\"remove\",\"d/new\"]]"
	test "$(cat tree/d/sub/three tree/empty tree/e/big tree/other)" = "$(printf "three\nchanged\nchanged\nstays")"
	rm -r tree/d
	restore --at start d/sub/three
	test "$(cd tree && find d -type f)" = d/sub/three
	restore e/big empty d a --at start
	rm tree/other
	restore --at start
	test "$(actions)" = "[[\"metadata\",\"e\"]]"
	tree_list tree >list
	same_tree list.start list
	expect_code 125 limb restore box --at start no/such/path 2>err
	grep -F "no/such/path" err
	expect_code 125 limb restore box --at start ../out
	expect_code 125 limb restore box --at nowhere
	expect_code 2 limb restore box
'

test_expect 'a dry run says the same and changes nothing, not even the journal' '
	rm tree/d/two
	mv tree/e tree/f
	echo new >tree/new
	chmod 600 tree/a
	limb sync box
	tree_list tree >list.before
	seq=$(inspect_of box .seq)
	restore --at start --dry-run
	jq -e ".dry_run and (has(\"label\") | not)" out
	actions >dry
	test "$(inspect_of box .seq)" = "$seq"
	tree_list tree >list
	same_tree list.before list
	limb restore box --at start --dry-run | grep -E "^remove +new"
	restore --at start
	actions >real
	cmp dry real
	grep -F "[\"metadata\",\"a\"]" real
	tree_list tree >list
	same_tree list.start list
'

test_expect 'B62 a restore is undone by a restore to its label' '
	rm -r tree/d
	echo rewritten >tree/a
	mkdir tree/n
	mv tree/e tree/n/e
	limb sync box
	tree_list tree >list.before
	restore --at start
	label=$(jq -r .label out)
	tree_list tree >list
	same_tree list.start list
	restore --at "$label"
	tree_list tree >list
	same_tree list.before list
	verify_equal box
	restore --at start
	tree_list tree >list
	same_tree list.start list
'

test_expect 'before and after a job are points to go back to' '
	limb exec box --json -- sh -c "rm -r d; echo job >a; echo made >made" >job.out
	job=$(jq -r .job_id job.out)
	tree_list tree >list.after
	restore --at "before:$job"
	tree_list tree >list
	same_tree list.start list
	restore --at "after:$job"
	tree_list tree >list
	same_tree list.after list
	restore --at start
'

test_expect 'what is written meanwhile is kept: in the tree or in the journal' '
	mkdir tree/many
	for i in $(seq 300); do
		echo "old $i" >"tree/many/$i"
	done
	limb label box many
	for i in $(seq 300); do
		echo "new $i" >"tree/many/$i"
	done
	limb sync box
	touch go
	(
		n=0
		while [ -e go ]; do
			n=$((n + 1))
			echo "$n" >"tree/many/$((n % 300 + 1))"
			echo "$n" >>written
		done
	) &
	writer=$!
	wait_for "test -s written"
	LIMB_TIME_S=120 limb restore box --at many --json >out || true
	rm go
	wait $writer
	limb sync box
	verify_equal box
	# Each version that anybody wrote before the restore can be had by the label.
	label=$(jq -r .label out)
	restore --at "$label" many
	limb label box all
	restore --at many
	test "$(cat tree/many/7)" = "old 7"
	rm -r tree/many
	restore --at start
	tree_list tree >list
	same_tree list.start list
'

test_expect 'limbd is killed in the middle: the label stands, and a second call does the rest' '
	mkdir tree/many
	for i in $(seq 2000); do
		echo "$i" >"tree/many/$i"
	done
	limb label box full
	tree_list tree >list.full
	rm -r tree/many tree/d
	limb sync box
	limb restore box --at full --json >out 2>&1 &
	restore=$!
	wait_for "test -e tree/many/100"
	kill_9 "$(pid_of box limbd)"
	wait $restore || true
	limb up -q >/dev/null
	wait_state box live
	limb points box --json >points
	jq -e "[.points[] | select(.kind == \"before_restore\")] | length > 0" points
	restore --at full
	tree_list tree >list
	same_tree list.full list
	verify_equal box
	find tree -name ".limb-*" >litter
	test ! -s litter
'

test_expect 'what is not the journal'\''s is never removed: its directory stays, and it is said' '
	mkdir tree/fresh
	limb sync box
	mkdir -p tree/fresh/x
	expect_code 0 limb sync box
	restore --at full
	test ! -e tree/fresh
	expect_code 0 limb verify box
'

test_expect 'an environment that is not live says so at once' '
	limb stop box
	expect_code 125 limb restore box --at start --json >err
	jq -e ".error == \"not_running\"" err
	limb start box
	wait_state box live
'

test_done
