# shellcheck shell=bash
# view-lib.sh - what tests of limb-fs share: a state directory kept like $T/src
# by view-rig, which also speaks limbd's part, and limb-fs mounted at $T/mnt/x.
#
#	. "${0%/*}/view-lib.sh"
#	view_rig			once $T/src is there
#	view_fs --work			mounted, and connected to the rig
#	echo new >"$T/src/file"
#	rig sync			the view has seen it
#	messages			what the kernel asked so far
#	view_quit

. "${0%/*}/lib.sh"
need fuse

view_id=0123456789abcdef0123456789abcdef
V=$T/mnt/x
view_program=$LIMB_TOP_BUILDDIR/fs/limb-fs
rig_program=$LIMB_TOP_BUILDDIR/tests/functional/view-rig/view-rig
export V view_program rig_program
view_as=()

# Its commands go in by descriptor 7, its answers come from 8, also in subshells.
view_rig() {
	mkfifo "$T/rig.in" "$T/rig.out"
	"${view_as[@]}" "$rig_program" limbd "$T/state" $view_id x "$T/src" \
		<"$T/rig.in" >"$T/rig.out" 2>>"$T/rig.log" &
	exec 7>"$T/rig.in" 8<"$T/rig.out"
	rig_answer >/dev/null
}

rig_answer() {
	IFS= read -r -t 120 -u 8 answer || {
		echo "no answer from view-rig" >&2
		return 1
	}
	echo "$answer"
}

rig() {
	echo "$*" >&7
	rig_answer
}

rig_end() {
	exec 7>&- 8<&-
	rm -f "$T/rig.in" "$T/rig.out"
}

# view_fs MODE [WHERE]
view_fs() {
	run_bg fs "${view_as[@]}" "$view_program" --state "$T/state" --environment $view_id \
		--name x --mount "${2-$V}" "$1"
	rig connect >/dev/null
	rig sync >/dev/null
}

view_quit() {
	rig quit >/dev/null
	wait_for "test_gone $(cat "$T/fs.pid")"
	rm "$T/fs.pid"
}

# What the kernel asked limb-fs, by opcode, without the question itself (22, GETXATTR).
messages() {
	getfattr --absolute-names --only-values -n user.limb.messages "$V" |
		tr ' ' '\n' | sed '1d; /^22:/d' | sort
}

# tree_state DIR: all that stat, readlink and the bytes say of what is beneath; directories
# have sizes and link counts of their own in a view. (./nest is too deep for sha256sum.)
tree_state() (
	cd "$1"
	find . -printf '%y %m %U %G %i %T@ %C@ ' \( -type d -printf '- - ' -o -printf '%n %s ' \) \
		-printf '%l %P\0' | sort -z | tr '\0\n' '\n\001'
	find . -path ./nest -prune -o -type f -print0 | sort -z | xargs -0 -r sha256sum -z | tr '\0\n' '\n\001'
)

at_exit rig_end
