# shellcheck shell=bash
# lib.sh - what a functional test sources; it prints TAP.
#
#	#!/bin/bash
#	# What must hold, in one sentence.
#	. "${0%/*}/lib.sh"
#	need fuse bwrap
#
#	test_expect 'B01 a file shows up in the view' '
#		echo hello >"$T/src/file"
#		wait_for "test -e \"$T/state/mnt/x/file\""
#	'
#	test_done
#
# The code of a test runs in a subshell under "set -eu -o pipefail", traced: one
# command a line, no && chains (set -e ignores all but their last command). What
# is to last longer than one test is a file, or is set outside.
#
# $T is a private directory and the current one; LIMB_STATE is $T/state and HOME
# is $T/home. At the end no process of the test, mount beneath $T, error line in
# $T/*.log or sanitizer report may be left: that is the script's last test. $T
# is kept when something failed.

set -u
unset "${!LIMB_STATE@}" "${!LIMB_SOCKET@}" "${!LIMB_MOUNT@}" "${!LIMB_FAULT@}" "${!XDG_@}" CDPATH
: "${LIMB_TOP_BUILDDIR:?run this by make check, or set it to the build directory}"
: "${LIMB_TOP_SRCDIR:?run this by make check, or set it to the source directory}"
umask 022

test_name=${0##*/}
test_name=${test_name%.sh}
test_count=0
test_failed=0
test_began=$SECONDS
test_finished=
test_at_exit=()
test_allowed='^$'

T=$(mktemp -d "${TMPDIR:-/tmp}/limb-${test_name%%-*}.XXXXXX")
T=$(cd "$T" && pwd -P)
chmod 755 "$T"
mkdir "$T/home"
LIMB_TEST_ID=$test_name-$$-${T##*.}
LIMB_STATE=$T/state
HOME=$T/home
LC_ALL=C.UTF-8
ASAN_OPTIONS=${ASAN_OPTIONS:+$ASAN_OPTIONS:}log_path=$T/sanitizer
UBSAN_OPTIONS=${UBSAN_OPTIONS:+$UBSAN_OPTIONS:}log_path=$T/sanitizer
export T LIMB_TEST_ID LIMB_STATE HOME LC_ALL ASAN_OPTIONS UBSAN_OPTIONS
cd "$T" || exit 99

comment() {
	sed 's/^/# /'
}

# What takes long says so: a script's time is of few of its tests.
test_result() {
	local took=$((SECONDS - test_began))
	test_count=$((test_count + 1))
	[ "$1" = ok ] || test_failed=$((test_failed + 1))
	[ "$took" -lt 2 ] || echo "# $took s"
	echo "$1 $test_count - $2"
	test_began=$SECONDS
}

# test_expect NAME CODE
test_expect() {
	local r
	(
		exec >"$T/.trace" 2>&1
		trap - EXIT TERM
		set -eu -o pipefail
		eval "set -x"$'\n'"$2"
	)
	r=$?
	if [ $r = 0 ]; then
		test_result ok "$1"
	else
		comment <"$T/.trace"
		echo "# ended with status $r"
		test_result 'not ok' "$1"
	fi
}

# test_skip NAME REASON: one test that cannot run here.
test_skip() {
	test_result ok "$1 # SKIP $2"
}

# skip_all REASON: before any test.
skip_all() {
	test_finished=yes
	rm -rf --one-file-system "$T"
	echo "1..0 # SKIP $1"
	exit 0
}

# have WHAT: probes; why_not holds the reason when it fails.
#   root user fuse bwrap faults immutable long, or the name of a command
have() {
	case $1 in
	root)
		why_not='needs root'
		[ "$(id -u)" = 0 ]
		;;
	user)
		why_not='needs a normal user that can read the build tree'
		as_user test -r "$LIMB_TOP_BUILDDIR/config.h" 2>/dev/null
		;;
	fuse)
		why_not='cannot open /dev/fuse'
		(exec 3<>/dev/fuse) 2>/dev/null || return 1
		why_not='fusermount3 is missing'
		[ "$(id -u)" = 0 ] || command -v fusermount3 >/dev/null
		;;
	bwrap)
		why_not='bubblewrap cannot make a sandbox here'
		bwrap --ro-bind / / --unshare-pid true 2>/dev/null
		;;
	faults)
		why_not='built without --enable-faults'
		grep -q '^#define LIMB_FAULTS 1' "$LIMB_TOP_BUILDDIR/config.h"
		;;
	sanitizers) # whose memory is many times the program's, and whose limb-syncd is not static
		why_not='built without sanitizers'
		ldd "$LIMB_TOP_BUILDDIR/brain/limbd" | grep -q libasan
		;;
	immutable)
		why_not='no file can be made immutable here'
		: >"$T/.probe" && chattr +i "$T/.probe" 2>/dev/null && chattr -i "$T/.probe"
		;;
	long)
		why_not='only in make check-long'
		[ -n "${LIMB_TEST_LONG-}" ]
		;;
	*)
		why_not="$1 is missing"
		command -v "$1" >/dev/null
		;;
	esac
}

# need WHAT...: skips the whole script unless all are there.
need() {
	local what
	for what; do
		have "$what" || skip_all "$why_not"
	done
}

# as_user COMMAND...: as "nobody" when root, else as we are.
as_user() {
	if [ "$(id -u)" = 0 ]; then
		setpriv --reuid=65534 --regid=65534 --clear-groups "$@"
	else
		"$@"
	fi
}

# How long a test waits for what must come.
wait_s=30
! have sanitizers || wait_s=120

naps=(0.02 0.02 0.03 0.04 0.06 0.08 0.1 0.15 0.2)
# wait_for [-t SECONDS] CONDITION: polls until the shell code is true.
wait_for() {
	local limit_s=$wait_s end nap n=0 -
	set +ex
	if [ "$1" = -t ]; then
		limit_s=$2
		shift 2
	fi
	end=$((SECONDS + limit_s))
	until (eval "$1") >/dev/null 2>&1; do
		if [ $SECONDS -ge $end ]; then
			echo "not true within $limit_s s: $1" >&2
			return 1
		fi
		# What lasts is looked at less often: asking costs as much as the work that is waited for.
		nap=${naps[n]}
		n=$((n + 1 < ${#naps[@]} ? n + 1 : n))
		sleep "$nap"
	done
}

# expect_code N COMMAND...
expect_code() {
	local want=$1 r=0
	shift
	"$@" || r=$?
	[ "$r" = "$want" ] || {
		echo "status $r, not $want: $*" >&2
		return 1
	}
}

# run_bg NAME COMMAND...: output in $T/NAME.log, process id in $T/NAME.pid.
run_bg() {
	local name=$1
	shift
	"$@" >>"$T/$name.log" 2>&1 </dev/null &
	echo $! >"$T/$name.pid"
}

# stop_bg NAME [SIGNAL]: and waits for its end.
stop_bg() {
	local pid
	pid=$(cat "$T/$1.pid")
	rm -f "$T/$1.pid"
	kill -s "${2:-TERM}" "$pid" 2>/dev/null || true
	wait_for "test_gone $pid"
	wait "$pid" 2>/dev/null || true
}

# now_say FILE WORD...: what LIMB_FAULT_NOW=FILE (base/fault.h) says from here on
now_say() {
	local file=$1
	shift
	printf '%-1023s\n' "$*" 1<>"$file"
}

# refute COMMAND...: that it says no, is what must hold. (A line "! COMMAND" never ends a test: set -e
# looks away.) Behind a pipe: what comes must not be what COMMAND looks for. One that could not be
# run, was killed, or had not what it compares has said nothing.
refute() {
	local r=0
	"$@" || r=$?
	case $1:$r in
	*:0)
		echo "refute: this went well: $*" >&2
		return 1
		;;
	grep:1 | cmp:1 | diff:1) ;;
	grep:* | cmp:* | diff:* | *:126 | *:127 | *:1[3-9]?)
		echo "refute: status $r is no answer: $*" >&2
		return 1
		;;
	esac
}

# A zombie whose parent has not looked yet is gone, too. (No program is started: this is
# asked again and again.)
test_gone() {
	local stat=
	{ read -rd '' stat <"/proc/$1/stat" || true; } 2>/dev/null
	stat=${stat##*) }
	[ -z "$stat" ] || [ "${stat%% *}" = Z ]
}

# at_exit CODE: before the last check, last one first.
at_exit() {
	test_at_exit=("$1" "${test_at_exit[@]}")
}

# allow_error REGEX: error lines that this test is about.
allow_error() {
	test_allowed="$test_allowed|$1"
}

# Processes that carry the test's id, or that live beneath $T (a sandbox starts
# its commands with an environment of its own).
test_processes() {
	# Listed before what looks through them is there, which carries the id as well.
	local pid all=(/proc/[0-9]*)
	{
		grep -lszFx "LIMB_TEST_ID=$LIMB_TEST_ID" "${all[@]/%//environ}"
		find "${all[@]/%//cwd}" -maxdepth 0 -lname "$T/*"
	} 2>/dev/null | cut -d/ -f3 | sort -un | while read -r pid; do
		[ "$pid" = $$ ] || test_gone "$pid" || echo "$pid"
	done
}

test_mounts() {
	awk -v dir="$T/" 'index($5, dir) == 1 { print $5 }' /proc/self/mountinfo | sort -r
}

test_errors() {
	find "$T" -xdev -name 'sanitizer.*' -size +0 -exec cat {} +
	find "$T" -xdev -name '*.log' -type f -size -64M -exec \
		grep -hE '^limb[a-z-]*: error|runtime error:|(Address|Leak)Sanitizer' {} + |
		grep -vE "$test_allowed"
}

# Without root podman keeps a process of the user's for ever; it is not the test's.
podman_first() {
	have root || (cd / && env -u LIMB_TEST_ID podman unshare true) >/dev/null 2>&1 || true
}

test_none_left() {
	[ -z "$(test_processes)" ]
}

test_clean_up() {
	for code in "${test_at_exit[@]}"; do
		(eval "$code") 2>&1 | comment
	done

	wait_for -t 5 test_none_left 2>/dev/null
	left=$(
		for pid in $(test_processes); do
			echo "# process $pid: $(tr '\0' ' ' <"/proc/$pid/cmdline")"
		done 2>/dev/null
		test_mounts | sed 's/^/# mount /'
		test_errors | comment
	)

	for pid in $(test_processes); do
		kill -s KILL "$pid" 2>/dev/null
	done
	test_mounts | while read -r mount; do
		printf -v mount %b "$mount"
		umount -l "$mount" 2>/dev/null || fusermount3 -uz "$mount" 2>/dev/null
	done

	if [ -n "$left" ]; then
		echo "$left"
		test_result 'not ok' 'nothing is left behind'
	elif [ "$test_finished" = yes ]; then
		test_result ok 'nothing is left behind'
	fi
	cd /
	if [ $test_failed -gt 0 ]; then
		find "$T" -xdev -maxdepth 2 -name '*.log' -type f -size +0 | while read -r log; do
			echo "# --- last lines of $log"
			tail -n 40 "$log" | comment
		done
		echo "# kept: $T"
	else
		rm -rf --one-file-system "$T"
	fi
}

test_done() {
	test_finished=yes
	test_clean_up
	trap - EXIT
	echo "1..$test_count"
	[ $test_failed = 0 ]
	exit
}

test_ended_early() {
	local r=$?
	[ -z "$test_finished" ] || exit $r
	test_result 'not ok' "the script ended before test_done, status $r"
	test_clean_up
	echo "1..$test_count"
	exit 1
}
trap test_ended_early EXIT
trap 'exit 143' TERM INT HUP
