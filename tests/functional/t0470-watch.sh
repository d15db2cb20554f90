#!/bin/bash
# limb watch says what becomes of an environment's files, each change once and in order, from now
# on or from a point.
. "${0%/*}/brain-lib.sh"

mkdir tree
echo a >tree/a
brain_up
limb create box --provider local --root "$T/tree" >/dev/null || test_result 'not ok' create
limb label box start >/dev/null

# watching NAME ARG...: in the background, output in NAME.out
watching() {
	local name=$1
	shift
	"$LIMB_TOP_BUILDDIR/bridge/limb" watch box "$@" >"$name.out" 2>"$name.err" &
	echo $! >"$name.pid"
}
# What one watch said, without numbers and times.
told() {
	jq -r '[.kind, .from_path // "-", .path, .type // "-"] | join(" ")' "$1"
}

test_expect 'what is made, written, renamed, removed and changed is told as it happens' '
	watching live --json
	# It tells from where the log is once it stands there.
	for i in $(seq 100); do
		limb exec box -- touch "probe$i"
		if grep -q probe live.out; then
			break
		fi
	done
	grep probe live.out
	limb sync box --json | jq .seq >begin
	limb exec box -- sh -c "mkdir d; echo 1 >d/f"
	limb exec box -- sh -c "echo 22 >>d/f"
	limb exec box -- chmod 600 d/f
	limb exec box -- mv d e
	limb exec box -- sh -c "echo 333 >>e/f; ln -s f e/l"
	limb exec box -- rm -r e
	limb sync box
	wait_for "grep -q \"remove.*\\\"e\\\"\" live.out"
	jq -c "select(.seq > $(cat begin))" live.out >events
	told events >got
	grep -x "create - d directory" got
	grep -x "create - d/f file" got
	grep -x "write - d/f file" got
	grep -x "chmod - d/f file" got
	grep -x "rename d e directory" got
	grep -x "write - e/f file" got
	grep -x "create - e/l symlink" got
	grep -x "remove - e directory" got
	test "$(grep -c "^rename" got)" = 1
	test "$(grep -n "^create - d directory" got | cut -d: -f1)" -lt "$(grep -n "^rename" got | cut -d: -f1)"
	jq -es "all(.[]; .origin == \"environment\" and .incarnation >= 1 and (.at | test(\"Z$\"))) and (map(.seq) | . == sort)" events
	refute grep resync got
	kill -INT "$(cat live.pid)"
	wait_for "test_gone $(cat live.pid)"
	test ! -s live.err
'
test_expect 'from a point: all that came after it, the same as was told then' '
	for since in start "$(limb points box --json | jq "[.points[] | select(.label == \"start\")][0].seq")"; do
		watching again --json --since "$since"
		wait_for "grep -q \"remove.*\\\"e\\\"\" again.out"
		jq -c "select(.seq > $(cat begin))" again.out >events.again
		head -n "$(wc -l <events)" events.again | cmp - events
		kill "$(cat again.pid)"
		wait_for "test_gone $(cat again.pid)"
	done
	expect_code 125 limb watch box --since no-such-label --json >out
	jq -e ".error == \"point_not_found\"" out
	expect_code 125 limb watch nobody --json >out
	jq -e ".error == \"environment_not_found\"" out
'
test_expect 'the brain'\''s own changes, names that are no text, and without limbd' '
	watching plain --since "$(inspect_of box .seq)"
	watching json --json --since "$(inspect_of box .seq)"
	echo here | limb cp - box:from-brain
	touch "$(printf "tree/b\377")"
	limb sync box
	wait_for "grep -q base64 json.out"
	test "$(jq -r "select(.path == \"from-brain\" and .kind == \"create\") | .origin" json.out)" = brain
	test "$(jq -r "select(.path_base64) | .path_base64" json.out | head -n 1)" = "$(printf "b\377" | base64)"
	wait_for "grep -F \"create b\\\\xff\" plain.out"
	kill_9 "$(pid_of box limbd)"
	watching dead --since start
	wait_for "grep -q from-brain dead.out"
	limb up -q
	for name in plain json dead; do
		kill "$(cat $name.pid)"
		wait_for "test_gone $(cat $name.pid)"
	done
	wait_state box live
'
test_expect 'it ends when the environment is removed' '
	watching gone --json
	sleep 0.5
	limb rm box --force
	wait_for "test_gone $(cat gone.pid)"
	tail -n 1 gone.out | jq -e ".error == \"environment_not_found\""
'
test_done
