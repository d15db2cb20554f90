#!/bin/bash
# The file tools read and write exactly what was asked for, beneath the root only,
# whatever links lie there and whoever changes them meanwhile.
. "${0%/*}/mcp-lib.sh"

brain_up
mkdir work work/d
printf 'one\ntwo\nthree\n' >work/a.txt
mkdir outside
echo secret-$$ >outside/canary
limb create box --provider local --root "$T/work" >/dev/null || test_result 'not ok' create
root=$T/work
export root

test_expect 'a file is read by lines, with its hash, and says where to go on' '
	mcp_open
	hello
	tool 1 read_file "{\"path\":\"a.txt\"}"
	works
	structured ".content == \"one\\ntwo\\nthree\\n\" and .first_line == 1 and .lines == 3 and .truncated == false and
		.sha256 == \"sha256:$(sha256sum <work/a.txt | cut -d" " -f1)\" and .size_bytes == 14"
	test "$(text_of_answer)" = "$(cat work/a.txt)"
	tool 2 read_file "{\"path\":\"$root/a.txt\",\"offset\":2,\"limit\":1}"
	structured ".content == \"two\\n\" and .truncated and .next_offset == 3"
	tool 3 read_file "{\"path\":\"a.txt\",\"offset\":9}"
	structured ".content == \"\" and .lines == 0 and .truncated == false"
	tool 4 read_file "{\"path\":\"a.txt\",\"max_bytes\":5}"
	structured ".content == \"one\\nt\" and .truncated"
	seq 100000 >work/long
	head -c 300000 /dev/zero >work/zeros
	printf "a\377\0b" >work/bytes
	: >work/empty
	limb sync box
	tool 5 read_file "{\"path\":\"long\"}" >/dev/null
	structured ".lines == 2000 and .next_offset == 2001 and (.content | endswith(\"\\n2000\\n\"))"
	text_of_answer | tail -n 1 | grep "offset 2001"
	tool 6 read_file "{\"path\":\"long\",\"offset\":99999}"
	structured ".content == \"99999\\n100000\\n\" and .truncated == false"
	tool 7 read_file "{\"path\":\"bytes\"}"
	jq -r .result.structuredContent.content_base64 answer | base64 -d | cmp - work/bytes
	tool 8 read_file "{\"path\":\"zeros\"}" >/dev/null
	structured ".truncated and (.content_base64 | length) < 400000" >/dev/null
	tool 9 read_file "{\"path\":\"empty\"}"
	structured ".content == \"\" and .size_bytes == 0"
	tool 10 read_file "{\"path\":\"none\"}"
	fails file_not_found
	tool 11 read_file "{\"path\":\"d\"}"
	fails is_directory
	tool 12 read_file "{\"path\":\"a.txt/x\"}"
	fails not_directory
	mcp_close
'

test_expect 'what is written is there, durable, with directories on the way; a mode stays' '
	mcp_open
	hello
	tool 1 write_file "{\"path\":\"new/deep/er/f\",\"content\":\"é\\n\"}"
	works
	structured ".created and .seq > 0"
	test "$(cat work/new/deep/er/f)" = é
	test "$(limb cp box:new/deep/er/f -)" = é
	chmod 755 work/a.txt
	limb sync box
	tool 2 write_file "{\"path\":\"a.txt\",\"content\":\"x\\n\"}"
	structured ".created == false"
	test "$(stat -c %a work/a.txt)" = 755
	tool 3 write_file "{\"path\":\"a.txt\",\"content\":\"y\",\"no_replace\":true}"
	fails conflict
	test "$(cat work/a.txt)" = x
	tool 4 write_file "{\"path\":\"b\",\"content_base64\":\"/wBh\"}"
	works
	test "$(od -An -tx1 work/b | tr -d " ")" = ff0061
	tool 5 write_file "{\"path\":\"c\",\"content\":\"nul \\u0000 there\"}"
	works
	test "$(stat -c %s work/c)" = 11
	tool 6 write_file "{\"path\":\"d\",\"content\":\"\"}"
	fails is_directory
	tool 7 write_file "{\"path\":\"\",\"content\":\"\"}"
	jq -e .result.isError answer
	tool 8 write_file "{\"path\":\"a.txt/b\",\"content\":\"\"}"
	fails not_directory
	tool 9 write_file "{\"path\":\"e\",\"content\":\"\"}"
	works
	test -f work/e -a ! -s work/e
	tool 10 write_file "{\"path\":\"a.txt\",\"content\":\"z\",\"base_sha256\":\"sha256:$(echo other | sha256sum | cut -d" " -f1)\"}"
	fails conflict
	tool 11 write_file "{\"path\":\"a.txt\",\"content\":\"z\",\"base_sha256\":\"sha256:$(sha256sum <work/a.txt | cut -d" " -f1)\"}"
	works
	test "$(cat work/a.txt)" = z
	ln work/a.txt work/hard
	limb sync box
	tool 12 write_file "{\"path\":\"hard\",\"content\":\"both\"}"
	works
	test "$(cat work/a.txt)" = both
	mcp_close
	verify_equal box
	test -z "$(find work -name ".limb-*")"
'

test_expect 'an edit replaces exactly what it was given, all edits or none' '
	mcp_open
	hello
	printf "alpha\nbeta\nbeta\ngamma\n" >work/e.txt
	limb sync box
	tool 1 edit_file "{\"path\":\"e.txt\",\"edits\":[{\"old_text\":\"alpha\\n\",\"new_text\":\"\"},{\"old_text\":\"gamma\",\"new_text\":\"delta\"}]}"
	works
	structured ".replacements == 2"
	test "$(cat work/e.txt)" = "beta
beta
delta"
	tool 2 edit_file "{\"path\":\"e.txt\",\"old_string\":\"beta\",\"new_string\":\"x\"}"
	fails usage
	text_of_answer | grep "2 times"
	tool 3 edit_file "{\"path\":\"e.txt\",\"edits\":[{\"old_text\":\"delta\",\"new_text\":\"x\"},{\"old_text\":\"nothing\",\"new_text\":\"y\"}]}"
	fails conflict
	grep delta work/e.txt
	tool 4 edit_file "{\"path\":\"e.txt\",\"edits\":[{\"old_text\":\"beta\",\"new_text\":\"x\",\"replace_all\":true}]}"
	works
	test "$(tr -d "\n" <work/e.txt)" = xxdelta
	tool 5 edit_file "{\"path\":\"none\",\"edits\":[{\"old_text\":\"a\",\"new_text\":\"b\"}]}"
	fails file_not_found
	tool 6 edit_file "{\"path\":\"zeros\",\"edits\":[{\"old_text\":\"a\",\"new_text\":\"b\"}]}"
	fails conflict
	# the journal does not have it yet, the environment does: made from what is there
	echo fresh >work/e.txt
	tool 7 edit_file "{\"path\":\"e.txt\",\"edits\":[{\"old_text\":\"fresh\",\"new_text\":\"made\"}]}"
	jq -e ".result.isError == false" answer || fails conflict
	mcp_close
	verify_equal box
'

test_expect 'a file that the environment changes meanwhile: the edit or the conflict, never a lost line' '
	mcp_open
	hello
	: >work/log
	limb sync box
	call 1 exec "{\"command\":\"i=0; while [ ! -e stop ]; do i=\$((i + 1)); { cat log; echo line \$i; } >log.new; mv log.new log; done; echo \$i\"}"
	wait_for "test -s work/log"
	done=0 refused=0
	for i in $(seq 2 60); do
		tool $i edit_file "{\"path\":\"log\",\"edits\":[{\"old_text\":\"line 1\\n\",\"new_text\":\"line 1\\nmark $i\\n\"}]}" >/dev/null
		if works; then
			done=$((done + 1))
		else
			fails conflict
			refused=$((refused + 1))
		fi
	done
	touch work/stop
	mcp_answer 1
	n=$(structured .stdout | tr -dc 0-9)
	echo "$done done, $refused refused, $n lines"
	# a writer that read before an edit and renamed after it has the last word; no line of its own goes
	test "$(grep -c "^line " work/log)" = "$n"
	test $((done + refused)) = 59
	mcp_close
	limb sync box
	verify_equal box
	test -z "$(find work -name ".limb-*")"
'

test_expect 'lists, entries and searches are exact and bounded' '
	mcp_open
	hello
	mkdir -p work/s/.git work/s/sub
	echo "needle one" >work/s/x.c
	printf "nothing\nNEEDLE two\n" >work/s/sub/y.c
	echo needle >work/s/z.h
	echo needle >work/s/.git/config
	printf "needle\0" >work/s/bin
	ln -s x.c work/s/link
	limb sync box
	tool 1 list_directory "{\"path\":\"s\"}"
	structured "[.entries[].name] == [\".git\",\"bin\",\"link\",\"sub\",\"x.c\",\"z.h\"] and .total == 6"
	text_of_answer | grep "link -> x.c"
	text_of_answer | grep "sub/$"
	tool 2 list_directory "{\"path\":\"s\",\"limit\":2}"
	structured "(.entries | length) == 2 and .truncated and .total == 6"
	tool 3 stat_file "{\"path\":\"s/link\"}"
	structured ".type == \"symlink\" and .symlink_target == \"x.c\" and .path == \"s/link\""
	tool 4 search_files "{\"path\":\"s\",\"text\":\"needle\"}"
	structured "[.matches[] | \"\(.path):\(.line)\"] | sort == [\"s/x.c:1\",\"s/z.h:1\"]"
	tool 5 search_files "{\"path\":\"s\",\"text\":\"needle\",\"ignore_case\":true,\"pattern\":\"*.c\"}"
	structured "[.matches[] | \"\(.path):\(.line):\(.text)\"] | sort == [\"s/sub/y.c:2:NEEDLE two\",\"s/x.c:1:needle one\"]"
	tool 6 search_files "{\"pattern\":\"s/**/*.c\"}"
	structured "[.matches[].path] | sort == [\"s/sub/y.c\",\"s/x.c\"]"
	tool 7 search_files "{\"text\":\"needle\",\"limit\":1}"
	structured "(.matches | length) == 1 and .truncated and .stopped_by == \"limit\""
	tool 8 search_files "{}"
	fails usage
	tool 9 search_files "{\"pattern\":\"$(printf "%0500d" 0 | sed "s/0/*a/g")\"}"
	works
	tool 10 search_files "{\"path\":\"s/x.c\",\"text\":\"one\"}"
	structured ".matches[0].path == \"s/x.c\""
	tool 11 label_point "{\"label\":\"before\"}"
	works
	tool 12 exec "{\"command\":\"rm -r s; echo changed >e.txt\"}"
	works
	tool 13 list_directory "{\"path\":\"s\"}"
	fails file_not_found
	tool 14 list_directory "{\"path\":\"s\",\"point\":\"before\"}"
	structured ".total == 6"
	tool 15 read_file "{\"path\":\"s/x.c\",\"point\":\"before\"}"
	structured ".content == \"needle one\\n\""
	tool 16 search_files "{\"path\":\"s\",\"pattern\":\"*.h\",\"point\":\"before\"}"
	structured "[.matches[].path] == [\"s/z.h\"]"
	tool 17 read_file "{\"path\":\"a.txt\",\"point\":\"never\"}"
	fails point_not_found
	tool 18 list_points "{}"
	structured "any(.points[]; .label == \"before\")"
	mcp_close
'

# each_tool N PATH: every file tool on it; none may reach out
each_tool() {
	local n=$1 path=$2
	tool "$n" read_file "{\"path\":$path}"
	jq -e .result.isError answer
	tool $((n + 1)) write_file "{\"path\":$path,\"content\":\"broken out\"}"
	jq -e .result.isError answer
	tool $((n + 2)) edit_file "{\"path\":$path,\"edits\":[{\"old_text\":\"secret\",\"new_text\":\"broken out\"}]}"
	jq -e .result.isError answer
	tool $((n + 3)) list_directory "{\"path\":$path}"
	jq -e .result.isError answer
	tool $((n + 4)) search_files "{\"path\":$path,\"text\":\"secret\"}"
	jq -e .result.isError answer
	if grep -aF "secret-$$" mcp.out; then
		return 1
	fi
	test "$(cat outside/canary)" = "secret-$$"
	test "$(ls -A outside)" = canary
}
export -f each_tool

test_expect 'B81 a path that only begins like the root, or leads out by dots, is refused' '
	mkdir work-evil
	echo secret-$$ >work-evil/canary
	mcp_open
	hello
	n=1
	for path in "$T/work-evil/canary" "$root/../work-evil/canary" ../outside/canary a/../../outside/canary \
		"/proc/self/root$T/outside/canary" "/proc/self/cwd/canary" "/$root/../outside/canary" "/etc/passwd" "d/../../x"; do
		each_tool $n "\"$path\""
		n=$((n + 10))
	done
	tool $n read_file "{\"path\":\"d/.//../a.txt\"}"
	works
	tool $((n + 1)) read_file "{\"path\":\"/$root/./a.txt\"}"
	jq -e ".result | .isError or .structuredContent.path == \"a.txt\"" answer
	test "$(cat work-evil/canary)" = "secret-$$"
	mcp_close
'

test_expect 'B82 links that lead out are not followed, those that stay are; also where the root is behind one' '
	ln -s "$T/outside/canary" work/l1
	ln -s ../outside work/l2
	ln -s l2 work/l3
	ln -s "$T/outside/new" work/l4
	ln -s loop work/loop
	ln -s d/../../outside work/l5
	ln -s /proc/self/root work/l6
	ln -s "$root/d" work/in1
	ln -s a.txt work/in2
	ln -s in2 work/in3
	ln -s d/made work/in4
	echo inner >work/d/inner
	limb sync box
	mcp_open
	hello
	n=1
	for path in l1 l2/canary l2 l3/canary l4 loop loop/x l5/canary "l6$T/outside/canary" l2/new/file; do
		each_tool $n "\"$path\""
		n=$((n + 10))
	done
	tool $n read_file "{\"path\":\"in1/inner\"}"
	structured ".content == \"inner\\n\" and .path == \"d/inner\""
	tool $((n + 1)) write_file "{\"path\":\"in3\",\"content\":\"through\"}"
	works
	test "$(cat work/a.txt)" = through
	test -L work/in3 -a -L work/in2
	tool $((n + 2)) write_file "{\"path\":\"in4\",\"content\":\"made\"}"
	works
	test "$(cat work/d/made)" = made
	tool $((n + 3)) stat_file "{\"path\":\"l1\"}"
	structured ".type == \"symlink\""
	tool $((n + 4)) list_directory "{\"path\":\"in1\"}"
	structured "[.entries[].name] == [\"inner\",\"made\"]"
	mcp_close
	mkdir other
	ln -s other linked
	limb create linked --provider local --root "$T/linked" >/dev/null
	mcp_open --environment linked
	hello
	tool 1 write_file "{\"path\":\"f\",\"content\":\"there\"}"
	works
	test "$(cat other/f)" = there
	tool 2 read_file "{\"path\":\"f\"}"
	structured ".content == \"there\""
	mcp_close
	limb rm linked --force
'

test_expect 'several names beneath the root stay one file, and a name outside keeps what it had' '
	mkdir apart
	echo base >work/n1
	ln work/n1 work/n2
	echo base >work/m1
	ln work/m1 work/m2
	ln work/m1 apart/m
	limb sync box
	mcp_open
	hello
	tool 1 write_file "{\"path\":\"n1\",\"content\":\"both\"}"
	works
	test "$(cat work/n2)" = both
	test "$(stat -c %h work/n1)" = 2
	tool 2 write_file "{\"path\":\"m1\",\"content\":\"mine\"}"
	works
	test "$(cat work/m1)" = mine
	test "$(cat apart/m)" = base
	test "$(cat work/m2)" = base
	limb sync box
	test "$(limb cp box:n2 -)" = both
	test "$(limb cp box:m1 -)" = mine
	test "$(limb cp box:m2 -)" = base
	mcp_close
'

test_expect 'B83 while a directory flips to a link that leads out, no write gets out' '
	writes=400
	! have long || writes=10000
	mkdir work/flip
	ln -s "$T/outside" work/swap
	limb sync box
	(
		while [ ! -e unflip ]; do
			for i in 1 2 3 4 5 6 7 8; do
				mv -T --exchange work/flip work/swap 2>/dev/null || {
					mv -T work/flip work/keep
					mv -T work/swap work/flip
					mv -T work/keep work/swap
				}
			done
		done
	) &
	flipper=$!
	mcp_open
	hello
	for i in $(seq $writes); do
		call $i write_file "{\"path\":\"flip/f$((i % 7))\",\"content\":\"broken out\"}"
		call "\"r$i\"" read_file "{\"path\":\"flip/canary\"}"
		test $((i % 25)) != 0 || mcp_answer $i >/dev/null
	done
	wait_for -t 300 "test \$(mcp_lines | wc -l) -gt $((2 * writes))"
	touch unflip
	wait $flipper || true
	mcp_close
	test "$(ls -A outside)" = canary
	test "$(cat outside/canary)" = "secret-$$"
	refute grep -aF "secret-$$" mcp.out
	mcp_lines | jq -s "[.[] | select(.result.isError == false)] | length" | grep -v "^0$"
'

test_done
