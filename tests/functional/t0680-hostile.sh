#!/bin/bash
# An environment whose end of the wire lies: it is cut off and called hostile with the
# reason, or what it says changes nothing; limbd neither ends nor grows, and all else goes on.
. "${0%/*}/hostile-lib.sh"

lie name-slash name
lie name-dotdot name
lie name-dot name
lie name-empty name
lie name-nul name
lie name-long name
lie beneath-link 'directory'
lie beneath-file 'directory'
lie beneath-nothing 'no such parent'
lie link-then-beneath 'type\|directory'
lie directory-two-names 'director'
lie cycle 'beneath\|cycle\|itself'
lie root-named 'root'
lie root-becomes-file 'root\|type'
lie removal-without-evidence evidence
lie node-not-granted granted
lie node-again 'used before'
lie node-zero node
lie too-many-ops operations
lie no-ops operations
lie bad-mode mode
lie bad-type type
lie target-nul NUL
lie target-long target
lie xattrs-unsorted 'attributes'
lie xattrs-large 'attributes'
lie size-more 'bulk\|size\|bytes\|content'
lie size-less 'bulk\|size\|bytes\|content'
lie size-huge 'bulk\|size\|bytes\|content'
lie wrong-hash 'content\|SHA-256'
lie foreign-list 'content\|depth'
lie stream-unknown stream
lie stream-gap 'offset\|gap'
lie streams-many streams
lie stream-holes 'hole'
lie streams-left stream
lie number-gap number
lie number-zero number

test_expect 'lie name-twice: a directory has each name once' '
	begin_lie name-twice
	wait_for "limb ls bad:d --json | grep twice >/dev/null"
	test "$(limb ls bad:d --json | jq "[.entries[] | select(.path | endswith(\"twice\"))] | length")" = 1
	limb ls bad:d --json | jq -c "[.entries[].path]" >entries
	says_truth
'
all_goes_on
test_done
