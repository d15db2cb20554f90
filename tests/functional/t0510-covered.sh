#!/bin/bash
# What a create, a sync or a command's end covers is in the journal when it returns.
. "${0%/*}/brain-lib.sh"

# More than the line takes at once: what is behind it in the queue counts, too.
make_tree() {
	mkdir "$1"
	(
		cd "$1" || exit
		for i in $(seq 20); do
			mkdir "$i"
			head -c 1200000 /dev/urandom | split -a 3 -b 12000 - "$i/"
		done
	)
}

brain_up
test_expect 'create returns when all files are durable' '
	for i in 1 2 3 4; do
		make_tree tree$i
		limb create e$i --provider local --root "$T/tree$i" --json >created
		files=$(find tree$i -type f | wc -l)
		jq -e ".files == $files" created
		test "$(inspect_of e$i .seq)" = "$(status_of e$i .seq)"
	done
'

test_expect 'sync returns when all files are durable' '
	for i in 1 2; do
		make_tree tree1/more$i
		limb sync e1
		test "$(inspect_of e1 .tree.files)" = "$(find tree1 -type f | wc -l)"
	done
'

test_done
