#!/bin/bash
# The sweep finds what no event announced, says how many such differences there were, and finds
# none where all is well.
. "${0%/*}/brain-lib.sh"

brain_up
mkdir -p tree/a/b tree/c outside
for i in $(seq 200); do
	echo "$i" >tree/a/"$i"
	echo "$i" >tree/a/b/"$i"
done
ln tree/a/100 outside/twin # what happens by this name is announced to nobody
limb create box --provider local --root "$T/tree" >/dev/null || test_result 'not ok' create
limb set box sweep=1 >/dev/null

differences() {
	status_of box .counts.audit_differences
}

# unseen CODE: it is one change to the sweep.
unseen() {
	local syncd
	syncd=$(pid_of box syncd)
	kill -STOP "$syncd"
	eval "$1"
	kill -CONT "$syncd"
}

test_expect 'its period is shown, and is a setting; all is well: 0' '
	wait_for "test \"\$(status_of box .counts.sweep_period_ms)\" = 1000"
	{ limb status || true; } | grep -F "box: the sweep looks at all within 1.0 s; it found 0 differences"
	# Changes that are announced are no differences, also while it looks.
	for i in $(seq 30); do
		echo $i >tree/a/"$i"
		echo $i >tree/new$i
		rm -f tree/a/b/"$i"
		mv tree/c tree/c$i
		mkdir tree/c
		sleep 0.1
	done
	limb sync box
	test "$(differences)" = 0
	verify_equal box
	test "$(differences)" = 0
'

test_expect 'a flipped byte, with mtime put back, of which there was no event: found, counted, journaled' '
	cp -p tree/a/100 keep
	unseen "printf X | dd of=outside/twin conv=notrunc status=none; touch -r keep outside/twin"
	test "$(stat -c %y tree/a/100)" = "$(stat -c %y keep)"
	wait_for "test \"\$(differences)\" = 1"
	wait_for "test \"\$(limb cp box:a/100 -)\" = X00"
	wait_for "status_of box .state | grep -x degraded || { limb status || true; } | grep -F audit_difference"
	{ limb status || true; } | grep -F "it found 1 differences"
	{ limb status || true; } | grep -F "limb verify box"
	verify_equal box
'

test_expect 'it is counted once, and those that follow, too' '
	sleep 2.5
	test "$(differences)" = 1
	unseen "printf Y | dd of=outside/twin conv=notrunc status=none; touch -r keep outside/twin; chmod 600 outside/twin"
	wait_for "test \"\$(differences)\" = 2"
	wait_for "test \"\$(limb cp box:a/100 -)\" = Y00"
	verify_equal box
'

test_done
