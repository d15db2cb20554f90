#!/bin/bash
# limb doctor looks at everything that limbfs needs, as any user, without limbd.
. "${0%/*}/lib.sh"
need jq

# shellcheck disable=SC2034 # the tests' code uses it
names='dev_fuse fusermount3 user_namespaces bwrap inotify_watches inotify_instances openat2 state_dir disk mount_point stale_mount limbd'

# status NAME: what the check says in the JSON object in out
status() {
	jq -r --arg n "$1" '.checks[] | select(.name == $n) | .status' out
}
doctor() {
	local r=0
	limb doctor --json "$@" >out 2>err || r=$?
	[ ! -s err ]
	[ "$r" = "$(jq 'if .ok then 0 else 1 end' out)" ]
}

test_expect 'all checks in one object, and its exit status' '
	doctor
	test "$(jq -r "[.checks[].name] | join(\" \")" out)" = "$names"
	jq -e "all(.checks[]; (.status | IN(\"ok\", \"warn\", \"fail\")) and (.detail | length) > 0 and
		(.next_steps | type) == \"array\")" out
	jq -e ".ok == all(.checks[]; .status != \"fail\")" out
	jq -e "all(.checks[]; .status != \"fail\" or (.next_steps | length) > 0)" out
	test "$(wc -l <out)" = 1
	test "$(status state_dir)" = ok
	test "$(status limbd)" = ok
'

test_expect 'it makes nothing' '
	test ! -e "$LIMB_STATE"
	test -z "$(ls -A "$HOME")"
'

test_expect 'plain: a line a check, a remedy below what is not ok' '
	limb doctor >out || true
	for name in $names; do
		grep -E "^(ok|warn|fail) +$name " out
	done
	PATH=/nonexistent "$(command -v limb)" doctor >out || true
	grep -A 1 "^fail  *bwrap" out | grep -- "-> install bubblewrap"
	PATH=/nonexistent "$(command -v limb)" doctor -q >out || true
	grep -x bwrap out
'

test_expect 'without bwrap: fail, 1' '
	r=0
	PATH=/nonexistent "$(command -v limb)" doctor --json >out || r=$?
	test "$r" = 1
	test "$(status bwrap)" = fail
'

test_expect 'places that cannot be used' '
	long=$T/$(printf "%0110d" 0)
	doctor --state "$long"
	test "$(status state_dir)" = fail
	jq -e ".checks[] | select(.name == \"state_dir\").next_steps[0] | contains(\"shorter\")" out
	touch file
	LIMB_MOUNT=$T/file doctor
	test "$(status mount_point)" = fail
	mkdir full
	touch full/x
	LIMB_MOUNT=$T/full doctor
	test "$(status mount_point)" = warn
	mkdir -m 777 open
	doctor --state "$T/open"
	test "$(status state_dir)" = warn
'

if have root; then
	test_expect 'a place of somebody else' '
		mkdir other
		chown 65534 other
		doctor --state "$T/other"
		test "$(status state_dir)" = fail
		LIMB_MOUNT=$T/other doctor
		test "$(status mount_point)" = fail
	'
else
	test_skip 'a place of somebody else' "$why_not"
fi

if have root && have fuse; then
	# A FUSE mount whose server is gone: the descriptor closes with the shell.
	test_expect 'a dead mount is named with its remedy' '
		mkdir -p mnt/web
		sh -c "mount -i -t fuse -o fd=3,rootmode=40000,user_id=0,group_id=0 none mnt/web 3<>/dev/fuse"
		LIMB_MOUNT=$T/mnt doctor
		umount mnt/web
		test "$(status stale_mount)" = fail
		jq -e ".checks[] | select(.name == \"stale_mount\").detail | contains(\"mnt/web\")" out
		LIMB_MOUNT=$T/mnt doctor
		test "$(status stale_mount)" = ok
	'
else
	test_skip 'a dead mount is named with its remedy' "$why_not"
fi

if have user; then
	test_expect 'as a normal user without a home' '
		as_user sh -c "HOME=/nonexistent limb doctor --state /nonexistent/state --json 2>&1" >out || true
		test "$(jq -r "[.checks[].name] | join(\" \")" out)" = "$names"
	'
else
	test_skip 'as a normal user without a home' "$why_not"
fi

test_expect 'a socket that nobody serves, or that does not answer' '
	mkdir -m 700 s
	cat >serve.sh <<-"X"
	exec "$LIMB_TOP_BUILDDIR/tests/functional/fake-limbd" "$T/s/limbd.sock" "$T/s"
	X
	sh serve.sh &
	wait_for "test -S \"\$T/s/limbd.sock\""
	echo "{\"version\":\"9.9\"}" >s/status.json
	doctor --state "$T/s"
	jq -e ".checks[] | select(.name == \"limbd\").detail | contains(\"9.9\")" out
	kill $!
	wait $! || true
	doctor --state "$T/s"
	test "$(status limbd)" = ok
'

test_done
