#!/bin/bash
# However much a job says: who reads it live gets all of it, at his own pace; who comes later
# gets head and tail and learns how much is missing; and neither side keeps more than that.
. "${0%/*}/brain-lib.sh"

# Bytes that files beneath DIR take on the disk.
taken() {
	du -s --block-size=1 "$1" | cut -f1
}

brain_up
name=local
limb create "$name" --provider local >/dev/null || test_result 'not ok' create
root=$(root_of "$name")
hands=$LIMB_STATE/envs/$(inspect_of "$name" .id | tr -d -)
export name root hands

test_expect 'a command that is read slowly waits, and nothing of it is lost' '
	mkfifo out
	limb exec "$name" -- sh -c "seq 8000000; echo done >written" >out &
	exec 3<out
	head -c 1000 <&3 >first
	# it is full everywhere, and small
	sleep 2
	test ! -e "$root/written"
	test "$(taken "$hands")" -lt 60000000
	limb status --json | jq -e ".limbd.memory_bytes < 64000000" || have sanitizers
	# others are not in its way
	timeout 20 limb exec "$name" -- true
	cat first - <&3 | cmp - <(seq 8000000)
	exec 3<&-
	wait
	test "$(cat "$root/written")" = "done"
'

test_expect 'a command whose slow reader was lost goes on by itself' '
	rm "$root/written"
	limb exec "$name" -- sh -c "seq 8000000; echo done >written" >out &
	exec 3<out
	head -c 1000 <&3 >first
	job=$(limb jobs -q)
	kill_9 $(pids_with "exec $name -- sh -c seq")
	wait || true
	exec 3<&-
	limb wait "$job"
	test "$(cat "$root/written")" = "done"
	limb logs "$job" | cmp - <(seq 8000000)
'

test_expect 'a detached job waits for nobody; head, tail and the count of its output are kept, on both sides' '
	before=$(taken "$hands")
	job=$(limb exec "$name" -d -- sh -c "seq 25000000; exit 3")
	expect_code 3 limb wait "$job"
	test $(($(taken "$hands") - before)) -lt 80000000
	total=$(seq 25000000 | wc -c)
	limb jobs -a --json | jq -e ".jobs[] | select(.job_id == \"$job\") | .truncated and .stdout_bytes == $total and .exit_code == 3"
	limb logs "$job" >kept 2>err
	grep "bytes of the output are left out" err
	# half the limit each; what lies between goes in steps of 1 MiB
	test "$(wc -c <kept)" -le $((65 << 20))
	test "$(wc -c <kept)" -gt 60000000
	head -c 30000000 kept | cmp - <(seq 25000000 | head -c 30000000)
	tail -c 30000000 kept | cmp - <(seq 25000000 | tail -c 30000000)
	test $(($(wc -c <kept) + $(sed "s/[^0-9]*\([0-9]*\).*/\1/" err))) = "$total"
	expect_code 3 limb wait "$job" --json >out.json
	jq -e ".truncated and .stdout_bytes == $total and (.stdout | startswith(\"1\\n2\\n\") and endswith(\"\\n25000000\\n\"))" out.json
	limb logs "$job" --json --since $((total - 100)) >out.json
	head -n 1 out.json | jq -r .data | sed "\$d" | cmp - <(seq 25000000 | tail -c 100)
'

test_expect 'output that comes while the line is down is there when it is up again, the middle left out' '
	job=$(limb exec "$name" -d -- sh -c "read -r x; seq 25000000; echo end >&2")
	limb input "$job" --eof </dev/null >/dev/null
	kill_9 "$(pid_of - limbd)"
	wait_for "test -z \"\$(pids_with seq 25000000)\""
	limb up -q >/dev/null
	limb wait "$job"
	limb logs "$job" --stream stdout 2>/dev/null | tail -c 30000000 | cmp - <(seq 25000000 | tail -c 30000000)
	limb jobs -a --json | jq -e ".jobs[] | select(.job_id == \"$job\") | .stdout_bytes == $(seq 25000000 | wc -c) and .stderr_bytes == 4"
	limb status --json | jq -e ".limbd.memory_bytes < 64000000" || have sanitizers
'

test_expect 'input that is not read yet does not grow limbd' '
	job=$(limb exec "$name" -d -- sh -c "sleep 2; wc -c")
	head -c 200000000 /dev/zero | limb input "$job" --eof -q
	limb status --json | jq -e ".limbd.memory_bytes < 64000000" || have sanitizers
	limb wait "$job"
	test "$(limb logs "$job" | tr -d " ")" = 200000000
'

test_done
