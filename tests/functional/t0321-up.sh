#!/bin/bash
# limb up starts one limbd for a state directory and returns when it answers; limb down leaves none.
. "${0%/*}/lib.sh"
need jq
at_exit 'limb down --stop >/dev/null'

limbd_pid() {
	limb status --json | jq .limbd.pid
}

test_expect 'up, again, down, again' '
	limb up --json >out
	jq -e ".started and .limbd_pid > 1 and .state_dir == \"$LIMB_STATE\" and
		.socket == \"$LIMB_STATE/limbd.sock\" and .mount == \"$LIMB_STATE/mnt\"" out
	test "$(stat -c %a "$LIMB_STATE")" = 700
	pid=$(jq .limbd_pid out)
	limb up --json | jq -e ".started == false and .limbd_pid == $pid"
	limb status
	limb ls
	test "$(cat "/proc/$pid/comm")" = limbd
	limb down --json | jq -e ".stopped"
	test_gone "$pid"
	limb down --json | jq -e ".stopped == false"
	expect_code 125 limb status
'

test_expect 'its stdout and other descriptors are not kept' '
	exec 7<>"$T/seven"
	answer=$(limb up -q 7>&7)
	test "$answer" = "$LIMB_STATE"
	pid=$(limbd_pid)
	test -z "$(ls -l "/proc/$pid/fd" | grep "$T/seven" || true)"
	test "$(readlink "/proc/$pid/cwd")" = /
	test "$(sed "s/.*) //" "/proc/$pid/stat" | cut -d" " -f4)" = "$pid"
	limb down
'

test_expect 'ten at once start one' '
	for i in 1 2 3 4 5 6 7 8 9 10; do
		limb up --json >"up.$i" &
		pids[i]=$!
	done
	for i in 1 2 3 4 5 6 7 8 9 10; do
		wait "${pids[i]}"
	done
	cat up.[0-9]*
	test "$(cat up.[0-9]* | jq .limbd_pid | sort -u | wc -l)" = 1
	test "$(cat up.[0-9]* | jq -c "select(.started)" | wc -l)" = 1
	limb down
'

test_expect 'after kill -9 it starts anew over what was left' '
	limb up
	pid=$(limbd_pid)
	kill -KILL "$pid"
	wait_for "test_gone $pid"
	expect_code 125 limb status
	limb up --json | jq -e ".started and .limbd_pid != $pid"
	limb down
'

test_expect 'whatever umask, locale, XDG variables' '
	(umask 0; LC_ALL=C limb up --state "$T/open")
	test "$(stat -c %a "$T/open")" = 700
	test -z "$(find "$T/open" ! -type s -perm /077 ! -type l ! -name mnt)"
	limb down --state "$T/open"
	(umask 077; env -i PATH="$PATH" HOME="$HOME" LIMB_TEST_ID="$LIMB_TEST_ID" limb up)
	test -S "$HOME/.local/state/limbfs/limbd.sock"
	env -i HOME="$HOME" "$(command -v limb)" down
'

test_expect 'a limbd that cannot start says why, in one line' '
	mkdir -p "$T/bad/limbd.sock/full"
	r=0
	limb up --state "$T/bad" --json >out 2>err || r=$?
	test "$r" = 125
	jq -e ".error == \"daemon_unreachable\" and (.detail | contains(\"limbd did not start: \"))" out
	test "$(wc -l <err)" = 1
	touch file
	r=0
	limb up --state "$T/file" 2>err || r=$?
	test "$r" = 125
	grep "^limb: cannot .* the state directory" err
	test "$(wc -l <err)" = 1
'

if ! have root || ! have user; then
	test_skip 'a state that cannot be made' "$why_not"
else
	test_expect 'a state that cannot be made' '
		install -d -m 555 -o 65534 closed
		r=0
		as_user sh -c "exec limb up --state $T/closed/state 2>&1" >err || r=$?
		test "$r" = 125
		grep "^limb: cannot make the state directory .*Permission denied" err
	'
fi

test_expect 'in the foreground it stays, and ends with limbd' '
	limb up --foreground --json >out 2>err &
	wait_for "limb status"
	wait_for "test -s out"
	jq -e .started out
	kill -0 $!
	limb up --foreground --json | jq -e ".started == false"
	limb down
	wait $!
	rm out
	limb up --foreground >out 2>err &
	wait_for "test -s out"
	pid=$(limbd_pid)
	kill -TERM $!
	wait $!
	test_gone "$pid"
	rm out
	limb up --foreground >out 2>err &
	wait_for "test -s out"
	pid=$(limbd_pid)
	kill -KILL $!
	wait_for "test_gone $pid"
	wait $! || true
'

test_done
