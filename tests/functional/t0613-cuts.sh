#!/bin/bash
# Lines that are cut, again and again: no process, descriptor or watch stays behind, here or
# there.
. "${0%/*}/ssh-lib.sh"
ssh_up
ssh_line
brain_up
mkdir "$T/there"

# counts: processes of ours here and there, descriptors, watches; what must not grow
counts() {
	local - limbd daemon
	set +x
	limbd=$(pid_of a limbd)
	daemon=$(pids_with "daemon --dir $far" "$(inspect_of a .id | tr -d -)")
	echo "there $(of_ssh a | wc -l)"
	echo "here $(pgrep -P "$limbd" | wc -l)"
	# Those of the jobs that it remembers are not the line's.
	echo "limbd $(find "/proc/$limbd/fd" -type l ! -lname "*/jobs/*" | wc -l)"
	echo "limb-syncd $(find "/proc/$daemon/fd" -type l | wc -l)"
	echo "watches $(cat "/proc/$daemon/fdinfo/"* 2>/dev/null | grep -c ^inotify)"
	echo "sshd $(pgrep -P "$(cat "$T/sshd-main.pid")" | wc -l)"
}
settled() {
	limb exec a -- true >/dev/null && counts >after && diff before after
}
test_expect 'B25 50 cuts leave no process, descriptor or watch' '
	limb create a --provider "ssh:far:$T/there/a"
	limb exec a -- true
	wait_for "limb exec a -- true; counts >before; limb exec a -- true; counts | cmp - before"
	cat before
	for i in $(seq 50); do
		wait_for "test \"\$(inspect_of a .pids.transport)\" != null"
		case $((i % 3)) in
		0) say cut ;;
		1) kill -KILL "$(pid_of a transport)" 2>/dev/null || true ;;
		2) kill -KILL "$(pid_of a ingest)" 2>/dev/null || true ;;
		esac
		# Asked to, it does not wait any longer before it tries again.
		[ $((i % 5)) != 0 ] || {
			limb start a -q || true
			wait_state a live
		}
	done
	wait_state a live
	wait_for settled || {
		diff before after
		false
	}
	verify_equal a
'
test_expect 'limb-syncd dies there: another life begins by itself' '
	before=$(inspect_of a .incarnation)
	kill_9 "$(pids_with "daemon --dir $far" "$(inspect_of a .id | tr -d -)")"
	wait_for "test \"\$(inspect_of a .incarnation)\" = $((before + 1))"
	wait_state a live
	verify_equal a
'
test_expect 'nothing is left there' '
	limb rm a
	test ! -e "$far/.local/share/limbfs"
'
stop_bg line
allow_error '^ssh: '
test_done
