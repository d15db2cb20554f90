#!/bin/bash
# What a .limbignore or the spec leaves out does not get into the journal and costs no watches;
# what was there before the rule came stays as it was last known; each rule is a record.
. "${0%/*}/brain-lib.sh"

brain_up
mkdir -p tree/src tree/build/deep/deeper tree/sub/keep
printf '# ours\n*.o\nbuild/\n/only-root\n' >tree/.limbignore
printf '!wanted.o\n*.tmp\n' >tree/sub/.limbignore
echo code >tree/src/a.c
head -c 1000 /dev/zero >tree/src/a.o
echo x >tree/build/deep/deeper/x
echo x >tree/only-root
echo x >tree/src/only-root
echo x >tree/sub/wanted.o
echo x >tree/sub/other.o
echo x >tree/sub/keep/f.tmp
limb create box --provider local --root "$T/tree" >/dev/null || test_result 'not ok' create

# names of the journal, one a line
journal_names() {
	local -
	set +x
	journal_list "${1:-}" | sort
}
journal_list() {
	limb ls "box:$1" --json | jq -r '.entries[] | (if .type == "directory" then "d " else "f " end) + .path' |
		while read -r type path; do
			echo "$path"
			[ "$type" != d ] || journal_list "$path"
		done
}

test_expect 'what is left out is not in the journal, is counted, and has no watches' '
	limb sync box
	journal_names >names
	printf "%s\n" .limbignore src src/a.c src/only-root sub sub/.limbignore sub/keep sub/wanted.o | sort >want
	diff want names
	wait_for "test \"\$(status_of box .counts.ignored_names)\" = 5"
	test "$(status_of box .counts.ignored_bytes)" = 1006
	# the root, src, sub, sub/keep
	test "$(status_of box .counts.watches)" = 4
	{ limb status || true; } | grep -F "names left out"
	verify_equal box
	test "$(jq .files verify.json)" = 5
'

test_expect 'B03 ignored trees use no watches, also those that come later; what is made in them is not seen' '
	mkdir -p tree/build/more tree/src/build/x/y
	echo x >tree/src/build/x/y/z
	echo x >tree/build/more/z
	echo x >tree/src/b.o
	echo seen >tree/src/b.c
	limb sync box
	journal_names >names
	printf "%s\n" src/b.c >>want
	sort want | diff - names
	test "$(status_of box .counts.watches)" = 4
	seq=$(inspect_of box .seq)
	echo more >tree/build/more/z
	echo more >tree/src/b.o
	limb sync box
	limb sync box
	test "$(inspect_of box .seq)" = "$seq"
	verify_equal box
'

test_expect 'a rule that comes removes nothing: what was known stays, what changes there is not seen' '
	mkdir tree/out
	echo old >tree/out/f
	echo old >tree/late.log
	limb sync box
	wait_for "test \"\$(status_of box .counts.watches)\" = 5"
	printf "out/\n*.log\n" >>tree/.limbignore
	limb sync box
	wait_for "test \"\$(status_of box .counts.watches)\" = 4"
	echo new >tree/out/f
	echo new >tree/out/g
	rm tree/late.log
	limb sync box
	test "$(limb cp box:out/f -)" = old
	test "$(limb cp box:late.log -)" = old
	test "$(limb ls box:out --json | jq -c "[.entries[].name]")" = "[\"f\"]"
	verify_equal box
	rm -r tree/out
	limb sync box
	test "$(limb cp box:out/f -)" = old
	verify_equal box
	mkdir tree/out
	echo newest >tree/out/f
'

test_expect 'B61 a restore does not touch what is left out' '
	limb label box here
	echo changed >tree/src/a.c
	echo mine >tree/src/a.o
	limb restore box --at here --json >out
	jq -e ".changes | length == 1 and .[0].path == \"src/a.c\"" out
	test "$(cat tree/src/a.o tree/out/f)" = "$(printf "mine\nnewest")"
'

test_expect 'each rule in force is a record, once' '
	limb journal dump box --json >dump
	jq -s "[.[] | select(.type == \"ignore\")] | length" dump >n
	jq -sc "[.[] | select(.type == \"ignore\")] | last.rules[] | [.file, .line, .pattern]" dump >rules
	for want in "[\".limbignore\",2,\"*.o\"]" "[\".limbignore\",3,\"build/\"]" "[\".limbignore\",4,\"/only-root\"]" \
		"[\".limbignore\",5,\"out/\"]" "[\"sub/.limbignore\",1,\"!wanted.o\"]"; do
		grep -Fx "$want" rules
	done
	limb down -q
	limb up -q >/dev/null
	wait_state box live
	limb sync box
	limb journal dump box --json >dump
	test "$(jq -s "[.[] | select(.type == \"ignore\")] | length" dump)" = "$(cat n)"
	verify_equal box
'

test_expect 'a rule that goes: what it hid is there, as it is now' '
	printf "*.o\n" >tree/.limbignore
	limb sync box
	wait_for "limb sync box && limb cp box:out/f - | grep -x newest"
	journal_names >names
	grep -x build/deep/deeper/x names
	grep -x only-root names
	grep -F .o names | refute grep -vx sub/wanted.o
	refute grep -x late.log names
	verify_equal box
	rm tree/.limbignore tree/sub/.limbignore
	wait_for "limb sync box && limb ls box:src --json | grep -F a.o"
	verify_equal box
	wait_for "test \"\$(status_of box .counts.ignored_names)\" = 0"
	limb journal dump box --json >dump
	jq -se "[.[] | select(.type == \"ignore\")] | last | (.rules // []) == []" dump
'

test_expect 'a directory that moves takes its rules along' '
	mkdir -p tree/m/sub
	echo "/sub/*.x" >tree/m/.limbignore
	# What is written before the rule is known is not left out by it.
	limb sync box
	echo hidden >tree/m/sub/a.x
	echo shown >tree/m/sub/a.y
	limb sync box
	mv tree/m tree/n
	echo hidden >tree/n/sub/b.x
	limb sync box
	journal_names n >names
	test "$(tr "\n" " " <names)" = "n/.limbignore n/sub n/sub/a.y "
	verify_equal box
'

test_expect 'a hostile .limbignore: too large, a link, a fifo, a directory, patterns that never end' '
	mkdir tree/h
	for i in 1 2 3 4 5 6; do
		mkdir tree/h/$i
		echo x >tree/h/$i/f
	done
	printf "%0100000d" 0 | tr 0 "\n" >tree/h/1/.limbignore
	echo f >>tree/h/1/.limbignore
	echo f >outside
	ln -s "$T/outside" tree/h/2/.limbignore
	mkfifo tree/h/3/.limbignore
	mkdir tree/h/4/.limbignore
	{ for i in $(seq 200); do printf "*a"; done; echo; for i in $(seq 100); do printf "**/*a"; done; echo; } >tree/h/5/.limbignore
	printf "\0\0f\n\377\n[\n!\n/\n\\\\\n" >tree/h/6/.limbignore
	touch "tree/h/5/$(printf %0250d 0 | tr 0 a)"
	limb sync box
	for i in 1 2 3 4 5 6; do
		test "$(limb cp box:h/$i/f -)" = x
	done
	wait_state box live
	verify_equal box
'

test_expect 'the spec: its patterns come first; with audit full what is in the tree says nothing' '
	mkdir tree2 tree3
	echo "{\"ignore\": [\"*.secret\", \"/cache\"], \"audit\": \"full\"}" >spec.json
	echo "*.c" >tree2/.limbignore
	touch tree2/a.c tree2/a.secret
	mkdir tree2/cache
	touch tree2/cache/x
	limb create two --provider local --root "$T/tree2" --spec spec.json >/dev/null
	test "$(limb ls two: --json | jq -c "[.entries[].name]")" = "[\".limbignore\",\"a.c\"]"
	limb verify two
	limb journal dump two --json >dump
	jq -se "[.[] | select(.type == \"ignore\")] | last.rules | map(.pattern) == [\"*.secret\", \"/cache\"]" dump
	inspect_of two ".spec.ignore[0]" | grep -Fx "*.secret"
	for bad in "{\"ignore\": \"x\"}" "{\"ignore\": [1]}" "{\"ignore\": [\"a\\nb\"]}" "{\"audit\": true}"; do
		echo "$bad" >bad.json
		expect_code 2 limb create three --provider local --root "$T/tree3" --spec bad.json
	done
'

test_expect 'a rebuild: what was left out is not in it' '
	echo "gone/" >tree/.limbignore
	mkdir tree/gone
	echo x >tree/gone/x
	limb sync box
	limb rebuild box --force >/dev/null
	test ! -e tree/gone
	test -e tree/n/sub/a.y
	test ! -e tree/n/sub/a.x
	verify_equal box
'

test_done
