# shellcheck shell=bash
# mcp-lib.sh - brain-lib.sh, and sessions of limb mcp, spoken by hand:
#
#	mcp_open; hello
#	tool 1 exec '{"command":"echo hi"}'	asks, and waits: the answer is in the file answer
#	say '{"jsonrpc":"2.0",...}'		asks only; mcp_answer 1 waits for it
#	mcp_close
#
# Answers are lines of the file mcp.out; what limb mcp itself says is in mcp.log. A
# session lasts at most as long as the test that opened it.
. "${0%/*}/brain-lib.sh"

# The program itself, without a time limit of its own: its pid is that of the session.
mcp_limb=$(PATH=${PATH#"$T/bin:"} && command -v limb)

mcp_open() {
	rm -f mcp.in mcp.out
	mkfifo mcp.in
	"$mcp_limb" mcp "$@" <mcp.in >mcp.out 2>>"$T/mcp.log" &
	mcp_pid=$!
	exec 7>mcp.in
}
# Its end of file, and its end.
mcp_close() {
	exec 7>&-
	wait_for "test_gone $mcp_pid"
	wait "$mcp_pid"
}
say() {
	printf '%s\n' "$1" >&7
}
# mcp_lines: the complete ones so far.
mcp_lines() {
	head -n "$(wc -l <mcp.out)" mcp.out
}
# mcp_said FILTER: a line for which that is true
mcp_said() {
	test "$(mcp_lines | jq -s "any(.[]; $1)")" = true
}
# mcp_has ID: a JSON value
mcp_has() {
	mcp_lines | jq -c "select(has(\"id\") and .id == $1)" >answer
	test -s answer
}
mcp_answer() {
	local -
	set +x
	wait_for "mcp_has '$1'" || {
		tail -c 2000 mcp.out
		return 1
	}
	cut -c1-2000 answer
}
# request ID METHOD PARAMS
request() {
	say "{\"jsonrpc\":\"2.0\",\"id\":$1,\"method\":\"$2\",\"params\":$3}"
	mcp_answer "$1"
}
hello() {
	request 0 initialize '{"protocolVersion":"'"${1:-2025-11-25}"'","capabilities":{},"clientInfo":{"name":"test","version":"1"}}'
	say '{"jsonrpc":"2.0","method":"notifications/initialized"}'
}
# call ID TOOL ARGUMENTS: asks only
call() {
	say "{\"jsonrpc\":\"2.0\",\"id\":$1,\"method\":\"tools/call\",\"params\":{\"name\":\"$2\",\"arguments\":$3}}"
}
tool() {
	call "$@"
	mcp_answer "$1"
}
# It is a result, and not a failure; or a failure, with this code.
works() {
	local -
	set +x
	jq -e '.result.isError == false and has("error") == false' answer >/dev/null
}
fails() {
	local -
	set +x
	jq -e ".result.isError and .result._meta[\"limbfs/error\"].error == \"$1\"" answer >/dev/null
}
# structured FILTER, text_of_answer
structured() {
	jq -e ".result.structuredContent | $1" answer
}
text_of_answer() {
	jq -r '.result.content[0].text' answer
}
