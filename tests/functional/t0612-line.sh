#!/bin/bash
# Over a line that is long, narrow, cut or false: what runs there goes on, its output is
# complete, limbd comes back by itself, and no attempt leaves anything behind.
. "${0%/*}/ssh-lib.sh"
ssh_up
ssh_line
brain_up
mkdir "$T/there"

test_expect 'the line of the tests itself: long, narrow, lossy, out of order, cut' '
	seq 50000 >in
	"$line" -- cat <in 2>err | cmp - in
	grep "^bytes $(stat -c %s in) $(stat -c %s in)" err
	before=$(date +%s%N)
	test "$(echo x | "$line" rtt=200 -- cat 2>err)" = x
	test $((($(date +%s%N) - before) / 1000000)) -ge 200
	before=$(date +%s%N)
	"$line" rate=500000 -- cat <in 2>err | cmp - in
	test $((($(date +%s%N) - before) / 1000000)) -ge 500
	"$line" drop=1000 -- cat <in 2>err | wc -c >n
	test "$(cat n)" -lt "$(stat -c %s in)"
	"$line" swap=50000 -- cat <in >out 2>err
	test "$(stat -c %s out)" = "$(stat -c %s in)"
	refute cmp -s in out
	"$line" after=100000 -- cat <in >out 2>err || true
	test "$(stat -c %s out)" -lt "$(stat -c %s in)"
'
test_expect 'at 50 ms and 10 Mbit/s it works as ever' '
	say rtt=50 rate=1250000
	limb create a --provider "ssh:far:$T/there/a"
	limb exec a -- sh -c "seq 100000; seq 100000 >f; mkdir d; for i in \$(seq 300); do echo \$i >d/\$i; done" >out
	seq 100000 | cmp - out
	verify_equal a
	say rtt=0 rate=0
'
test_expect 'contents go compressed there' '
	limb exec a -- sh -c "yes limbfs | head -c 20000000 >y"
	kill "$(pid_of a transport)"
	wait_state a live
	cat line.log
	awk "/^bytes/ { said = 1; if (\$3 > 3000000) much = 1 } END { exit much || !said }" line.log
	limb exec a -- rm y
'
test_expect 'a job counts to 300 while the line is cut twice: byte for byte, once' '
	limb exec a -- sh -c "echo run >>runs; for i in \$(seq 300); do echo \$i; sleep 0.01; done; exit 7" >out &
	job=$!
	wait_for "test \$(wc -l <out) -gt 30"
	say cut
	wait_for "test \$(wc -l <out) -gt 120"
	say cut
	expect_code 7 wait $job
	seq 300 | cmp - out
	test "$(wc -l <"$T/there/a/runs")" = 1
'
test_expect 'a line that gives bytes in another order, or loses some, is a line that fell' '
	# Neither comes to an end: each attempt falls again.
	say swap=30000
	LIMB_TIME_S=10 limb exec a -- sh -c "seq 20000" >out || true
	say swap=0 drop=20000
	LIMB_TIME_S=10 limb exec a -- sh -c "seq 20000" >out || true
	say drop=0
	wait_state a live
	limb exec a -- sh -c "seq 20000" >out
	seq 20000 | cmp - out
	verify_equal a
	test "$(inspect_of a .incarnation)" = 1
'
test_expect 'while nobody answers there, the state says so, and exec says it soon' '
	say refuse cut
	wait_state a away
	status_of a .reasons
	status_of a ".reasons[0].code" | grep -q line_down
	LIMB_TIME_S=15 expect_code 125 limb exec a -- true 2>err
	cat err
	wait_for "status_of a .reasons | grep -q \"does not answer\""
	say accept
	wait_state a live
	test "$(status_of a ".reasons | length")" = 0
	limb exec a -- true
'
test_expect 'what changes there meanwhile is here afterwards' '
	say refuse cut
	wait_state a away
	mv "$T/there/a/d" "$T/there/a/e"
	echo new >"$T/there/a/e/1"
	rm "$T/there/a/e/2"
	say accept
	wait_state a live
	limb sync a
	verify_equal a
	limb ls a:e/1 --json | jq -e ".entries[0].size_bytes == 4 or .size_bytes == 4" || limb ls a:e
'

test_expect 'B25 an ssh that fails again and again is tried again and again, ever more seldom' '
	limb down
	cat >fails <<-END
		#!/bin/sh
		date +%s%N >>$T/attempts
		[ "\$(wc -l <$T/attempts)" -gt ${LIMB_TEST_LONG:+5}8 ] || { echo ssh: connect to host far: No route to host >&2; exit 255; }
		exec $LIMB_SSH "\$@"
	END
	chmod 755 fails
	LIMB_SSH=$T/fails limb up -q
	wait_for "test -s attempts"
	wait_state a away
	wait_for -t 600 "test \"\$(state_of a)\" = live"
	limb exec a -- true
	sort -c attempts
	test $(($(sed -n 9p attempts) - $(sed -n 8p attempts))) -gt 2000000000
	test "$(wc -l <attempts)" -lt ${LIMB_TEST_LONG:+5}16
	limb down
	limb up -q
	wait_state a live
'
test_expect 'limbd killed while the line is down finds it again' '
	say refuse cut
	wait_state a away
	kill_9 "$(pid_of a limbd)"
	limb up -q
	say accept
	wait_state a live
	verify_equal a
'

# seen PATH TEXT: the view shows it
test_expect 'B06 each change right after the last one was seen is seen' '
	view=$(inspect_of a .view)
	n=200
	for i in $(seq $n); do
		echo "$i" >"$T/there/a/counter"
		wait_for "test \"\$(cat \"$view/counter\")\" = $i"
	done
	test "$(cat "$view/counter")" = $n
'
test_expect 'B18 names that differ in case alone are different names' '
	cd "$T/there/a"
	echo 1 >File
	echo 2 >file
	echo 3 >AAA
	limb sync a
	mv AAA aaa
	echo more >>aaa
	limb sync a
	mv File x
	mv file File
	mv x file
	limb sync a
	verify_equal a
	view=$(inspect_of a .view)
	test "$(cat "$view/File" "$view/file" "$view/aaa" | tr "\n" " ")" = "2 1 3 more "
	test ! -e "$view/AAA"
'
test_expect 'B21 chains and rings of renames: content follows names' '
	cd "$T/there/a"
	mkdir ring
	cd ring
	for i in 1 2 3; do mkdir d$i; echo $i >d$i/f; done
	echo chain >c0
	echo old >over
	echo x1 >x
	echo y1 >y
	limb sync a
	for i in $(seq 50); do mv c$((i - 1)) c$i; done
	mv x t; mv y x; mv t y
	mv d1 t; mv d3 d1; mv d2 d3; mv t d2
	mv c50 over
	limb sync a
	verify_equal a
	view=$(inspect_of a .view)/ring
	test "$(cd "$view" && cat over x y d1/f d2/f d3/f | tr "\n" " ")" = "chain y1 x1 3 1 2 "
	test "$(ls "$view" | wc -l)" = 6
'
test_expect 'nothing is left there' '
	limb rm a
	test ! -e "$far/.local/share/limbfs"
'
stop_bg line
allow_error '^ssh: '
test_done
