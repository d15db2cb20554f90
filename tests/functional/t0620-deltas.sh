#!/bin/bash
# On a network a large file that changed goes as what changed of it, in both directions, and
# whole where that does not pay or anything is in doubt; what arrives is equal each time.
. "${0%/*}/ssh-lib.sh"
need python3
ssh_up
brain_up

# moved NAME: bytes that its transport has moved so far: in at one side and out at the other
moved() {
	local -
	set +x
	awk '/^[rw]char/ { n += $2 } END { print int(n / 2) }' "/proc/$(pid_of "$1" transport)/io"
}
# costs NAME COMMAND...: what it and the sync after it move, into $T/cost
costs() {
	local - name=$1 before
	set +x
	shift
	limb sync "$name" -q >/dev/null
	before=$(moved "$name")
	"$@"
	limb sync "$name" -q >/dev/null
	echo $(($(moved "$name") - before)) >"$T/cost"
	cat "$T/cost"
}
kept() {
	find "$far" "$T" -path '*/signatures/*' -type f | sed -n 1p
}
is_equal() {
	LIMB_TIME_S=200 verify_equal a
}

limb create a --provider "ssh:box:$T/a" -q >/dev/null

test_expect 'a large file goes whole the first time' '
	noise 1 100000000 >"$T/big"
	costs a cp "$T/big" "$T/a/big"
	test "$(cat cost)" -gt 100000000
	test -n "$(kept)"
	is_equal
'
test_expect '1 KB put into 100 MB costs less than 48 KB' '
	costs a insert "$T/a/big" 50000000
	test "$(cat cost)" -lt 49152
	is_equal
'
test_expect 'so does the next one, and what is cut off, and what is appended' '
	costs a insert "$T/a/big" 7
	test "$(cat cost)" -lt 65536
	costs a truncate -s -1000000 "$T/a/big"
	test "$(cat cost)" -lt 65536
	costs a sh -c "echo more >>\"$T/a/big\""
	test "$(cat cost)" -lt 65536
	is_equal
'
test_expect 'a file that takes its name, too' '
	cp "$T/a/big" "$T/other"
	insert "$T/other" 20000000
	costs a mv "$T/other" "$T/a/big"
	test "$(cat cost)" -lt 80000
	insert "$T/a/big" 30000000
	cp "$T/a/big" "$T/other"
	insert "$T/other" 40000000
	costs a mv "$T/other" "$T/a/big"
	test "$(cat cost)" -lt 100000
	is_equal
'
test_expect 'the same size and other bytes in the middle' '
	costs a dd if=/dev/urandom of="$T/a/big" bs=1k count=1 seek=60000 conv=notrunc status=none
	test "$(cat cost)" -lt 100000
	is_equal
'
test_expect 'what has changed much is the base of the next one' '
	costs a insert "$T/a/big" 1000000 3000000
	test "$(cat cost)" -lt 3300000
	costs a insert "$T/a/big" 1000 # against the old one for the last time
	costs a insert "$T/a/big" 1000
	test "$(cat cost)" -lt 65536
	is_equal
'
test_expect 'limb-syncd is another one: what it kept is still good' '
	kill_9 "$(pid_of a syncd)"
	wait_for "limb sync a"
	costs a insert "$T/a/big" 5000
	test "$(cat cost)" -lt 65536
'
test_expect 'a rewritten file goes whole' '
	noise 2 3000000 >"$T/1"
	noise 3 3000001 >"$T/2"
	costs a mv "$T/1" "$T/a/small"
	costs a mv "$T/2" "$T/a/small"
	test "$(cat cost)" -gt 3000000
	test "$(cat cost)" -lt 3200000
	is_equal
'
test_expect 'so does one that has little in common' '
	noise 4 20000000 >"$T/new"
	costs a cp "$T/new" "$T/a/half"
	costs a dd if=/dev/urandom of="$T/a/half" bs=1M count=14 conv=notrunc status=none
	test "$(cat cost)" -gt 14000000
	is_equal
'
test_expect 'a base that the brain does not have' '
	for f in $(find "$far" "$T" -path "*/signatures/*"); do
		printf xxxx | dd of="$f" bs=1 seek=40 conv=notrunc status=none
	done
	costs a insert "$T/a/small" 1000
	test "$(cat cost)" -gt 3000000
	test "$(cat cost)" -lt 3200000
	costs a insert "$T/a/small" 1000
	test "$(cat cost)" -lt 65536
	is_equal
'
test_expect 'a base that is another one than was thought' '
	noise 5 4000000 >"$T/v1"
	{ head -c 2000000 "$T/v1"; noise 6 2000000; } >"$T/v2"
	costs a cp "$T/v1" "$T/a/two"
	old=$(ls -t $(find "$far" "$T" -path "*/signatures/*") | head -n 1)
	costs a cp "$T/v2" "$T/a/two"
	printf "$(sha256sum "$T/v2" | cut -c 1-64 | sed "s/../\\\\x&/g")" |
		dd of="$old" bs=1 seek=32 conv=notrunc status=none
	cp "$T/v1" "$T/v3"
	insert "$T/v3" 3900000
	costs a cp "$T/v3" "$T/a/two"
	test "$(cat cost)" -gt 4000000
	is_equal
'
test_expect 'damaged ones are passed over' '
	for f in $(find "$far" "$T" -path "*/signatures/*"); do
		truncate -s -1 "$f"
	done
	costs a insert "$T/a/two" 1000
	test "$(cat cost)" -gt 4000000
	is_equal
'

allow_error '^ssh: '
test_done
