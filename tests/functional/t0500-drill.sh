#!/bin/bash
# A sandbox whose first process is killed and whose files are gone grows back byte for byte.
. "${0%/*}/brain-lib.sh"
need git

export GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a@example.org GIT_COMMITTER_NAME=c GIT_COMMITTER_EMAIL=c@example.org
export GIT_CONFIG_NOSYSTEM=1

# A repository as people have them: packed and loose objects, branches, changes of all
# kinds that are not committed, a build whose steps take a while.
make_repository() {
	git init -q -b main "$1"
	(
		cd "$1" || exit
		cp "$LIMB_TOP_SRCDIR"/base/*.[ch] .
		cat >Makefile <<-'MK'
			OBJECTS = $(patsubst %.c,%.o,$(wildcard *.c))
			all: $(OBJECTS); cat $(OBJECTS) >all
			%.o: %.c; @echo "making $@"; sleep 0.1; sha256sum $< >$@
		MK
		printf '%s\n' '*.o' all >.gitignore
		mkdir -p doc/deep
		echo text >doc/deep/page
		ln -s deep/page doc/link
		git add . && git commit -qm first
		git gc -q
		git checkout -qb topic
		echo more >>doc/deep/page
		git commit -qam second
		git checkout -q main
		echo changed >>io.c
		echo staged >>io.h && git add io.h
		echo new >untracked
		rm doc/link
	)
}
make_repository repository

# sandbox_dies NAME: and all that was in it. (What runs in a sandbox dies with its first
# process; with the provider local a job outlives limb-syncd.)
sandbox_dies() {
	local init root pid
	init=$(pid_of "$1" init)
	root=$(root_of "$1")
	mv "$root" "$root.gone"
	kill_9 "$init"
	for pid in $(pids_in "$root.gone"); do
		kill_9 "$pid"
	done
	rm -rf "$root.gone"
	wait_state "$1" halted
}

git_state() {
	git -C "$1" fsck --full --strict --no-dangling
	git -C "$1" status --porcelain=v2 --branch
	git -C "$1" for-each-ref
	git -C "$1" stash list
	git -C "$1" diff
	git -C "$1" diff --cached
}

brain_up
for provider in $providers; do
	export provider
	test_expect "$provider: a checkout comes back in the middle of its build, and the build ends" '
		limb create "$provider" --provider "$provider" --from repository --json >created
		jq -e ".files > 20 and .state == \"live\" and .incarnation == 1" created
		root=$(root_of "$provider")
		git_state repository >git.before
		git_state "$root" >git.created
		cmp git.before git.created

		limb exec "$provider" -- make -j2 >make.log 2>&1 &
		wait_for "test \$(grep -c making make.log) -ge 4"
		limb sync "$provider"
		ls "$root"/*.o | wc -l >made
		sandbox_dies "$provider"
		wait $! || true
		cat make.log
		test "$(cat made)" -ge 2
		test "$(cat made)" -lt "$(ls repository/*.c | wc -l)"

		r=0
		limb exec "$provider" -- true || r=$?
		test "$r" = 125
		limb rebuild "$provider" --json >rebuilt
		jq -e ".equal and .previous_incarnation == 1 and .incarnation == 2" rebuilt
		verify_equal "$provider"
		root=$(root_of "$provider")
		test "$(ls "$root"/*.o | wc -l)" -ge "$(cat made)"
		git_state "$root" >git.after
		cmp git.before git.after

		limb exec "$provider" -- make >make.log 2>&1
		cat make.log
		test "$(grep -c making make.log)" -lt "$(ls repository/*.c | wc -l)"
		cat "$root"/*.o | cmp - "$root/all"
		verify_equal "$provider"
	'

	test_expect "$provider: what was synced is there field by field, also the second time" '
		root=$(root_of "$provider")
		mkdir -p "$root/more/empty"
		echo one >"$root/more/one"
		ln "$root/more/one" "$root/doc/two"
		ln -s /nowhere "$root/more/link"
		mkfifo "$root/more/fifo"
		truncate -s 3M "$root/more/hole"
		head -c 3000000 /dev/urandom >"$root/more/random"
		chmod 6755 "$root/more/random"
		touch -d "1960-01-02 03:04:05.123456789" "$root/more/one"
		limb sync "$provider"
		for again in 1 2; do
			n=$(inspect_of "$provider" .incarnation)
			tree_list "$root" >before
			sandbox_dies "$provider"
			limb rebuild "$provider" --json >rebuilt
			jq -e ".equal and .previous_incarnation == $n and .incarnation == $n + 1" rebuilt
			root=$(root_of "$provider")
			tree_list "$root" >after
			same_tree before after
			verify_equal "$provider"
		done
	'

	test_expect "$provider: a first process that dies alone is followed by another, and nothing is asked" '
		tree_list "$(root_of "$provider")" >before
		n=$(inspect_of "$provider" .incarnation)
		kill_9 "$(pid_of "$provider" init)"
		wait_for "test \"\$(inspect_of $provider .incarnation)\" -gt $n"
		wait_state "$provider" live
		test "$(limb exec "$provider" -- echo back)" = back
		tree_list "$(root_of "$provider")" >after
		same_tree before after
		verify_equal "$provider"
	'

	test_expect "B10 $provider: an emptied root, a root of stock files, another directory: none is obeyed" '
		root=$(root_of "$provider")
		tree_list "$root" >before
		for what in empty stock; do
			n=$(inspect_of "$provider" .tree.files)
			mv "$root" "$root.gone"
			mkdir "$root"
			test $what = empty || echo stock >"$root/README"
			kill_9 "$(pid_of "$provider" init)"
			rm -rf "$root.gone"
			wait_state "$provider" halted
			status_of "$provider" .reasons | tee reasons
			jq -e ".[0].next_steps | join(\" \") | contains(\"limb rebuild $provider\")" reasons
			test "$(inspect_of "$provider" .tree.files)" = "$n"
			r=0
			limb sync "$provider" --timeout 20 || r=$?
			test "$r" = 125
			limb rebuild "$provider" --json | jq -e .equal
			root=$(root_of "$provider")
			tree_list "$root" >after
			same_tree before after
		done
	'

	test_expect "$provider: limb rm takes it all" '
		root=$(root_of "$provider")
		limb rm "$provider" --force
		test ! -e "$root"
		limb ls --json | jq -e "all(.environments[]; .environment != \"$provider\")"
	'
done

test_expect 'B10 local: a root that is the user'\''s comes back in place, what is there now is kept beside it' '
	mkdir place
	echo mine >place/file
	limb create place --provider local --root "$T/place"
	mv place away
	kill_9 "$(pid_of place init)"
	mkdir place
	echo other >place/other
	wait_state place halted
	limb rebuild place --json | jq -e .equal
	test "$(cat place/file)" = mine
	test ! -e place/other
	test "$(cat place.before-*/other)" = other
	limb rm place --force
	test "$(cat place/file)" = mine
'

for provider in $providers; do
	export provider
	test_expect "$provider: a root removed while it is watched comes back whole" '
		mkdir -p large
		for i in $(seq 40); do
			mkdir -p "large/d$i"
			seq "$i" 700 | split -l 20 - "large/d$i/f"
		done
		# The times of a directory that was being emptied may have been told already.
		tree_list large | awk "\$2 == \"d\" { \$NF = \"\"; \$(NF - 1) = \"\" } 1" >before
		for order in "kill remove" "remove kill" remove; do
			limb create g --provider "$provider" --from large
			root=$(root_of g)
			for what in $order; do
				case $what in
				kill) kill_9 "$(pid_of g init)" ;;
				remove) rm -rf "$root" ;;
				esac
			done
			wait_state g halted
			status_of g ".reasons[].next_steps[]" | grep -qx "limb rebuild g"
			limb rebuild g --json | jq -e .equal
			tree_list "$(root_of g)" | awk "\$2 == \"d\" { \$NF = \"\"; \$(NF - 1) = \"\" } 1" >after
			same_tree before after
			limb rm g --force
		done
	'

	test_expect "$provider: what was deleted, and said to be durable, stays deleted" '
		for how in sync exec; do
			limb create g --provider "$provider" --from large
			root=$(root_of g)
			case $how in
			sync)
				rm -r "$root"/d1*
				limb sync g
				;;
			exec) limb exec g -- sh -c "rm -r d1*" ;;
			esac
			tree_list "$root" >before
			kill_9 "$(pid_of g init)"
			rm -rf "$root"
			wait_state g halted
			limb rebuild g --json | jq -e .equal
			tree_list "$(root_of g)" >after
			same_tree before after
			limb rm g --force
		done
	'
done

test_done
