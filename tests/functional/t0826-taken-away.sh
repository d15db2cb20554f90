#!/bin/bash
# What a program writes in the view to a file whose directory the environment removes meanwhile is
# not lost: the file is made again there with all that was written, and listed as a conflict.
. "${0%/*}/write-lib.sh"
need faults python3

# While limb-fs cannot read what was written, there is no version of it: so what comes comes meanwhile.
now=$T/now
now_say "$now"
export now
export LIMB_FAULT_NOW=$now
write_up
unset LIMB_FAULT_NOW

# written DIR: DIR/f is both sides'; fd 7 is open and written, and no version made of it yet.
written() {
	mkdir -p "$V/$1"
	echo base >"$V/$1/f"
	chmod 640 "$V/$1/f"
	limb sync w >/dev/null
	now_say "$now" "bytes.read:error=EIO"
	exec 7>>"$V/$1/f"
	echo more >&7
}
# removed DIR: there, and the view has heard of it.
removed() {
	rm -r "${R:?}/$1"
	wait_for "! test -e '$V/$1'"
}
kept() {
	cat "$R/$1/f"
	test "$(stat -c %a "$R/$1/f")" = 640
	limb conflicts w --json >out
	jq -e ".conflicts | length == $2" out
	jq -e ".conflicts[] | select(.path == \"$1/f\") | .kind == \"edit_delete\" and .winner == \"brain\"" out
	test "$(status_of w .counts.conflicts)" = "$2"
}

test_expect 'what is written to an open file is kept when the environment has removed its directory' '
	written a/deep
	removed a
	now_say "$now"
	limb sync w >/dev/null
	kept a/deep 1
	printf "base\nmore\n" | cmp - "$R/a/deep/f"
	# It is that file from then on, for who has it open.
	echo later >&7
	exec 7>&-
	limb sync w >/dev/null
	printf "base\nmore\nlater\n" | cmp - "$R/a/deep/f"
	cmp "$R/a/deep/f" "$V/a/deep/f"
'
test_expect 'nobody needs to ask for it' '
	written b
	removed b
	exec 7>&-
	now_say "$now"
	wait_for "test -e \"$R/b/f\""
	arrived_bytes=$(cat "$R/b/f")
	test "$arrived_bytes" = "base
more"
	limb sync w >/dev/null
	kept b 2
'
test_expect 'fsync of it returns when it is kept' '
	written c
	removed c
	now_say "$now"
	python3 -c "import os; os.fsync(7)"
	exec 7>&-
	limb sync w >/dev/null
	kept c 3
'
test_expect 'it outlasts limb-fs, also where the directory is gone before the next one begins' '
	written d
	removed d
	killed fs
	now_say "$now"
	exec 7>&- || true
	limb sync w >/dev/null
	kept d 4
'
test_expect 'a file that was removed in the view stays removed' '
	written e
	rm "$V/e/f"
	rmdir "$V/e"
	echo more >&7
	exec 7>&-
	now_say "$now"
	limb sync w >/dev/null
	refute test -e "$R/e"
	test "$(status_of w .counts.conflicts)" = 4
'
test_expect 'both sides are equal' 'verify_equal w'
test_done
