#!/bin/bash
# limb mcp speaks the protocol of both eras, whatever bytes come, in whatever pieces; a
# call that is wrong is told how it is right, and the session goes on.
. "${0%/*}/mcp-lib.sh"

# shellcheck disable=SC2089
modern='"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}'
# shellcheck disable=SC2090
export modern

test_expect 'it starts without limbd and leaves nothing behind; a call then says how to start limbd' '
	mcp_open
	hello
	request 1 tools/list "{}"
	jq -e ".result.tools | length >= 14" answer
	test ! -e "$LIMB_STATE"
	tool 2 list_environments "{}"
	fails daemon_unreachable
	text_of_answer | grep "next: start it: limb up"
	request 3 ping "{}"
	mcp_close
	test ! -e "$LIMB_STATE"
	test ! -s "$T/mcp.log"
'

test_expect 'each revision with a handshake is spoken, another is answered by the newest of them' '
	for v in 2024-11-05 2025-03-26 2025-06-18 2025-11-25; do
		mcp_open
		hello $v
		jq -e ".result.protocolVersion == \"$v\" and .result.serverInfo.name == \"limbfs\" and
			(.result.capabilities | has(\"tools\"))" answer
		mcp_close
	done
	mcp_open
	hello 2031-01-01
	jq -e ".result.protocolVersion == \"2025-11-25\"" answer
	request 1 ping "{}"
	jq -e ".result == {}" answer
	for method in resources/list prompts/list logging/setLevel server/nonsense; do
		request "\"$method\"" $method "{}"
		jq -e ".error.code == -32601" answer
	done
	request 2 tools/list "{\"cursor\":\"x\"}"
	jq -e ".error.code == -32602" answer
	mcp_close
'

test_expect 'the revision without one: every request says its own; answers say what they have to' '
	mcp_open
	request "\"server-discover-probe-1\"" server/discover "{$modern}"
	jq -e ".result | .resultType == \"complete\" and (.supportedVersions | index(\"2026-07-28\")) != null and
		.ttlMs > 0 and .cacheScope == \"public\" and (.capabilities | has(\"tools\"))" answer
	request 1 tools/list "{$modern}"
	jq -e ".result | .resultType == \"complete\" and .ttlMs > 0 and (.cacheScope | length) > 0 and
		(.tools | length) >= 14 and ._meta[\"io.modelcontextprotocol/serverInfo\"].name == \"limbfs\"" answer
	request 2 tools/call "{\"name\":\"list_environments\",$modern}"
	jq -e ".result | .resultType == \"complete\" and .isError" answer
	request 3 server/discover "{}"
	jq -e ".error.code == -32602" answer
	request 4 tools/list "$(echo "{$modern}" | sed s/2026-07-28/2031-01-01/)"
	jq -e ".error.code == -32022 and (.error.data.supported | length) > 0 and .error.data.requested == \"2031-01-01\"" answer
	request 5 tools/list "$(echo "{$modern}" | jq -c "del(._meta[\"io.modelcontextprotocol/clientCapabilities\"])")"
	jq -e ".error.code == -32602" answer
	for method in ping logging/setLevel resources/subscribe subscriptions/listen; do
		request "\"$method\"" $method "{$modern}"
		jq -e ".error.code == -32601" answer
	done
	# neither the one nor the other
	request 6 tools/list "{}"
	jq -e ".error.code == -32600 and (.error.message | contains(\"initialize\"))" answer
	mcp_close
'

test_expect 'tools/list: the same each time; every tool has its four hints, schemas and no null types' '
	mcp_open
	hello
	request 1 tools/list "{}"
	jq -c .result.tools answer >tools
	request 2 tools/list "{$modern}"
	jq -c .result.tools answer >tools2
	cmp tools tools2
	jq -e "all(.[]; (.annotations | [.readOnlyHint, .destructiveHint, .idempotentHint, .openWorldHint] | all(type == \"boolean\")) and
		.inputSchema.type == \"object\" and .inputSchema.additionalProperties == false and
		.outputSchema.type == \"object\" and (.outputSchema.required | length) > 0 and
		(.description | length) > 20 and (.title | length) > 0)" tools
	jq -r ".[].name" tools | tr "\n" " " >names
	for name in exec read_job write_job kill_job list_jobs read_file write_file edit_file list_directory \
		search_files stat_file list_environments migrate label_point list_points; do
		grep -qw $name names
	done
	jq -e "[.[] | select(.annotations.readOnlyHint and (.annotations.openWorldHint or .annotations.destructiveHint))] == []" tools
	jq -e ".[] | select(.name == \"read_file\") | .annotations.readOnlyHint" tools
	jq -e ".[] | select(.name == \"exec\") | .annotations | .destructiveHint and (.readOnlyHint | not)" tools
	refute grep -F "null" tools
	mcp_close
'

test_expect 'mcp-config: what each client reads, with this brain'\''s places' '
	for client in claude cursor vscode; do
		limb mcp-config $client >config
		key=mcpServers
		test $client != vscode || key=servers
		jq -e ".$key.limbfs | .command == \"$mcp_limb\" and .args == [\"mcp\"] and .env.LIMB_STATE == \"$LIMB_STATE\"" config ||
			jq -e ".$key.limbfs | (.command | startswith(\"/\") and endswith(\"/limb\")) and .args == [\"mcp\"] and .env.LIMB_STATE == \"$LIMB_STATE\"" config
	done
	jq -e .servers.limbfs.type config
	limb mcp-config claude --environment box | jq -e ".mcpServers.limbfs.args == [\"mcp\", \"--environment\", \"box\"]"
	limb mcp-config codex >config
	grep -x "\[mcp_servers.limbfs\]" config
	grep -x "LIMB_STATE = \"$LIMB_STATE\"" config
	expect_code 2 limb mcp-config emacs
	expect_code 2 limb mcp-config
	# what it prints works, in an environment that has nothing else
	limb mcp-config claude >config
	command=$(jq -r .mcpServers.limbfs.command config)
	echo "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\"}" | env -i "$command" mcp >out
	jq -e ".id == 1" out
'

brain_up
limb create box --provider local >/dev/null || test_result 'not ok' create
root=$(root_of box)
export root

test_expect 'B76 byte by byte, 50 in one write, CRLF, blank lines, nonsense: each gets its answer' '
	mcp_open
	# one byte a write
	text="{\"jsonrpc\":\"2.0\",\"id\":\"é\",\"method\":\"ping\"}"
	(LC_ALL=C; for ((i = 0; i < ${#text}; i++)); do printf "%s" "${text:i:1}"; done) >&7
	printf "\r\n\r\n   \n\n" >&7
	mcp_answer "\"é\""
	hello
	# 50 in one write
	for i in $(seq 50); do
		printf "{\"method\":\"tools/call\",\"id\":%d,\"jsonrpc\":\"2.0\",\"params\":{\"arguments\":{\"argv\":[\"echo\",\"%d\"]},\"name\":\"exec\"}}\n" $i $i
	done >many
	test "$(wc -c <many)" -lt 65536
	dd if=many bs=65536 count=1 status=none >&7
	for i in $(seq 50); do
		mcp_answer $i >/dev/null
		structured ".stdout == \"$i\\n\" and .exit_code == 0" >/dev/null
	done
	mcp_lines | jq -s "[.[].id | numbers] | length == (unique | length)" | grep -x true
	say "{nonsense"
	wait_for "mcp_said \".error.code == -32700 and .id == null\""
	say "[{\"jsonrpc\":\"2.0\",\"id\":90,\"method\":\"ping\"}]"
	wait_for "mcp_said \".error.code == -32600 and .id == null\""
	say "{\"jsonrpc\":\"1.0\",\"id\":91,\"method\":\"ping\"}"
	mcp_answer 91
	jq -e ".error.code == -32600" answer
	say "{\"jsonrpc\":\"2.0\",\"id\":92}"
	mcp_answer 92
	jq -e ".error.code == -32600" answer
	say "{\"jsonrpc\":\"2.0\",\"id\":93,\"method\":\"ping\",\"params\":[]}"
	mcp_answer 93
	jq -e ".error.code == -32602" answer
	for id in null 1.5 true "{}"; do
		say "{\"jsonrpc\":\"2.0\",\"id\":$id,\"method\":\"ping\"}"
	done
	for bad in 1 "\"x\"" "\"\\ud800\"" null "{\"a\":1,\"a\":2}"; do
		say "$bad"
	done
	request 94 no/such/method "{}"
	jq -e ".error.code == -32601" answer
	request 95 tools/call "{}"
	jq -e ".error.code == -32602" answer
	request 96 tools/call "{\"name\":\"no_such_tool\"}"
	jq -e ".error.code == -32602 and (.error.message | contains(\"no_such_tool\"))" answer
	# what nobody asked for is no reason for a word
	say "{\"jsonrpc\":\"2.0\",\"method\":\"notifications/nonsense\",\"params\":{}}"
	say "{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{}}"
	request 97 ping "{}"
	mcp_close
	test ! -s "$T/mcp.log"
'

# The most memory that a process ever had, in KiB.
peak_of() {
	sed -n 's/^VmHWM:[^0-9]*\([0-9]*\).*/\1/p' "/proc/$1/status"
}
# write_line ID BYTES: a write_file of so much text in one line
write_line() {
	printf '{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":"write_file","arguments":{"path":"big%d","content":"' "$1" "$1"
	head -c "$2" /dev/zero | tr '\0' y
	printf '"}}}\n'
}
export -f peak_of write_line

test_expect 'B77 large messages, and too large ones: answered with their id, memory bounded, session alive' '
	mcp_open
	hello
	n=1
	for size in 8000 8191 8192 8193 131072 5242880; do
		write_line $n $size >&7
		mcp_answer $n >/dev/null
		works
		test "$(stat -c %s "$root/big$n")" = $size
		n=$((n + 1))
	done
	write_line 60 67108864 >&7
	mcp_answer 60
	jq -e ".error.code == -32600 and (.error.message | contains(\"MiB\"))" answer
	test ! -e "$root/big60"
	for what in "[" "{\"a\":"; do
		printf "{\"jsonrpc\":\"2.0\",\"id\":\"deep\",\"method\":\"ping\",\"params\":" >&7
		for i in $(seq 10000); do printf "%s" "$what"; done >&7
		printf "\n" >&7
		wait_for "mcp_said \".id == \\\"deep\\\" and .error.code == -32600\""
	done
	{ printf "{\"jsonrpc\":\"2.0\",\"params\":{\"a\":["; head -c 600000 /dev/zero | sed "s/./[],/g"; printf "1]},\"id\":61,\"method\":\"ping\"}\n"; } >&7
	mcp_answer 61
	jq -e ".error.code == -32600" answer
	tool 62 exec "{\"argv\":[\"printf\",\"%s\",\"\\ud83d\\ude00é\"]}" >/dev/null
	structured ".stdout == \"\\ud83d\\ude00é\""
	# an emoji in pieces
	printf "{\"jsonrpc\":\"2.0\",\"id\":63,\"method\":\"tools/call\",\"params\":{\"name\":\"exec\",\"arguments\":{\"argv\":[\"printf\",\"%%s\",\"\360\237" >&7
	sleep 0.05
	printf "\230\200\"]}}}\n" >&7
	mcp_answer 63
	structured ".stdout == \"\\ud83d\\ude00\""
	test "$(peak_of $mcp_pid)" -lt 200000 || have sanitizers
	mcp_close
	limb status --json | jq -e ".limbd.memory_bytes < 300000000"
'

test_expect 'B78 a cancelled command ends with all that it started, without an answer; others go on' '
	mcp_open
	hello
	call 1 exec "{\"command\":\"echo begun >\$HOME/begun; setsid sleep 61.$$ & sleep 61.$$\"}"
	call 2 exec "{\"command\":\"while [ ! -e go ]; do sleep 0.1; done; echo on\"}"
	wait_for "test -s $root/begun"
	wait_for "test \$(pids_with \"sleep 61.$$\" | wc -l) -ge 2"
	say "{\"jsonrpc\":\"2.0\",\"method\":\"notifications/cancelled\",\"params\":{\"requestId\":1,\"reason\":\"test\"}}"
	wait_for "test -z \"\$(pids_with \"sleep 61.$$\")\""
	for id in 1 77 "\"x\"" 0 null "[]"; do
		say "{\"jsonrpc\":\"2.0\",\"method\":\"notifications/cancelled\",\"params\":{\"requestId\":$id}}"
	done
	say "{\"jsonrpc\":\"2.0\",\"method\":\"notifications/cancelled\"}"
	touch "$root/go"
	mcp_answer 2
	structured ".stdout == \"on\\n\""
	request 3 ping "{}"
	refute mcp_has 1
	limb jobs -a --json | jq -e "[.jobs[] | select(.state == \"running\")] == []"
	mcp_close
	refute mcp_has 1
'

test_expect 'B79 at the end of its input it ends, answers first; a command that runs goes on as a job' '
	mcp_open
	hello
	call 1 exec "{\"command\":\"sleep 0.3; echo late\"}"
	call 2 exec "{\"command\":\"echo \$LIMB_JOB >job; while [ ! -e end ]; do sleep 0.1; done; echo done\"}"
	wait_for "test -s $root/job"
	mcp_close
	mcp_has 1
	structured ".stdout == \"late\\n\""
	refute mcp_has 2
	job=$(cat "$root/job")
	limb jobs --json | jq -e ".jobs[] | select(.job_id == \"$job\" and .state == \"running\")"
	touch "$root/end"
	test "$(limb wait "$job" --json | jq -r .stdout)" = done
	# killed, and with nobody who reads
	rm "$root/end" "$root/job"
	mcp_open
	hello
	call 3 exec "{\"command\":\"echo \$LIMB_JOB >job; while [ ! -e end ]; do sleep 0.1; done\"}"
	wait_for "test -s $root/job"
	kill_9 $mcp_pid
	limb jobs --json | jq -e ".jobs[] | select(.job_id == \"$(cat "$root/job")\")"
	touch "$root/end"
	limb wait "$(cat "$root/job")"
	exec 7>&-
	mkfifo in out.in
	"$mcp_limb" mcp <in >out.in &
	pid=$!
	exec 7>in 8<out.in
	exec 8<&-
	say "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\"}"
	wait_for "test_gone $pid"
	exec 7>&-
	rm "$root/end" "$root/job"
'

test_expect 'B80 a command does not read the session; it has the input that it was given, or its end' '
	mcp_open
	hello
	call 1 exec "{\"command\":\"cat; echo end\"}"
	call 2 exec "{\"command\":\"read x; echo \\\"\$? <\$x>\\\"; tty\"}"
	request 3 ping "{}"
	mcp_answer 1
	structured ".stdout == \"end\\n\" and .exit_code == 0"
	mcp_answer 2
	structured ".stdout | startswith(\"1 <>\\n\")"
	tool 4 exec "{\"argv\":[\"cat\"],\"stdin\":\"a\\u0000b\\nc\"}"
	test "$(jq -r .result.structuredContent.stdout_base64 answer | base64 -d | od -An -tx1 | tr -d " \n")" = 6100620a63
	mcp_close
'

test_expect 'B93 a call that is sent again does not run again; what a dead limbd began is not begun anew' '
	mcp_open
	hello
	tool 1 exec "{\"command\":\"echo x >>once\"}"
	works
	call 1 exec "{\"command\":\"echo x >>once\"}"
	wait_for "mcp_said \".id == 1 and .error.code == -32600\""
	for id in 2 3; do
		tool $id exec "{\"command\":\"echo y >>once\",\"key\":\"the-key\"}"
		works
		structured .job_id >job.$id
	done
	cmp job.2 job.3
	test "$(tr -d "\n" <"$root/once")" = xy
	call 4 exec "{\"command\":\"echo z >>once; while [ ! -e end ]; do sleep 0.1; done\"}"
	wait_for "grep z $root/once"
	kill_9 "$(pid_of box limbd)"
	mcp_answer 4
	fails daemon_unreachable
	tool 5 list_jobs "{}"
	fails daemon_unreachable
	limb up -q >/dev/null
	wait_state box live
	# the same session goes on, and what was begun still runs, once
	tool 6 list_jobs "{}"
	structured ".jobs | length == 1 and .[0].state == \"running\""
	touch "$root/end"
	wait_for "limb jobs --json | jq -e \".jobs == []\""
	test "$(tr -d "\n" <"$root/once")" = xyz
	mcp_close
'

test_expect 'bad arguments are told what is right, and nothing runs' '
	mcp_open
	hello
	n=1
	while read -r name arguments; do
		tool $n "$name" "$arguments" >/dev/null
		fails usage
		text_of_answer | grep "$name takes"
		n=$((n + 1))
	done <<-END
		exec {}
		exec {"command":"touch ran","argv":["touch","ran"]}
		exec {"command":["touch","ran"]}
		exec {"command":"touch ran","timeout_ms":-1}
		exec {"command":"touch ran","nonsense":true}
		exec "touch ran"
		read_file {}
		read_file {"path":7}
		edit_file {"path":"a"}
		edit_file {"path":"a","edits":[{"old_text":"","new_text":"x"}]}
		kill_job {"job_id":"; rm -rf /"}
		list_points {"limit":0}
		label_point {}
	END
	test ! -e "$root/ran"
	tool 50 exec "{\"command\":\"true\",\"environment\":\"nobody\"}"
	fails environment_not_found
	tool 51 read_job "{\"job_id\":\"j-none\"}"
	fails job_not_found
	tool 52 label_point "{\"label\":\"HEAD\"}"
	fails usage
	tool 53 exec "{\"argv\":[\"no-such-command\"]}"
	jq -e ".result.isError and .result.structuredContent.exit_code == 127" answer
	tool 54 exec "{\"command\":\"true\",\"cwd\":\"/etc\"}"
	jq -e ".result.isError" answer
	mcp_close
'

test_expect 'commands: status, streams, time, length, progress, a handle in time, input, signals' '
	mcp_open
	hello
	tool 1 exec "{\"command\":\"echo out; echo err >&2; exit 3\"}"
	works
	structured ".exit_code == 3 and .stdout == \"out\\n\" and .stderr == \"err\\n\" and .seq > 0"
	text_of_answer | tail -n 1 | grep -E "^\[exit 3, [0-9.]+ s, cwd $root\]$"
	tool 2 exec "{\"command\":\"echo partial; sleep 60\",\"timeout_ms\":300}"
	works
	structured ".timed_out and .stdout == \"partial\\n\" and .exit_code == 124"
	tool 3 exec "{\"command\":\"seq 100000; exit 5\"}" >/dev/null
	works
	structured ".truncated and .stdout_bytes == 588895 and (.stdout | length) < 31000 and .exit_code == 5 and
		(.stdout | startswith(\"1\\n2\\n\") and endswith(\"\\n100000\\n\"))"
	tool 4 exec "{\"command\":\"read x; echo got \$x; read y; echo and \$y; sleep 60\",\"wait_ms\":100,\"keep_stdin\":true,\"stdin\":\"one\\n\"}"
	works
	structured ".state == \"running\" and has(\"exit_code\") == false and has(\"stderr\")"
	job=$(jq -r .result.structuredContent.job_id answer)
	tool 5 write_job "{\"job_id\":\"$job\",\"input\":\"two\\n\"}"
	structured ".accepted_bytes == 4"
	offset=0
	: >text
	n=10
	until grep "and two" text; do
		tool $n read_job "{\"job_id\":\"$job\",\"stdout_offset\":$offset,\"wait_ms\":5000}"
		works
		structured "[.pieces[].data] | join(\"\")" | jq -rj . >>text
		offset=$(structured .stdout_offset)
		n=$((n + 1))
		test $n -lt 40
	done
	test "$(cat text)" = "got one
and two"
	tool 50 list_jobs "{\"environment\":\"box\"}"
	structured ".jobs | length == 1 and .[0].job_id == \"$job\""
	tool 51 kill_job "{\"job_id\":\"$job\"}"
	works
	wait_for "limb jobs --json | jq -e \".jobs == []\""
	tool 52 read_job "{\"job_id\":\"$job\",\"wait_ms\":5000}"
	structured ".state == \"exited\" and .signal == \"SIGTERM\""
	tool 53 exec "{\"command\":\"sleep 60\",\"background\":true}"
	structured ".state == \"running\""
	tool 54 kill_job "{\"job_id\":$(structured .job_id),\"signal\":\"KILL\"}"
	works
	say "{\"jsonrpc\":\"2.0\",\"id\":55,\"method\":\"tools/call\",\"params\":{\"name\":\"exec\",\"_meta\":{\"progressToken\":\"tok\"},\"arguments\":{\"command\":\"while [ ! -e go2 ]; do sleep 0.1; done\"}}}"
	wait_for "mcp_said \".method == \\\"notifications/progress\\\" and .params.progressToken == \\\"tok\\\" and .params.progress > 0\""
	touch "$root/go2"
	mcp_answer 55
	works
	mcp_lines | jq -s "[.[] | select(.method == \"notifications/progress\") | .params.progress] | . == sort and . == unique" | grep -x true
	mcp_close
'

test_done
