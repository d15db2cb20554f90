#!/bin/bash
# With limbd and environments: what limb returned from is in the view, which outlives limbd and
# comes back when limb-fs dies; each environment's view is its own.
. "${0%/*}/brain-lib.sh"
need fuse getfattr

if have long; then
	replaces=10000
	churn_s=600
else
	replaces=500
	churn_s=5
fi
export rig_program=$LIMB_TOP_BUILDDIR/tests/functional/view-rig/view-rig
V=$T/state/mnt/one
mkdir -p r1/dir r2
echo hello >r1/file
seq 100000 >r1/large
echo other >r2/file
brain_up
limb create one --provider local --root "$T/r1" >/dev/null
limb create two --provider local --root "$T/r2" >/dev/null
limb trust one >/dev/null
limb trust two --off >/dev/null
wait_for "test -e $V/file"

warm() {
	find "$V" -ls
	cat "$V"/* || true
}

test_expect 'a job'\''s files are there when exec returns' '
	warm >/dev/null 2>&1
	for i in $(seq 20); do
		limb exec one -- sh -c "echo $i >>file; echo $i >new-$i; rm -f new-$((i - 1))"
		cmp "$T/r1/file" "$V/file"
		test "$(cat "$V/new-$i")" = $i
		test ! -e "$V/new-$((i - 1))"
	done
'
test_expect 'B37 growing, shrinking and same-size edits, as limb sync returns' '
	exec 5<"$V/large"
	for size in 100 200000 4096 4097; do
		head -c $size /dev/urandom >"$T/r1/large"
		limb sync one
		cmp "$V/large" "$T/r1/large"
		cmp /proc/self/fd/5 "$T/r1/large"
		head -c $size /dev/urandom | dd of="$T/r1/large" conv=notrunc status=none
		limb sync one
		cmp "$V/large" "$T/r1/large"
	done
	exec 5<&-
'
test_expect 'B33 inode numbers and times are the environment'\''s own' '
	ln "$T/r1/file" "$T/r1/dir/hard"
	limb sync one
	for name in file dir dir/hard large; do
		test "$(stat -c "%i %Y %Z %a" "$V/$name")" = "$(stat -c "%i %Y %Z %a" "$T/r1/$name")"
	done
	test "$(stat -c %h "$V/file")" = 2
'
test_expect 'each environment has a mount, a mode and a device of its own' '
	test "$(stat -c %d "$V")" != "$(stat -c %d "$T/state/mnt/two")"
	grep " $V ro,nosuid,nodev,relatime " /proc/self/mountinfo
	grep " $T/state/mnt/two ro,nosuid,nodev,noexec,relatime " /proc/self/mountinfo
	kill -KILL "$(inspect_of two .pids.fs)"
	test "$(head -1 "$V/file")" = hello
	wait_for "test \"\$(cat $T/state/mnt/two/file)\" = other"
'
test_expect 'B50 limb-fs is killed with somebody in it: limbd brings it back' '
	for i in $(seq 20); do
		cd "$V/dir"
		fs=$(inspect_of one .pids.fs)
		kill -KILL "$fs"
		wait_for "[[ \$(inspect_of one .pids.fs) != @(null|$fs) ]]"
		test "$(head -1 "$V/file")" = hello
		expect_code 2 ls "$V/cold-$i"
		test "$(grep -c " $V " /proc/self/mountinfo)" = 1
	done
	cd /
	echo again >>"$T/r1/file"
	limb sync one
	cmp "$V/file" "$T/r1/file"
'
test_expect 'B50 B52 limbd is killed: the view stays, says so, and follows the next one' '
	cd "$V/dir"
	fs=$(inspect_of one .pids.fs)
	kill -KILL "$(pid_of one limbd)"
	wait_for "test \"\$(getfattr --absolute-names --only-values -n user.limb.state $V)\" = away"
	cmp "$V/large" "$T/r1/large"
	expect_code 2 ls "$V/never-asked"
	limb up
	wait_state one live
	wait_for "test \"\$(getfattr --absolute-names --only-values -n user.limb.state $V)\" = live"
	test "$(inspect_of one .pids.fs)" = "$fs"
	cd /
	echo more >>"$T/r1/file"
	limb sync one
	cmp "$V/file" "$T/r1/file"
'
test_expect 'a stopped environment is away, its view is not' '
	limb stop one
	wait_for "test \"\$(getfattr --absolute-names --only-values -n user.limb.state $V)\" = away"
	cmp "$V/file" "$T/r1/file"
	limb start one
	wait_state one live
	wait_for "test \"\$(getfattr --absolute-names --only-values -n user.limb.state $V)\" = live"
'
test_expect 'look and work are a remount' '
	cd "$V"
	limb trust one --off
	cd /
	wait_for "grep -q \" $V ro,nosuid,nodev,noexec,relatime \" /proc/self/mountinfo"
	wait_for "test \"\$(stat -c %a $V/file)\" = 444"
	limb trust one
	wait_for "test \"\$(stat -c %a $V/file)\" = 644"
'
# What only the environment shows: it changes by itself, the view follows when it can.
test_expect 'B38 a reader of a file that is replaced all the time: always one whole content' '
	printf a >"$T/r1/value.json"
	limb sync one
	"$rig_program" read "$V/value.json" 100000 >"$T/read.out" &
	reader=$!
	for i in $(seq '$replaces'); do
		printf "%*s" $((i * 97 % 20000 + 1)) "" | tr " " "\\$(printf %o $((97 + i % 26)))" \
			>"$T/r1/value.new"
		mv "$T/r1/value.new" "$T/r1/value.json"
	done
	limb sync one
	kill $reader
	test ! -s "$T/read.out"
	cmp "$V/value.json" "$T/r1/value.json"
'
test_expect 'B48 a crowd in a directory that changes all the time: no call is late, no name missing' '
	mkdir "$T/r1/churn"
	touch "$T/r1/churn"/stay-{1..40}
	limb sync one
	"$rig_program" crowd "$V/churn" 16 '$churn_s' &
	crowd=$!
	end=$((SECONDS + churn_s))
	i=0
	while [ $SECONDS -lt $end ]; do
		i=$((i + 1))
		touch "$T/r1/churn/churn-$((i % 50))"
		rm -f "$T/r1/churn/churn-$(((i + 25) % 50))"
	done
	wait $crowd
	limb sync one
	test "$(ls "$V/churn")" = "$(ls "$T/r1/churn")"
'
test_expect 'limb verify and both trees agree in the end' '
	limb verify one
	diff <(cd "$T/r1" && find . -printf "%y %m %i %T@ %P\n" | sort) \
		<(cd "$V" && find . -printf "%y %m %i %T@ %P\n" | sort)
'
test_expect 'rm takes the view and its mount point away' '
	limb rm two --force
	wait_for "test ! -e $T/state/mnt/two"
	expect_code 1 grep " $T/state/mnt/two " /proc/self/mountinfo
'
test_expect 'down leaves nothing mounted' '
	limb down
	expect_code 1 grep " $T/state/mnt/" /proc/self/mountinfo
	test ! -e "$V"
	limb up
	wait_for "test \"\$(head -1 $V/file)\" = hello"
'
test_done
