# shellcheck shell=bash
# away-lib.sh - brain-lib.sh, and environments whose line a test takes away and gives back.
#
#	away_create NAME	its root is $(away_root NAME), which a test may write to
#	away NAME		no line, and none comes; what runs there goes on
#	back NAME		there is one again; returns when it is live
#	away_view SPEC	box, with a view that can be written at $V; its root is $R
#
# $T/far/NAME.rc, if there is one, is read there by the shell that starts things.
# away_on is the library beneath, where that is not brain-lib.sh.
# shellcheck source-path=SCRIPTDIR disable=SC1090
. "${0%/*}/${away_on:-brain-lib.sh}"

mkdir "$T/far" "$T/down"
cat >"$T/bin/far" <<END
#!/bin/bash
# far NAME PROGRAM ARG...: runs it "there".
name=\$1
shift
[ ! -e "$T/down/\$name" ] || { echo 'far: no route to host' >&2; exit 255; }
mkdir -p "$T/far/\$name"
[ ! -e "$T/far/\$name.rc" ] || . "$T/far/\$name.rc"
exec env -i PATH="\$PATH" HOME="$T/far/\$name" LIMB_TEST_ID="\$LIMB_TEST_ID" \
	"\$@"
END
chmod 755 "$T/bin/far"

away_create() {
	limb create "$1" --provider "command:$T/bin/far $1" >/dev/null
}
away_view() {
	V=$T/state/mnt/box
	echo "$1" >spec.json
	limb create box --provider "command:$T/bin/far box" --spec spec.json >/dev/null
	limb trust box >/dev/null
	R=$(away_root box)
	export R V
	wait_for "mountpoint -q $V"
}
away_root() {
	inspect_of "$1" .root
}
away() {
	local -
	set +x
	touch "$T/down/$1"
	kill -KILL "$(inspect_of "$1" .pids.transport)" 2>/dev/null || true
	wait_state "$1" away
}
back() {
	local -
	set +x
	rm -f "$T/down/$1"
	limb start "$1" >/dev/null 2>&1 || true
	wait_state "$1" live
}
# drained NAME: nothing waits any more
drained() {
	local -
	set +x
	wait_for "test \"\$(status_of $1 '.counts.pending_changes')\" = 0"
}
# conflicts_of NAME FILTER
conflicts_of() {
	local -
	set +x
	limb conflicts "$1" --json | jq -r "$2"
}
