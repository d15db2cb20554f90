#!/bin/bash
# An agent writes and edits files of an environment that is away as if it were there: each
# edit is made from what the one before it left, and all of it is there when the line is back.
away_on=mcp-lib.sh
. "${0%/*}/away-lib.sh"
brain_up
away_create box || test_result 'not ok' create
root=$(away_root box)
export root

test_expect 'written, edited, edited again: queued, and then there' '
	limb exec box -- sh -c "printf \"one two\" >f; ln -s f link"
	away box
	mcp_open --environment box
	hello
	tool 1 write_file "{\"path\":\"new/deep/file\",\"content\":\"made\"}"
	jq -e ".result.structuredContent | .pending and .created and .size_bytes == 4" answer
	tool 2 edit_file "{\"path\":\"new/deep/file\",\"edits\":[{\"old_text\":\"made\",\"new_text\":\"made better\"}]}"
	jq -e ".result.structuredContent | .pending and .replacements == 1 and .size_bytes == 11" answer
	tool 3 edit_file "{\"path\":\"link\",\"edits\":[{\"old_text\":\"one\",\"new_text\":\"1\"}]}"
	jq -e ".result.structuredContent | .pending and .path == \"f\"" answer
	tool 4 edit_file "{\"path\":\"f\",\"edits\":[{\"old_text\":\"1 two\",\"new_text\":\"1 2\"}]}"
	jq -e ".result.structuredContent | .pending and .size_bytes == 3" answer
	tool 5 edit_file "{\"path\":\"f\",\"edits\":[{\"old_text\":\"one\",\"new_text\":\"x\"}]}"
	jq -e ".result.isError" answer
	tool 6 write_file "{\"path\":\"f/below\",\"content\":\"x\"}"
	jq -e ".result.isError" answer
	back box
	drained box
	limb sync box
	test "$(cat "$root/new/deep/file")" = "made better"
	test "$(cat "$root/f")" = "1 2"
	test "$(readlink "$root/link")" = f
	tool 7 edit_file "{\"path\":\"f\",\"edits\":[{\"old_text\":\"1 2\",\"new_text\":\"3\"}]}"
	jq -e ".result.structuredContent | (.pending | not) and .size_bytes == 1" answer
	test "$(cat "$root/f")" = 3
	mcp_close
	test "$(status_of box .counts.conflicts)" = 0
	verify_equal box
'
test_expect 'an edit of what the environment changed meanwhile is a conflict' '
	away box
	mcp_open --environment box
	hello
	tool 1 edit_file "{\"path\":\"f\",\"edits\":[{\"old_text\":\"3\",\"new_text\":\"4\"}]}"
	mcp_close
	printf 5 >"$root/f"
	back box
	drained box
	test "$(cat "$root/f")" = 5
	test "$(conflicts_of box ".conflicts[0].path")" = f
	limb resolve box f --take brain
	test "$(cat "$root/f")" = 4
'
test_done
