# shellcheck shell=bash
# brain-lib.sh - lib.sh, and a limbd of its own with what goes through it: a test that
# sources this needs jq, has $LIMB_STATE up, and calls limb with a time limit.
#
# Every tree here is compared in two ways that know nothing of each other: limb
# verify, and tree_list of what is in a directory.
. "${0%/*}/lib.sh"
need jq

# limb is the program, for $LIMB_TIME_S seconds at most. (Not a function: what it says on
# stderr would have a trace in between.)
mkdir "$T/bin"
cat >"$T/bin/limb" <<END
#!/bin/sh
exec timeout --foreground -k 5 "\${LIMB_TIME_S:-60}" "$(command -v limb)" "\$@"
END
chmod 755 "$T/bin/limb"
PATH=$T/bin:$PATH

brain_up() {
	limb up -q >/dev/null || {
		test_result 'not ok' 'limb up'
		test_done
	}
	at_exit 'limb down --stop >/dev/null'
}

# The providers that can be had here.
providers=local
# shellcheck disable=SC2034 # for who sources this
! have bwrap || providers='local bwrap'

# inspect_of NAME FILTER, status_of NAME FILTER, state_of NAME: by jq -r, or by what is faster where
# it can (pick.c).
pick=$LIMB_TOP_BUILDDIR/tests/functional/pick
inspect_of() {
	local -
	set +x
	limb inspect "$1" --json | "$pick" "$2"
}
status_of() {
	local -
	set +x
	{ limb status "$1" --json || true; } | "$pick" ".environments[0]$2"
}
state_of() {
	status_of "$1" .state
}
# wait_state NAME STATE
wait_state() {
	local -
	set +x
	wait_for "test \"\$(state_of $1)\" = $2" || {
		status_of "$1" ''
		return 1
	}
}
# root_of NAME: its root, as this machine has it.
root_of() {
	inspect_of "$1" .host_root
}
# pid_of NAME limbd|init|transport|ingest|fs|syncd|holder [JOB], in numbers of this machine.
pid_of() {
	local -
	set +x
	case $2 in
	limbd)
		{ limb status --json || true; } | "$pick" .limbd.pid
		;;
	syncd)
		pids_with "$(inspect_of "$1" .provider_handle)" 'daemon --dir'
		;;
	*)
		inspect_of "$1" ".pids.$2"
		;;
	esac
}
# pids_with TEXT...: of this test's processes in whose command lines every TEXT is. (The
# machine has others, of other tests and of other limbfs, that look the same.)
pids_with() {
	local - dir text argv line
	set +x
	for dir in /proc/[0-9]*; do
		{ mapfile -d '' -t argv <"$dir/cmdline"; } 2>/dev/null || continue
		[ ${#argv[@]} -gt 0 ] || continue
		printf -v line '%s ' "${argv[@]}"
		for text; do
			[[ $line == *"$text"* ]] || continue 2
		done
		is_of_test "${dir#/proc/}" || continue
		test_gone "${dir#/proc/}" || echo "${dir#/proc/}"
	done
}
# Started by this test, or within what it started: by parents, as what runs in a sandbox
# has an environment of its own, and by the environment where the parent is gone.
is_of_test() {
	local pid=$1 stat
	while [ "${pid:-0}" -gt 1 ]; do
		[ "$pid" != $$ ] || return 0
		! grep -qzFx "LIMB_TEST_ID=$LIMB_TEST_ID" "/proc/$pid/environ" 2>/dev/null || return 0
		stat=
		{ read -rd '' stat <"/proc/$pid/stat" || true; } 2>/dev/null
		read -r _ pid _ <<<"${stat##*) }"
	done
	return 1
}
# pids_in DIR: of all processes that work in it or beneath it
pids_in() {
	local - dir
	set +x
	for dir in /proc/[0-9]*; do
		case $(readlink "$dir/cwd" 2>/dev/null)/ in
		"$1"/*) echo "${dir#/proc/}" ;;
		esac
	done
}
# kill_9 PID...: gone when this returns.
kill_9() {
	local - pid
	set +x
	kill -KILL "$@" 2>/dev/null || true
	for pid; do
		wait_for "test_gone $pid"
	done
}

# verify_equal NAME
verify_equal() {
	local -
	set +x
	limb verify "$1" --json >"$T/verify.json" || {
		cat "$T/verify.json"
		return 1
	}
	jq -e '.equal and (.differences | length) == 0 and .journal == .environment_side' \
		"$T/verify.json" >/dev/null
}

# tree_list DIR: each entry beneath it with all that is kept, content and sets of hard
# links too, one a line in one order. Neither the length of a path nor its bytes matter.
tree_list() {
	local - exec=-exec
	set +x
	(
		cd "$1" || exit
		# One process a directory only where a path is too long to be named.
		[ -z "$(LC_ALL=C find . -regextype posix-extended -regex '.{3000,}' -print -quit)" ] || exec=-execdir
		find . -mindepth 1 -printf '%P %y %m %U %G %s %T@ %l\0' |
			sed -z 's/^\(.* d [0-7]* [0-9]* [0-9]* \)[0-9]* /\1/' | sort -z | tr '\n\0' '?\n'
		find . ! -type d -links +1 -printf '%P\t%i\0' | sort -z |
			awk -v RS='\0' -F '\t' '{ if (!($2 in n)) n[$2] = ++k; print "links", n[$2], $1 }' |
			tr '\n' '?'
		echo
		find . -type f -readable "$exec" sha256sum -z {} + | sort -z | tr '\n\0' '?\n'
		! command -v getfattr >/dev/null ||
			{ getfattr -R -P -h -d -m - -e hex . 2>/dev/null || true; } | { grep -vxE 'user\.limb\.mark=.*|# file: \.|' || true; } |
			LC_ALL=C sort
	)
}
# same_tree LIST LIST: both made by tree_list
same_tree() {
	local -
	set +x
	cmp -s "$1" "$2" || {
		diff "$1" "$2" | cut -c1-300 | head -n 40
		return 1
	}
}
