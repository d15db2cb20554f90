# shellcheck shell=bash
# hostile-lib.sh - brain-lib.sh, and a limbd with two environments: "good", and "bad", whose
# end of the wire (tests/functional/hostile) tells the lie that the file lie names.
. "${0%/*}/liar-lib.sh"

liar "$T/known"

rss_of() {
	awk '/^RssAnon:/ { print $2 }' "/proc/$1/status"
}

brain_up
test_expect 'an environment that lies not yet, and one beside it' '
	limb create good --provider local
	limb exec good -- sh -c "echo good >f"
	limb create bad --provider "$T/liar"
	limb sync bad --timeout 20
	test "$(limb cp bad:d/f -)" = file
	limb ls bad:d
	pid_of bad limbd >limbd.pid
	limb ls bad:d --json | jq -c "[.entries[].path]" >entries
	rss_of "$(cat limbd.pid)" >rss.before
'

# The line falls, and what comes back lies.
begin_lie() {
	local -
	set +x
	if [ "$(state_of bad)" != live ]; then # after a test that failed
		echo none >"$T/lie"
		limb start bad >/dev/null
		wait_state bad live
	fi
	echo "$1" >"$T/lie"
	kill_9 "$(pid_of bad transport)"
}
# The truth again: what was there before the lie, and nothing else.
says_truth() {
	local -
	set +x
	if test_gone "$(cat limbd.pid)"; then return 1; fi
	echo none >"$T/lie"
	if [ "$(state_of bad)" = live ]; then # the line that lies
		kill_9 "$(pid_of bad transport)"
		wait_for 'test "$(pid_of bad transport)" != null'
	fi
	limb start bad >/dev/null
	wait_state bad live
	limb ls bad:d --json | jq -c '[.entries[].path]' >entries.now
	diff "$T/entries" entries.now
}
# lie NAME REASON: ends in the state hostile, and the reason says what was broken.
lie() {
	test_expect "lie $1: hostile, \"$2\"" "
		begin_lie $1
		wait_state bad hostile
		status_of bad .reasons | tee reasons
		grep -- '$2' reasons
		says_truth
	"
}
# harmless NAME [CODE]: nothing comes of it; CODE is run while it goes on.
harmless() {
	test_expect "lie $1: nothing comes of it" "
		begin_lie $1
		wait_state bad live
		${2-:}
		says_truth
	"
}
# The last test: limbd is the one that it was, and no larger; all else went on.
all_goes_on() {
	test_expect 'limbd is the same and has not grown; what is beside it went on' '
		test "$(pid_of bad limbd)" = "$(cat limbd.pid)"
		before=$(cat rss.before)
		after=$(rss_of "$(cat limbd.pid)")
		echo "RssAnon $before KiB before, $after KiB after"
		have sanitizers || test $((after - before)) -lt 65536
		test "$(limb exec good -- cat f)" = good
		verify_equal good
		test "$(limb cp bad:d/f -)" = file
		begin_lie name-slash
		wait_state bad hostile
		expect_code 125 limb exec bad -- true
		limb rm bad --force
	'
}
