#!/bin/bash
# Both sides changed it: each version stays readable, one winner stands on both sides, the
# conflict is listed until somebody decides, and a deletion never beats an edit.
. "${0%/*}/away-lib.sh"
brain_up
away_create box || test_result 'not ok' create
root=$(away_root box)
export root

sha() {
	printf '%s' "$1" | sha256sum | cut -d' ' -f1
}

test_expect 'B15 both edit a file: the environment wins, both are listed, none is lost' '
	limb exec box -- sh -c "printf base >f; printf same >g; printf x >t; mkdir dir"
	away box
	printf brain | limb cp - box:f
	printf here >"$root/f"
	printf SAME | limb cp - box:g
	printf same | tr s z >"$root/g"
	back box
	drained box
	limb sync box
	test "$(cat "$root/f")" = here
	test "$(status_of box .counts.conflicts)" = 2
	limb conflicts box --json >out
	jq -e ".conflicts[] | select(.path == \"f\") | .kind == \"edit_edit\" and .winner == \"environment\" and (.conflict_id | test(\"^c-\")) and (.versions | length) == 2" out
	for side in environment:here brain:brain; do
		jq -e ".conflicts[] | select(.path == \"f\") | .versions[] | select(.side == \"${side%:*}\") | .sha256 == \"sha256:$(sha "${side#*:}")\" and .size_bytes > 0 and .seq > 0 and .type == \"file\"" out
	done
	jq -e ".conflicts[] | select(.path == \"f\") | .base.sha256 == \"sha256:$(sha base)\"" out
	test "$(ls -A "$root" | tr "\n" " ")" = "dir f g t "
	limb conflicts box | grep "edit_edit"
	limb journal verify box
	verify_equal box
'
test_expect 'limb resolve --take brain brings that version, by its number too' '
	limb resolve box f --take brain --json >out
	jq -e ".path == \"f\" and .taken == \"brain\" and .seq > 0" out
	test "$(cat "$root/f")" = brain
	version=$(conflicts_of box ".conflicts[] | select(.path == \"g\") | .versions[] | select(.side == \"brain\") | .version")
	limb resolve box g --take "$version"
	test "$(cat "$root/g")" = SAME
	test "$(status_of box .counts.conflicts)" = 0
	test "$(conflicts_of box ".conflicts | length")" = 0
	expect_code 125 limb resolve box f --take brain
	verify_equal box
'
test_expect 'B16 edited here, removed by the brain: the edit stays' '
	away box
	limb rm box:f
	limb rm box:dir
	printf edited >"$root/f"
	printf new >"$root/dir/new"
	back box
	drained box
	limb sync box
	test "$(cat "$root/f")" = edited
	test "$(cat "$root/dir/new")" = new
	test "$(conflicts_of box "[.conflicts[] | select(.kind == \"edit_delete\" and .winner == \"environment\")] | length")" = 2
	limb resolve box f --take environment
	test "$(cat "$root/f")" = edited
	limb resolve box dir --take brain
	test ! -e "$root/dir"
	verify_equal box
'
test_expect 'B16 edited by the brain, removed here: the edit comes back, with its directory' '
	limb exec box -- sh -c "mkdir -p d/e; printf 1 >d/e/f; printf 2 >d/e/g"
	away box
	printf edit | limb cp - box:d/e/f
	printf made | limb cp - box:d/e/new
	rm -r "$root/d"
	back box
	drained box
	limb sync box
	test "$(cat "$root/d/e/f")" = edit
	test "$(cat "$root/d/e/new")" = made
	test ! -e "$root/d/e/g"
	test "$(conflicts_of box ".conflicts[] | select(.path == \"d/e/f\") | .kind + .winner")" = edit_deletebrain
	limb resolve box d/e/f --take environment
	test ! -e "$root/d/e/f"
	test "$(status_of box .counts.conflicts)" = 0
	verify_equal box
'
test_expect 'B15 a file against a directory, a file against a link' '
	away box
	printf file | limb cp - box:n1
	mkdir "$root/n1"
	printf file | limb cp - box:n2
	ln -s g "$root/n2"
	back box
	drained box
	limb sync box
	test -d "$root/n1"
	test "$(readlink "$root/n2")" = g
	test "$(conflicts_of box "[.conflicts[] | select(.kind == \"type\")] | length")" = 2
	limb resolve box n2 --take brain
	test "$(cat "$root/n2")" = file
	limb resolve box n1 --take environment
'
test_expect 'a move that would close a cycle is undone on the brain side' '
	limb exec box -- sh -c "mkdir x y; printf 1 >x/1; printf 2 >y/2"
	away box
	limb mv box:x box:y/x
	mv "$root/y" "$root/x/y"
	back box
	drained box
	limb sync box
	test "$(cat "$root/x/y/2")" = 2
	test "$(cat "$root/x/1")" = 1
	test "$(conflicts_of box ".conflicts[] | select(.path == \"x\") | .kind")" = rename
	limb resolve box x --take environment
	verify_equal box
'
test_expect 'B19 a file with a date in the future does not beat a later edit' '
	limb exec box -- sh -c "printf old >when; touch -d 2099-01-01 when; printf 0 >zero; touch -d @0 zero"
	away box
	printf later | limb cp - box:when
	printf later | limb cp - box:zero
	back box
	drained box
	limb sync box
	test "$(cat "$root/when")" = later
	test "$(cat "$root/zero")" = later
	test "$(status_of box .counts.conflicts)" = 0
	verify_equal box
'
test_expect 'B09 an editor that saves by rename: the stale version is a conflict, not an overwrite' '
	limb exec box -- sh -c "printf v1 >doc"
	away box
	printf stale | limb cp - box:doc
	printf v2 >"$root/doc.new"
	mv "$root/doc.new" "$root/doc"
	back box
	drained box
	limb sync box
	test "$(cat "$root/doc")" = v2
	test "$(conflicts_of box ".conflicts[] | select(.path == \"doc\") | .winner")" = environment
	limb resolve box doc --take environment
'
test_expect 'conflicts outlive limbd' '
	away box
	printf a | limb cp - box:doc
	printf b >"$root/doc"
	back box
	drained box
	kill_9 "$(pid_of box limbd)"
	limb up -q
	wait_state box live
	test "$(status_of box .counts.conflicts)" = 1
	limb resolve box doc --take brain
	test "$(cat "$root/doc")" = a
	limb journal verify box
'
test_done
