#!/bin/bash
# Bad input, told with its subject: each message names what is wrong and what to do, and
# nothing is changed by it.
. "${0%/*}/brain-lib.sh"
! have podman || podman_first

# says CODE ERROR REGEX COMMAND...: plain, where REGEX is in the one line, and with --json.
says() {
	local - want=$1 code=$2 regex=$3
	set +x
	shift 3
	expect_code "$want" "$@" >out 2>err </dev/null
	[ ! -s out ] || { cat out; return 1; }
	[ "$(wc -l <err)" = 1 ] || { cat err; return 1; }
	grep -q '^limb: ' err
	grep -qE -- "$regex" err || { echo "no '$regex':"; cat err; return 1; }
	# Before what is the command's own.
	expect_code "$want" "$1" --json "${@:2}" >out 2>err </dev/null
	jq -e --arg code "$code" '.error == $code and (.detail | length) > 10 and
		(.next_steps | type) == "array"' out >/dev/null || { cat out; return 1; }
}
# What a refusal leaves as it was.
state_list() {
	limb journal dump box --json | grep -c .
	find "$root" -printf '%P %y %m %s\n' | sort
	limb ls --json | jq '[.environments[] | {environment, provider, root}]'
}

brain_up
mkdir root source
root=$T/root
echo kept >root/kept
mkdir root/dir
ln -s / root/out
limb create box --provider local --root "$root" -q >/dev/null || test_result 'not ok' create
limb label box first >/dev/null
limb sync box >/dev/null
state_list >before

test_expect 'files that are not there, or cannot be, are named' '
	says 125 file_not_found "no .absent. in environment .box." limb ls box:absent
	says 125 not_directory "kept/x" limb ls box:kept/x
	says 125 invalid_path "out/etc.*out of the root" limb ls box:out/etc
	says 125 file_not_found "absent" limb rm box:absent
	says 125 file_not_found "absent.*dir/x" limb mv box:absent box:dir/x
	says 125 file_not_found "kept.*nodir/x" limb mv box:kept box:nodir/x
	says 125 file_not_found "nodir/x" limb cp root/kept box:nodir/x
	says 125 file_not_found "$T/absent" limb cp absent box:x
	says 125 file_not_found "no .absent. in" limb cp box:absent x
	says 125 file_not_found "no .absent. in" limb cp box:absent -
	says 125 file_not_found "$T/no/x" limb cp box:kept no/x
	says 125 is_directory "dir" limb cp box:dir -
	says 125 invalid_path "\.\./x.*relative to the root" limb rm box:../x
	says 125 invalid_path "/etc/passwd.*relative to the root" limb rm box:/etc/passwd
	says 125 invalid_path "root of environment .box.*limb rm box" limb rm box:
	says 125 file_not_found "waits for no word about .kept." limb accept box kept
	says 125 file_not_found "refused no change of .kept." limb retry box kept
	says 125 file_not_found "refused no change of .kept." limb drop box kept
	says 125 file_not_found "no conflict of .kept." limb resolve box kept --take brain
	says 125 file_not_found "there neither now nor" limb restore box absent --at HEAD
	says 125 file_not_found "neither side has .absent." limb verify box --paths dir absent
	test ! -e x
'

test_expect 'a name that is no text is told byte for byte, and does not hide what is wrong' '
	name=$(printf "odd\\377\\033[1m")
	says 125 file_not_found "odd.xff.x1b.1m" limb ls "box:$name"
	refute grep -q "xff.*xff" err
	says 125 file_not_found "odd.xff.x1b.1m" limb rm "box:$name"
	expect_code 125 limb rm "box:$name" --json >out
	test "$(jq -r .path_base64 out | base64 -d)" = "$name"
	says 125 file_not_found "odd.xff" limb cp "$T/$name" box:x
'

test_expect 'points, labels, numbers' '
	says 125 point_not_found "no point .never.*limb points box" limb ls box@never:
	says 125 point_not_found "no point .never." limb cp box@never:kept -
	says 125 point_not_found "no point .never." limb restore box --at never
	says 125 point_not_found "no point .never." limb rebuild box --at never
	says 125 point_not_found "no point .never.*limb points box" limb watch box --since never
	says 2 usage "2020.*point" limb restore box --at 2020-01-01
	says 2 usage "at POINT" limb restore box
	says 2 usage "past cannot be changed" limb rm box@first:kept
	says 2 usage "past cannot be changed" limb cp root/kept box@first:kept
	for label in HEAD now consistent 1st "a b" ""; do
		says 2 usage "[.]$label. is no label|.$label. is no label" limb label box "$label"
	done
	says 2 usage "soon.*digits" limb sync box --timeout soon
	says 2 usage ".1.*digits" limb sync box --timeout -1
	says 2 usage "many.*digits" limb points box -n many
	says 2 usage "few.*10K" limb exec box --max-output few -- true
'

test_expect 'jobs and commands' '
	says 125 job_not_found "j-none" limb wait j-none
	job=$(limb exec -d box -- sleep 100)
	says 2 usage ".NOSUCH. is no signal" limb signal "$job" NOSUCH
	says 2 usage "not .third." limb logs "$job" --stream third
	limb signal "$job" KILL
	expect_code 137 limb wait "$job"
	says 125 conflict "has ended.*limb logs $job" limb signal "$job" TERM
	says 2 usage "LIMB_X" limb exec box -e LIMB_X=1 -- true
	says 2 usage "CMD.*usage: limb exec" limb exec box
	limb exec --key once box -- true
	says 125 conflict "another --key" limb exec --key once box -- false
	limb sync box
'

# What could not start is told in words, and the answer has them, too.
test_expect 'a command that cannot start says why' '
	cannot() {
		local - want=$1 regex=$2
		set +x
		shift 2
		expect_code "$want" limb exec box "$@" >out 2>err </dev/null
		[ "$(wc -l <err)" = 1 ]
		grep -qE -- "^limb: .*$regex" err || { cat err; return 1; }
		expect_code "$want" limb exec --json box "$@" >out 2>/dev/null </dev/null
		jq -e --arg regex "$regex" ".error and (.detail | test(\$regex))" out || { cat out; return 1; }
	}
	cannot 125 "start in .absent.: there is no such directory" -w absent -- true
	cannot 125 "start in .kept.: that is no directory" -w kept -- true
	cannot 125 "start in .\.\./...: it lies outside" -w ../.. -- true
	cannot 127 "run .no-such-command.: no directory of its PATH" -- no-such-command
	cannot 127 "run .\./absent.: it, or the interpreter" -- ./absent
	cannot 126 "run .\./kept.: it is not a file that may be executed" -- ./kept
	cannot 126 "run .\./dir.: it is not a file" -- ./dir
	limb sync box
'

test_expect 'environments and providers' '
	says 2 usage ".a~1. is no name" limb create a~1
	says 2 usage ".Box. is not a name" limb create Box
	says 125 environment_exists "already.*limb rm box" limb create box
	says 125 file_not_found "no provider .nix.*bwrap, local" limb create x --provider nix
	says 125 file_not_found "/etc/passwd. cannot be run.*limb-provider" limb create x --provider /etc/passwd
	says 125 file_not_found "$T. cannot be run" limb create x --provider "$T"
	says 125 file_not_found "$T/absent. cannot be run" limb create x --provider ./absent
	says 125 io_error "/bin/true. answered .info." limb create x --provider /bin/true
	says 2 usage "local. takes no target.*--root" limb create x --provider "local:$root"
	says 2 usage "bwrap. takes no target.*--root" limb create x --provider bwrap:x
	says 2 usage "ssh:HOST" limb create x --provider ssh
	says 2 usage "container:IMAGE" limb create x --provider container
	says 2 usage "quote.*not closed" limb create x --provider "command:echo \""
	says 125 file_not_found "no provider .nix." limb migrate box --to nix
	says 2 usage "wait, stop or restart, not .never." limb migrate box --to bwrap --jobs never
	says 125 invalid_path "/absent.*make it first" limb migrate box --to local:/absent
	says 2 usage "empty path" limb create x --from ""
	says 2 usage "empty path" limb create x --root ""
	says 125 invalid_path "root/kept.*not a directory" limb create x --from "$root/kept"
	says 125 file_not_found "absent" limb create x --spec absent
	for spec in "{\"env\": 3}" "{\"ignore\": \"x\"}" "{\"watch_limit\": -1}" "{\"audit\": 1}" "[]" "{bad"; do
		echo "$spec" >spec
		says 2 usage "spec" limb create x --spec spec
	done
	test "$(limb ls -q)" = box
'

test_expect 'verbs, journals, mounts, clients' '
	says 2 usage ".journal. wants a second word: limb journal verify, limb journal dump" limb journal
	says 2 usage ".provider. wants a second word: limb provider test" limb provider
	says 2 usage "no verb .nonsense." limb nonsense
	limb help journal verify >/dev/null
	expect_code 2 limb help journal 2>err
	grep "limb journal dump" err
	says 125 environment_not_found "no environment .absent.*limb ls" limb journal verify absent
	says 125 file_not_found "$T/absent. holds no journal" limb journal verify absent/
	says 2 usage "journal DIR is missing" limb mount "$T/source"
	says 2 usage "exclude each other" limb mount --journal state/ --look --work "$T/source"
	says 125 environment_not_found "holds no environment .absent." limb mount --journal state/ --environment absent "$T/source"
	says 125 point_not_found "no point .never." limb mount --journal state/ --at never "$T/source"
	says 125 file_not_found "$T/absent" limb mount --journal absent/ "$T/source"
	says 2 usage "claude, codex, cursor or vscode" limb mcp-config emacs
	says 125 file_not_found "no provider .nix." limb provider test nix
	says 125 file_not_found "$T/absent.*limb-provider" limb provider test ./absent
	says 125 permission_denied "$T/root/kept.*limb-provider" limb provider test root/kept
'

test_expect 'nothing of that changed anything but what was run' '
	state_list >after
	diff <(tail -n +2 before) <(tail -n +2 after)
	verify_equal box
'

test_expect 'a place for the view, the socket or the state that cannot be is refused, and left as it was' '
	echo precious >file
	mkdir -p other holds/state
	limb down
	export LIMB_STATE=$T/other/state
	says 125 invalid_path "$T/file.: that is not a directory.*--mount" limb up --mount "$T/file"
	says 125 invalid_path "below ./.:.*--mount" limb up --mount /
	says 125 invalid_path "the state directory lies in it" limb up --mount "$T/other"
	says 125 invalid_path "the state directory lies in it" limb up --mount "$T/other/state"
	says 125 invalid_path "among limbfs.s own files" limb up --mount "$T/other/state/envs/x"
	LIMB_SOCKET=$T/file says 125 daemon_unreachable "$T/file.*something else is there.*LIMB_SOCKET" limb up
	LIMB_SOCKET=$T/absent/s says 125 daemon_unreachable "$T/absent.*No such file.*LIMB_SOCKET" limb up
	test "$(cat file)" = precious
	says 125 io_error "$T/file" limb up --state "$T/file" --mount "$T/other/mnt"
	# One socket for two brains: neither is taken for the other, and none loses it.
	LIMB_SOCKET=one limb up
	LIMB_SOCKET=$T/one limb ls
	LIMB_SOCKET=one says 125 conflict "another state directory, .$T/other/state" limb up --state "$T/holds/state"
	expect_code 125 env LIMB_SOCKET="$T/one" limbd --state "$T/holds/state" --mount "$T/holds/state/mnt" 2>err
	grep "that of another limbd" err
	LIMB_SOCKET=$T/one limb ls
	LIMB_SOCKET=one limb down
	unset LIMB_STATE
	export LIMB_STATE=$T/state
	limb up
'

test_expect 'what is damaged is said to be, and every verb lives with it' '
	export LIMB_STATE=$T/broken
	limb up
	limb create q --provider local -q
	limb exec q -- touch f
	limb down --stop
	cp broken/envs/*/env.json kept.json
	echo "{" >"$(echo broken/envs/*/env.json)"
	limb up
	limb status q --json >out || true
	jq -e ".environments[0] | .state == \"halted\" and (.reasons[0].detail | test(\"env.json\"))" out
	says 125 environment_exists "already" limb create q
	says 125 halted "env.json. cannot be read: it is damaged; put a copy" limb exec q -- true
	limb down
	test "$(cat broken/envs/*/env.json)" = "{"
	cp kept.json "$(echo broken/envs/*/env.json)"
	limb up
	limb ls q:f
	limb down --stop
	dd if=/dev/zero of="$(echo broken/envs/*/log/*.log)" bs=1 seek=300 count=20 conv=notrunc status=none
	limb up
	pid=$(pid_of q limbd)
	for verb in start stop pause resume sync verify points trust ps conflicts rebuild "label q x" "accept q f" \
		"retry q f" "drop q f" "resolve q f --take brain" "restore q --at HEAD" "migrate q --to bwrap" \
		"exec q -- true" "cp q:f -" "cp $T/file q:x" "mv q:f q:g" "rm q:f" "ls q:" "ls q@HEAD:"; do
		[ "$verb" != "${verb#* }" ] || verb="$verb q"
		says 125 halted "it is damaged; look at it with: limb journal verify q" limb $verb
	done
	test "$(pid_of q limbd)" = "$pid"
	expect_code 1 limb journal verify q
	limb rm q
	limb down
	dd if=/dev/zero of="$(echo broken/brain/log/*.log)" bs=1 seek=300 count=20 conv=notrunc status=none
	says 125 daemon_unreachable "brain/log.: it is damaged; put a copy of it back" limb up
'
allow_error 'cannot be read; its files are left|its journal cannot be opened|brain.s log|the socket|the view cannot be mounted'

if have bwrap && unshare -Ur sh -c 'echo 0 >/proc/sys/user/max_user_namespaces' 2>/dev/null; then
	test_expect 'no user namespaces: said in words, by create, migrate and doctor; local works' '
		cat >none.sh <<-END
			echo 0 >/proc/sys/user/max_user_namespaces
			export LIMB_STATE=$T/none
			limb up -q
			limb create b
			echo "create \$?"
			limb create c --provider local -q && limb exec c -- echo runs
			limb migrate c --to bwrap
			echo "migrate \$?"
			limb doctor
			limb down --stop
		END
		unshare -Ur sh none.sh >out 2>&1
		cat out
		grep "^create 125" out
		grep "^runs" out
		grep "^migrate 125" out
		grep "^limb: cannot create .b.: .*; .*local" out
		grep "^limb: cannot move .c.: .*it is where it was" out
		refute grep "No space left" out
		grep "fail *user_namespaces" out
	'
else
	test_skip 'no user namespaces' 'needs bwrap and user namespaces'
fi

test_expect 'down with something pending says how much, and with 125' '
	limb create busy --provider local -q
	root=$(root_of busy)
	syncd=$(pid_of busy syncd)
	limb exec busy -d -- sh -c "for i in 1 2 3 4 5 6 7 8 9 10 11 12; do head -c 40000000 /dev/urandom >large\$i; done"
	wait_for "test \$(status_of busy .counts.pending_bytes) -gt 0"
	kill -STOP "$syncd"
	r=0
	limb down --json >out 2>err || r=$?
	kill -CONT "$syncd"
	cat out err
	jq -e ".stopped and .environments_running == [\"box\", \"busy\"]" out
	# Its last word may have been that nothing waits any more.
	if jq -e ".pending_bytes > 0" out; then
		test "$r" = 125
		grep "not durable yet.*limb up" err
	else
		test "$r" = 0
	fi
	limb up
	limb exec busy -- sh -c "rm -f large*"
	limb rm busy --force
'

test_expect 'a directory that may not be read is refused; a file in one that may not is counted' '
	mkdir shut part part/mnt
	echo x >part/seen
	echo x >part/hidden
	chmod 0 shut part/hidden
	if [ "$(id -u)" != 0 ]; then
		says 125 invalid_path "shut.*not be read" limb create x --from "$T/shut"
		says 125 invalid_path "shut.*not be read" limb create x --root "$T/shut"
	elif ! mount -t tmpfs none part/mnt; then
		exit 0
	fi
	limb create part --provider local --from part >out 2>err
	grep "1 entries of --from are left out" err
	limb create part2 --provider local --from part --json | jq -e ".left_out == 1"
	[ "$(id -u)" != 0 ] || umount part/mnt
	limb rm part
	limb rm part2
'

test_expect 'out of the past: cp NAME@POINT:PATH' '
	echo later >root/kept
	mkdir root/dir/sub
	echo deep >root/dir/sub/file
	limb label box second
	rm -r root/dir
	limb sync box
	test "$(limb cp box@first:kept -)" = kept
	test "$(limb cp box@second:kept -)" = later
	limb cp box@second:dir out-of-it
	test "$(cat out-of-it/sub/file)" = deep
	says 125 file_not_found "no .dir. in" limb cp box:dir elsewhere
	says 125 file_not_found "no .dir/sub. in" limb cp box@first:dir/sub elsewhere
'

test_expect 'files made there have the modes of their place, not those of limbd' '
	umask 027
	limb down
	limb up
	limb exec box -- sh -c "umask >mask; echo x >file; mkdir made"
	test "$(cat root/mask)" = 0022
	limb stop box
	limb start box
	limb exec box -- sh -c "umask >mask2; echo x >file2"
	test "$(cat root/mask2)" = 0027
	test "$(stat -c %a root/file2)" = 640
	test "$(stat -c %a "$LIMB_STATE")" = 700
	if [ "$providers" = "local bwrap" ]; then
		limb create sand -q
		limb exec sand -- sh -c "umask >mask"
		test "$(limb cp sand:mask -)" = 0022
	fi
'

test_done
