#!/bin/bash
# Ten environments of one tree take little more room than one, and whoever is killed or
# lies meanwhile, each is equal on both sides and grows back.
LIMB_QUIET_MS=400
export LIMB_QUIET_MS
. "${0%/*}/brain-lib.sh"
need python3

packs=$LIMB_STATE/store/main/packs

# A few MB in 300 files that shrink to a part when they are compressed.
mkdir tree
for i in $(seq 300); do
	mkdir -p "tree/d$((i % 17))"
	head -c $((i * 97)) /dev/urandom | base64 >"tree/d$((i % 17))/f$i"
done
tree_list tree >tree.list

# names_of PERMISSIONS [SIZE]: packs that are closed (0400) or being filled (0600)
names_of() {
	find "$packs" -name '*.pack' -perm "$1" ${2:+-size "$2"} -printf '%f\n' 2>/dev/null
}
# What was written is sealed: the packs that wait for more hold nothing but a header.
all_sealed() {
	[ -z "$(names_of 0600 +64c)" ] && [ -n "$(names_of 0400)" ]
}
# pack_of NAME: the environment that wrote it
pack_of() {
	od -An -tx1 -j 32 -N 16 "$packs/$1" | tr -d ' \n'
}
sealed_packs() {
	all_sealed && [ "$(names_of 0400 | wc -l)" -le "$1" ]
}
store_bytes() {
	du -sb "$LIMB_STATE/store" | cut -f 1
}
# Of this test's processes.
open_removed() {
	local pid
	for pid in $(pids_with "$LIMB_STATE") $(pids_with limbd); do
		find "/proc/$pid/fd" -lname "$packs/*.pack (deleted)" 2>/dev/null
	done
}
# dies NAME: its processes and its root
dies() {
	local pid root
	root=$(root_of "$1")
	mv "$root" "$root.gone"
	for pid in $(pid_of "$1" syncd) $(pids_in "$root.gone"); do
		kill_9 "$pid"
	done
	rm -rf "$root.gone"
	wait_state "$1" halted
}
grows_back() {
	dies "$1"
	limb rebuild "$1" --json >"$T/rebuilt" || {
		cat "$T/rebuilt"
		return 1
	}
	verify_equal "$1"
	tree_list "$(root_of "$1")" >"$T/back.list"
	same_tree "$T/tree.list" "$T/back.list"
}

brain_up

test_expect 'what ten environments have in common is stored once' '
	limb create e0 --provider local --from "$T/tree" -q
	wait_for "sealed_packs 1"
	one=$(store_bytes)
	for i in 1 2 3 4 5 6 7 8 9; do
		limb create "e$i" --provider local --from "$T/tree" -q
	done
	wait_for -t 60 "sealed_packs 1"
	ten=$(store_bytes)
	echo "one: $one, ten: $ten"
	test $((ten * 100)) -le $((one * 115))
'

test_expect 'all of them are equal on both sides, and the journal is sound' '
	for i in 0 1 2 3 4 5 6 7 8 9; do
		verify_equal "e$i"
	done
	limb journal verify e3
'

test_expect 'one that was stored by another grows back' '
	grows_back e0
	grows_back e7
'

test_expect 'what each has of its own does not keep the rest twice' '
	before=$(store_bytes)
	for i in 0 1 2 3 4 5 6 7 8 9; do
		cp -r "$T/tree/d3" "$(root_of "e$i")/again"
		head -c 3000 /dev/urandom >"$(root_of "e$i")/own"
		limb sync "e$i" -q
		# So that its view has a pack open that is to go.
		! have fuse || cmp "$(root_of "e$i")/own" "$LIMB_STATE/mnt/e$i/own"
	done
	wait_for -t 60 "sealed_packs 7"
	wait_for "[ -z \"\$(open_removed)\" ]"
	test $(($(store_bytes) - before)) -le 400000
	for i in 1 5 9; do
		verify_equal "e$i"
		rm -r "$(root_of "e$i")/again" "$(root_of "e$i")/own"
		limb sync "e$i" -q
		grows_back "e$i"
	done
'

# restarted [VARIABLE=VALUE]: limbd alone, with that in its environment
restarted() {
	limb down -q
	env "$@" limb up -q
}
limbd_dies() {
	local pid=$1
	wait_for -t 60 "test_gone $pid"
}

for fault in merge.remove:1 merge.write:2 upkeep.read:2; do
	if ! have faults; then
		test_skip "limbd is killed at $fault" "$why_not"
		continue
	fi
	export fault
	test_expect "limbd is killed at $fault, and nothing is lost" '
		name=k-$(echo "$fault" | tr ".:" "--")
		restarted "LIMB_FAULT=$fault:kill"
		pid=$(pid_of "" limbd)
		limb create "$name" --provider local --from "$T/tree" -q || true
		# Nine small packs are put together.
		for i in 1 2 3 4 5 6 7 8 9; do
			test_gone "$pid" && break
			head -c 20000 /dev/urandom >"$(root_of e2)/small$i" || true
			limb sync e2 -q || true
			wait_for "test_gone $pid || all_sealed"
		done
		limbd_dies "$pid"
		limb up -q
		wait_state e2 live
		wait_for -t 60 "sealed_packs 20"
		verify_equal e2
		verify_equal e4
		limb journal verify e4
	'
done

# The first place of each content is made a lie before anything was looked at.
test_expect 'what was tampered with is refused, and what another stored serves both' '
	limb down --stop -q
	LIMB_STATE=$T/state2
	export LIMB_STATE
	packs=$LIMB_STATE/store/main/packs
	LIMB_QUIET_MS=3600000 limb up -q
	limb create x --provider local --from "$T/tree" -q
	limb create y --provider local --from "$T/tree" -q
	id=$(inspect_of x .id | tr -d -)
	limb stop x -q
	limb stop y -q
	wait_for "all_sealed"
	test "$(names_of 0400 | wc -l)" = 2
	limb down -q
	# x was first. Its frames keep their headers, and have other bytes.
	for first in $(names_of 0400); do
		[ "$(pack_of "$first")" != "$id" ] || break
	done
	test "$(pack_of "$first")" = "$id"
	chmod 600 "$packs/$first"
	python3 - "$packs/$first" <<-END
		import struct, sys
		f = open(sys.argv[1], "r+b")
		data = bytearray(f.read())
		at = 64
		while at + 40 <= len(data) and data[at:at + 4] == b"LFRM":
		    members, = struct.unpack_from("<H", data, at + 6)
		    stored, = struct.unpack_from("<I", data, at + 8)
		    data[at + 40 + 40 * members + stored // 2] ^= 0x20
		    at += (40 + 40 * members + stored + 7) // 8 * 8
		f.seek(0)
		f.write(data)
	END
	chmod 400 "$packs/$first"
	limb up -q
	wait_for -t 60 "! test -e \"$packs/$first\""
	test "$(names_of 0400 | wc -l)" = 1
	grep -q "is not what it says" "$LIMB_STATE/limbd.log"
	for name in x y; do
		limb start "$name" -q
		wait_state "$name" live
		verify_equal "$name"
		grows_back "$name"
	done
	limb down --stop -q
'

test_done
