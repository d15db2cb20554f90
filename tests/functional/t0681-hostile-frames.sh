#!/bin/bash
# Frames, answers and floods of an environment that lies: it is cut off and called hostile with the
# reason, or what it says changes nothing; limbd neither ends nor grows, and all else goes on.
. "${0%/*}/hostile-lib.sh"

lie job-long-id job
lie job-stream-3 stream
lie job-offset offset
lie frame-body-huge 'long\|limit\|large'
lie frame-bulk-huge 'long\|limit\|large'
lie frame-unknown 'frame\|type'
lie frame-flags 'flag\|frame'
lie frame-reserved 'reserved\|frame'
lie frame-of-brain RESTORE
lie frame-garbage CHANGE
lie lz4-claims-huge 'lz4\|bulk\|long'
lie lz4-bomb 'damaged frame'
lie lz4-garbage 'damaged frame'
lie zstd-claims-huge 'zstd\|bulk\|long'
lie zstd-bomb 'damaged frame'
lie zstd-garbage 'damaged frame'
lie tree-bulk-garbage 'entries\|TREE_PART'
lie tree-hashes-odd 'hashes'
lie message-bomb CHANGE
lie pull-many PULL
lie hello-twice HELLO
lie change-before-welcome 'CHANGE'
lie no-start-mark 'start'

harmless answers-unasked
harmless jobs-unknown
harmless frames-maximal
harmless flood-status
harmless flood-errors
harmless flood-pings
harmless pull-foreign

test_expect 'lie answer-nothing: each call ends by its deadline' '
	begin_lie answer-nothing
	wait_state bad live
	expect_code 124 limb sync bad --timeout 1
	says_truth
'
# An answer of another kind than was asked for, to each question.
for ask in 'sync bad' 'ps bad' 'rm bad:d/f' 'label bad here'; do
	test_expect "lie answer-other-kind to limb ${ask%% *}: hostile, \"another kind\"" "
		begin_lie answer-other-kind
		wait_state bad live
		limb $ask --timeout 20 || limb $ask || true
		wait_state bad hostile
		status_of bad .reasons | grep 'another kind'
		says_truth
	"
done
test_expect 'lie barrier-ahead: hostile, "before the changes"' '
	begin_lie barrier-ahead
	wait_state bad live
	refute limb sync bad --timeout 20
	wait_state bad hostile
	status_of bad .reasons | grep "before the changes"
	says_truth
'
test_expect 'lie tree-endless: limb verify ends, and no disk fills' '
	begin_lie tree-endless
	wait_state bad live
	expect_code 125 limb verify bad
	wait_state bad hostile
	status_of bad .reasons | grep "far larger"
	says_truth
'
test_expect 'lie ends-at-once: tried again, with rests' '
	begin_lie ends-at-once
	wait_state bad away
	wait_for "status_of bad .reasons | grep line_down"
	says_truth
'
test_expect 'lie flood-tree-gets: it is cut off, and tried again' '
	begin_lie flood-tree-gets
	says_truth
'
test_expect 'lie flood-tree-hashes: so is this' '
	begin_lie flood-tree-hashes
	says_truth
'
test_expect 'lie hello-of-another and hello-too-new: never live' '
	for name in hello-of-another hello-too-new; do
		begin_lie $name
		wait_for "test \$(state_of bad) != live"
		status_of bad ""
		says_truth
	done
'
all_goes_on
test_done
