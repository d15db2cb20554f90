#!/bin/bash
# A branch that is switched while the first sync runs is switched on both sides.
. "${0%/*}/brain-lib.sh"
need git

brain_up
export GIT_CONFIG_NOSYSTEM=1 GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a@b GIT_COMMITTER_NAME=a \
	GIT_COMMITTER_EMAIL=a@b GIT_OPTIONAL_LOCKS=0
(
	set -e
	git init -q -b base seed
	cd seed
	echo base >base
	echo 1 >both
	git add .
	git commit -qm base
	git checkout -qb branch
	mkdir -p d/e
	for i in $(seq 100); do
		echo "$i" >"f$i"
		echo "$i" >"d/e/$i"
	done
	echo 2 >both
	git add .
	git commit -qm branch
) || test_result 'not ok' 'a repository'

# switch N: one environment
switch() {
	local name=b$1
	cp -a seed "$name"
	limb create "$name" --provider local --root "$T/$name" >create.log 2>&1 &
	# At any moment of its first sync.
	sleep "0.0$((RANDOM % 10))"
	git -C "$name" checkout -q base
	wait $!
	git -C "$name" status --porcelain >git-status
	limb sync "$name"
	test ! -s git-status
	limb ls "$name:" --json | jq -e '[.entries[].name] == [".git", "base", "both"]'
	test "$(limb cp "$name:both" -)" = 1
	verify_equal "$name"
	if have fuse; then
		wait_for "test -e $LIMB_STATE/mnt/$name/base"
		git -c safe.directory='*' -C "$LIMB_STATE/mnt/$name" status --porcelain >view-status
		test ! -s view-status
	fi
	limb rm "$name" --force >/dev/null
}

test_expect 'B14 a branch switched while the first sync runs: nothing of it comes back, git is content on both sides' '
	for i in $(seq 10); do
		switch $i
	done
'

test_done
