#!/bin/bash
# Extended attributes, ACLs, FIFOs, sockets and exchanged names: made in a writable view they are
# there at once, and in the environment after a sync.
. "${0%/*}/write-lib.sh"
need setfattr python3

mkdir "$R/dir"
echo hello >"$R/file"
setfattr -n user.old -v there "$R/file" 2>/dev/null || skip_all 'no extended attributes here'
write_up
wait_for "test -e $V/file"

attrs() {
	getfattr -d -m '^user\.' --absolute-names "$1" | grep -v '^# file'
}
test_expect 'extended attributes are set, listed, replaced and removed' '
	test "$(getfattr -n user.old --only-values --absolute-names "$V/file")" = there
	setfattr -n user.new -v one "$V/file"
	setfattr -n user.new -v two "$V/file"
	setfattr -n user.empty "$V/file"
	setfattr -n user.of.dir -v d "$V/dir"
	setfattr -x user.old "$V/file"
	attrs "$V/file" >here
	grep -Fx "user.new=\"two\"" here
	test "$(wc -l <here)" = 3 # and an empty line
	refute setfattr -x user.old "$V/file"
	limb sync w >/dev/null
	attrs "$R/file" >there
	diff here there
	test "$(getfattr -n user.of.dir --only-values --absolute-names "$R/dir")" = d
'
test_expect 'XATTR_CREATE and XATTR_REPLACE' '
	python3 -c "
import os, sys, errno
f = sys.argv[1]
def refused(e, *args):
    try:
        os.setxattr(f, *args)
    except OSError as x:
        assert x.errno == e, x
    else:
        assert False, args
os.setxattr(f, \"user.c\", b\"x\", os.XATTR_CREATE)
refused(errno.EEXIST, \"user.c\", b\"y\", os.XATTR_CREATE)
refused(errno.ENODATA, \"user.d\", b\"y\", os.XATTR_REPLACE)
refused(errno.EPERM, \"user.limb.state\", b\"y\", 0)
refused(errno.EOPNOTSUPP, \"odd.name\", b\"y\", 0)
" "$V/file"
'
test_expect 'a file that is written keeps them' '
	echo more >>"$V/file"
	limb sync w >/dev/null
	attrs "$V/file" >here
	attrs "$R/file" >there
	diff here there
	grep user.new there
	test "$(cat "$R/file")" = "hello
more"
'
test_expect 'the root of the view is that of the environment' '
	mark=$(getfattr -n user.limb.mark --only-values --absolute-names "$R")
	setfattr -n user.root -v r "$V"
	chmod 711 "$V"
	touch -d 2001-02-03 "$V"
	test "$(stat -c "%a %y" "$V" | cut -c 1-8)" = "711 2001"
	arrived 30
	for i in "$V" "$R"; do
		test "$(stat -c "%a %y" "$i" | cut -c 1-8)" = "711 2001"
		test "$(getfattr -n user.root --only-values --absolute-names "$i")" = r
	done
	test "$(getfattr -n user.limb.mark --only-values --absolute-names "$R")" = "$mark"
	limb journal dump w --json | jq -se "[.[] | select(.type == \"change\")] | last | .origin == \"brain\" and .ops[0].node == 1"
	setfattr -x user.root "$V"
	# Both come at once, with others.
	mkdir "$V/beside"
	chmod 700 "$V"
	rmdir "$V/beside"
	chmod 755 "$V"
	arrived 30
	test "$(stat -c %a "$R")" = 755
	refute getfattr -n user.root "$R"
	chmod 750 "$R"
	limb sync w >/dev/null
	test "$(stat -c %a "$V")" = 750
'
if have root && have setfacl; then
	test_expect 'an ACL and the mode stay in step' '
		touch "$V/acl"
		chmod 640 "$V/acl"
		setfacl -m u:12345:rwx "$V/acl"
		test "$(stat -c %a "$V/acl")" = 670
		chmod 700 "$V/acl"
		getfacl -cp "$V/acl" | grep "^mask::---"
		limb sync w >/dev/null
		getfacl -cp "$V/acl" >here
		getfacl -cp "$R/acl" >there
		diff here there
		setfacl -b "$V/acl"
		limb sync w >/dev/null
		getfacl -cp "$R/acl" | refute grep 12345
	'
else
	test_skip 'an ACL and the mode stay in step' "$why_not"
fi
test_expect 'FIFOs and sockets work, and are there' '
	mkfifo -m 600 "$V/fifo"
	(timeout 10 cat "$V/fifo" >read) &
	echo through >"$V/fifo"
	wait $!
	test "$(cat read)" = through
	cd "$V"
	timeout 10 python3 -c "
import socket, threading
s = socket.socket(socket.AF_UNIX)
s.bind(\"socket\")
s.listen()
c = socket.socket(socket.AF_UNIX)
c.connect(\"socket\")
a, _ = s.accept()
c.send(b\"x\")
assert a.recv(1) == b\"x\"
"
	limb sync w >/dev/null
	test -p "$R/fifo"
	test "$(stat -c %a "$R/fifo")" = 600
	test -S "$R/socket"
	rm "$V/fifo" "$V/socket"
'
test_expect 'B41 rename flags: names are exchanged, none is replaced, others are refused as natively' '
	mkdir "$V/d1" "$V/d2"
	echo one >"$V/d1/a"
	echo two >"$V/d2/b"
	cat >rename.py <<END
import ctypes, errno, sys
c = ctypes.CDLL(None, use_errno=True)
r = c.renameat2(-100, sys.argv[2].encode(), -100, sys.argv[3].encode(), int(sys.argv[1]))
print(errno.errorcode[ctypes.get_errno()] if r < 0 else "done")
END
	renamed() {
		test "$(python3 rename.py "$2" "$3" "$4")" = "$1"
	}
	noreplace=1 exchange=2
	renamed done $exchange "$V/d1/a" "$V/d2/b"
	test "$(cat "$V/d1/a" "$V/d2/b")" = "two
one"
	renamed done $exchange "$V/d1" "$V/d2/b"
	test "$(cat "$V/d1")" = one
	test "$(cat "$V/d2/b/a")" = two
	renamed ENOENT $exchange "$V/d1" "$V/missing"
	echo three >"$V/d2/c"
	renamed EEXIST $noreplace "$V/d2/c" "$V/d1"
	renamed done $noreplace "$V/d2/c" "$V/d2/free"
	renamed EINVAL $((noreplace | exchange)) "$V/d2/free" "$V/d1"
	renamed EINVAL 8 "$V/d2/free" "$V/d1"
	test "$(cat "$V/d1" "$V/d2/free")" = "one
three"
	limb sync w >/dev/null
	test "$(cat "$R/d1")" = one
	test "$(cat "$R/d2/b/a")" = two
	test "$(cat "$R/d2/free")" = three
	test "$(find "$R" -name ".limb-*" | wc -l)" = 0
	test "$(status_of w .counts.conflicts)" = 0
'
test_expect 'both sides are equal' 'verify_equal w'
test_done
