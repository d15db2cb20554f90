#!/bin/bash
# Once limb-fs says that it has seen a change, the kernel shows it, whatever was warm before;
# nobody sees anything in between, and nobody waits.
. "${0%/*}/view-lib.sh"
need getfattr

crowd_s=5
replaces=2000
races=200
if have long; then
	crowd_s=600
	replaces=10000
	races=5000
fi

mkdir -p src/dir/sub src/other src/churn
echo one >src/file
echo one >src/dir/sub/file
head -c 100000 /dev/zero | tr '\0' x >src/big
echo start >src/value.json
touch src/churn/stay-{1..40}
view_rig
view_fs --work

warm() {
	find "$V" -ls
	md5sum "$V/file" "$V/big" "$V/dir/sub/file"
	ls -la "$V" "$V/dir" "$V/other"
	ls "$V/absent" "$V/dir/absent" || true
}

same() {
	cmp "$T/src/$1" "$V/$1"
	test "$(stat -c '%s %Y %i %h' "$T/src/$1")" = "$(stat -c '%s %Y %i %h' "$V/$1")"
}

test_expect 'B37 growing, shrinking and same-size edits are seen at once and whole' '
	warm >/dev/null 2>&1
	for i in 1 2 3 4 5; do
		printf "more %05d\n" "$i" >>"$T/src/big"
		rig sync
		same big
		same big
		truncate -s "$((50000 + i))" "$T/src/big"
		rig sync
		same big
		printf "%05d" "$i" | dd of="$T/src/big" conv=notrunc status=none
		rig sync
		same big
		truncate -s 200000 "$T/src/big"
		rig sync
		same big
	done
'

test_expect 'B37 also through an open descriptor and a mapping' '
	mkfifo "$T/hold.in" "$T/hold.out"
	"$rig_program" hold "$V/big" <"$T/hold.in" >"$T/hold.out" &
	exec 5>"$T/hold.in" 6<"$T/hold.out"
	IFS= read -r -u 6 line
	for size in 100 9000 200000 4097 4096 123456; do
		head -c $size /dev/urandom | tr -c a-z x >"$T/src/big"
		rig sync
		echo >&5
		IFS= read -r -u 6 line
		test "$line" = "size $size read $size mapped alike"
		IFS= read -r -u 6 line
		test "$line" = "$(cat "$T/src/big")"
	done
	exec 5>&- 6<&-
	wait
'

test_expect 'attributes alone keep the pages' '
	# The machine may drop pages at any time, but not each time.
	for mode in 600 640 604; do
		cat "$V/big" >/dev/null
		chmod $mode "$T/src/big"
		messages | grep "^15:" >"$T/before"
		rig sync
		cat "$V/big" >/dev/null
		messages | grep "^15:" >"$T/after"
		test "$(stat -c %a "$V/big")" = $mode
		if cmp "$T/before" "$T/after"; then
			exit 0
		fi
	done
	exit 1
'
test_expect 'new names show where their absence was known, and in listings' '
	warm >/dev/null 2>&1
	echo new >"$T/src/absent"
	mkdir "$T/src/dir/absent"
	rig sync
	same absent
	test -d "$V/dir/absent"
	ls "$V" | grep -x absent
	ls "$V/dir" | grep -x absent
'
test_expect 'a listing that is known gets names that nobody asked for, and loses them' '
	touch -d 2001-01-01 "$T/src/other"
	rig sync
	ls "$V/other" "$V/other"
	touch "$T/src/other/unasked"
	# Whatever its time says.
	touch -d 2001-01-01 "$T/src/other"
	rig sync
	test "$(ls "$V/other")" = unasked
	rm "$T/src/other/unasked"
	touch -d 2001-01-01 "$T/src/other"
	rig sync
	test -z "$(ls "$V/other")"
'
test_expect 'removed names are gone, and absent again' '
	warm >/dev/null 2>&1
	rm "$T/src/absent"
	rmdir "$T/src/dir/absent"
	rig sync
	expect_code 2 ls "$V/absent"
	expect_code 2 ls "$V/dir/absent"
	expect_code 1 grep -x absent <(ls "$V")
	messages | grep "^1:" >"$T/before"
	expect_code 2 ls "$V/absent"
	messages | grep "^1:" | cmp - "$T/before"
'
test_expect 'hard links: a name more, a name less, the bytes of all' '
	ln "$T/src/file" "$T/src/other/link"
	rig sync
	same file
	same other/link
	echo two >>"$T/src/file"
	rig sync
	same other/link
	rm "$T/src/file"
	rig sync
	same other/link
	test "$(stat -c %h "$V/other/link")" = 1
	mv "$T/src/other/link" "$T/src/file"
	rig sync
	same file
'
test_expect 'directories move with all that is open in them' '
	exec 5<"$V/dir/sub/file"
	cd "$V/dir/sub"
	mv "$T/src/dir/sub" "$T/src/other/moved"
	rig sync
	test "$(cat "$V/other/moved/file")" = one
	expect_code 2 ls "$V/dir/sub"
	test "$(cat file)" = one
	test "$(cat <&5)" = one
	cd /
	exec 5<&-
	mv "$T/src/other/moved" "$T/src/dir/sub"
	rig sync
	test "$(cat "$V/dir/sub/file")" = one
'
test_expect 'a directory that moves lives on for who is in it' '
	mkdir "$T/src/hollow"
	rig sync
	cd "$V/hollow"
	mv "$T/src/hollow" "$T/src/other/hollow2"
	rig sync
	ls "$V/other/hollow2"
	touch "$T/src/other/hollow2/x"
	rig sync
	test "$(ls)" = x
	test "$(ls "$V/other/hollow2")" = x
	test "$(realpath "$V/other/hollow2/x")" = "$V/other/hollow2/x"
	cd /
'
test_expect 'a file that is open keeps its content when its name goes' '
	rm "$T/src/dir/sub/file"
	rig sync
	echo one >"$T/src/dir/sub/file"
	rig sync
	exec 5<"$V/dir/sub/file"
	rm "$T/src/dir/sub/file"
	rig sync
	test "$(cat <&5)" = one
	test "$(stat -L -c %h /proc/self/fd/5)" = 0
	exec 5<&-
	echo one >"$T/src/dir/sub/file"
	rig sync
'
test_expect 'a removed working directory is empty and gone' '
	mkdir "$T/src/dir/cwd"
	touch "$T/src/dir/cwd/x"
	rig sync
	cd "$V/dir/cwd"
	test "$(ls)" = x
	rm -r "$T/src/dir/cwd"
	rig sync
	expect_code 2 ls x
	test -z "$(ls 2>/dev/null)"
	cd /
'
test_expect 'a directory becomes a file and a file a directory' '
	mkdir "$T/src/turn"
	touch "$T/src/turn/x" "$T/src/turn2"
	rig sync
	ls -la "$V/turn" "$V/turn2"
	rm -r "$T/src/turn" "$T/src/turn2"
	rig sync
	echo file >"$T/src/turn"
	mkdir "$T/src/turn2"
	rig sync
	same turn
	test -d "$V/turn2"
'
test_expect 'links change their text' '
	ln -s file "$T/src/link"
	rig sync
	test "$(readlink "$V/link")" = file
	ln -sfn big "$T/src/link"
	rig sync
	test "$(readlink "$V/link")" = big
'

test_expect 'more than the index remembers: everything known is compared' '
	mkdir -p "$T/src/huge/below"
	(cd "$T/src/huge/below" && seq 5000 | xargs touch)
	rig sync
	find "$V/huge" | wc -l | grep -x 5002
	cd "$V/huge/below"
	exec 5<"$V/huge/below/77"
	expect_code 2 ls "$V/later" "$V/huge/later"
	rm -r "$T/src/huge"
	echo later >"$T/src/later"
	rig sync
	expect_code 2 ls "$V/huge"
	expect_code 2 ls 77
	test "$(stat -L -c %h /proc/self/fd/5)" = 0
	same later
	expect_code 1 grep -x huge <(ls "$V")
	exec 5<&-
	cd /
'
test_expect 'limbd makes another index: the view goes on with that' '
	warm >/dev/null 2>&1
	rig rebuild
	same big
	echo rebuilt >>"$T/src/file"
	echo rebuilt >"$T/src/after-rebuild"
	rig sync
	same file
	same after-rebuild
'

# A stream that began before: all names that stay, once each.
stream() {
	mkfifo "$T/list.in" "$T/list.out"
	"$rig_program" list "$1" <"$T/list.in" >"$T/list.out" 2>&1 &
	exec 5>"$T/list.in" 6<"$T/list.out"
	IFS= read -r -u 6 line
}
step() {
	echo "$1" >&5
	while IFS= read -r -u 6 line && [ "$line" != - ] && [ "$line" != end ]; do
		echo "$line"
	done
}
test_expect 'B39 a listing meets each name that stays exactly once while others come and go' '
	mkdir "$T/src/list"
	(cd "$T/src/list" && seq -f "stay-%04g" 2000 | xargs touch && seq -f "go-%04g" 2000 | xargs touch)
	rig sync
	stream "$V/list"
	step 300 >"$T/listed"
	for i in 1 2 3 4 5 6 7 8; do
		rm "$T/src/list"/go-?${i}??
		touch "$T/src/list"/come-$i-{1..100}
		touch "$T/src/list/stay-0007.new"
		mv "$T/src/list/stay-0007.new" "$T/src/list/stay-0007"
		rig sync
		step 400 >>"$T/listed"
	done
	step 100000 >>"$T/listed"
	exec 5>&- 6<&-
	test "$(grep -c "^stay-....$" "$T/listed")" = 2000
	test -z "$(sort "$T/listed" | uniq -d)"
	rm -r "$T/src/list" "$T/list.in" "$T/list.out"
	rig sync
'

test_expect 'B38 a reader of a file that is replaced all the time: always one whole content' '
	rm "$T/src/value.json"
	rig sync
	printf a >"$T/src/value.json"
	rig sync
	"$rig_program" read "$V/value.json" 100000 >"$T/read.out" &
	reader=$!
	"$rig_program" read "$V/value.json" 100000 >"$T/read2.out" &
	reader2=$!
	rig replace value.json '$replaces'
	# Neither has ended, so neither has failed.
	kill $reader $reader2
	cat "$T/read.out" "$T/read2.out"
	test ! -s "$T/read.out"
	test ! -s "$T/read2.out"
	same value.json
'

test_expect 'B48 a crowd in a directory that changes all the time: no call is late, no name missing' '
	"$rig_program" crowd "$V/churn" 16 '$crowd_s' &
	crowd=$!
	rig churn '$crowd_s' | tee "$T/churned"
	wait $crowd
	longest=$(sed "s/.*longest \([0-9]*\) ms/\1/" "$T/churned")
	test "$longest" -lt 5000
	test "$(ls "$V/churn" | sort | md5sum)" = "$(ls "$T/src/churn" | sort | md5sum)"
'
test_expect 'all of it agrees in the end' '
	tree_state "$T/src" >"$T/want"
	tree_state "$V" >"$T/got"
	diff "$T/want" "$T/got"
'
view_quit

# Answers are overtaken by news: each is held back for 3 ms between its making and its sending.
view_as=(env LD_PRELOAD="$LIMB_TOP_BUILDDIR/tests/functional/view-rig/delay.so"
	LIMB_TEST_DELAY_US=3000 ASAN_OPTIONS="$ASAN_OPTIONS:verify_asan_link_order=0")
view_fs --work
test_expect 'what is looked at for the first time while it changes does not stay old' '
	rig race "$V" '$races' 6000 | tee "$T/raced"
	grep -x "raced '$races', wrong 0" "$T/raced"
'
view_quit
rig_end
test_done
