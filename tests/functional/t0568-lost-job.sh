#!/bin/bash
# A job that is lost with its sandbox or its holder: its outcome is unknown, each verb says so in
# words, before and after limbd's end, and what it printed is there.
. "${0%/*}/brain-lib.sh"
have bwrap || skip_all 'bwrap makes no sandbox here'
brain_up
limb create box -q

unknown() {
	local - job=$1 r
	set +x
	for verb in wait attach; do
		r=0
		limb "$verb" "$job" >out 2>err || r=$?
		[ "$r" = 125 ] || { echo "$verb: $r"; return 1; }
		[ "$(wc -l <err)" = 1 ]
		grep -qE "^limb: .*whether it finished is not known" err || { cat err; return 1; }
	done
	test "$(cat out)" = begun
	expect_code 125 limb wait "$job" --json >out 2>err
	jq -e '.state == "unknown" and .error == "outcome_unknown" and .exit_code == null and
		.stdout == "begun\n" and (.detail | test("whether it finished is not known"))' out
	limb jobs -a --json | jq -e --arg job "$job" '.jobs[] | select(.job_id == $job) |
		.state == "unknown"'
}
begin() {
	job=$(limb exec -d box -- sh -c 'echo begun; sleep 1000')
	wait_for "test \"\$(limb logs $job)\" = begun"
}
for who in init holder; do
	export who
	test_expect "kill -9 of its $who" '
		begin
		case $who in
		init) pid=$(inspect_of box .pids.init) ;;
		holder)
			# whose child the shell is that has said it
			pids=$(pids_with "echo begun; sleep 1000")
			for pid in $pids; do
				pid=$(ps -o ppid= -p "$pid" | tr -d " ")
				[ "$(cat /proc/$pid/comm)" != limb-syncd ] || break
			done
			;;
		esac
		kill_9 $pid
		wait_state box live
		wait_for "limb jobs -a --json | jq -e \".jobs[0].state != \\\"running\\\"\""
		unknown $job
		kill_9 "$(limb status --json | jq .limbd.pid)"
		limb up -q
		wait_state box live
		unknown $job
	'
done
test_done
