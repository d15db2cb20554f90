#!/bin/bash
# A job runs once and says all that it said, whoever dies on the way: its client, the line,
# limb-syncd, limbd; and when its environment is gone nobody claims to know how it ended.
. "${0%/*}/brain-lib.sh"

# count N: prints 1 to N by itself, a little slowly, and leaves a mark for each time it ran.
cat >"$T/count" <<'END'
echo run >>ran
i=0
while [ $i -lt "$1" ]; do
	i=$((i + 1))
	echo $i
	[ $((i % 10)) != 0 ] || echo "e $i" >&2
	sleep 0.02
done
exit 42
END
# said JOB N: N lines of it have come to the brain
said() {
	test "$(limb logs "$1" 2>/dev/null | wc -l)" -ge "$2"
}
restart() {
	kill_9 "$(pid_of - limbd)"
	limb up -q >/dev/null
}
cut_line() {
	kill_9 "$(pid_of "$1" transport)"
	wait_state "$1" live
}

brain_up
for name in $providers; do
	limb create "$name" --provider "$name" >/dev/null || test_result 'not ok' "create $name"
	root=$(root_of "$name")
	cp "$T/count" "$root/count"
	export name root

	test_expect "$name: a job that counts to 300 outlives client, line, limb-syncd and limbd, byte for byte, and ran once" '
		limb exec "$name" -- sh count 300 >first 2>first.err &
		client=$!
		wait_for "grep -x 5 first"
		job=$(limb jobs "$name" -q)
		kill_9 $(pids_with "exec $name -- sh count 300")
		wait "$client" || true
		limb jobs "$name" -q | grep -x -- "$job"
		limb attach "$job" >second 2>second.err &
		wait_for "said $job 40"
		cut_line "$name"
		wait_for "said $job 80"
		kill_9 $(pid_of "$name" syncd)
		wait_for "said $job 120"
		restart
		wait || true
		wait_state "$name" live
		wait_for "said $job 160"
		kill_9 "$(pid_of - limbd)"
		limb up -q >/dev/null
		r=0
		limb attach "$job" >third 2>third.err || r=$?
		test "$r" = 42
		seq 300 | cmp - third
		seq 10 10 300 | sed "s/^/e /" | cmp - third.err
		r=0
		limb wait "$job" --json >wait || r=$?
		test "$r" = 42
		jq -e ".state == \"exited\" and .exit_code == 42 and .truncated == false and .stdout == \"$(seq -s "\\n" 300)\\n\"" wait
		test "$(cat "$root/ran")" = run
		limb jobs -a --json | jq -e ".jobs[] | select(.job_id == \"$job\") | .argv == [\"sh\",\"count\",\"300\"] and .cwd != \"\" and .exit_code == 42"
		# what the others saw is a beginning of it
		seq 300 | head -c "$(stat -c %s second)" | cmp - second
		rm "$root/ran"
	'

	test_expect "B71 $name: a job is found by its id after the line was cut, after limbd was killed, and after its end" '
		job=$(limb exec "$name" -d -- sh -c "echo begin; cat; echo end")
		wait_for "said $job 1"
		cut_line "$name"
		limb logs "$job" | grep -x begin
		restart
		limb jobs "$name" -q | grep -x -- "$job"
		wait_state "$name" live
		echo middle | limb input "$job" --eof -q
		limb wait "$job"
		restart
		limb logs "$job" >out
		printf "begin\nmiddle\nend\n" | cmp - out
		limb wait "$job" --json | jq -e ".exit_code == 0 and .stdout == \"begin\\nmiddle\\nend\\n\""
	'

	test_expect "$name: a job that ends while nobody listens says so afterwards" '
		job=$(limb exec "$name" -d -- sh -c "cat >/dev/null; echo last words; exit 9")
		limb input "$job" --eof </dev/null >/dev/null
		kill_9 "$(pid_of - limbd)"
		sleep 0.2
		limb up -q >/dev/null
		expect_code 9 limb wait "$job"
		test "$(limb logs "$job")" = "last words"
		wait_state "$name" live
	'

	test_expect "$name: input goes on where it was: line cut, limb-syncd and limbd killed" '
		job=$(limb exec "$name" -d -- cat)
		head -c 200000 /dev/urandom >in.1
		limb input "$job" <in.1 -q
		cut_line "$name"
		seq 20000 >in.2
		limb input "$job" <in.2 -q
		kill_9 $(pid_of "$name" syncd)
		restart
		wait_state "$name" live
		seq 20000 40000 >in.3
		limb input "$job" --eof <in.3 -q
		limb wait "$job"
		cat in.1 in.2 in.3 | cmp - <(limb logs "$job")
	'
done

test_expect 'a job whose holder is killed is unknown, and what it said is kept' '
	job=$(limb exec "$name" -d -- sh -c "echo before; sleep 1000")
	wait_for "said $job 1"
	kill_9 $(for dir in /proc/[0-9]*; do
		[ "$(cat $dir/comm 2>/dev/null)" = limb-holder ] && is_of_test ${dir#/proc/} &&
			[ -n "$(cat /proc/${dir#/proc/}/task/*/children 2>/dev/null)" ] && echo ${dir#/proc/}
	done)
	expect_code 125 limb wait "$job" --json >out
	jq -e ".state == \"unknown\" and .error == \"outcome_unknown\" and .stdout == \"before\\n\" and (has(\"exit_code\") | not)" out
	wait_for "limb ps $name --json | refute jq -e \".processes[] | select(.argv[0] == \\\"sleep\\\")\""
'

test_expect 'a job of an environment that vanished is unknown; it does not run again in the next one' '
	rm -f "$root/ran"
	job=$(limb exec "$name" -d --key once -- sh -c "echo run >>ran; echo said; sleep 1000")
	wait_for "said $job 1"
	limb sync "$name" -q
	if [ "$name" = bwrap ]; then
		kill_9 "$(pid_of "$name" init)"
	fi
	mv "$root" "$root.gone"
	wait_state "$name" halted || limb stop "$name" -q
	limb rebuild "$name" --force -q
	wait_state "$name" live
	expect_code 125 limb wait "$job" --json >out
	jq -e ".state == \"unknown\" and .error == \"outcome_unknown\"" out
	test "$(limb logs "$job")" = said
	# the key is used up all the same: whoever asks again learns that, instead of a second run
	expect_code 125 limb exec "$name" --key once --json -- sh -c "echo run >>ran; echo said; sleep 1000" >out
	jq -e ".error == \"outcome_unknown\" and .job_id == \"$job\"" out
	restart
	expect_code 125 limb wait "$job" --json >out
	jq -e ".state == \"unknown\" and .stdout == \"said\\n\"" out
	test "$(limb exec "$name" -- cat ran)" = run
	rm -rf "$root.gone"
'

test_done
