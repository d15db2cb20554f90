#!/bin/bash
# A point is found by its number, label, time or job, and a rebuild at it brings back
# exactly the tree of that moment, with nothing later lost from the journal.
. "${0%/*}/brain-lib.sh"

brain_up
mkdir tree tree/d
echo one >tree/a
echo keep >tree/d/k
ln -s a tree/link
limb create box --provider local --root "$T/tree" >/dev/null || test_result 'not ok' create
provider_keeps=$(root_of box)
export provider_keeps

# points NAME FILTER
points() {
	limb points "$1" --json | jq -r "$2"
}

test_expect 'a label covers what was written before it' '
	echo two >tree/b
	limb label box start --json >out
	jq -e ".points | length == 1 and .[0].label == \"start\" and .[0].kind == \"label\" and .[0].seq > 1" out
	seq=$(jq .points[0].seq out)
	test "$(points box ".points[] | select(.label == \"start\") | .seq")" = "$seq"
	tree_list tree >list.start
	date -u +%Y-%m-%dT%H:%M:%S.%NZ >time.start
'

test_expect 'each job has two points, the newest first, and HEAD~N counts them' '
	limb exec box --json -- sh -c "echo three >c; rm b; echo changed >a; mv d e" >out
	jq -r .job_id out >job
	tree_list tree >list.job
	limb exec box -- sh -c "rm -r e; mkdir a2 && mv a a2/"
	test "$(limb ls box@start: --json | jq -c "[.entries[].name]")" = "[\"a\",\"b\",\"d\",\"link\"]"
	test "$(limb ls "box@after:$(cat job):" --json | jq -c "[.entries[].name]")" = "[\"a\",\"c\",\"e\",\"link\"]"
	test "$(limb ls "box@HEAD:a2" --json | jq -c "[.entries[].name]")" = "[\"a\"]"
	points box ".points[].kind" | sed -n 1,5p | tr "\n" " " >kinds
	test "$(cat kinds)" = "after_job before_job after_job before_job label "
	points box "[.points[].seq] | . == (sort | reverse)" | grep -x true
	test "$(points box "[.points[] | select(.job_id == \"$(cat job)\") | .kind] | join(\",\")")" = after_job,before_job
	test "$(limb points box -n 2 --json | jq -c "[(.points | length), .truncated, .total >= 5]")" = "[2,true,true]"
	limb points box | grep "start"
'

test_expect 'a point that is none, or that the journal does not have, is refused and nothing happens' '
	for at in no-such-label 99999999 HEAD~500 before:j-nobody 1999-01-01T00:00:00Z consistentx; do
		r=0
		limb label box x --at "$at" --json >out || r=$?
		test "$r" = 125
		jq -e ".error == \"point_not_found\" and (.next_steps | length) > 0" out
		r=0
		limb rebuild box --force --at "$at" 2>err || r=$?
		test "$r" = 125
		grep -F "$at" err
	done
	for at in "" "a b" ~1 2026-99-01T00:00:00Z; do
		expect_code 2 limb label box x --at "$at"
	done
	for label in HEAD now consistent 1a "a b" "$(printf %064d 0 | tr 0 a)"; do
		expect_code 2 limb label box "$label"
	done
	expect_code 125 limb label nobody x
	test "$(state_of box)" = live
'

test_expect 'rebuild --at LABEL is the tree of the label; the job that came after it is undone, and can be redone' '
	tree_list tree >list.end
	end=$(inspect_of box .seq)
	expect_code 125 limb rebuild box --at start
	limb rebuild box --force --at start --json >out
	jq -e ".equal and (.differences | length) == 0" out
	tree_list tree >list
	same_tree list.start list
	verify_equal box
	points box ".points[].kind" | grep -x before_restore
	limb rebuild box --force --at "after:$(cat job)"
	tree_list tree >list
	same_tree list.job list
	verify_equal box
	limb rebuild box --force --at "$end"
	tree_list tree >list
	same_tree list.end list
	verify_equal box
'

test_expect 'a time and before:JOB lead to the same tree as the label; what is changed there is kept' '
	limb rebuild box --force --at "before:$(cat job)"
	tree_list tree >list
	same_tree list.start list
	limb exec box -- sh -c "echo new >new"
	test "$(limb cp box:new -)" = new
	limb rebuild box --force --at "$(cat time.start)"
	tree_list tree >list
	same_tree list.start list
	verify_equal box
	limb rebuild box --force --at HEAD
	tree_list tree >list
	same_tree list.start list
	# nothing was going on when a label was made
	limb sync box
	limb label box quiet --json >out
	limb exec box -- touch later
	if jq -e ".points[0].consistent" out; then
		limb rebuild box --force --at consistent
		test ! -e tree/later
	fi
	verify_equal box
'

test_expect 'a lost environment comes back at a point, too, after a restart of limbd' '
	limb label box last
	tree_list tree >list.last
	limb exec box -- touch after-last
	limb down -q
	limb up -q >/dev/null
	wait_state box live
	limb rebuild box --force --at last
	tree_list tree >list
	same_tree list.last list
	verify_equal box
'

test_expect 'a deletion of very much: what was before it has a label by itself' '
	mkdir tree/many
	(cd tree/many; seq 2000 | xargs touch)
	limb sync box
	tree_list tree >list.many
	points box "[.points[] | select(.kind == \"mass_delete\") | .seq] | max // 0" >before
	limb exec box -- rm -r many
	limb sync box
	points box ".points[] | select(.kind == \"mass_delete\" and .seq > $(cat before)) | .label" >label
	test "$(wc -l <label)" = 1
	limb rebuild box --force --at "$(cat label)"
	tree_list tree >list
	# (the directory itself may have been looked at while it was being emptied)
	sed -i "/^many d /d" list.many list
	same_tree list.many list
	verify_equal box
	# few files are few: no label for each
	points box "[.points[] | select(.kind == \"mass_delete\")] | length" >before
	limb exec box -- sh -c "rm many/1 many/2; rm -rf a2"
	points box "[.points[] | select(.kind == \"mass_delete\")] | length" >after
	cmp before after
'

test_done
