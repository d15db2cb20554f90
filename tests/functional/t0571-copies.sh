#!/bin/bash
# After a loss of power an index is made again from its last synced copy, not from the
# beginning of the log.
LIMB_QUIET_MS=400
export LIMB_QUIET_MS
. "${0%/*}/brain-lib.sh"

brain_up

# power_lost MARK: as a machine that was started again finds an LMDB file that nobody closed
power_lost() {
	sed -i -e '/^check /d' -e 's/^boot .*/boot 00000000000000000000000000000000/' \
		-e 's/^clean .*/clean 0/' "$1"
	echo "check $(sha256sum <"$1" | cut -c1-16)" >>"$1"
}

test_expect 'a copy is made when there is something new and it is quiet' '
	limb create e --provider local -q
	dir=$LIMB_STATE/envs/$(inspect_of e .id | tr -d -)
	echo "$dir" >dir
	for i in $(seq 40); do
		echo "$i" >"$(root_of e)/f$i"
		limb sync e -q
	done
	wait_for "test -s \"$dir\"/index.*/copy"
'

test_expect 'from it the replay begins, and both sides are equal' '
	dir=$(cat dir)
	for i in 1 2 3; do
		echo "late $i" >"$(root_of e)/late$i"
		limb sync e -q
	done
	kill_9 "$(pid_of "" limbd)"
	power_lost "$dir/index"
	# Whatever was not synced may be anything.
	data=$(ls "$dir"/index.*/data.mdb)
	head -c 4096 /dev/urandom | dd of="$data" bs=4096 seek=2 conv=notrunc status=none
	: >"$LIMB_STATE/limbd.log"
	# The line is written before there is a limbd.log.
	limb up 2>&1 | tee up.txt
	wait_state e live
	grep -h "replayed records" up.txt "$LIMB_STATE/limbd.log" >replayed.txt
	cat replayed.txt
	from=$(sed -n "s/.*records \([0-9]*\) to.*/\1/p" replayed.txt)
	test "$from" -gt 32
	verify_equal e
	test "$(cat "$(root_of e)/late3")" = "late 3"
	limb journal verify e
'

test_done
