#!/bin/bash
# A journal above its quota takes no more changes and says so, keeps all that was durable, lets
# commands run, and goes on by itself when it may have more; the same of a disk that is full.
. "${0%/*}/away-lib.sh"

brain_up
mkdir tree tree2
limb create box --provider local --root "$T/tree" >/dev/null || test_result 'not ok' create
limb create other --provider local --root "$T/tree2" >/dev/null || test_result 'not ok' 'create other'
export root=$T/tree

# full NAME: halted for its quota, with the remedy
full() {
	wait_state "$1" halted
	status_of "$1" '.reasons[0].code' | grep -x "${2:-journal_quota}"
	status_of "$1" '.reasons[0].next_steps[0]' | grep -E "${3:-^limb set $1 quota=}"
}

test_expect 'settings: each is a record, is shown, and what cannot be is refused' '
	limb set box quota=2M sweep=77 rate=1G class=ordered --json >out
	jq -e ".spec.quota_bytes == 2097152 and .spec.sweep_s == 77 and .spec.rate_bytes == 1073741824" out
	jq -e "any(.limits[]; .name == \"journal_bytes\" and .value == 2097152 and .enforced == \"limbfs\")" out
	wait_for "test \"\$(status_of box .counts.sweep_period_ms)\" = 77000"
	limb journal dump box --json | jq -se "[.[] | select(.type == \"decision\" and .verb == \"set\") | .key] == [\"quota\", \"sweep\", \"rate\", \"class\"]"
	for bad in quota quota= quota=-1 quota=x sweep=0.5 sweep=99999999 class=weak class= colour=red "class=weak:*.c" "class=strong:" "class=strong:!x" "class=:#x"; do
		expect_code 2 limb set box "$bad"
		expect_code 2 limb set box quota=1 "$bad"
	done
	expect_code 2 limb set box
	expect_code 125 limb set nobody quota=1
	test "$(inspect_of box .spec.quota_bytes)" = 2097152
	limb set box rate=0 sweep=0 >/dev/null
	wait_for "test \"\$(status_of box .counts.sweep_period_ms)\" = 300000"
'

test_expect 'above it: halted, with the reason and the remedy; commands run on' '
	echo before >tree/before
	limb sync box
	head -c 3000000 /dev/urandom >tree/big
	full box
	limb exec box -- true
	test "$(limb exec box -- cat before)" = before
	expect_code 7 limb exec box -- sh -c "exit 7"
	limb exec box --json -- sh -c "echo later >later; mkdir d; echo x >d/x; rm before" >out
	jq -e ".exit_code == 0 and ([.unsettled[].path] | contains([\"later\", \"before\"]))" out
	# what was durable is as it was
	test "$(limb cp box:before -)" = before
	limb why box later >out || true
	grep -F pending out
'

test_expect 'what would wait for ever ends at once and says why' '
	for what in "sync box" "verify box" "rm box:big" "mv box:big box:big2"; do
		r=0
		limb $what --json >out || r=$?
		test $r = 125
		jq -e ".error == \"halted\" and (.next_steps[0] | startswith(\"limb set box quota=\"))" out
	done
	r=0
	echo x | limb cp - box:mine --json >out || r=$?
	test $r = 125
	jq -e ".error == \"halted\"" out
'

test_expect 'others do not notice' '
	echo 1 >tree2/f
	limb sync other
	wait_state other live
	limb exec other -- true
'

test_expect 'it outlives limbd and limb-syncd' '
	kill_9 "$(pid_of box limbd)"
	limb up -q >/dev/null
	full box
	kill_9 "$(pid_of box syncd)"
	limb start box >/dev/null 2>&1 || true
	full box
	wait_for "limb exec box -- true"
	test ! -e tree/before
	limb journal verify box
'

test_expect 'with the reserve used up no command begins; decisions are taken' '
	# Each of them leaves two records of some hundred bytes; the reserve has 256 KiB.
	arg=$(printf %04000d 0)
	n=0
	while limb exec box -- true "$arg"; do
		n=$((n + 1))
		test $n -lt 300
	done
	test $n -gt 10
	limb exec box --json -- true >out || true
	jq -e ".error == \"quota_exceeded\" and (.next_steps | length) == 1" out
	limb label box here >/dev/null || limb label box here --at 2 >/dev/null
	limb trust box --off >/dev/null
'

test_expect 'raised, all goes on by itself, and nothing is missing' '
	limb set box quota=100M >/dev/null
	wait_state box live
	wait_for "limb sync box"
	test "$(limb cp box:later -)" = later
	limb ls box: --json | jq -e "[.entries[].name] == [\"big\", \"d\", \"later\"]"
	verify_equal box
	status_of box ".reasons | length" | grep -x 0
	limb exec box -- sh -c "echo 1 >after"
	verify_equal box
'

test_expect 'a command that runs when it becomes full has its end, and says what is not kept' '
	used=$(status_of box .counts.journal_bytes)
	limb set box quota=$((used + 500000)) >/dev/null
	limb exec box --json -- sh -c "head -c 4000000 /dev/urandom >huge; while [ ! -e go ]; do sleep 0.05; done; echo 1 >end" >out &
	full box
	touch tree/go
	wait
	jq -e ".exit_code == 0 and ([.unsettled[].path] | contains([\"end\"]))" out
	limb jobs box -a --json | jq -e ".jobs[0].state == \"exited\""
	limb set box quota=0 >/dev/null
	wait_for "limb sync box"
	verify_equal box
'

test_expect 'an environment that becomes full while it is away, or is made with too little' '
	away_create far
	limb exec far -- sh -c "echo 1 >f"
	away far
	limb set far quota=1K >/dev/null
	r=0
	echo x | limb cp - far:g --json >out || r=$?
	test $r = 125
	rm "$T/down/far"
	limb start far >/dev/null 2>&1 || true
	full far
	limb set far quota=1G >/dev/null
	wait_state far live
	mkdir tree3
	head -c 3000000 /dev/urandom >tree3/big
	cp tree3/big big3
	echo "{\"quota_bytes\": 100000}" >spec.json
	r=0
	limb create little --provider local --root "$T/tree3" --spec spec.json --json >out || r=$?
	# What is on its way at once is taken.
	if [ $r = 0 ]; then
		full little
	else
		test $r = 125
		jq -e ".error | IN(\"halted\", \"quota_exceeded\")" out
	fi
	cmp tree3/big big3
	mkdir tree4
	echo "{\"quota_bytes\": \"x\"}" >spec.json
	expect_code 2 limb create little2 --provider local --root "$T/tree4" --spec spec.json
'

test_expect 'a rate: what is written waits its turn, commands do not' '
	limb set other rate=200K >/dev/null
	# moved there: one that grows is sent again as it does, and all of that counts
	head -c 3000000 /dev/urandom >slow
	mv slow tree2/slow
	wait_for "test \"\$(status_of other .counts.pending_changes)\" -gt 0"
	limb exec other -- true
	limb exec other --json -- true | jq -e "has(\"unsettled\") | not"
	# 1 MiB at once, the rest at the rate
	limb sync other --timeout 60
	verify_equal other
	limb set other rate=0 >/dev/null
'

if have root && [ -n "$(unshare -m true && echo yes)" ]; then
	test_expect 'a disk that is full: no change is lost, and all goes on when there is room' '
		mkdir small
		cat >small.sh <<"END"
set -eu
mount -t tmpfs -o size=48m none small
export LIMB_STATE=$T/small/state
mkdir small/tree
limb up -q >/dev/null
trap "limb down --stop >/dev/null" EXIT
limb create s --provider local --root "$T/small-tree" >/dev/null
head -c $(($(df -k --output=avail small | tail -n 1) * 1024 - 2000000)) /dev/zero >small/ballast
echo 1 >small-tree/a
limb sync s || true
for i in $(seq 600); do
	! { limb status s --json || true; } | jq -e ".environments[0] | .state == \"halted\" and .reasons[0].code == \"no_space\"" || break
	sleep 0.1
	echo $i >small-tree/a
done
{ limb status s --json || true; } | jq -e ".environments[0] | .state == \"halted\" and .reasons[0].code == \"no_space\""
limb exec s -- true
echo 2 >small-tree/b
rm small/ballast
for i in $(seq 600); do
	! limb sync s 2>/dev/null || break
	sleep 0.1
done
limb verify s
limb journal verify s
test "$(limb cp s:b -)" = 2
END
		mkdir small-tree
		unshare -m bash -x small.sh
	'
fi

test_done
