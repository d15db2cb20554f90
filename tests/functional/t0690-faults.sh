#!/bin/bash
# Each write, sync, rename, send and receive of limbd and its helpers fails, is cut short, or is
# the last thing that its process does, one at a time, in a small drill: what was acknowledged
# is there afterwards, both sides are equal, and a rebuild brings it back.
. "${0%/*}/brain-lib.sh"
need faults

# All that the sources name; LIMB_TEST_POINTS chooses some. In check-long each, with each kind
# of fault; else a few that hold the most.
"$LIMB_TOP_SRCDIR/scripts/fault-points" | awk '{ print $2 }' | sort -u >"$T/points"
kinds='error cut kill'
if [ -n "${LIMB_TEST_POINTS-}" ]; then
	tr ' ' '\n' <<<"$LIMB_TEST_POINTS" >"$T/chosen"
elif have long; then
	cp "$T/points" "$T/chosen"
else
	printf '%s\n' log.append log.sync pack.sync ingest.pack >"$T/chosen"
	kinds='kill'
fi
test_expect 'the list of points is that of the sources' '
	test "$(wc -l <points)" -gt 80
	for name in log.append log.sync pack.sync file.replace.rename ingest.pack session.send; do
		grep -qx "$name" points
	done
'
# What the drill does is what limb acknowledged: lines "FILE CONTENT" in acked.
acked() {
	local -
	set +x
	LIMB_TIME_S=20 limb exec f -- sh -c "printf '%s\n' '$2' >'$1'" >/dev/null 2>&1 &&
		echo "$1 $2" >>"$D/acked"
}
all_acked() {
	local - file content
	set +x
	while read -r file content; do
		[ "$(limb cp "f:$file" - 2>/dev/null)" = "$content" ] || {
			echo "acknowledged, and not there: $file $content"
			return 1
		}
	done <"$D/acked"
}
visits=0
# drill POINT KIND: 0, or what was broken is on stdout
drill() {
	local -
	set +eux
	D=$T/$1-$2
	mkdir -p "$D"
	: >"$D/acked"
	export LIMB_STATE=$D/state
	LIMB_TIME_S=20 limb up -q >/dev/null 2>&1
	LIMB_TIME_S=30 limb create f --provider local >/dev/null 2>&1 || true
	LIMB_TIME_S=20 limb down >/dev/null 2>&1

	export LIMB_FAULT=$1:1:$2 LIMB_FAULT_TRACE=$D/trace
	LIMB_TIME_S=20 limb up -q >/dev/null 2>&1
	acked a one
	acked a two
	acked b three
	LIMB_TIME_S=20 limb sync f --timeout 10 >/dev/null 2>&1
	acked c four
	unset LIMB_FAULT LIMB_FAULT_TRACE

	pid=$(pid_of f limbd)
	[ -z "$pid" ] || [ "$pid" = null ] || kill_9 "$pid"
	limb up -q || { echo 'limbd does not come up again'; return 1; }
	# Its processes still have the fault.
	limb stop f >/dev/null 2>&1
	limb start f >/dev/null || { echo 'it does not start again'; return 1; }
	wait_state f live || return 1
	all_acked || return 1
	verify_equal f || return 1
	mv "$(root_of f)" "$D/lost"
	wait_state f halted || return 1
	limb rebuild f >/dev/null || return 1
	all_acked || return 1
	verify_equal f || return 1
	limb down --stop >/dev/null
	cat "$D/trace" >>"$T/visited" 2>/dev/null
	rm -rf "$D"
}
: >"$T/visited"
while read -r point <&3; do
	for kind in $kinds; do
		test_expect "point $point, $kind" "drill $point $kind"
		visits=$((visits + 1))
	done
done 3<"$T/chosen"
sort -u "$T/visited" | sed 's/ .*//' | comm -13 - "$T/points" >"$T/never"
echo "# $visits drills over $(wc -l <"$T/chosen") of $(wc -l <"$T/points") points; $(wc -l <"$T/never") never visited: $(tr '\n' ' ' <"$T/never")"
export LIMB_STATE=$T/state
allow_error '.'
test_done
