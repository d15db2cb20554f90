#!/bin/bash
# limb sends what the contract says, prints what it says, and ends with its codes.
. "${0%/*}/lib.sh"
need jq

fake() {
	exec "$LIMB_TOP_BUILDDIR/tests/functional/fake-limbd" "$LIMB_STATE/limbd.sock" "$T/fake"
}
# fails CODE COMMAND...: stdout in out, stderr, without the trace, in err
fails() {
	local want=$1 r=0
	shift
	"$@" >out 2>err || r=$?
	[ "$r" = "$want" ]
}
mkdir -p "$LIMB_STATE" "$T/fake"
chmod 700 "$LIMB_STATE"

test_expect 'without limbd: one line with the remedy, 125, and nothing is made' '
	fails 125 limb status
	test ! -s out
	grep "^limb: no limbd answers at .*limb up" err
	test "$(wc -l <err)" = 1
	fails 125 limb status --json
	jq -e ".error == \"daemon_unreachable\" and (.next_steps | length) > 0" out
	test "$(wc -l <out)" = 1
	test ! -e "$HOME/.local"
	limb down --json | jq -e ".stopped == false and .environments_running == []"
'

test_expect 'mistakes in the arguments: one line, 2, JSON with --json' '
	for args in "" "nosuch" "status --nosuch" "create" "create Web" "exec x" "cp a b" "sync x --timeout y"; do
		# shellcheck disable=SC2086
		fails 2 limb $args
		test ! -s out
		test "$(wc -l <err)" = 1
		grep "^limb: " err
	done
	fails 2 limb create --json
	jq -e ".error == \"usage\" and (.detail | length) > 0" out
'

test_expect 'help and version need nothing' '
	env -u HOME -u LIMB_STATE limb help >out
	grep -q "journal verify" out
	limb help journal verify | grep -q "^usage: limb journal verify"
	limb create -h | grep -q -- --from
	limb --version | grep -qx "limb [0-9.]*"
	expect_code 2 limb help nosuch
'

test_expect 'places: flag, then variable, then default; a long socket path is refused' '
	says() {
		fails 125 env "$@"
		cat err
	}
	says -u HOME -u LIMB_STATE limb status |
		grep "$(getent passwd "$(id -u)" | cut -d: -f6)/.local/state/limbfs/limbd.sock"
	says LIMB_STATE=/nonexistent/v limb status --state rel | grep "$T/rel/limbd.sock"
	says LIMB_STATE=/nonexistent/v limb status | grep /nonexistent/v/limbd.sock
	says -u LIMB_STATE XDG_STATE_HOME=/nonexistent/x limb status | grep /nonexistent/x/limbfs/
	says -u LIMB_STATE limb status | grep "$HOME/.local/state/limbfs/"
	says LIMB_SOCKET=/nonexistent/s limb status | grep /nonexistent/s
	long=$T/$(printf "%0110d" 0)
	fails 125 limb up --state "$long"
	grep "a socket can have 107; choose a shorter --state" err
	test ! -e "$long"
'

test_expect 'the state directory of somebody else is refused' '
	if [ "$(id -u)" = 0 ]; then
		mkdir "$T/theirs"
		chown 65534 "$T/theirs"
		for verb in up status down; do
			fails 125 limb $verb --state "$T/theirs" --json
			jq -e ".error == \"permission_denied\"" out
			grep "belongs to uid 65534" err
		done
		test -z "$(ls -A "$T/theirs")"
	fi
'

run_bg limbd fake
at_exit 'stop_bg limbd || true'
wait_for "test -S '$LIMB_STATE/limbd.sock'"

test_expect 'results: JSON as it came, plain for people, ids with -q' '
	echo "{\"ok\":true,\"environments\":[{\"environment\":\"web\",\"state\":\"live\"}],\"more\":1}" >fake/status.json
	limb status --json >out
	jq -e ".more == 1" out
	test "$(wc -l <out)" = 1
	limb status | grep "^web  *live"
	test "$(limb status -q)" = web
	limb status -qz | od -c | grep "w   e   b  .0"
'

test_expect 'exit 1 is the answer no: status, verify, rebuild' '
	echo "{\"ok\":false,\"environments\":[]}" >fake/status.json
	expect_code 1 limb status
	echo "{\"equal\":false,\"differences\":[]}" >fake/verify.json
	expect_code 1 limb verify x --json
	cp fake/verify.json fake/rebuild.json
	expect_code 1 limb rebuild x
	echo "{\"equal\":true,\"differences\":[]}" >fake/verify.json
	limb verify x
	echo "{\"environment\":\"x\",\"equal\":false}" >fake/sync.json
	limb sync x
'

test_expect 'an error of limbd is printed once, with its code' '
	rm -f fake/sync.json
	echo "{\"error\":\"timed_out\",\"detail\":\"not durable\",\"next_steps\":[\"wait\"],\"exit\":124}" >fake/sync.error
	fails 124 limb sync x --json
	jq -e ".error == \"timed_out\" and (has(\"exit\") | not)" out
	test "$(cat err)" = "limb: not durable; wait"
	echo "{\"error\":\"halted\",\"detail\":\"root missing\"}" >fake/sync.error
	fails 125 limb sync x
	printf "{\"error\":\"halted\",\"detail\":\"a\\\\nb\\\\u001b[2J\"}" >fake/sync.error
	fails 125 limb sync x
	test "$(cat err)" = "limb: a\\x0ab\\x1b[2J"
'

test_expect 'params: absolute host paths, bytes as base64' '
	echo "{\"environment\":\"x\"}" >fake/create.json
	echo "{\"environment\":\"x\",\"files\":1,\"bytes\":5,\"seq\":7}" >fake/cp.json
	limb create x --from fake
	limb cp fake/cp.json x:a/b
	limb cp fake/cp.json "x:$(printf "\\377")"
	tail -n 3 fake/requests.log | jq -se "
		.[0].params.from == \"$T/fake\" and .[1].params.src == \"$T/fake/cp.json\" and
		.[1].params.dst == \"x:a/b\" and .[2].params.dst.base64 == \"eDr/\""
'

test_expect 'progress is for terminals only' '
	limb create x --from fake >out 2>err
	test ! -s err
	script -qec "limb create x" /dev/null >tty </dev/null
	grep copying tty
'

test_expect 'cp to stdout prints the bytes and nothing else' '
	limb cp x:file - >out
	test "$(od -An -tx1 out | tr -d " \n")" = "6279746573006f66206974"
	limb cp x:file - --json >out
	test "$(wc -c <out)" = 11
'

test_expect 'exec passes stdin, stdout, stderr and the status' '
	head -c 3000000 /dev/urandom >in
	limb exec x -- cat <in >out 2>err
	cmp in out
	test ! -s err
	limb exec x -- flood 10000000 >out 2>err
	test "$(wc -c <out)" = 10000000
	test "$(cat err)" = err
	limb exec x -- cat </dev/null
	limb exec x -- cat <&-
	expect_code 3 limb exec x -- exit 3
	expect_code 255 limb exec x -- exit 255
	fails 3 limb exec x --json -- exit 3
	jq -e ".exit_code == 3" out
	fails 125 limb exec x -- fail
	test "$(cat err)" = "limb: '"'x'"' is stopped; try: limb start x"
'

test_expect 'output through a slow pipe loses nothing' '
	limb exec x -- flood 2000000 2>/dev/null >whole
	test "$(wc -c <whole)" = 2000000
	limb exec x -- flood 2000000 2>/dev/null | { sleep 0.3; cat; } >slow
	cmp whole slow
	limb exec x -- flood 2000000 2>/dev/null | cat >fast
	cmp whole fast
'

test_expect 'a reader that leaves cancels the command' '
	: >fake/requests.log
	status=0
	limb exec x -- flood 50000000 2>/dev/null | head -c 10 >out || status=$?
	test $status = 141
	test "$(wc -c <out)" = 10
	wait_for "grep \"\\\"cancel\\\"\" fake/requests.log"
	fails 125 sh -c "exec limb exec x -- flood 50000000 >/dev/full"
	grep "No space left" err
'

# SIGINT to limb itself: a shell without job control has its children ignore it.
interrupt() {
	rm -f "$T"/fake/hanging "$T"/fake/cancelled "$T"/fake/closed
	env --default-signal=INT limb exec x -- "$1" &
	wait_for "test -e '$T/fake/hanging'"
	kill -INT $!
	r=0
	wait $! || r=$?
	test "$r" = 130
}
test_expect 'SIGINT cancels, waits for the end, gives 130' '
	interrupt hang
	test -e fake/cancelled
'
test_expect 'SIGINT gives up on a limbd that does not answer' '
	interrupt deaf
	wait_for "test -e \"\$T/fake/closed\""
'

test_expect 'a limbd that dies or talks nonsense is named' '
	fails 125 limb exec x -- die
	grep "limbd ended before it answered; start it again: limb up" err
	fails 125 limb exec x --json -- garbage
	jq -e ".error == \"internal\"" out
'

test_expect 'down returns when limbd is gone' '
	echo "{\"stopped\":true,\"environments_running\":[\"web\"],\"pending_bytes\":0}" >fake/down.json
	limb down >out
	test -e fake/ended
	grep "still running *web" out
'

if ldd "$(command -v limb)" | grep -q libasan; then
	test_skip 'limb is linked to libc only' 'built with sanitizers'
else
	test_expect 'limb is linked to libc only' '
		test -z "$(ldd "$(command -v limb)" | grep -vE "linux-vdso|libc\.so|ld-linux")"
	'
fi

test_done
