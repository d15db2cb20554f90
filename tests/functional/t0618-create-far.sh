#!/bin/bash
# A directory becomes an environment on another machine in one command; what fails on the way,
# or is killed, leaves nothing there and nothing here.
. "${0%/*}/ssh-lib.sh"
ssh_up
brain_up

mkdir -p tree/sub
seq 1000 >tree/sub/numbers
printf '#!/bin/sh\nhostname\n' >tree/run
chmod 4755 tree/run
ln tree/sub/numbers tree/again
ln -s sub/numbers tree/link
touch -d '2001-02-03 04:05:06.123456789' tree/sub/numbers
setfattr -n user.note -v hello tree/run 2>/dev/null || true

# nothing_of NAME: on neither side
nothing_of() {
	limb inspect "$1" --json 2>/dev/null && return 1
	wait_for 'test -z "$(ls "$LIMB_STATE/envs")"'
	wait_for "test -z \"\$(ls -A '$far/.local/state/limbfs/envs' 2>/dev/null)\""
}
places_there() {
	find "$far" -name 'numbers' | wc -l
}

test_expect 'create --from over ssh: the tree is there, and only there' '
	limb create r --provider ssh:box --from tree --json >made.json
	jq -e ".provider == \"ssh\" and .state == \"live\" and .files == 2 and .duration_ms > 0" made.json
	test "$(places_there)" = 1
	test ! -e "$LIMB_STATE"/envs/*/root/run
	limb exec r -- sh -c "cat link | tail -n 1; stat -c %a run; stat -c %h again" >seen
	printf "1000\n4755\n2\n" | cmp - seen
	verify_equal r
	test "$(state_of r)" = live
	tree_list tree >want
	tree_list "$(inspect_of r .root)" >got
	same_tree want got
	limb rm r --force
	wait_for "test \$(places_there) = 0"
'

test_expect 'a host that is not there: one sentence, and nothing stays' '
	printf "%s\n" "Host nowhere" "HostName 127.0.0.1" "Port 1" >>"$ssh_dir/config"
	r=0
	limb create n --provider ssh:nowhere --from tree 2>err || r=$?
	test $r = 125
	test "$(wc -l <err)" -le 2
	grep "nowhere" err
	nothing_of n
'

test_expect '--root is refused with what to do instead' '
	r=0
	limb create n --provider ssh:box --root "$T/tree" 2>err || r=$?
	test $r = 125
	grep -- "--from" err
	nothing_of n
'

for step in migrate.begin migrate.copied migrate.lease; do
	export step
	test_expect "limbd killed at $step: nothing of it stays" '
		have faults || exit 0
		limb down
		LIMB_FAULT=$step:1:kill limb up
		r=0
		limb create k --provider ssh:box --from tree 2>err || r=$?
		test $r = 125
		limb up
		wait_for "! limb inspect k --json >/dev/null 2>&1"
		wait_for "test \$(places_there) = 0"
		nothing_of k
	'
done

test_expect 'limbd killed after the lease: it lives there' '
	have faults || exit 0
	limb down
	LIMB_FAULT=migrate.handed:1:kill limb up
	r=0
	limb create k --provider ssh:box --from tree 2>err || r=$?
	test $r = 125
	limb up
	wait_state k live
	test "$(inspect_of k .provider)" = ssh
	verify_equal k
	wait_for "limb rm k --force"
	wait_for "test \$(places_there) = 0"
'

test_done
