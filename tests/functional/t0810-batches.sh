#!/bin/bash
# What waits for an environment goes there in batches, and comes out as if each change had gone
# alone: chains of changes to one thing, conflicts and refusals in their midst, and whoever dies
# while a batch is under way.
. "${0%/*}/away-lib.sh"
need fuse faults
brain_up
allow_error 'limb-ingest ended|pack stays open'
away_view '{"view": {"write": true}}'

# Saves as programs do: each file of $3 through a temporary name, with a mode, some with a second
# name, some again, some gone; a directory that is moved with what was made in it.
cat >work.py <<'END'
import os, sys
top, n, tag = sys.argv[1], int(sys.argv[2]), sys.argv[3]
os.mkdir(top + "/new")
for i in range(n):
    t, f = "%s/new/.tmp%d" % (top, i), "%s/new/f%d" % (top, i)
    with open(t, "w") as o:
        o.write("%s %d\n" % (tag, i))
    os.chmod(t, 0o640)
    os.rename(t, f)
    if i % 5 == 0:
        os.link(f, f + ".link")
    if i % 5 == 1:
        with open(t, "w") as o:
            o.write("%s again %d\n" % (tag, i))
        os.rename(t, f)
    if i % 5 == 2:
        os.unlink(f)
    if i % 5 == 3:
        os.mkdir("%s/new/d%d" % (top, i))
        os.rename(f, "%s/new/d%d/f" % (top, i))
    if i % 25 == 4:
        os.symlink("f%d" % i, f + ".soft")
os.rename(top + "/new", top + "/" + tag)
END
mkdir native
settle_all() {
	limb sync box --timeout 120 >/dev/null
	test "$(status_of box .counts.conflicts)" = 0
	test "$(status_of box .counts.unapplied)" = 0
	drained box
}
# same_as_native TAG
same_as_native() {
	local -
	set +x
	(cd "native/$1" && find . ! -type d -printf '%P %y %m %n %l\n' | sort) >want
	(cd "$R/$1" && find . ! -type d -printf '%P %y %m %n %l\n' | sort) >got
	cmp want got
	diff -r --no-dereference "native/$1" "$R/$1"
	diff -r --no-dereference "native/$1" "$V/$1"
}

test_expect 'chains arrive as they are' '
	python3 work.py native 200 one
	python3 work.py "$V" 200 one
	settle_all
	same_as_native one
	verify_equal box
'
test_expect 'what waited for long arrives in order' '
	away box
	before=$(status_of box .seq)
	python3 work.py native 200 two
	python3 work.py "$V" 200 two
	back box
	settle_all
	limb journal dump box --json >dump
	jq -r "select(.seq > $before and .type != \"intent\") | .type" dump >types
	test "$(grep -c intent_end types)" -gt 700
	same_as_native two
	verify_equal box
'
test_expect 'what was changed there meanwhile is a conflict, and holds up nothing in the batch' '
	mkdir "$R/c"
	for i in $(seq 40); do echo "base $i" >"$R/c/f$i"; done
	limb sync box >/dev/null
	away box
	for i in $(seq 40); do echo "here $i" >"$V/c/f$i"; done
	for i in $(seq 31 40); do rm "$V/c/f$i"; done
	for i in $(seq 40); do echo "more $i" >"$V/c/new$i"; done
	for i in 7 17 27; do echo "there $i" >"$R/c/f$i"; done
	echo "there 37" >"$R/c/f37"
	echo other >"$R/c/new20"
	back box
	limb sync box --timeout 120 >/dev/null
	limb conflicts box --json >out
	jq -r ".conflicts[].path" out | sort -u >paths
	printf "%s\n" c/f17 c/f27 c/f37 c/f7 c/new20 | cmp - paths
	for i in 7 17 27 37; do test "$(cat "$R/c/f$i")" = "there $i"; done
	test "$(cat "$R/c/new20")" = other
	for i in 1 6 8 16 18 26 28 30; do test "$(cat "$R/c/f$i")" = "here $i"; done
	for i in 1 19 21 40; do test "$(cat "$R/c/new$i")" = "more $i"; done
	for i in 31 36 38 40; do test ! -e "$R/c/f$i"; done
	for p in $(jq -r ".conflicts[].path" out); do
		limb resolve box "$p" --take environment >/dev/null || true
	done
	test "$(status_of box .counts.conflicts)" = 0
	verify_equal box
'
# No name can be made in it; for root a mode is no obstacle.
fix() {
	if [ "$(id -u)" = 0 ]; then chattr +i "$1"; else chmod 555 "$1"; fi
}
unfix() {
	if [ "$(id -u)" = 0 ]; then chattr -i "$1"; else chmod 755 "$1"; fi
}
mkdir probe
if fix probe 2>/dev/null && unfix probe; then
	test_expect 'what is refused there holds up nothing behind it' '
		mkdir "$R/r" "$R/r/fixed"
		limb sync box >/dev/null
		away box
		for i in $(seq 60); do echo "$i" >"$V/r/f$i"; done
		for i in 1 2 3; do echo "$i" >"$V/r/fixed/f$i"; done
		for i in $(seq 61 90); do echo "$i" >"$V/r/f$i"; done
		fix "$R/r/fixed"
		back box
		wait_for "test \$(status_of box .counts.pending_changes) = 0"
		for i in $(seq 90); do test "$(cat "$R/r/f$i")" = "$i"; done
		test "$(status_of box .counts.unapplied)" -ge 3
		test "$(status_of box .counts.conflicts)" = 0
		unfix "$R/r/fixed"
		for i in 1 2 3; do limb retry box r/fixed/f$i >/dev/null 2>&1 || true; done
		settle_all
		for i in 1 2 3; do test "$(cat "$R/r/fixed/f$i")" = "$i"; done
		verify_equal box
	'
else
	test_skip 'what is refused there holds up nothing behind it' 'no file can be made immutable here'
fi
# Each limb-syncd that is started dies at the fault point, until one has.
cat >"$T/far/box.rc" <<END
case "\$*" in
*' attach --dir '*) echo attach >>"$T/attached" ;;
*) [ ! -e "$T/armed" ] || set -- env "LIMB_FAULT=\$(cat "$T/armed")" "\$@" ;;
esac
END
dies() {
	local -
	set +x
	echo "$1" >"$T/armed"
	: >"$T/attached"
	rm "$T/down/box"
	limb start box >/dev/null 2>&1 || true
	wait_for "test \$(wc -l <$T/attached) -ge 2"
	rm "$T/armed"
	limb start box >/dev/null 2>&1 || true
	wait_state box live
}
export point step
steps='1 4 41'
! have long || steps='1 2 3 4 7 40 41 42 43'
for point in apply.number apply.push; do
	for step in $steps; do
		test_expect "limb-syncd dies at $point $step" '
			away box
			rm -rf native/three
			python3 work.py native 60 three
			python3 work.py "$V" 60 three
			kill_9 "$(pid_of box syncd)"
			dies $point:$step:kill
			settle_all
			same_as_native three
			rm -rf "$V/three"
			settle_all
			test ! -e "$R/three"
		'
	done
done
steps='2 4'
! have long || steps='1 2 3 4 5 6 7 8'
for point in log.append log.sync; do
	for step in $steps; do
		test_expect "limbd dies at $point $step" '
			away box
			rm -rf native/four
			python3 work.py native 60 four
			python3 work.py "$V" 60 four
			kill_9 "$(pid_of box limbd)"
			rm "$T/down/box"
			LIMB_FAULT=$point:$step:kill limb up -q || true
			pid=$(pid_of box limbd)
			wait_for -t 5 "test_gone ${pid:-1} || test \"\$(status_of box .counts.pending_changes)\" = 0" || true
			if test_gone "${pid:-none}"; then echo "$point $step" >>died; fi
			[ -z "$pid" ] || kill_9 "$pid"
			limb up -q
			wait_state box live
			settle_all
			same_as_native four
			rm -rf "$V/four"
			settle_all
			test ! -e "$R/four"
		'
	done
done
test_expect 'it did die, at some' 'cat died'
test_expect 'both sides are equal' 'verify_equal box'
test_done
