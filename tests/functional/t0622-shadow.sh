#!/bin/bash
# A limb-syncd that starts anew over a network is sent what its file of the shadow lacks, and no
# file, whatever is in it, makes it see or say anything else than it would without one.
. "${0%/*}/ssh-lib.sh"
ssh_up
brain_up
root=$T/there/a
# What the whole tree costs, at the least.
# shellcheck disable=SC2034 # for the tests
files=4000 whole=150000

daemon_of() {
	pids_with "daemon --dir $far" "$(inspect_of "$1" .id | tr -d -)"
}
# Its private directory has more than the file: so by name.
shadow_of() {
	find "$far" -name shadow -path "*$(inspect_of "$1" .id | tr -d -)*"
}
# The transport's, in and out; its own start is in it.
line_bytes() {
	awk '/^[rw]char/ { n += $2 } END { print int(n / 2) }' "/proc/$(pid_of a transport)/io"
}
begin_again() {
	local before
	before=$(inspect_of a .incarnation)
	kill_9 "$(daemon_of a)"
	wait_for "test \"\$(inspect_of a .incarnation)\" -gt $before"
	wait_state a live
	limb sync a -q
}
stopped() {
	limb stop a -q
	wait_for 'test -z "$(daemon_of a)"'
}
started() {
	limb start a -q
	wait_state a live
	limb sync a -q
	verify_equal a
}

test_expect 'the file comes by itself' '
	limb create a --provider "ssh:box:$root"
	for i in $(seq 100); do
		mkdir "$root/d$i"
		for j in $(seq $((files / 100))); do echo "$i $j" >"$root/d$i/f$j"; done
	done
	ln "$root/d1/f1" "$root/d2/second"
	ln -s nowhere "$root/link"
	limb sync a -q
	wait_for -t 120 "test \"\$(stat -c %s \"\$(shadow_of a)\")\" -gt $((files * 80))"
	cp "$(shadow_of a)" "$T/first"
'
test_expect 'limb-syncd killed: the tree is not sent again' '
	begin_again
	test "$(line_bytes)" -lt "$whole" || {
		echo "$(line_bytes) bytes"
		false
	}
	verify_equal a
'
test_expect 'without the file it is: the measure above measures' '
	stopped
	rm "$(shadow_of a)"
	limb start a -q
	wait_state a live
	limb sync a -q
	test "$(line_bytes)" -gt "$whole" || {
		echo "$(line_bytes) bytes"
		false
	}
'
test_expect 'what was changed while it was down is found, also with size and mtime put back' '
	stopped
	test -s "$(shadow_of a)"
	touch -r "$root/d3/f3" "$T/time"
	echo "3 X" >"$root/d3/f3"
	touch -r "$T/time" "$root/d3/f3"
	mv "$root/d4" "$root/d5/moved"
	rm -r "$root/d6"
	rm "$root/d1/f1"
	echo new >"$root/d7/new"
	chmod 600 "$root/d8/f8"
	setfattr -n user.test -v yes "$root/d9/f9" || true
	started
	limb exec a -- cat d3/f3 >said
	test "$(cat said)" = "3 X"
	test "$(cat "$LIMB_STATE/mnt/a/d3/f3")" = "3 X"
	test "$(cat "$LIMB_STATE/mnt/a/d2/second")" = "1 1"
	test ! -e "$LIMB_STATE/mnt/a/d6"
'
test_expect 'kill -9 between any two changes: an old file is as good' '
	for i in 1 2 3 4 5 6; do
		echo "$i" >>"$root/d1$i/f1"
		mv "$root/d2$i" "$root/n$i"
		[ $((i % 2)) = 0 ] || limb sync a -q
		kill_9 "$(daemon_of a)"
		rm -r "$root/d3$i"
		echo later >"$root/d5/later$i"
		before=$i
		wait_for "limb sync a -q"
		verify_equal a
	done
'
# swapped FILE: as the file that it finds
swapped() {
	stopped
	cp "$1" "$(shadow_of a)"
	echo "$1" >"$root/d5/seen"
	started
}
test_expect 'a file that is old, damaged, cut, empty, or that of another environment' '
	limb create b --provider "ssh:box:$T/there/b"
	cp -r "$root"/d1* "$T/there/b"
	limb sync b -q
	wait_for "test -s \"\$(shadow_of b)\""
	cp "$(shadow_of b)" "$T/others"
	head -c 100000 "$T/first" >"$T/cut"
	: >"$T/empty"
	head -c 400000 /dev/urandom >"$T/noise"
	{ head -c 5000 "$T/first"; printf XXXX; tail -c +5005 "$T/first"; } >"$T/damaged"
	for one in first others cut empty noise damaged; do
		swapped "$T/$one"
	done
	limb rm b --force -q
'
test_expect 'a file that cannot be read or written is no file' '
	stopped
	shadow=$(shadow_of a)
	rm "$shadow"
	mkdir "$shadow"
	started
	stopped
	rmdir "$shadow"
	ln -s /dev/zero "$shadow"
	started
	stopped
'
test_expect 'a rebuild makes the tree anew, whatever the file says' '
	limb start a -q
	wait_state a live
	limb sync a -q
	tree_list "$root" >before
	stopped
	rm -rf "$root"
	limb rebuild a -q
	wait_state a live
	verify_equal a
	tree_list "$root" >after
	cmp before after
'
test_expect 'nothing is left there' '
	limb rm a --force
	test ! -e "$far/.local/share/limbfs"
'
allow_error '^ssh: '
test_done
