#!/bin/bash
# A normal user's view is as good as root's: mounted by fusermount3, closed up, cleaned.
. "${0%/*}/view-lib.sh"
need user fusermount3 getfattr
as_user test -w /dev/fuse || skip_all 'a normal user cannot open /dev/fuse'

if have root; then
	view_as=(setpriv --reuid=65534 --regid=65534 --clear-groups)
fi
mkdir -p src/dir state mnt
echo hello >src/file
echo secret >src/secret
chmod 600 src/secret
ln src/file src/dir/hard
ln -s ../../../etc/passwd src/out
if have root; then
	chown -R 65534:65534 src state mnt
fi
export -f tree_state test_gone
view_rig

view_fs --work
test_expect 'the user sees the tree in work mode, and it is mounted as theirs' '
	as_user bash -c "tree_state \"$T/src\" >\"$T/mnt/../state/want\"; tree_state \"$V\" >\"$T/state/got\""
	diff "$T/state/want" "$T/state/got"
	grep " $V ro,nosuid,nodev,.* fuse.limbfs limbfs:'$view_id' .*default_permissions" /proc/self/mountinfo
'
test_expect 'changes arrive' '
	as_user bash -c "cat \"$V/file\" && ls -la \"$V\"" >/dev/null
	echo more >>"$T/src/file"
	rig sync
	as_user cmp "$T/src/file" "$V/file"
'
if have root; then
	test_expect 'nobody else looks in, not even root' '
		expect_code 2 ls "$V"
	'
else
	test_skip 'nobody else looks in, not even root' "$why_not"
fi
test_expect 'B50 after kill -9, with somebody in it, it comes back' '
	for i in 1 2 3; do
		"${view_as[@]}" bash -c "cd \"$V/dir\" && exec 5<hard && exec sleep 1000" &
		sleeper=$!
		wait_for "as_user readlink /proc/$sleeper/fd/5 | grep -q hard"
		kill -KILL "$(cat "$T/fs.pid")"
		wait_for "test_gone \$(cat $T/fs.pid)"
		as_user bash -c "! touch \"$V/written\""
		rm "$T/fs.pid"
		view_fs --work
		test "$(as_user cat "$V/dir/hard" | head -1)" = hello
		test "$(grep -c " $V " /proc/self/mountinfo)" = 1
		kill $sleeper
		wait $sleeper || true
	done
'
test_expect 'B51 the bare mount point takes nothing from its user, and is not an empty directory' '
	kill -KILL "$(cat "$T/fs.pid")"
	wait_for "test_gone \$(cat $T/fs.pid)"
	as_user fusermount3 -u "$V"
	as_user bash -c "! touch \"$V/x\" && ! mkdir \"$V/x\" && ! ls \"$V\""
	rm "$T/fs.pid"
	view_fs --look
'
test_expect 'in look mode files are a stranger'\''s to that user, too' '
	test "$(as_user stat -c %u "$V/file")" != "$(as_user id -u)"
	test "$(as_user stat -c %a "$V/secret")" = 444
	test "$(as_user cat "$V/secret")" = secret
	test "$(as_user readlink "$V/out")" = etc/passwd
'
test_expect 'QUIT unmounts it while it is in use' '
	"${view_as[@]}" bash -c "cd \"$V/dir\" && exec sleep 1000" &
	sleeper=$!
	wait_for "as_user readlink /proc/$sleeper/cwd | grep -q /dir"
	view_quit
	test ! -e "$V"
	kill $sleeper
	wait $sleeper || true
'
rig_end
test_done
