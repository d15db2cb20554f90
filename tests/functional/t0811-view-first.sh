#!/bin/bash
# What was written in a view comes before what is asked for after it: rm, restore, migrate and
# down have it arrive first, or say how much of it is nowhere else.
. "${0%/*}/away-lib.sh"
need fuse
brain_up
echo '{"view": {"write": true}}' >spec.json
export M=$T/state/mnt

# of ENVIRONMENT DIRECTORY: files that are written in its view, and nobody waits for them
fill() {
	local - i
	set +x
	mkdir "$M/$1/$2"
	for i in $(seq 400); do echo "$i" >"$M/$1/$2/f$i"; done
}
is_full() {
	local - i
	set +x
	for i in $(seq 400); do test "$(cat "$1/f$i")" = "$i" || return 1; done
}
make_local() {
	mkdir "$T/$1"
	limb create "$1" --provider local --root "$T/$1" --spec spec.json >/dev/null
	wait_for "mountpoint -q $M/$1"
}

test_expect 'rm' '
	make_local gone
	fill gone d
	limb rm gone
	is_full "$T/gone/d"
'
test_expect 'restore' '
	make_local back
	echo 1 >"$T/back/one"
	limb sync back
	limb label back start
	syncd=$(pid_of back syncd)
	kill -STOP "$syncd"
	fill back d
	limb restore back --at start &
	restore=$!
	kill -CONT "$syncd"
	wait $restore
	test ! -e "$T/back/d"
	test "$(cat "$T/back/one")" = 1
	limb sync back
	test ! -e "$T/back/d"
	test ! -e "$M/back/d"
	verify_equal back
'
test_expect 'migrate' '
	make_local moved
	syncd=$(pid_of moved syncd)
	kill -STOP "$syncd"
	fill moved d
	limb migrate moved --to local >/dev/null &
	migrate=$!
	kill -CONT "$syncd"
	wait $migrate
	test "$(root_of moved)" != "$T/moved"
	is_full "$(root_of moved)/d"
	limb sync moved >/dev/null
	test "$(status_of moved .counts.conflicts)" = 0
	verify_equal moved
'
test_expect 'down' '
	make_local ends
	fill ends d
	limb down >out
	is_full "$T/ends/d"
	refute grep wait out
	limb up >/dev/null
	wait_state ends live
	verify_equal ends
'
test_expect 'of what is away it is said how much waits' '
	limb create far --provider "command:$T/bin/far far" --spec spec.json >/dev/null
	limb trust far >/dev/null
	wait_for "mountpoint -q $M/far"
	away far
	echo a >"$M/far/a"
	mkdir "$M/far/b"
	limb down --json >out
	jq -e ".stopped and .pending_changes >= 2" out
	limb up >/dev/null
	wait_for "mountpoint -q $M/far && test -e $M/far/a"
	echo c >"$M/far/c"
	expect_code 125 limb rm far 2>err
	grep "changes that were made for environment .far. are not in it" err
	test -e "$M/far/c"
	back far
	limb sync far >/dev/null
	test "$(cat "$(away_root far)/a" "$(away_root far)/c")" = "a
c"
	test -d "$(away_root far)/b"
	verify_equal far
	limb rm far
'
test_done
