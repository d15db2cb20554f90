#!/bin/bash
# A copied state directory is mounted without a daemon: as it was, whatever it was copied from,
# by anybody who can read it, and nothing in it is written.
. "${0%/*}/view-lib.sh"
need getfattr

mkdir -p src/dir
echo hello >src/file
seq 200000 >src/large
ln src/file src/dir/hard
ln -s file src/link
view_rig
rig commit >/dev/null
# Its record says that those before are durable.
touch src/later
rig commit >/dev/null
# While its writer lives, so neither index nor store is marked clean.
cp -a state live-copy
rig_end
wait_for "! pgrep -f '^$rig_program limbd $T/state '"
cp -a state clean-copy
chmod -R a+rX live-copy clean-copy
chmod 755 .

state_of() {
	(cd "$1" && find . -printf '%p %y %s %T@ %C@ %m\n' | sort)
}
mounted() {
	grep -q " $1 .* fuse.limbfs limbfs:journal:$view_id " /proc/self/mountinfo
}
# Not its own user's views of it: those are unmounted by who mounted.
unmount() {
	if have root && [ "$1" = "$V" ]; then
		umount "$1"
	else
		as_user fusermount3 -u "$1"
	fi
}

for kind in clean live; do
	test_expect "a $kind copy shows the tree, and is not touched" '
		mkdir "$T/mnt"
		state_of "$T/'$kind'-copy" >"$T/before"
		"$view_program" --journal "$T/'$kind'-copy" --work "$V"
		mounted "$V"
		tree_state "$T/src" >"$T/want"
		tree_state "$V" >"$T/got"
		diff "$T/want" "$T/got"
		expect_code 1 touch "$V/x"
		unmount "$V"
		wait_for "! pgrep -f \"^$view_program --journal\""
		test ! -e "$V"
		state_of "$T/'$kind'-copy" | diff "$T/before" -
		rmdir "$T/mnt"
		test -z "$(ls -d "${TMPDIR:-/tmp}"/limb-fs.* 2>/dev/null)"
	'
done
test_expect 'an index that lies or is damaged is not looked at' '
	cp -a "$T/clean-copy" "$T/lying"
	head -c 100000 /dev/urandom >"$T/lying/envs/'$view_id'/index.1/data.mdb"
	head -c 100000 /dev/urandom >"$T/lying/store/main/index.1/data.mdb"
	mkdir "$T/mnt"
	"$view_program" --journal "$T/lying" --work "$V"
	tree_state "$V" | diff "$T/want" -
	unmount "$V"
	wait_for "! pgrep -f \"^$view_program --journal\""
	rmdir "$T/mnt"
'
test_expect 'a log that lost its end is shown with a warning, a damaged one is refused' '
	log=$T/lying/envs/'$view_id'/log/0000000000000001.log
	cp "$log" "$T/whole"
	truncate -s 400 "$log"
	mkdir "$T/mnt"
	"$view_program" --journal "$T/lying" "$V" 2>"$T/said"
	grep "ends with record 1, but went on up to 3: showing what is there" "$T/said"
	test -z "$(ls "$V")"
	unmount "$V"
	wait_for "! pgrep -f \"^$view_program --journal\""
	rmdir "$T/mnt"
	cp "$T/whole" "$log"
	printf garbage | dd of="$log" bs=1 seek=280 conv=notrunc status=none
	expect_code 125 "$view_program" --journal "$T/lying" "$V" 2>"$T/said"
	grep -q "is damaged: limb journal verify" "$T/said"
	test ! -e "$T/mnt"
'
test_expect 'by name, relative, in the foreground, look mode by default' '
	cd "$T"
	mkdir there
	run_bg journal "$view_program" --journal clean-copy --environment x --foreground there
	wait_for "mounted $T/there"
	test "$(stat -c %a there/file)" = 444
	test "$(cat there/dir/hard)" = hello
	grep " $T/there ro,nosuid,nodev,noexec," /proc/self/mountinfo
	stop_bg journal
	expect_code 1 mounted "$T/there"
	# It was there before.
	test -d there
	test "$(stat -c %a there)" = 755
'
test_expect 'a second mount over the first replaces it' '
	mkdir "$T/mnt"
	"$view_program" --journal "$T/clean-copy" "$V"
	pkill -KILL -f "^$view_program --journal $T/clean-copy"
	wait_for "! pgrep -f \"^$view_program --journal\""
	"$view_program" --journal "$T/clean-copy" "$V"
	test "$(cat "$V/file")" = hello
	test "$(grep -c " $V " /proc/self/mountinfo)" = 1
	unmount "$V"
	wait_for "! pgrep -f \"^$view_program --journal\""
	rmdir "$T/mnt"
'
test_expect 'what cannot be had is said in one line' '
	expect_code 125 "$view_program" --journal "$T/none" "$V" 2>"$T/said"
	grep -q "cannot open the state directory" "$T/said"
	expect_code 125 "$view_program" --journal "$T/clean-copy" --environment other "$V" 2>"$T/said"
	grep -q "holds no environment .other." "$T/said"
	mkdir "$T/clean-copy/envs/ffffffffffffffffffffffffffffffff"
	expect_code 2 "$view_program" --journal "$T/clean-copy" "$V" 2>"$T/said"
	grep -q "several environments; say which" "$T/said"
	rmdir "$T/clean-copy/envs/ffffffffffffffffffffffffffffffff"
	test ! -e "$V"
'
if have user; then
	test_expect 'a normal user mounts a copy that is not theirs to write' '
		mkdir "$T/home/there"
		if have root; then
			chown 65534 "$T/home" "$T/home/there"
		fi
		as_user test -r "$T/live-copy/envs/'$view_id'/log/0000000000000001.log"
		as_user "$view_program" --journal "$T/live-copy" "$T/home/there"
		test "$(as_user cat "$T/home/there/dir/hard")" = hello
		as_user md5sum <"$T/src/large" | cmp - <(as_user cat "$T/home/there/large" | md5sum)
		as_user fusermount3 -u "$T/home/there"
		wait_for "! pgrep -f \"^$view_program --journal\""
	'
else
	test_skip 'a normal user mounts a copy that is not theirs to write' "$why_not"
fi
test_done
