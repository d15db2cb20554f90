#!/bin/bash
# `limb why` says of one path how it is, whose the last version is, why, and what to do about it,
# whatever became of the path; `limb status` says the same of an environment.
. "${0%/*}/away-lib.sh"

brain_up
mkdir tree
printf '*.o\n/build/\n' >tree/.limbignore
limb create box --provider local --root "$T/tree" >/dev/null || test_result 'not ok' create
away_create far || test_result 'not ok' 'create far'

# why NAME PATH STATE CODE: status CODE and that state; the answer is in $T/why.json
why() {
	local - r=0
	set +x
	limb why "$1" "$2" --json >"$T/why.json" || r=$?
	[ "$(jq -r .state "$T/why.json") $r" = "$3 $4" ] || {
		echo "status $r, wanted $3, $4"
		cat "$T/why.json"
		return 1
	}
	# What the contract promises is there, whatever became of the path.
	jq -e '(.environment | length) > 0 and (.path | type) == "string" and
		(.durability | IN("accepted", "durable", "applied", "unapplied")) and
		(.reasons | type) == "array" and .seq > 0 and .age_ms >= 0 and
		(.origin | IN("environment", "view", "brain", "restore", "merge"))' \
		"$T/why.json" >/dev/null || {
		cat "$T/why.json"
		return 1
	}
	# Who is told that something is wrong is told what to do.
	jq -e '.ok or ([.reasons[].next_steps[]] | length) > 0' "$T/why.json" >/dev/null
}
saw() {
	jq -e "$1" "$T/why.json" >/dev/null || {
		cat "$T/why.json"
		return 1
	}
}

test_expect 'live: the last version, its record and its age' '
	mkdir tree/d
	echo one >tree/d/f
	limb sync box
	seq=$(inspect_of box .seq)
	echo two >tree/d/f
	limb sync box
	why box d/f live 0
	saw ".seq > $seq and .origin == \"environment\" and .durability == \"applied\" and .reasons == []"
	saw ".age_ms < 60000 and .incarnation == 1"
	why box "$T/tree/d/f" live 0
	saw ".path == \"d/f\""
	why box d live 0
	why box . live 0
	limb why box d/f | grep -x "box: live  d/f"
	test "$(limb why box d/f -q)" = live
	expect_code 125 limb why box ../x
	expect_code 125 limb why nobody x
'

test_expect 'live means compared: a change that nobody announced is seen' '
	limb exec box -- sh -c "ln d/f ../twin"
	limb sync box
	cp -p tree/d/f keep
	# Through a name outside of the root there is no event.
	printf "TWO\n" | dd of=twin conv=notrunc status=none
	touch -r keep twin
	why box d/f pending 1
	saw ".reasons[0].code == \"not_captured\" and (.reasons[0].detail | contains(\"content\"))"
	touch tree/d/f
	limb sync box
	why box d/f live 0
'

# is_pending FILE: what is now is not captured yet
is_pending() {
	limb why polled "$1" --json >"$T/why.json" || true
	[ "$(jq -r .state "$T/why.json")" = pending ]
}

test_expect 'not yet captured: it is there, it is gone; with no watches left that takes a while' '
	mkdir -p tree2/a/b/c/d/e
	echo "{\"watch_limit\": 2}" >spec.json
	limb create polled --provider local --root "$T/tree2" --spec spec.json >/dev/null
	wait_state polled degraded
	wait_for "echo >tree2/a/b/c/d/e/\$RANDOM\$RANDOM; is_pending \"a/b/c/d/e/\$(ls -t tree2/a/b/c/d/e | head -n 1)\""
	saw ".reasons[0].code == \"not_captured\" and .reasons[1].code == \"watch_limit\""
	saw ".reasons[0].next_steps == [\"limb sync polled\"]"
	wait_for "limb sync polled && echo >tree2/a/b/c/d/e/f && limb sync polled && rm tree2/a/b/c/d/e/f && is_pending a/b/c/d/e/f"
	saw ".reasons[0].detail | contains(\"gone\")"
	limb sync polled
	why polled a/b/c/d/e/f gone 0
	saw "any(.reasons[]; .code == \"watch_limit\")"
	limb rm polled >/dev/null
'

test_expect 'what never was' '
	limb exec box -- sh -c "ln -s x link; echo a >a; mkdir deep; echo b >deep/b"
	why box deep/b live 0
	why box link live 0
	why box nothing absent 1
	saw ".reasons[0].code == \"absent\""
	why box d/f/g absent 1
	why box "$(printf %0300d 0)" absent 1
'

test_expect 'gone: with which record, and how to have it again' '
	seq=$(inspect_of box .seq)
	rm -r tree/deep
	limb sync box
	why box deep/b gone 0
	saw ".seq > $seq and .reasons[0].code == \"removed\" and .origin == \"environment\""
	step=$(jq -r ".reasons[0].next_steps[0]" why.json)
	mkdir tree/deep
	limb sync box
	why box deep/b gone 0
	at=${step##* }
	limb restore box deep/b --at "$at" >/dev/null
	test "$(cat tree/deep/b)" = b
	limb sync box
	why box deep/b live 0
	saw ".origin == \"restore\""
'

test_expect 'moved: where it is now' '
	mv tree/a tree/moved
	limb sync box
	why box a gone 0
	saw ".now_path == \"moved\" and (.reasons[0].detail | contains(\"moved it\"))"
	why box moved live 0
'

test_expect 'ignored: by which line of which file' '
	touch tree/x.o
	mkdir tree/build
	touch tree/build/y
	limb sync box
	why box x.o ignored 0
	saw ".ignored_by == {file: \".limbignore\", line: 1, pattern: \"*.o\"}"
	why box build/y ignored 0
	saw ".ignored_by.line == 2"
	echo f >tree/late
	limb sync box
	echo late >>tree/.limbignore
	limb sync box
	why box late ignored 0
'

test_expect 'names that are no text' '
	touch "tree/$(printf "b\377\nq")"
	limb sync box
	why box "$(printf "b\377\nq")" live 0
	saw ".path_base64 == \"$(printf "b\377\nq" | base64)\""
	why box "$(printf "c\377")" absent 1
	limb why box "$(printf "c\033[2Jx")" >out || true
	refute grep -q "$(printf "\033")" out
'

test_expect 'unreadable: the version before is kept, and it is said' '
	[ "$(id -u)" = 0 ] && exit 0
	echo s >tree/secret
	limb sync box
	chmod 0 tree/secret
	echo t >tree/other
	limb sync box || true
	why box secret unreadable 1 || why box secret live 0
	chmod 644 tree/secret
'

test_expect 'away: what is known, how old it is, and the environment'\''s reason' '
	limb exec far -- sh -c "echo 1 >f; echo 2 >g; echo 3 >h"
	why far f live 0
	away far
	why far f away 1
	saw ".reasons[0].code == \"line_down\" and .durability == \"applied\""
	saw ".heard_ms >= 0"
	{ limb status || true; } | grep -F "limb start far"
'

test_expect 'queued: accepted here, not there yet' '
	echo brain | limb cp - far:f
	why far f queued 1
	saw ".durability == \"durable\" and .origin == \"brain\" and .reasons[0].code == \"queued\""
	echo new | limb cp - far:new
	why far new queued 1
	limb mv far:g far:g2
	why far g queued 1
	why far g2 queued 1
'

test_expect 'conflict: its id, and what to do' '
	echo theirs >"$(away_root far)/f"
	back far
	drained far
	why far f conflict 1
	saw ".conflict_id == \"$(conflicts_of far ".conflicts[0].conflict_id")\""
	limb resolve far f --take environment >/dev/null
	why far f live 0
	why far new live 0
	saw ".origin == \"brain\""
	why far g gone 0
	why far g2 live 0
'

test_expect 'it answers while the environment is looked at by others, and when it does not answer' '
	why far new live 0
	for i in 1 2 3; do
		limb verify box >/dev/null &
	done
	why box d/f live 0
	wait
	limb pause box >/dev/null
	why box d/f paused 0
	limb resume box >/dev/null
	wait_state box live
	why box d/f live 0
'

if have root; then
	test_expect 'unsupported: what this incarnation cannot hold, and the journal can' '
		away_create held
		echo "[ ! -e $T/as-nobody ] || set -- setpriv --reuid=65534 --regid=65534 --clear-groups \"\$@\"" >"$T/far/held.rc"
		limb exec held -- sh -c "echo 1 >ours; echo 2 >theirs; chown 1234 theirs"
		why held theirs live 0
		limb stop held >/dev/null
		touch as-nobody
		chown -R 65534:65534 far/held
		limb start held >/dev/null
		limb rebuild held --force --json >rebuilt
		why held ours live 0
		why held theirs unsupported 1
		saw ".reasons[0].detail | contains(\"uid\")"
	'
fi

test_expect 'stopped; of who is stopped, what is gone is known, too' '
	limb stop box >/dev/null
	why box d/f stopped 0
	why box a gone 0
	limb start box >/dev/null
	wait_state box live
	why box d/f live 0
'

test_done
