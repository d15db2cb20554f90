#!/bin/bash
# What is written in a writable view is seen there at once, and is in the environment when exec
# returns; a view whose spec does not say so stays read-only.
. "${0%/*}/brain-lib.sh"
need fuse

V=$T/state/mnt/w
R=$T/r
mkdir -p "$R/dir" r2
echo hello >"$R/file"
seq 100000 >"$R/large"
ln -s file "$R/link"
echo '{"view": {"write": true}}' >spec.json
brain_up
limb create w --provider local --root "$R" --spec spec.json >/dev/null
limb create plain --provider local --root "$T/r2" >/dev/null
wait_for "test -e $V/file"

test_expect 'without a word in the spec nothing can be written' '
	refute touch "$T/state/mnt/plain/x"
	touch "$T/state/mnt/plain/x" 2>said || true
	grep "Read-only file system" said
'
test_expect 'what was written is read at once, and exec sees it' '
	echo new >"$V/new"
	test "$(cat "$V/new")" = new
	test "$(limb exec w -- cat new)" = new
	echo more >>"$V/new"
	test "$(limb exec w -- cat new)" = "new
more"
	cmp "$V/new" "$R/new"
'
test_expect 'a longer file is written over by >' '
	echo short >"$V/large"
	test "$(cat "$V/large")" = short
	test "$(limb exec w -- cat large)" = short
'
test_expect 'names: mkdir, rename, link, symlink, unlink, rmdir' '
	mkdir -p "$V/a/b/c"
	echo x >"$V/a/b/c/x"
	mv "$V/a/b" "$V/a/d"
	ln "$V/a/d/c/x" "$V/hard"
	ln -s a/d "$V/soft"
	rm "$V/link"
	test "$(cat "$V/soft/c/x")" = x
	test ! -e "$V/a/b"
	refute rmdir "$V/a"
	mkdir "$V/gone"
	rmdir "$V/gone"
	limb exec w -- true
	test "$(cat "$R/a/d/c/x")" = x
	test "$(readlink "$R/soft")" = a/d
	test ! -e "$R/gone"
	test ! -L "$R/link"
	test "$(stat -c %h "$R/hard")" = 2
	test "$(stat -c %h "$V/hard")" = 2
'
test_expect 'modes and times' '
	chmod 755 "$V/new"
	touch -d "2001-02-03 04:05:06.789" "$V/new"
	test "$(stat -c %a "$V/new")" = 755
	limb exec w -- true
	test "$(stat -c "%a %y" "$R/new")" = "$(stat -c "%a %y" "$V/new")"
	stat -c %y "$R/new" | grep "^2001-02-03 04:05:06.789"
'
test_expect 'links come and go, and none is taken for what somebody else made' '
	for i in 1 2 3 4 5; do
		echo a >"$V/l1"
		ln "$V/l1" "$V/l2"
		rm "$V/l2"
		rm "$V/l1"
		echo a >"$V/l1"
		echo b >"$V/l3"
		ln "$V/l1" "$V/l2"
		test $((i % 2)) = 0 || limb exec w -- true
		mv "$V/l3" "$V/l1"
		rm "$V/l1"
		rm "$V/l2"
	done
	limb sync w
	test "$(status_of w .counts.conflicts)" = 0
	test ! -e "$R/l1"
	test ! -e "$R/l2"
'
test_expect 'what is refused is refused cleanly' '
	refute mknod "$V/device" c 1 3
	refute mv -T "$V/file" "$V/a"
	refute mkdir "$V/file"
	refute setfattr -n user.limb.x -v y "$V/file"
	test "$(cat "$V/file")" = hello
'
test_expect 'both sides are equal' '
	verify_equal w
	tree_list "$R" >there
	tree_list "$V" >here
	same_tree here there
'
test_done
