#!/bin/bash
# Machines on which an environment can live although something there is not as usual: a home
# that is noexec, full, or not to be written, a host behind another one.
. "${0%/*}/ssh-lib.sh"
ssh_up
brain_up
mkdir "$T/there"

daemon_of() {
	pids_with "daemon --dir" "$(inspect_of "$1" .id | tr -d -)" | head -n 1
}
# lives NAME: commands run in it, and what they do is seen
lives() {
	limb exec "$1" -- sh -c "echo said; echo x >made" >out
	test "$(cat out)" = said
	limb sync "$1" -q
	test "$(cat "$LIMB_STATE/mnt/$1/made")" = x
	limb stop "$1" -q
	limb start "$1" -q
	wait_state "$1" live
	verify_equal "$1"
}
# moves_out OPTIONS [fill]: with such a file system as home limb-syncd runs from elsewhere
moves_out() {
	local exe
	at_exit "umount -q '$far'; true"
	mount -t tmpfs -o "$1" none "$far"
	[ "${2-}" != fill ] || head -c 100000000 /dev/zero >"$far/full" 2>/dev/null || true
	limb create h --provider "ssh:box:$T/there/h"
	exe=$(readlink "/proc/$(daemon_of h)/exe")
	echo "$exe"
	case $exe in
	/var/tmp/limbfs-* | /tmp/limbfs-* | /dev/shm/limbfs-*) ;;
	*) false ;;
	esac
	lives h
	limb rm h --force
	test ! -e "$far/.local/share/limbfs"
	rm -rf "$T/there/h"
	wait_for "umount '$far'"
}
if have root && have mount; then
	test_expect 'a home that is noexec' '
		moves_out size=64m,noexec
	'
	test_expect 'a home that is full' '
		moves_out size=1m fill
	'
	test_expect 'one account with two homes: who leaves takes nothing that the other runs' '
		mkdir far2
		at_exit "umount -q '\''$T/far'\'' '\''$T/far2'\''; true"
		mount -t tmpfs -o size=64m,noexec none "$far"
		mount -t tmpfs -o size=64m,noexec none far2
		ssh_sshd second "SetEnv HOME=$T/far2"
		ssh_config box2 second
		ssh_know second
		limb create h --provider "ssh:box:$T/there/h"
		limb create g --provider "ssh:box2:$T/there/g"
		exe=$(readlink "/proc/$(daemon_of h)/exe")
		test "$(readlink "/proc/$(daemon_of g)/exe")" = "$exe"
		limb rm g --force
		test -x "$exe"
		lives h
		limb rm h --force
		rm -rf there/*
		stop_bg sshd-second
		wait_for "umount '\''$far'\'' && umount far2"
	'
	test_expect 'a home that cannot be written' '
		moves_out ro
	'
fi
test_expect 'a host behind another: the ssh configuration has ProxyJump' '
	ssh_config behind main "ProxyJump box"
	limb create j --provider "ssh:behind:$T/there/j"
	lives j
	kill_9 "$(pid_of j transport)"
	wait_state j live
	limb exec j -- cat made >out
	test "$(cat out)" = x
	limb rm j --force
'
test_expect 'the host between is not there: one sentence, nothing is made' '
	printf "%s\n" "Host gone" "HostName 127.0.0.1" "Port 1" >>"$ssh_dir/config"
	ssh_config beyond main "ProxyJump gone"
	expect_code 125 limb create k --provider "ssh:beyond:$T/there/k" 2>err
	cat err
	test "$(grep -c "^limb: " err)" = 1
	test ! -e "$T/there/k"
	test "$(limb ls -q | grep -c k)" = 0
'
test_expect 'nothing is left there' '
	test ! -e "$far/.local/share/limbfs"
'
allow_error '^ssh: |^kex_exchange|^Connection closed|stdio forwarding'
test_done
