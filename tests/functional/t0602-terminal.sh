#!/bin/bash
# A command on a terminal has one of its own: its size, as it changes, its keys, its end; and
# limb shell and limb attach are such terminals.
. "${0%/*}/brain-lib.sh"
need script

# on_terminal ROWS COLS COMMAND: in a terminal of that size, whose name is in ./pts; keys by
# stdin, what it shows in ./out.
on_terminal() {
	timeout 50 script -qec "stty rows $1 cols $2; tty >$T/pts; $3" /dev/null >out
}
# seen LINE: in ./out
seen() {
	tr -d '\r' <out | grep -x -- "$1"
}

brain_up
for name in $providers; do
	limb create "$name" --provider "$name" >/dev/null || test_result 'not ok' "create $name"
	root=$(root_of "$name")
	export name root

	test_expect "$name: exec -t gives a terminal; without -t there is none" '
		limb exec "$name" -t -- sh -c "tty; stty size; test -t 0 && test -t 1 && test -t 2 && exit 6" </dev/null >out || r=$?
		test "$r" = 6
		tr -d "\r" <out >lines
		head -n 1 lines | grep "^/dev/"
		test "$(tail -n 1 lines)" = "24 80"
		limb exec "$name" -t -e TERM=vt100 --json -- sh -c "echo \$TERM; : </dev/tty" </dev/null | jq -e ".stdout == \"vt100\\r\\n\" and .exit_code == 0"
		refute limb exec "$name" -- sh -c ": </dev/tty" 2>/dev/null
		limb jobs -a --json | jq -e ".jobs | map(.tty) | index(true) and index(false)"
		# end of input is the terminal'\''s own
		printf "one\n" | limb exec "$name" -t -- cat >out
		tr -d "\r" <out | grep -x one
	'

	test_expect "$name: it has the size of ours, and learns when that changes" '
		rm -f out
		wait_for "test -e $root/done" | on_terminal 33 77 "exec limb exec $name -t -- sh -c \"trap \\\"stty size\\\" WINCH; stty size; while test ! -e done; do sleep 0.05; done; stty size\"" &
		wait_for "seen \"33 77\""
		stty -F "$(cat pts)" rows 50 cols 120
		wait_for "seen \"50 120\""
		touch "$root/done"
		wait
		test "$(tr -d "\r" <out | tail -n 1)" = "50 120"
		rm "$root/done"
	'

	cat >"$root/keys" <<'END'
trap 'echo; echo caught; got=1' INT
echo ready
while [ -z "$got" ]; do sleep 0.05; done
read -r x
echo "<$x>"
exit 5
END
	test_expect "$name: keys go to the command as they are, ^C too, and our terminal is as before" '
		rm -f out
		{
			wait_for "seen ready"
			printf "\003"
			wait_for "seen caught"
			printf "word\r"
			wait_for "seen \"<word>\""
			wait_for "seen \"status.*\""
		} | on_terminal 24 80 "stty -a >before; limb exec $name -t -- sh keys; echo status \$?; stty -a >after"
		seen "status 5"
		cmp before after
	'

	test_expect "$name: limb shell is a shell there; its status is the shell'\''s" '
		r=0
		printf "echo \$((40 + 2)); pwd; cd /; pwd; exit 3\n" | limb shell "$name" >out || r=$?
		test "$r" = 3
		test "$(sed -n 1p out)" = 42
		test "$(sed -n 3p out)" = /
		rm -f out
		{
			wait_for "test -s out"
			printf "tty >/dev/null && echo on-a-\"terminal\"; stty size; exit 4\r"
			wait_for "seen \"status.*\""
		} | on_terminal 31 91 "limb shell $name -e TERM=dumb; echo status \$?"
		seen "on-a-terminal"
		seen "31 91"
		seen "status 4"
	'

	test_expect "$name: attach to a job on a terminal; who leaves leaves it running" '
		job=$(limb exec "$name" -t -d -- sh -c "stty size; while read -r x; do echo \"<\$x>\"; test \"\$x\" != end || exit 8; done")
		rm -f out
		{
			wait_for "test -s out"
			printf "one\r"
			wait_for "seen \"<one>\""
			kill -TERM $(pids_with "limb attach $job" | tail -n 1)
			wait_for "seen \"status.*\""
		} | on_terminal 40 100 "limb attach $job; echo status \$?"
		seen "status 143"
		limb jobs -q | grep -x -- "$job"
		rm -f out
		{
			wait_for "seen \"<one>\""
			printf "end\r"
			wait_for "seen \"status.*\""
		} | on_terminal 40 100 "limb attach $job; echo status \$?"
		seen "<end>"
		seen "status 8"
		expect_code 8 limb wait "$job"
	'
done

test_expect 'attach without a terminal follows, and gives the job no input and no end' '
	job=$(limb exec "$name" -d -- sh -c "read -r x; echo \"<\$x>\"")
	limb attach "$job" </dev/null >out &
	sleep 0.3
	limb jobs -q | grep -x -- "$job"
	echo word | limb input "$job" -q
	wait
	test "$(cat out)" = "<word>"
'

test_done
