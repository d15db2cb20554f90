#!/bin/bash
# To a place that holds an older copy a large file goes as what differs; it is what the journal
# says, or is sent whole.
. "${0%/*}/ssh-lib.sh"
need python3
ssh_up
brain_up

# there, here: moves it; what was sent is in $T/cost. What was written just before is in the journal
# first: a file caught between two writes goes twice, which is no fault and not what is counted here.
there() {
	limb sync a -q >/dev/null
	limb migrate a --to "ssh:box:$T/far-a" --json >"$T/moved"
	jq -r .bytes_sent "$T/moved" | tee "$T/cost"
}
here() {
	limb migrate a --to local --json >"$T/moved"
}
is_equal() {
	LIMB_TIME_S=200 verify_equal a
}
export LIMB_TIME_S=200

limb create a --provider local -q >/dev/null
noise 1 60000000 >"$(root_of a)/big"
noise 2 3000000 >"$(root_of a)/other"
limb sync a -q >/dev/null
there >/dev/null
here

test_expect 'an older copy there: only what differs goes' '
	insert "$(root_of a)/big" 30000000
	there
	test "$(cat cost)" -lt 100000
	is_equal
	here
	is_equal
'
test_expect 'many edits, something cut out, something moved' '
	big=$(root_of a)/big
	for at in 100 20000000 20100000 20200000 40000000 59000000; do
		insert "$big" $at 3000
	done
	{
		head -c 10000000 "$big"
		tail -c +15000000 "$big"
		head -c 2000000 "$big" | tail -c 1000000
	} >"$T/new"
	cat "$T/new" >"$big"
	there
	test "$(cat cost)" -lt 600000
	is_equal
	here
'
test_expect 'a rewritten one goes whole' '
	noise 3 5000000 >"$T/new"
	cat "$T/new" >"$(root_of a)/other"
	there
	test "$(cat cost)" -gt 5000000
	is_equal
	here
'
test_expect 'what somebody did to it there is no part of it' '
	limb sync a
	insert "$(root_of a)/big" 1000
	printf xxxx | dd of="$T/far-a/big" bs=1 seek=2000000 conv=notrunc status=none
	there
	is_equal
	here
'
allow_error '^ssh: '
test_done
