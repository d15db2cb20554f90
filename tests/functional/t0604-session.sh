#!/bin/bash
# A shell session keeps directory and variables between commands, whoever ends in between.
. "${0%/*}/brain-lib.sh"

in_session() {
	limb exec "$name" --shell work "$@"
}
brain_up
for name in $providers; do
	limb create "$name" --provider "$name" >/dev/null || test_result 'not ok' "create $name"
	export name
	root=$(root_of "$name")
	export root

	test_expect "$name: directory and exported variables stay, others and other sessions do not" '
		in_session -- mkdir "dir with  blanks"
		in_session -- cd "dir with  blanks"
		in_session -- "export A=\"it'\''s \\\$HOME
second line\"; B=gone"
		in_session -- sh -c "pwd; echo \"\$A,\$B\"" >got
		printf "%s/dir with  blanks\n%s\nsecond line,\n" "$(limb exec "$name" -- pwd)" "it'\''s \$HOME" >want
		cmp want got
		test "$(limb exec "$name" --shell other -- "echo \$PWD,\$A")" = "$(limb exec "$name" -- pwd),"
		test "$(limb exec "$name" -- sh -c "echo \$PWD,\$A")" = "$(limb exec "$name" -- pwd),"
	'

	test_expect "$name: what is given with a command wins, and stays" '
		in_session -e A=given -- "export C=\$A" </dev/null
		test "$(in_session -- "echo \$A \$C")" = "given given"
		mkdir -p "$root/elsewhere"
		limb sync "$name"
		test "$(in_session -w elsewhere -- "basename \"\$PWD\"")" = elsewhere
		test "$(in_session -- pwd | sed "s|.*/||")" = elsewhere
	'

	test_expect "$name: status, streams, stdin and arguments are those of the command" '
		expect_code 7 in_session -- "exit 7"
		expect_code 3 in_session -- sh -c "exit 3"
		expect_code 127 in_session -- no-such-program
		expect_code 137 in_session -- sh -c "kill -9 \$\$"
		test "$(echo text | in_session -- cat)" = text
		test "$(in_session -- printf "<%s>" "a  b" "*" "\$A" "")" = "<a  b><*><\$A><>"
		in_session --json -- "echo out; echo err >&2" >session.json
		jq -e ".stdout == \"out\n\" and .stderr == \"err\n\" and .exit_code == 0" session.json
		limb jobs "$name" -a --json | jq -e ".jobs[0].shell == \"work\" and .jobs[0].argv == [\"echo out; echo err >&2\"]"
		job=$(in_session -- "echo \$LIMB_JOB")
		test "$job" = "$(limb jobs "$name" -a --json | jq -r ".jobs[0].job_id")"
	'

	test_expect "$name: it outlives limbd and limb-syncd; a lost directory is no end of it" '
		in_session -- "export D=kept"
		kill_9 "$(pid_of - limbd)"
		limb up -q
		wait_state "$name" live
		test "$(in_session -- "echo \$D")" = kept
		kill_9 "$(pid_of "$name" syncd)"
		wait_state "$name" live
		test "$(in_session -- "echo \$D")" = kept
		rmdir "$root/elsewhere"
		test "$(in_session -- "echo \$D; pwd")" = "kept
$(limb exec "$name" -- pwd)"
	'

	test_expect "$name: names are checked, and nothing of a session is in the tree" '
		for bad in "" .. a/b -x .hidden "a b" "$(printf "a%.0s" $(seq 65))"; do
			expect_code 2 limb exec "$name" --shell="$bad" -- true 2>refused
			grep -q "the name of a shell session" refused
		done
		test "$(find "$root" -mindepth 1 | wc -l)" = 1
	'

	test_expect "$name: limb shell goes on in the session" '
		printf "cd \"dir with  blanks\"\nexport E=typed\nexit 5\n" >typed
		expect_code 5 limb shell "$name" --shell work <typed >/dev/null 2>&1
		test "$(in_session -- "echo \$E \$D; basename \"\$PWD\"")" = "typed kept
dir with  blanks"
	'
done
test_done
