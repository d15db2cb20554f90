#!/bin/bash
# The view shows what the journal has, field by field, and asks nothing about what is warm.
. "${0%/*}/view-lib.sh"
need getfattr setfattr getfacl

mkdir -p src/dir/deep/er src/empty src/many
(
	cd src
	echo hello >file
	ln file dir/hard
	ln file dir/deep/hard2
	printf '' >zero
	seq 1 200000 >large
	truncate -s 10M sparse
	printf data | dd of=sparse bs=1 seek=3000000 conv=notrunc status=none
	printf data | dd of=sparse bs=1 seek=10485750 conv=notrunc status=none
	truncate -s 3M hole
	# What has no mode at all only root can read.
	modes="400 644 755 4755 2755 1777"
	! have root || modes="000 $modes"
	for mode in $modes; do
		echo "$mode" >mode-"$mode"
		chmod "$mode" mode-"$mode"
		# nor enter what has no x
		if have root || [ $((0$mode & 0100)) != 0 ]; then
			mkdir dir-"$mode"
			chmod "$mode" dir-"$mode"
		fi
	done
	mkfifo fifo
	ln -s file link
	ln -s nowhere dangling
	ln -s loop loop
	ln -s mutual2 mutual1
	ln -s mutual1 mutual2
	ln -s .. dir/up
	ln -s /etc/passwd absolute
	ln -s "$T/src/dir/deep" absolute-inside
	ln -s ../../../../../../etc/passwd dir/deep/out
	ln -s "$(printf 'x%.0s' $(seq 4095))" long-link
	touch -d '1960-01-02 03:04:05.123456789 UTC' year-1960
	touch -d '2106-12-31 23:59:59.999999999 UTC' year-2106
	touch -h -d '2001-02-03 04:05:06.7 UTC' link
	echo named >$'new\nline'
	echo named >$'\xff\xfe'
	echo named >-rf
	echo named >'back\slash'
	echo named >'quote"$(x)'"'"
	echo named >'space '
	echo named >$'e\xcc\x81'
	echo named >$'\xc3\xa9'
	echo named >"$(printf 'n%.0s' $(seq 255))"
	(cd many && seq -f 'entry-%05g' 10000 | xargs touch)
	setfattr -n user.color -v blue file 2>/dev/null || true
	# Deeper than a path can say.
	mkdir nest
	cd nest
	name=$(printf 'd%.0s' $(seq 200))
	for _ in $(seq 40); do
		mkdir "$name"
		cd "$name"
	done
	echo bottom >bottom
)
if have root; then
	chown 12:34 src/mode-644
	mknod src/device c 1 3
	setfacl -m u:12:r src/mode-4755 2>/dev/null || true
	setfattr -n security.capability -v 0x0100000202000000000000000000000000000000 src/mode-755
fi
view_rig
view_fs --work

test_expect 'B26 B28 B29 B30 B31 B33 in work mode the view is the tree, field by field' '
	tree_state "$T/src" >"$T/want"
	tree_state "$V" >"$T/got"
	diff "$T/want" "$T/got"
	test "$(wc -l <"$T/want")" -gt 10000
'
test_expect 'B33 hard links are one inode' '
	test "$(stat -c %i:%h "$V/file")" = "$(stat -c %i:%h "$V/dir/hard")"
	test "$(stat -c %h "$V/dir/deep/hard2")" = 3
	test -z "$(find "$V" ! -type d -links 1 -printf "%i\n" | sort | uniq -d)"
'
test_expect 'B30 a path deeper than PATH_MAX is served' '
	test "$(find "$V/nest" -name bottom -execdir cat {} +)" = bottom
'
test_expect 'B28 loops are the opener'\''s' '
	expect_code 1 cat "$V/loop"
	expect_code 1 cat "$V/mutual1"
	test "$(readlink "$V/long-link" | wc -c)" = 4096
'
test_expect 'holes are found, and so is data' '
	cp --sparse=always "$V/sparse" "$T/copy"
	cmp "$T/copy" "$T/src/sparse"
	test "$(stat -c %b "$V/sparse")" = "$(stat -c %b "$T/src/sparse")"
	test "$(stat -c %b "$V/hole")" = 0
	cmp "$V/hole" "$T/src/hole"
	tar -C "$V" -cSf "$T/tar" sparse hole
	test "$(stat -c %s "$T/tar")" -lt 100000
'
warm_pass() {
	tree_state "$V"
	find "$V" -ls
	cat "$V/large" "$V/sparse" "$V/link"
	ls "$V/absent" "$V/dir/absent" 2>&1
	ls -f "$V/many"
}

test_expect 'what is warm sends no message' '
	warm_pass >/dev/null || true
	# The machine may drop what is warm at any time, but not each time.
	for try in 1 2 3; do
		messages >"$T/before"
		warm_pass >/dev/null || true
		messages >"$T/after"
		if diff "$T/before" "$T/after"; then
			exit 0
		fi
	done
	exit 1
'
test_expect 'ls -l asks once whether there are labels and ACLs, not for each file' '
	asked_attributes() {
		getfattr --absolute-names --only-values -n user.limb.messages "$V" |
			tr " " "\n" | sed -n "s/^22://p"
	}
	ls -l "$V/many" >/dev/null
	before=$(asked_attributes)
	ls -l "$V/many" >/dev/null
	test $(($(asked_attributes) - before)) -lt 10
'
test_expect 'nothing asks to open' '
	messages >"$T/asked"
	test "$(sed -n "s/^14://p" "$T/asked")" = 1
	test "$(sed -n "s/^27://p" "$T/asked")" = 1
'
test_expect 'attributes of the environment are there by name and in the list' '
	have_color=$(getfattr --absolute-names --only-values -n user.color "$T/src/file" || true)
	test "$(getfattr --absolute-names --only-values -n user.color "$V/file" || true)" = "$have_color"
	getfattr --absolute-names -d "$V/file" >"$T/list"
	grep -q "^user.color=" "$T/list"
	expect_code 1 grep -q "^user.limb" "$T/list"
	expect_code 1 getfattr --absolute-names -n user.none "$V/file"
'
test_expect 'the view says how new it is' '
	test "$(getfattr --absolute-names --only-values -n user.limb.state "$V/file")" = live
	test "$(getfattr --absolute-names --only-values -n user.limb.age_ms "$V")" = 0
	test "$(getfattr --absolute-names --only-values -n user.limb.seq "$V")" -gt 1
'
if have root; then
	test_expect 'B32 in work mode root sees capabilities, owners and devices' '
		getfattr --absolute-names -n security.capability "$V/mode-755"
		test "$(stat -c %u:%g "$V/mode-644")" = 12:34
		test "$(getfacl -pn "$V/mode-4755" | tail -n +2)" = \
			"$(getfacl -pn "$T/src/mode-4755" | tail -n +2)"
		test "$(stat -c %t:%T "$V/device")" = 1:3
		expect_code 1 cat "$V/device"
	'
else
	test_skip 'B32 in work mode root sees capabilities, owners and devices' 'needs root'
fi
test_expect 'B35 statfs says something sane' '
	test "$(stat -f -c %l "$V")" = 255
	test "$(stat -f -c %b "$V")" -gt 0
	test "$(stat -f -c %a "$V")" -gt 0
	test "$(stat -f -c %c "$V")" -gt 10000
	df "$V"
'
test_expect 'it is read-only, and no device and set-id bit counts' '
	expect_code 1 touch "$V/new"
	grep " $V ro,nosuid,nodev,relatime .* fuse.limbfs limbfs:'$view_id' " /proc/self/mountinfo
'
test_expect 'it can be executed from in work mode' '
	cp "$(type -P true)" "$T/src/program"
	rig sync
	"$V/program"
'
view_quit

view_fs --look
test_expect 'in look mode files are a stranger'\''s, and all may read what their owner may' '
	test "$(stat -c %a "$V/mode-644")" = 444
	test "$(stat -c %a "$V/mode-4755")" = 555
	! have root || test "$(stat -c %a "$V/mode-000")" = 0
	test "$(stat -c %a "$V/dir-1777")" = 555
	test "$(stat -c %u "$V/file")" != "$(id -u)"
	test "$(cat "$V/file")" = hello
'
test_expect 'in look mode no link leads out' '
	test "$(readlink "$V/absolute")" = etc/passwd
	test "$(cat "$V/absolute-inside/hard2")" = hello
	test "$(readlink "$V/dir/deep/out")" = ../../etc/passwd
	test "$(readlink "$V/link")" = file
	test "$(readlink "$V/dir/up")" = ..
	find "$V" -type l -printf "%s %l\n" | awk '\''$1 != length($2) { exit 1 }'\''
	expect_code 1 cat "$V/dir/deep/out"
'
test_expect 'in look mode nothing is executed' '
	grep " $V ro,nosuid,nodev,noexec,relatime " /proc/self/mountinfo
	expect_code 126 bash -c "\"$V/program\""
'
test_expect 'in look mode git refuses the tree' '
	have git
	git init -q "$T/src/repository"
	rig sync
	expect_code 128 git -C "$V/repository" status
'
view_quit
rig_end
test_done
