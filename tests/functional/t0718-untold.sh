#!/bin/bash
# What limb cp, mv and rm replace in an environment that is there is told first: a version that
# somebody wrote a moment before is in the journal.
. "${0%/*}/brain-lib.sh"

brain_up
limb create u --provider local >/dev/null
R=$(root_of u)
export R
sha() {
	printf %s "$1" | sha256sum | cut -d" " -f1
}
# In one go, so that nothing can have been captured in between.
stopped() {
	kill -STOP "$(pid_of u syncd)"
}
go_on() {
	kill -CONT "$(pid_of u syncd)"
}
had() {
	wait_for "limb journal dump u --json | grep sha256:$(sha "$1") >/dev/null"
}
mkdir "$R/d"
echo one >"$R/a"
echo one >"$R/d/x"
echo '*.o' >"$R/.limbignore"
limb sync u >/dev/null

test_expect 'two copies upon one another, at once: both are in the journal' '
	stopped
	printf first | limb cp - u:a &
	one=$!
	printf second | limb cp - u:a &
	two=$!
	sleep 0.3
	go_on
	wait $one
	wait $two
	had first
	had second
'
test_expect 'what was written a moment before a copy, a removal and a move over it' '
	stopped
	printf edit-a >"$R/a"
	printf edit-x >"$R/d/x"
	printf new >"$R/d/new"
	printf copied | limb cp - u:a &
	one=$!
	limb rm u:d &
	two=$!
	sleep 0.3
	go_on
	wait $one
	wait $two
	had edit-a
	had edit-x
	had new
	stopped
	printf edit-b >"$R/b"
	limb mv u:a u:b &
	one=$!
	sleep 0.3
	go_on
	wait $one
	had edit-b
	test "$(cat "$R/b")" = copied
'
test_expect 'what is ignored does not count' '
	echo one >"$R/x.o"
	limb sync u
	begin=$EPOCHREALTIME
	# Each would wait 2 s.
	for i in $(seq 12); do
		echo two | limb cp - u:x.o
		echo "$i" >"$R/x.o"
	done
	limb rm u:x.o
	test ! -e "$R/x.o"
	awk "BEGIN { exit !($EPOCHREALTIME - $begin < 20) }"
'
test_done
