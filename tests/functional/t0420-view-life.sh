#!/bin/bash
# A view outlives limbd, comes back after its own death, and leaves nothing that could be taken
# for a tree: no empty directory to fill, no other's mount undone.
. "${0%/*}/view-lib.sh"
need getfattr

mkdir -p src/dir
echo hello >src/file
seq 100000 >src/large
view_rig

attribute() {
	getfattr --absolute-names --only-values -n "user.limb.$1" "$V"
}

# view_refused PATH WORDS: limb-fs says so in one line and mounts nothing.
view_refused() {
	local r=0
	"${view_as[@]}" "$view_program" --state "$T/state" --environment "$view_id" --name x \
		--mount "$1" --look 2>"$T/refused" || r=$?
	cat "$T/refused"
	test "$r" = 125
	grep -q "$2" "$T/refused"
	test "$(wc -l <"$T/refused")" = 1
}

test_expect 'usage' '
	expect_code 2 "$view_program"
	expect_code 2 "$view_program" --state "$T/state" --mount "$V" --look
	expect_code 2 "$view_program" --state "$T/state" --journal "$T/state" "$V"
	expect_code 2 "$view_program" --journal "$T/state" --look --work "$V"
	expect_code 2 "$view_program" --journal "$T/state" "$V" more
	"$view_program" --help | grep -q usage
	test ! -e "$T/mnt"
'
test_expect 'a directory with something in it is not covered' '
	mkdir -p "$T/full"
	touch "$T/full/mine"
	view_refused "$T/full" "not empty: move away"
	test -e "$T/full/mine"
	test "$(stat -c %a "$T/full")" = 755
'
if have root; then
	test_expect 'another'\''s mount stays as it is' '
		mkdir "$T/other"
		mount -t tmpfs other "$T/other"
		touch "$T/other/mine"
		view_refused "$T/other" "something else is mounted"
		test -e "$T/other/mine"
		umount "$T/other"
	'
	test_expect 'without /dev/fuse there is a sentence that says what to do' '
		refused=$(declare -f view_refused)
		export refused T view_program view_id
		unshare -m bash -euc "
			$refused
			mount -t tmpfs none /dev
			view_refused $T/none \"modprobe fuse\"
			mknod -m 600 /dev/fuse c 10 229
				view_as=(setpriv --reuid=65534 --regid=65534 --clear-groups)
			view_refused $T/none \"chmod 666 /dev/fuse\"
		"
		test ! -e "$T/none"
	'
else
	test_skip 'another'\''s mount stays as it is' "$why_not"
	test_skip 'without /dev/fuse there is a sentence that says what to do' "$why_not"
fi

view_fs --work
test_expect 'one limb-fs an environment' '
	view_refused "$T/second" "another limb-fs serves"
	test "$(cat "$V/file")" = hello
'
test_expect 'a link that is down: entries are asked for again, and attributes say so' '
	test "$(attribute state)" = live
	rig stale 1
	wait_for "test \"\$(attribute state)\" = away"
	ls -l "$V" >/dev/null
	echo more >"$T/src/new"
	rig sync
	stat "$V/file" "$V/new"
	messages | grep -E "^(1|3):" >"$T/before"
	sleep 1.1
	stat "$V/new"
	messages | grep -E "^(1|3):" >"$T/after"
	expect_code 1 cmp -s "$T/before" "$T/after"
	test "$(attribute age_ms)" -ge 1000
	test "$(cat "$V/file")" = hello
	rig stale 0
	wait_for "test \"\$(attribute state)\" = live"
	test "$(attribute age_ms)" = 0
	stat "$V/new"
'
test_expect 'limbd is killed: the view answers what it never was asked before' '
	kill -KILL "$(pgrep -f "^$rig_program limbd $T/state ")"
	wait_for "test \"\$(attribute state)\" = away"
	cmp "$V/large" "$T/src/large"
	find "$V" -ls
	wait_for "test \"\$(attribute age_ms)\" -gt 100"
'
rig_end
view_rig
test_expect 'limbd comes back: the view follows it' '
	rig connect
	echo again >>"$T/src/file"
	rig sync
	cmp "$V/file" "$T/src/file"
	test "$(attribute state)" = live
'
test_expect 'the newest limbd counts' '
	rig connect
	rig connect
	echo again >>"$T/src/file"
	rig sync
	cmp "$V/file" "$T/src/file"
'

test_expect 'B50 limb-fs is killed with a working directory and files open in it, again and again' '
	for i in $(seq 20); do
		cd "$V/dir"
		exec 5<"$V/large"
		kill -KILL "$(cat "$T/fs.pid")"
		wait_for "test_gone \$(cat $T/fs.pid)"
		# B51: dead, it shows what is warm and gives errors, but never an empty listing.
		test "$(ls "$V" || echo error)"
		expect_code 2 ls "$V/cold-$i"
		expect_code 1 touch "$V/written"
		rm "$T/fs.pid"
		view_fs --work
		test "$(head -1 "$V/large")" = 1
		test "$(grep -c " $V " /proc/self/mountinfo)" = 1
	done
	cd /
	exec 5<&-
'
test_expect 'B51 the bare mount point takes nothing' '
	kill -KILL "$(cat "$T/fs.pid")"
	wait_for "test_gone \$(cat $T/fs.pid)"
	if have root; then
		umount "$V"
		why=
		lsattr -d "$V" 2>/dev/null | grep -q "^....i" || why="no immutable flag here"
	else
		fusermount3 -u "$V"
		why=
	fi
	if [ -z "$why" ]; then
		expect_code 1 touch "$V/x"
		expect_code 1 mkdir "$V/x"
		# Only root can forbid its owner to remove it.
		! have root || expect_code 1 rmdir "$V"
	fi
	test "$(stat -c %a "$V")" = 0
	as_user bash -c "! ls \"$V\""
	rm "$T/fs.pid"
	view_fs --work
	test -e "$V/file"
'
test_expect 'unmounted by somebody, limb-fs ends' '
	if have root; then
		umount "$V"
	else
		fusermount3 -u "$V"
	fi
	wait_for "test_gone \$(cat $T/fs.pid)"
	rm "$T/fs.pid"
	view_fs --work
'
test_expect 'a signal unmounts it, also while it is in use' '
	cd "$V/dir"
	stop_bg fs TERM
	expect_code 1 grep -q " $V " /proc/self/mountinfo
	expect_code 2 ls ../dir
	cd /
	view_fs --work
'
test_expect 'content that is gone is an error and some lines, not more' '
	for i in $(seq 200); do
		echo "gone $i" >"$T/src/gone-$i"
	done
	rig sync
	mkdir "$T/aside"
	mv "$T/state/store/main/packs"/*.pack "$T/aside"
	stop_bg fs
	view_fs --work
	expect_code 1 cat "$V"/gone-* 2>"$T/errors"
	test "$(grep -c "Input/output error" "$T/errors")" = 200
	test "$(grep -c "cannot read the content" "$T/fs.log")" -lt 60
	mv "$T/aside"/*.pack "$T/state/store/main/packs"
	cat "$V"/gone-* >/dev/null
'
test_expect 'QUIT unmounts it, also while it is in use, and the mount point goes' '
	cd "$V/dir"
	view_quit
	test ! -e "$V"
	expect_code 2 ls ../dir
	cd /
'
# shellcheck disable=SC2034 # used in the test's code
long=$T/$(printf 'long%.0s' $(seq 50))
test_expect 'paths longer than a socket'\''s, and odd ones' '
	mkdir "$long"
	mount=$long/$(printf "a, b\\\\134\n%%")
	view_fs --look "$mount"
	test "$(head -1 "$mount/file")" = hello
	kill -KILL "$(cat "$T/fs.pid")"
	wait_for "test_gone \$(cat $T/fs.pid)"
	rm "$T/fs.pid"
	view_fs --look "$mount"
	test "$(head -1 "$mount/file")" = hello
	test "$(grep -c "fuse.limbfs" <(grep -F " $long/" /proc/self/mountinfo))" = 1
	view_quit
	test ! -e "$mount"
'
rig_end
test_done
