#!/bin/bash
# Whatever is swapped for a link while files are put, changed and removed in an environment, or
# while it is being rebuilt: nothing outside of its root is written, removed or read.
. "${0%/*}/brain-lib.sh"
swap=$LIMB_TOP_BUILDDIR/tests/functional/hostile/swap

mkdir -p outside/sub
echo kept >outside/kept
echo kept >outside/x
echo secret-of-this-machine >outside/sub/f
brain_up
limb create s --provider local >/dev/null || test_result 'not ok' create
root=$(root_of s)
mkdir "$root/d" "$root/d/sub"
ln -s "$T/outside" "$root/l"
echo inside >"$root/d/kept"
echo inside >"$root/d/sub/f"
limb sync s >/dev/null
tree_list outside >outside.before
echo new >new

# while_swapped CODE: run again and again for some seconds
while_swapped() {
	local - end n=0
	set +eux
	run_bg swap "$swap" "$root/d" "$root/l"
	end=$((SECONDS + 6))
	while [ "$SECONDS" -lt "$end" ] || [ "$n" -lt 10 ]; do
		eval "$1" >/dev/null 2>&1
		n=$((n + 1))
	done
	stop_bg swap
	[ -d "$root/d" ] && [ ! -L "$root/d" ] || mv --exchange "$root/d" "$root/l" 2>/dev/null ||
		{ mv "$root/d" "$root/t"; mv "$root/l" "$root/d"; mv "$root/t" "$root/l"; }
	cat "$T/swap.log"
	[ "$(tail -n 1 "$T/swap.log" | cut -d' ' -f1)" -gt 1000 ] || return 1
	tree_list outside >outside.after
	same_tree outside.before outside.after
}
test_expect 'limb cp into a directory that is swapped for a link' '
	while_swapped "limb cp new s:d/x; limb cp new s:d/new\$n; limb cp new s:d/sub/f"
	test ! -e outside/new0
'
test_expect 'limb rm and limb mv beneath it' '
	while_swapped "limb rm s:d/kept; limb mv s:d/x s:d/y; limb rm s:d/sub/f; limb cp new s:d/kept"
'
test_expect 'commands go on, and what is captured is of the root' '
	while_swapped "limb exec s -- sh -c \"echo \$n >>here\"; limb sync s --timeout 10"
	limb sync s
	verify_equal s
	refute grep -r secret-of-this-machine "$LIMB_STATE/mnt/s/d"
	limb ls s:d/sub
	# The link is seen as it is in a view in mode work, and followed by nothing of ours.
	for path in d/sub/f l/sub/f; do
		{ limb cp "s:$path" - || true; } | refute grep secret
	done
'
test_expect 'a rebuild into a root in which it is swapped' '
	mkdir -p "$root/d"
	limb sync s
	run_bg swap "$swap" "$root/d" "$root/l"
	for i in 1 2 3; do
		mv "$root" "$T/gone$i"
		wait_state s halted
		LIMB_TIME_S=30 limb rebuild s || true
		tree_list outside >outside.after
		same_tree outside.before outside.after
		limb start s || true
	done
	stop_bg swap
	wait_for "limb rebuild s || limb sync s"
	tree_list outside >outside.after
	same_tree outside.before outside.after
'
test_done
