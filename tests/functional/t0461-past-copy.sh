#!/bin/bash
# A copied state directory is mounted as it was at any point of its journal, without a daemon and
# by a normal user, and nothing in it is written.
. "${0%/*}/brain-lib.sh"
need fuse getfattr

mkdir tree
brain_up
limb create box --provider local --root "$T/tree" >/dev/null || test_result 'not ok' create
limb create other --provider local --root "$T/home" >/dev/null || test_result 'not ok' create

# Content alone, as what a normal user sees has other owners.
contents() {
	(cd "$1/" && find . -type f -print0 | sort -z | xargs -0 -r sha256sum -z | tr '\0\n' '\n?')
	(cd "$1/" && find . ! -type f -printf '%y %P %l\0' | sort -z | tr '\0\n' '\n?')
}
state_of() {
	(cd "$1" && find . -printf '%p %y %s %T@ %C@ %m\n' | sort)
}
fs_gone() {
	wait_for "test -z \"\$(pids_with limb-fs --journal)\""
}
mkdir want

test_expect 'thirty moments, and a copy' '
	for i in $(seq 30); do
		mkdir -p "tree/d$((i % 7))/e"
		echo "$i" >"tree/d$((i % 7))/e/f$i"
		echo "$i" >>tree/all
		ln -sf "../all$i" tree/link
		ln -f tree/all "tree/hard$((i % 3))"
		test $((i % 4)) != 0 || rm -rf "tree/d$(((i + 3) % 7))"
		test $((i % 5)) != 0 || mv "tree/d$((i % 7))/e" "tree/moved$i"
		limb label box "l$i" --json | jq .points[0].seq >seq.$i
		tree_list tree >want/$i
		contents tree >want/c$i
	done
	limb exec box --json -- sh -c "rm -r d*" | jq -r .job_id >job
	limb down -q
	cp -a state copy
	chmod -R a+rX copy
	limb up -q
'
test_expect 'at each of them it is what was there, in mode work with all that is kept' '
	state_of copy >before
	for i in $(seq 30); do
		limb mount --journal copy/ --environment box --work --at "l$i" "$T/here$i" --json >out
		test "$(jq .seq out)" = "$(cat seq.$i)"
		test "$(jq -r .mount out)" = "$T/here$i"
		tree_list here$i >got
		umount here$i
		same_tree want/$i got
	done
	fs_gone
	test -z "$(ls -d here* 2>/dev/null)"
	state_of copy | diff before -
'
test_expect 'by number, job, and as the last; look mode unless said otherwise; nothing can be written' '
	limb mount --journal copy/ --environment box --at "$(cat seq.9)" here >out
	grep -x "$T/here: as of record $(cat seq.9)" out
	grep " $T/here ro,nosuid,nodev,noexec,relatime .* fuse.limbfs " /proc/self/mountinfo
	contents here | sed "/^l link /d" >got
	sed "/^l link /d" want/c9 | diff - got
	test "$(readlink here/link)" = all9
	test "$(stat -c %a here/all)" = 444
	expect_code 1 touch here/x 2>said
	grep -i "read-only file system" said
	test "$(getfattr --only-values -n user.limb.seq here/all)" = "$(cat seq.9)"
	umount here
	fs_gone
	limb mount --journal copy/ --environment box --at "before:$(cat job)" -q here >out
	test "$(cat out)" = "$T/here"
	test -d here/d1
	umount here
	fs_gone
	limb mount --journal copy/ --environment box --at HEAD here
	test ! -e here/d1
	umount here
	limb mount --journal copy/ --environment box there
	test ! -e there/d1
	umount there
	fs_gone
'
test_expect 'what cannot be had is said, with a code for programs' '
	said() {
		local - want=$1 code=$2
		set +x
		shift 2
		expect_code "$code" limb mount --json "$@" >out 2>err
		jq -e ".error == \"$want\"" out
		test "$(wc -l <err)" = 1
		grep "^limb: " err
	}
	said point_not_found 125 --journal copy/ --environment box --at nothing here
	said point_not_found 125 --journal copy/ --environment box --at 99999999 here
	said environment_not_found 125 --journal copy/ --environment nobody here
	said file_not_found 125 --journal nowhere/ here
	said usage 2 here
	said usage 2 --journal copy/ --at "a b" here
	said usage 2 --journal copy/ here
	said usage 2 --journal copy/ --look --work --environment box here
	test ! -e here
'
# By the program itself, as the build tree may be closed to others.
if have root; then
	test_expect 'a normal user mounts any of the moments' '
		mkdir "$T/users"
		chown 65534 users
		cp "$LIMB_TOP_BUILDDIR/fs/limb-fs" users/
		for i in 1 8 15 22 30; do
			as_user users/limb-fs --journal "$T/copy" --environment box --work --at "$(cat seq.$i)" "$T/users/here$i"
			as_user bash -c "$(declare -f contents); contents $T/users/here$i" >got
			diff want/c$i got
			expect_code 1 as_user touch "$T/users/here$i/x"
			as_user fusermount3 -u "$T/users/here$i"
		done
		fs_gone
	'
else
	test_skip 'a normal user mounts any of the moments' "$why_not"
fi
test_done
