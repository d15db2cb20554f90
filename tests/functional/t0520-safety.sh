#!/bin/bash
# Absence is not deletion, and no trouble of an environment takes anything out of its journal.
. "${0%/*}/brain-lib.sh"

if have long; then
	kills=20
else
	kills=4
fi
export kills

# journal_list NAME: what the journal has, by the view where there is one
files_in_journal() {
	inspect_of "$1" .tree.files
}

brain_up

test_expect 'B10 a sandbox that was made anew under an old name is recognised, not obeyed' '
	mkdir tree
	(cd tree; for i in $(seq 300); do echo "$i" >"f$i"; done)
	for name in $providers; do
		limb create "$name" --provider "$name" --from tree
		root=$(root_of "$name")
		tree_list "$root" >before
		handle=$(inspect_of "$name" .provider_handle)
		hands=$LIMB_STATE/envs/$handle/hands
		limb stop "$name"
		# all that the sandbox was, limb-syncd'\''s own directory too
		rm -rf "$root" "$hands/run"
		mkdir "$root"
		echo stock >"$root/README"
		limb start "$name" --json >out || true
		cat out
		wait_state "$name" halted
		test "$(files_in_journal "$name")" = 300
		limb ls "$name:f300" --json | jq -e ".entries[0].size_bytes == 4"
		limb rebuild "$name" --json | jq -e .equal
		tree_list "$(root_of "$name")" >after
		same_tree before after
		limb rm "$name" --force
	done
'

test_expect 'B11 limb-syncd and limbd killed in the first sync: the source keeps all, the sync goes on' '
	mkdir source
	(cd source; for i in $(seq 40); do mkdir "d$i"; seq -f "d$i/f%g" 50 | xargs -n 50 touch; head -c 100000 /dev/urandom >"d$i/r"; done)
	tree_list source >before
	for i in $(seq "$kills"); do
		limb create "first$i" --provider local --root "$T/source" >create.out 2>&1 &
		create=$!
		wait_for "limb inspect first$i --json | jq -e .pids.init || ! kill -0 $create"
		case $((i % 2)) in
		0) kill_9 "$(pid_of "first$i" syncd)" ;;
		1)
			kill_9 "$(pid_of x limbd)"
			wait "$create" || true
			limb up
			;;
		esac
		wait "$create" || true
		cat create.out
		tree_list source >after
		same_tree before after
		if limb inspect "first$i" >/dev/null 2>&1; then
			wait_state "first$i" live
			limb sync "first$i"
			verify_equal "first$i"
			limb rm "first$i" --force
		fi
		tree_list source >after
		same_tree before after
	done
'

if have user; then
	test_expect 'B12 what cannot be read is not gone: it is kept, flagged, and comes back' '
		mkdir -m 777 user
		export HOME=$T/user LIMB_STATE=$T/user/state
		as_user mkdir -p user/w/closed user/w/open
		as_user sh -c "echo one >user/w/closed/one; echo two >user/w/two; echo three >user/w/open/three"
		as_user limb up
		as_user limb create u --provider local --root "$T/user/w"
		as_user chmod 000 user/w/closed user/w/two
		as_user limb sync u || true
		as_user touch user/w/open/four
		as_user limb sync u --json || true
		as_user limb status u --json >out || true
		jq -e ".environments[0] | .state == \"degraded\" and any(.reasons[]; .code == \"unreadable\")" out
		test "$(as_user limb inspect u --json | jq .tree.files)" = 4
		as_user limb cp u:closed/one - >one
		test "$(cat one)" = one
		as_user limb cp u:two - >two
		test "$(cat two)" = two
		as_user chmod 755 user/w/closed
		as_user chmod 644 user/w/two
		as_user rm user/w/closed/one
		as_user limb sync u
		test "$(as_user limb status u --json | jq -r ".environments[0].state")" = live
		test "$(as_user limb inspect u --json | jq .tree.files)" = 3
		as_user limb verify u
		as_user limb down --stop
	'
else
	test_skip 'B12 what cannot be read is not gone: it is kept, flagged, and comes back' "$why_not"
fi

if have root && unshare -m true 2>/dev/null; then
	test_expect 'B12 a mount that goes away below the root takes nothing with it' '
		mkdir -p place/sub
		echo below >place/sub/file
		limb create mounts --provider local --root "$T/place"
		mount -t tmpfs none place/sub
		echo above >place/sub/other
		touch place/touched
		limb sync mounts || true
		limb cp mounts:sub/file - | grep below
		limb status mounts --json | tee out | jq -r ".environments[0].state"
		umount place/sub
		touch place/touched2
		wait_for "limb sync mounts"
		wait_state mounts live
		limb cp mounts:sub/file - | grep below
		verify_equal mounts
		limb rm mounts --force
	'
fi

test_expect 'B13 a directory that became a link: only the link goes' '
	mkdir -p links/a links/b
	for f in 1 2 3; do echo "$f" >"links/a/$f"; echo "b$f" >"links/b/$f"; done
	limb create links --provider local --root "$T/links"
	rm -r links/a
	ln -s b links/a
	limb sync links
	verify_equal links
	rm links/a
	limb sync links
	verify_equal links
	test "$(inspect_of links .tree.files)" = 3
	test "$(limb cp links:b/2 -)" = b2
	limb rm links --force
'

test_expect 'a mass deletion is taken, shown and labelled' '
	mkdir mass
	(cd mass; seq 1500 | xargs touch)
	limb create mass --provider local --root "$T/mass"
	find mass -type f ! -name 7 -delete
	limb sync mass
	limb status mass --json | jq -e "any(.environments[0].reasons[]; .code == \"mass_delete\")"
	test "$(inspect_of mass .tree.files)" = 1
	verify_equal mass
	limb rm mass --force
	test -e mass/7
'

test_expect 'a root that is emptied while limb-syncd runs is not obeyed' '
	mkdir emptied
	(cd emptied; seq 200 | xargs touch)
	limb create emptied --provider local --root "$T/emptied"
	mv emptied gone
	mkdir emptied
	wait_state emptied halted
	test "$(files_in_journal emptied)" = 200
	expect_code 125 limb sync emptied --timeout 30
	limb rebuild emptied --json | jq -e .equal
	test "$(ls emptied | wc -l)" = 200
	limb rm emptied --force
'

test_done
