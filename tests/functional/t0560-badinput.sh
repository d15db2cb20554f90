#!/bin/bash
# Bad input and bad places: one sentence with the remedy, the right code, nothing changed.
. "${0%/*}/brain-lib.sh"

# refused CODE ERROR COMMAND...: plain and with --json
refused() {
	local - want=$1 code=$2
	set +x
	shift 2
	expect_code "$want" "$@" >out 2>err </dev/null
	[ ! -s out ] || { cat out; return 1; }
	[ "$(wc -l <err)" = 1 ] || { cat err; return 1; }
	grep -q '^limb: ' err
	expect_code "$want" "$@" --json >out 2>err </dev/null
	jq -e ".error == \"$code\" and (.detail | length) > 10" out || { cat out; return 1; }
}
state_list() {
	find "$LIMB_STATE" -xdev ! -path "$LIMB_STATE/mnt/*" ! -name '*.mdb' ! -name limbd.log -printf '%P %y %m %s\n' | sort
	limb ls --json | jq '[.environments[] | {environment, provider, root}]'
}

brain_up
mkdir root
echo kept >root/kept
limb create taken --provider local --root "$T/root" >/dev/null || test_result 'not ok' create
limb sync taken
state_list >before

test_expect 'names: taken, missing, and what is none' '
	refused 125 environment_exists limb create taken --provider local
	for name in "" A a/b .a -- "a b" "$(printf "%064d" 0)" "é" "a@b" "a:b" "a~1"; do
		refused 2 usage limb create "$name" --provider local
	done
	for verb in inspect sync verify rebuild stop start "trust" ps; do
		refused 125 environment_not_found limb $verb absent
	done
	refused 125 environment_not_found limb rm absent --force
	refused 125 environment_not_found limb exec absent -- true
	refused 125 environment_not_found limb ls absent:
	refused 2 usage limb no-such-verb
	refused 2 usage limb create
	refused 2 usage limb create x --no-such-flag
	refused 2 usage limb create x --from root --root "$T/root" --provider local
'

test_expect 'roots: missing, a file, /, within our state or mount, around them, in use' '
	mkdir -p parent/inner
	refused 125 invalid_path limb create x --provider local --root "$T/absent"
	refused 125 invalid_path limb create x --provider local --root "$T/root/kept"
	refused 125 invalid_path limb create x --provider local --from "$T/absent"
	for dir in / "$LIMB_STATE" "$LIMB_STATE/envs" "$LIMB_STATE/mnt" "$LIMB_STATE/mnt/taken" "$T"; do
		refused 125 invalid_path limb create x --provider local --root "$dir"
	done
	ln -s "$LIMB_STATE" sly
	refused 125 invalid_path limb create x --provider local --root "$T/sly/envs"
	refute limb create x --provider local --root "$T/root"
	refute limb create x --provider no-such-provider
	test "$(cat root/kept)" = kept
'

test_expect 'B49 no root contains our view, our state or our socket' '
	mkdir -p around/deep
	limb up --state "$T/around/deep/state"
	for dir in around around/deep around/deep/state around/deep/state/mnt; do
		expect_code 125 limb create x --state "$T/around/deep/state" --provider local --root "$T/$dir"
	done
	limb down --state "$T/around/deep/state"
	# the mount alone
	limb up --state "$T/state2" --mount "$T/around/view"
	expect_code 125 limb create x --state "$T/state2" --provider local --root "$T/around"
	limb down --state "$T/state2"
'

test_expect 'views go to no directory that has other things in it' '
	mkdir -p others/dir
	limb up --state "$T/state3" --mount "$T/others"
	limb down --state "$T/state3"
	echo mine >others/file
	expect_code 125 limb up --state "$T/state3" --mount "$T/others" 2>err
	grep "$T/others.*file.*--mount" err
	test "$(cat others/file)" = mine
'

test_expect 'paths out of the root, files that are not there' '
	for path in ../x /etc/passwd ../../etc/passwd a/../../x; do
		refused 125 invalid_path limb ls "taken:$path"
		refused 125 invalid_path limb cp "$T/root/kept" "taken:$path"
		refused 125 invalid_path limb rm "taken:$path"
	done
	refused 125 file_not_found limb ls taken:absent
	refused 125 file_not_found limb rm taken:absent
	refused 125 file_not_found limb cp taken:absent "$T/x"
	refused 125 file_not_found limb cp "$T/absent" taken:x
	test ! -e x
'

test_expect 'nothing of that changed anything' '
	limb sync taken
	state_list >after
	diff before after
	test "$(ls root)" = kept
	verify_equal taken
'

test_expect 'a second limbd on one state' '
	pid=$(pid_of x limbd)
	r=0
	limbd --state "$LIMB_STATE" --mount "$LIMB_STATE/mnt" >out 2>&1 || r=$?
	test "$r" = 125
	test "$(wc -l <out)" = 1
	grep "$LIMB_STATE" out
	test "$(pid_of x limbd)" = "$pid"
	limb exec taken -- true
'

test_expect 'a socket path over 107 bytes' '
	long=$T/$(printf "%0100d" 0)
	refused 125 usage limb up --state "$long" || refused 125 invalid_path limb up --state "$long"
	test ! -e "$long"
	LIMB_SOCKET=$T/short.sock limb up --state "$long"
	LIMB_SOCKET=$T/short.sock limb down --state "$long"
'

test_expect 'no limbd' '
	for verb in status ls "inspect x" "sync x" "exec x -- true" "create x"; do
		refused 125 daemon_unreachable limb --state "$T/nothing" $verb
	done
	test ! -e "$T/nothing"
'

test_expect 'umask 077, locale C, no XDG_RUNTIME_DIR: an environment like any other' '
	(
		umask 077
		export LC_ALL=C
		unset XDG_RUNTIME_DIR
		export LIMB_STATE=$T/plain
		limb up
		mkdir -m 755 source
		printf x >"source/$(printf "\303\251\377")"
		limb create p --provider local --from source
		limb exec p -- sh -c "umask; touch made"
		verify_equal p
		limb ls p:
		limb rm p --force
		limb down --stop
	)
'

if have root; then
	test_expect 'a state that another user owns: told so, nothing touched' '
		install -d -o 65534 -g 65534 -m 700 theirs
		for verb in up status "create x" down; do
			r=0
			limb --state "$T/theirs" $verb >out 2>err || r=$?
			cat err
			test "$r" = 125
			grep "belongs to uid 65534" err
			test "$(wc -l <err)" = 1
		done
		test -z "$(ls -A theirs)"
	'
fi
if have user && have root; then
	test_expect 'no permission: told so, nothing touched' '
		for verb in status "exec taken -- true"; do
			r=0
			as_user limb --state "$LIMB_STATE" $verb >out 2>err || r=$?
			cat err
			test "$r" = 125
			test "$(grep -c "^limb: " err)" = 1
		done
	'
fi

if have root && unshare -m true 2>/dev/null; then
	test_expect 'no /dev/fuse: environments work, the view is absent and says why' '
		unshare -m sh -c "mount --bind /dev/null /dev/fuse; export LIMB_STATE=$T/nofuse; limb up &&
			limb create n --provider local && limb exec n -- touch f && limb verify n &&
			limb status n --json >status.out; cat status.out; limb doctor --json >doctor.out; limb down --stop" >nofuse.out 2>&1
		cat nofuse.out
		jq -e ".environments[0] | .view == \"absent\" and .state == \"live\"" status.out
		jq -e "any(.checks[]; .name == \"dev_fuse\" and .status != \"ok\" and (.next_steps | length) > 0)" doctor.out
	'
	test_expect 'a full disk for the state: told so, what was durable stays' '
		mkdir small full
		echo kept >full/kept
		unshare -m sh -c "mount -t tmpfs -o size=24m none small; export LIMB_STATE=$T/small/state
			limb up && limb create f --provider local --root $T/full || exit 9
			head -c 60000000 /dev/urandom >full/large
			limb sync f --timeout 20; echo sync=\$?
			limb status f --json >status.out
			rm full/large
			limb cp f:kept - ; limb down --stop; limb up; limb cp f:kept -; limb down --stop" >full.out 2>&1 || true
		cat full.out
		cat status.out
		refute grep "^sync=0" full.out
		test "$(grep -c "^kept\$" full.out)" = 2
	'
fi

test_done
