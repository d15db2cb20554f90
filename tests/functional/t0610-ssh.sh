#!/bin/bash
# An environment on another machine, by ssh alone: made, worked in, lost and made again, and
# gone without a trace; whatever is wrong there is one sentence, and changes nothing.
. "${0%/*}/ssh-lib.sh"
ssh_up
brain_up

# refused SENTENCE PROVIDER [FLAG...]: create fails with it, in one line, and leaves nothing.
refused() {
	local - want=$1 provider=$2 r=0
	set +x
	shift 2
	find "$far" "$T/there" | sort >before
	limb create no --provider "$provider" "$@" 2>err || r=$?
	[ "$r" = 125 ] || [ "$r" = 2 ]
	cat err
	[ "$(wc -l <err)" = 1 ]
	grep -qE "^limb: cannot create 'no': .*($want)" err
	find "$far" "$T/there" | sort | diff before -
	expect_code 125 limb inspect no 2>/dev/null
}
mkdir "$T/there"

test_expect 'an environment is made there, and a command runs in its directory' '
	limb create a --provider "ssh:box:$T/there/a" --json >out
	jq -e ".state == \"live\" and .provider == \"ssh\" and .host_root == null" out
	limb exec a -- sh -c "pwd; echo hello >f" >out
	test "$(cat out)" = "$T/there/a"
	test "$(cat "$T/there/a/f")" = hello
	verify_equal a
'
test_expect 'what it makes has the modes of the account, not those of our own files' '
	limb exec a -- sh -c "umask; touch g"
	test "$(stat -c %a "$T/there/a/g")" = 644
'
test_expect 'limb-syncd stands there under its hash, for its owner alone, once for all' '
	sum=$(sha256sum "$LIMB_TOP_BUILDDIR/syncd/limb-syncd")
	bin=$far/.local/share/limbfs/limb-syncd-${sum%% *}
	test "$(stat -c %a "$bin")" = 700
	echo "$bin" >place
	before=$(stat -c "%i %z" "$bin")
	limb create b --provider "ssh:box"
	test "$(stat -c "%i %z" "$bin")" = "$before"
	test "$(ls -A "$far/.local/share/limbfs" | wc -l)" = 3
	limb exec b -- touch x
	limb rm b
	test -x "$bin"
'
test_expect 'a damaged limb-syncd there is replaced at the next start' '
	limb stop a
	chmod u+w "$(cat place)"
	: >"$(cat place)"
	limb start a
	wait_state a live
	cmp "$(cat place)" "$LIMB_TOP_BUILDDIR/syncd/limb-syncd"
	limb exec a -- test -e f
'
test_expect 'a name with all that a shell might read in it stays one name' '
	dir="$T/there/a b'\''c\"d\$(touch $T/there/oops);*&|~#\\e"
	limb create q --provider "ssh:box:$dir"
	limb exec q -- touch "x y" "*" "\$(id)" "'\''"
	ls -A "$dir" | diff - <(printf "%s\n" "\$(id)" "'\''" "*" "x y" | LC_ALL=C sort)
	test ! -e "$T/there/oops"
	limb rm q
	test -d "$dir"
'
test_expect 'B72 arguments arrive byte for byte' '
	limb exec a -- printf "<%s>" "a b" "*" ";" "\$(id)" "x
y" "\"q\"" "'\''" "" -- -n "\\" >out
	printf "<%s>" "a b" "*" ";" "\$(id)" "x
y" "\"q\"" "'\''" "" -- -n "\\" | cmp - out
'
test_expect 'start-up files that print megabytes are skipped' '
	echo "head -c 3000000 /dev/urandom; head -c 3000000 /dev/zero; seq 200000; echo ouch >&2" >"$far/.bashrc"
	$LIMB_SSH box true | wc -c >n
	limb create noisy --provider "ssh:box"
	limb exec noisy -- echo ok >out
	test "$(cat out)" = ok
	limb stop noisy
	limb start noisy
	limb rm noisy
	rm "$far/.bashrc"
	if [ "$(cat n)" -lt 6000000 ]; then
		echo "the account'\''s shell reads no .bashrc: not tried" >&2
	fi
'
test_expect 'one that never comes to its end is refused' '
	echo "seq 4000000" >"$far/.bashrc"
	if [ "$($LIMB_SSH box true | wc -c)" -gt 17000000 ]; then
		refused "prints more than 16 MiB" "ssh:box:$T/there/no"
	fi
	rm "$far/.bashrc"
'

test_expect 'a directory that is not empty, or another'\''s, is refused' '
	mkdir "$T/there/full"
	touch "$T/there/full/x"
	refused "is not empty" "ssh:box:$T/there/full"
	refused "is the root of another environment" "ssh:box:$T/there/a"
	refused "contain each other" "ssh:box:$T/there/a/deeper"
	refused "contain each other" "ssh:box:$T/there"
	refused "is no directory" "ssh:box:$T/there/full/x"
	refused "cannot be made there" "ssh:box:/proc/no/such"
	refused "no absolute path" "ssh:box:/"
	refused "has .\.\.. in it" "ssh:box:$T/there/a/../b"
	refused "must be an absolute path" "ssh:box:work"
'
test_expect 'with "in_place" in the spec a directory is taken as it is' '
	echo "{\"in_place\": true}" >spec
	limb create full --provider "ssh:box:$T/there/full" --spec spec
	limb exec full -- cat x
	verify_equal full
	limb rm full
	test -e "$T/there/full/x"
'
test_expect 'what looks like an option is no host' '
	refused "names no host" "ssh:-oProxyCommand=touch$T/oops"
	refused "names no host" "ssh:x@-oProxyCommand=id:/w"
	refused "needs a host" "ssh:"
	refused "needs a host" "ssh"
	test ! -e "$T/oops"
'
test_expect 'no such host, nobody there' '
	printf "%s\n" "Host nobody" "HostName 127.0.0.1" "Port 1" "Host nowhere" \
		"HostName no.such.host.invalid" >>"$ssh_dir/config"
	refused "there is no host .nowhere" "ssh:nowhere:$T/there/no"
	refused "does not answer.*refused" "ssh:nobody:$T/there/no"
'
test_expect 'an unknown host key is refused with the command that accepts it' '
	ssh_config fresh main "UserKnownHostsFile $T/known2"
	refused "host key of host .fresh. is not known.*accept it: ssh " "ssh:fresh:$T/there/no"
	limb create no --provider "ssh:fresh:$T/there/no" --json >out || true
	eval "$(jq -r ".next_steps[0]" out)"
	limb create fresh --provider "ssh:fresh:$T/there/fresh"
	limb rm fresh
'
test_expect 'a changed host key is refused with the command that forgets the old one' '
	echo "$(cut -d" " -f1 "$T/known2") $(cut -d" " -f1,2 "$ssh_dir/id.pub")" >"$T/known2"
	refused "another host key than the one that is known.*ssh-keygen -f" "ssh:fresh:$T/there/no"
'
test_expect 'a key that is not let in' '
	ssh-keygen -qt ed25519 -N "" -f "$T/other"
	ssh_config stranger main
	sed "/^Host stranger/,\$ s#IdentityFile .*#IdentityFile $T/other#" "$ssh_dir/config" >c
	cp c "$ssh_dir/config"
	refused "lets nobody in with the keys at hand.*make this work first: ssh .*stranger true" "ssh:stranger:$T/there/no"
'
test_expect 'an account without a shell' '
	ssh_sshd noshell "ForceCommand echo This account is not available; exit 1"
	ssh_config noshell noshell
	ssh_know noshell
	refused "started no sh" "ssh:noshell:$T/there/no"
	ssh_sshd sftp "ForceCommand internal-sftp"
	ssh_config sftp sftp
	ssh_know sftp
	LIMB_TIME_S=200 refused "started no sh|did not answer|broke" "ssh:sftp:$T/there/no"
'
if have root; then
	test_expect 'a full disk there is said, and what to do; it lives where it was' '
		mkdir small much
		mount -t tmpfs -o size=1m none small || exit 0
		head -c 3000000 /dev/urandom >much/large
		limb create much --provider local --from much
		expect_code 125 limb migrate much --to "ssh:box:$T/small/w" 2>err
		grep "large: No space left on device there; free space there" err
		test "$(state_of much)" = live
		test "$(inspect_of much .provider)" = local
		verify_equal much
		limb rm much
		expect_code 125 limb create much --provider "ssh:box:$T/small/w2" --from much --json >out 2>err
		jq -e ".error == \"no_space\"" out
		test "$(limb ls -q | grep -c much)" = 0
		wait_for "umount small"
	'
fi
test_expect 'LIMB_SSH and --from, --root say what is wrong with them' '
	mkdir "$T/src"
	refused "\-\-from copies one there" "ssh:box:$T/there/no" --root "$T/src"
'

test_expect 'a lost root is made again, equal, and what is in its place is kept' '
	limb exec a -- sh -c "mkdir -p d/e; seq 1000 >d/e/n; ln -s n d/e/l; chmod 640 f"
	limb exec a -- sh -c "find . -exec stat -c \"%n %a %y %s\" {} + | LC_ALL=C sort" >before
	mv "$T/there/a" "$T/there/lost" # at once: what rm takes one by one are changes
	wait_state a halted
	limb rebuild a
	limb exec a -- sh -c "find . -exec stat -c \"%n %a %y %s\" {} + | LC_ALL=C sort" >after
	diff <(grep -v "^\. " before) <(grep -v "^\. " after)
	limb rebuild a --force
	test "$(cat "$T/there/a.before-3/f")" = hello
	verify_equal a
'
test_expect 'limbd comes back to what runs there' '
	limb exec a -- true
	daemon=$(of_ssh a | sort -n | head -n 1)
	limb down
	kill -0 "$daemon"
	limb up -q
	wait_state a live
	test "$(of_ssh a | sort -n | head -n 1)" = "$daemon"
'
test_expect 'removed, nothing of limbfs stays there but the directory that was given' '
	limb rm a
	test ! -e "$far/.local/share/limbfs"
	test "$(cat "$T/there/a/f")" = hello
	test -z "$(pids_with "limb-syncd")"
'
allow_error '^ssh: '
test_done
