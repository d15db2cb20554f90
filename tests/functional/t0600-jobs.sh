#!/bin/bash
# A job is found by its id from any client: what it said, how it ended, what it is to read,
# and its signals; and a key stands for one job for ever.
. "${0%/*}/brain-lib.sh"

# job_of NAME COMMAND...: started detached; its id.
job_of() {
	local name=$1
	shift
	limb exec "$name" -d -- "$@"
}
restart() {
	kill_9 "$(pid_of - limbd)"
	limb up -q >/dev/null
}

brain_up
mkfifo fifo
for name in $providers; do
	limb create "$name" --provider "$name" >/dev/null || test_result 'not ok' "create $name"
	export name
	root=$(root_of "$name")
	export root

	test_expect "$name: exec -d answers at once; jobs, logs and wait know the job" '
		job=$(job_of "$name" sh -c "echo out; echo err >&2; read -r x; echo \"<\$x>\"; exit 7")
		test "$(limb exec "$name" -q -d -- true | grep -c "^j-")" = 1
		limb jobs "$name" --json >jobs
		jq -e ".jobs[] | select(.job_id == \"$job\") | .state == \"running\" and .environment == \"$name\" and
			.argv[0] == \"sh\" and (has(\"exit_code\") or has(\"ended_at\") | not) and .tty == false and
			.timed_out == false and .incarnation >= 1 and (.principal | length > 0) and (.cwd | length > 0)" jobs
		test "$(limb jobs -q | grep -cx -- "$job")" = 1
		expect_code 124 limb wait "$job" --timeout 0.1
		expect_code 124 limb wait "$job" --timeout 0.1 --json >wait
		jq -e ".state == \"running\" and (has(\"exit_code\") | not)" wait
		echo hello | limb input "$job" --json >input
		jq -e ".job_id == \"$job\" and .accepted_bytes == 6" input
		expect_code 7 limb wait "$job"
		expect_code 7 limb wait "$job" --json >wait
		jq -e ".state == \"exited\" and .exit_code == 7 and .stdout == \"out\\n<hello>\\n\" and .stderr == \"err\\n\" and .seq > 0" wait
		limb logs "$job" >out 2>err
		printf "out\n<hello>\n" | cmp - out
		printf "err\n" | cmp - err
		limb jobs "$name" -q | refute grep -x -- "$job"
		limb jobs -a --json | jq -e ".jobs[] | select(.job_id == \"$job\") | .state == \"exited\" and .exit_code == 7 and
			.stdout_bytes == 12 and .stderr_bytes == 4 and .truncated == false and .ended_at >= .started_at and .seq > 0"
	'

	test_expect "$name: what ended a job was input; what comes after it is refused" '
		job=$(job_of "$name" sh -c "read -r x")
		{ echo hello; limb wait "$job" >/dev/null; } | limb input "$job" --eof --json >input
		jq -e ".accepted_bytes == 6" input
		job=$(job_of "$name" sh -c "read -r x")
		{ echo hello; limb wait "$job" >/dev/null; echo more; } >fifo &
		expect_code 125 limb input "$job" <fifo 2>err
		grep "reads no more input" err
		job=$(job_of "$name" sh -c "read -r x")
		{ echo hello; limb wait "$job" >/dev/null; wait_for "grep -q \"has ended\" err"; } >fifo &
		: >err
		expect_code 125 limb input "$job" <fifo 2>err
		grep "has ended" err
	'

	test_expect "$name: signal reaches the command; what has ended takes neither signal nor input" '
		job=$(job_of "$name" sh -c "trap \"echo usr1\" USR1; echo ready; while :; do sleep 0.05; done")
		wait_for "limb logs $job | grep -x ready"
		limb signal "$job" USR1
		wait_for "limb logs $job | grep -x usr1"
		limb signal "$job" SIGTERM --json | jq -e ".signal == \"SIGTERM\" and .job_id == \"$job\""
		expect_code 143 limb wait "$job"
		limb jobs -a --json | jq -e ".jobs[] | select(.job_id == \"$job\") | .signal == \"SIGTERM\" and .killed_by == \"user\" and .exit_code == 143"
		for verb in "signal $job TERM" "input $job"; do
			expect_code 125 limb $verb --json </dev/null >out
			jq -e ".error == \"conflict\" and .job_id == \"$job\" and (.detail | test(\"ended\"))" out
		done
		expect_code 2 limb signal "$job" NOSUCH
		for verb in "logs" "wait" "attach" "input"; do
			expect_code 125 limb $verb j-nobody --json </dev/null >out
			jq -e ".error == \"job_not_found\"" out
		done
	'
done

if have python3; then
	test_expect 'a signal that comes before its job is durable is not lost' '
		cat >early.py <<-END
			import json, socket, struct, sys
			s = socket.socket(socket.AF_UNIX)
			s.connect(sys.argv[1])
			f = s.makefile("rb")
			def call(method, **params):
			    b = json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}).encode()
			    s.sendall(struct.pack("<I4s", len(b), b"J") + b)
			    n, = struct.unpack("<I4x", f.read(8))
			    return json.loads(f.read(n))["result"]
			for i in range(20):
			    job = call("exec", name=sys.argv[2], argv=["sleep", "100"], detach=True)["job_id"]
			    call("signal", job=job, signal="KILL")
			    print(job)
		END
		python3 early.py "$LIMB_STATE/limbd.sock" "$name" >early
		test "$(wc -l <early)" = 20
		while read -r job; do
			expect_code 137 limb wait "$job" --timeout 20
		done <early
	'
fi

test_expect 'logs are exact bytes, from an offset, of one stream, or lines that carry them' '
	head -c 300000 /dev/urandom >"$root/random"
	job=$(job_of "$name" sh -c "cat random; echo e >&2; printf \"\\303\"; sleep 0.3; printf \"\\251x\"")
	limb wait "$job"
	{ cat "$root/random"; printf "\303\251x"; } >want
	limb logs "$job" 2>/dev/null | cmp - want
	limb logs "$job" --stream stdout | cmp - want
	test "$(limb logs "$job" --stream stderr 2>&1 >none)" = e
	test ! -s none
	limb logs "$job" --since 299990 --stream stdout | cmp - <(tail -c +299991 want)
	test -z "$(limb logs "$job" --since 1M 2>&1)"
	limb logs "$job" --json >lines
	tail -n 1 lines | jq -e ".job_id == \"$job\" and .state == \"exited\" and .stdout_bytes == 300003"
	head -n -1 lines | jq -r "select(.stream == \"stdout\") | if .data_base64 then .data_base64 else .data | @base64 end" |
		while read -r text; do echo "$text" | base64 -d; done | cmp - want
	head -n -1 lines | jq -es "map(select(.stream == \"stdout\")) | . as \$l | [.[] | .offset] == ([.[] | .offset] | sort) and
		.[0].offset == 0 and all(.at | test(\"^20.*Z\$\"))"
	# a character that is written in two parts is one
	head -n -1 lines | tail -n 1 | jq -e ".data | endswith(\"\u00e9x\")"
	expect_code 2 limb logs "$job" --stream both
'

test_expect 'logs -f goes on to the end, for any number of readers, and from what was there before' '
	mkfifo "$root/go"
	job=$(job_of "$name" sh -c "echo one; cat go; echo two; cat go; echo three")
	for i in 1 2 3; do
		limb logs -f "$job" >"follow.$i" &
	done
	wait_for "grep -x one follow.3"
	timeout 20 limb exec "$name" -- sh -c "echo a >go"
	wait_for "grep -x two follow.1"
	limb logs -f --json "$job" >follow.json &
	timeout 20 limb exec "$name" -- sh -c "echo b >go"
	wait
	printf "one\na\ntwo\nb\nthree\n" >want
	for i in 1 2 3; do
		cmp want "follow.$i"
	done
	test "$(head -n -1 follow.json | jq -j .data | tr "\n" ,)" = one,a,two,b,three,
	# a reader that leaves harms nobody
	job=$(job_of "$name" yes)
	limb logs -f "$job" | head -n 3 >out || true
	limb jobs -q | grep -x -- "$job"
	limb signal "$job" KILL -q
	expect_code 137 limb wait "$job"
'

test_expect 'input comes in pieces, from many clients, and its end once' '
	job=$(job_of "$name" sh -c "cat; echo end")
	for i in 1 2 3; do
		echo "line $i" | limb input "$job" -q
	done
	head -c 3000000 /dev/urandom >big
	limb input "$job" <big >/dev/null
	limb input "$job" --eof </dev/null >/dev/null
	limb wait "$job"
	{ printf "line 1\nline 2\nline 3\n"; cat big; echo end; } | cmp - <(limb logs "$job")
	# one that was started without input says so
	job=$(limb exec "$name" --json -- true </dev/null | jq -r .job_id)
	job=$(job_of "$name" sh -c "cat >/dev/null; sleep 0.2; cat go")
	limb input "$job" --eof </dev/null >/dev/null
	expect_code 125 limb input "$job" --json </dev/null >out
	jq -e ".error == \"conflict\"" out
	limb exec "$name" -- sh -c "echo >go"
	limb wait "$job"
'

test_expect 'B93 a key runs once: again is the same job, running, ended, and after limbd was killed' '
	mkfifo "$root/hold"
	job=$(limb exec "$name" -d --key build-1 -- sh -c "echo run >>ran; cat hold; exit 5")
	test "$(limb exec "$name" -d --key build-1 -- sh -c "echo run >>ran; cat hold; exit 5")" = "$job"
	r=0
	limb exec "$name" --key build-1 --json -- sh -c "echo other" >out || r=$?
	test "$r" = 125
	jq -e ".error == \"conflict\" and .job_id == \"$job\"" out
	expect_code 125 limb exec "$name" --key build-1 -w / -- sh -c "echo run >>ran; cat hold; exit 5"
	restart
	test "$(limb exec "$name" -d --key build-1 -- sh -c "echo run >>ran; cat hold; exit 5")" = "$job"
	limb exec "$name" --key build-1 -- sh -c "echo run >>ran; cat hold; exit 5" >follow &
	waiter=$!
	wait_state "$name" live
	limb exec "$name" -- sh -c "echo text >hold"
	r=0
	wait "$waiter" || r=$?
	test "$r" = 5
	test "$(cat follow)" = text
	limb jobs -a --json | jq -e ".jobs[] | select(.job_id == \"$job\") | .key == \"build-1\" and .exit_code == 5"
	for i in 1 2; do
		r=0
		limb exec "$name" --key build-1 --json -- sh -c "echo run >>ran; cat hold; exit 5" >out || r=$?
		test "$r" = 5
		jq -e ".job_id == \"$job\" and .stdout == \"text\\n\" and .exit_code == 5" out
		restart
	done
	test "$(cat "$root/ran")" = run
	# many at once are one, too
	for i in 1 2 3 4 5 6 7 8; do
		limb exec "$name" --key many -- sh -c "echo run >>many; echo done" >"many.$i" &
	done
	wait
	test "$(cat "$root/many")" = run
	test "$(cat many.[1-8] | sort | uniq -c | tr -s " ")" = " 8 done"
	expect_code 2 limb exec "$name" --key "" -- true
	expect_code 2 limb exec "$name" --key "$(head -c 201 /dev/zero | tr "\0" k)" -- true
'

test_expect '--queue waits for an environment that is stopped; who gives up has started nothing' '
	job=$(job_of "$name" sleep 100)
	limb stop "$name" -q
	limb jobs -a --json | jq -e ".jobs[] | select(.job_id == \"$job\") | .state == \"exited\" and .signal == \"SIGKILL\" and .killed_by == \"limbfs\""
	r=0
	limb exec "$name" --json -- true >out || r=$?
	test "$r" = 125
	jq -e ".error == \"not_running\"" out
	limb exec "$name" --queue -- sh -c "echo queued | tee queued" >out &
	first=$!
	limb exec "$name" --queue --key q -- sh -c "echo run >>qran" &
	limb exec "$name" --queue --key q -- sh -c "echo run >>qran" &
	timeout -s INT 1 limb exec "$name" --queue -- touch given-up || true
	test "$(limb jobs -q | wc -l)" = 0
	kill -0 "$first"
	limb start "$name" -q
	wait
	test "$(cat out)" = queued
	test "$(cat "$root/qran")" = run
	test ! -e "$root/given-up"
	limb exec "$name" --queue --despite-unapplied -- true
	expect_code 125 limb exec nobody --queue -- true
'

test_expect 'the spec gives variables, which -e replaces, and the limit of watches' '
	mkdir -p tree
	(cd tree; seq 200 | sed s/^/d/ | xargs mkdir)
	echo "{\"env\": {\"COLOUR\": \"red green\", \"LANG\": \"xx\", \"EMPTY\": \"\"}, \"watch_limit\": 50}" >spec
	limb create spec --provider local --from tree --spec spec >/dev/null
	test "$(limb exec spec -- sh -c "echo \"\$COLOUR,\$LANG,\${EMPTY-unset}\"")" = "red green,xx,"
	test "$(limb exec spec -e COLOUR=blue -- sh -c "echo \"\$COLOUR,\$LANG\"")" = "blue,xx"
	limb inspect spec --json | jq -e ".spec.watch_limit == 50 and .spec.env.COLOUR == \"red green\""
	wait_for "status_of spec .counts | jq -e \".watches <= 50 and .polled_directories > 100\""
	status_of spec "" | jq -e "any(.reasons[]; .code == \"watch_limit\")"
	limb rm spec --force -q
	for text in "[]" "{\"env\": []}" "{\"env\": {\"LIMB_X\": \"y\"}}" "{\"env\": {\"A=B\": \"y\"}}" "{\"env\": {\"A\": 1}}" \
		"{\"watch_limit\": -1}" "{\"watch_limit\": \"many\"}" "no json"; do
		echo "$text" >spec
		expect_code 2 limb create spec --provider local --spec spec --json >out
		jq -e ".error == \"usage\"" out
	done
	expect_code 125 limb inspect spec
'

test_expect 'jobs that are over keep no descriptor of limbd' '
	limb create fds --provider local
	limbd=$(limb status --json | jq .limbd.pid)
	limb exec fds -- echo
	before=$(ls "/proc/$limbd/fd" | wc -l)
	for i in $(seq 20); do
		limb exec fds -- echo "$i"
	done
	wait_for "test \$(ls /proc/$limbd/fd | wc -l) -le $((before + 6))"
	test "$(limb logs "$(limb jobs fds -a -q | tail -n 2 | sed -n 1p)")" = 1
	limb rm fds --force
'

test_done
