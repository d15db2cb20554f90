#!/bin/bash
# A tree of hard cases comes through create, verify, view and rebuild field by field.
. "${0%/*}/brain-lib.sh"
need setfattr

if have long; then
	entries=10000
else
	entries=2000
fi
export entries

# hard_tree DIR
hard_tree() {
	mkdir "$1"
	(
		cd "$1" || exit
		for name in $'new\nline' $'tab\tname' $'\xff\xfe' -rf 'back\slash' 'quote"$(x)`y`'\' 'trailing ' ' leading' \
			$'\xc3\xa9' $'e\xcc\x81' $'\033[2K\r' '*' '~' '#' '%s' ...; do
			echo "content of $name" >"./$name"
			mkdir "./d$name"
			echo in >"./d$name/$name"
		done
		for n in 250 251 252 253 254 255; do
			printf '%s\n' "$n" >"$(printf 'n%.0s' $(seq "$n"))"
		done
		mkdir -p links/one/two empty many
		echo linked >links/first
		ln links/first links/one/second
		ln links/first links/one/two/third
		mkfifo fifo
		ln fifo links/fifo
		ln -s .. links/one/up
		ln -s loop loop
		ln -s mutual2 mutual1
		ln -s mutual1 mutual2
		ln -s nowhere dangling
		ln -s /etc/hostname absolute
		ln -s "$(printf 'x%.0s' $(seq 4095))" long
		ln -s $'\xff\n' odd
		# What has no mode at all only root can read (t0520).
		modes="0444 0755 1777 2755 4755 6711"
		! have root || modes="0000 $modes"
		for mode in $modes; do
			echo "$mode" >"mode$mode"
			chmod "$mode" "mode$mode"
		done
		mkdir dir1777 dir2755
		chmod 1777 dir1777
		chmod 2755 dir2755
		truncate -s 20M hole
		printf middle | dd of=hole bs=1 seek=9999999 conv=notrunc status=none
		truncate -s 5M only-hole
		: >zero
		setfattr -n user.text -v "a value" zero
		setfattr -n user.bytes -v 0x00ff0a00 mode0755
		setfattr -n user.empty empty
		touch -d '1960-01-02 03:04:05.123456789 UTC' zero
		touch -d '2106-12-31 23:59:59.999999999 UTC' mode0444
		touch -d @0 mode0755
		touch -h -d '2001-02-03 04:05:06.000000007 UTC' dangling
		touch -d '+1 day' future
		(cd many && seq -f 'entry-%05g' "$entries" | xargs touch)
		if [ "$(id -u)" = 0 ]; then
			chown 1234:2345 mode0444
			chown -h 1234:2345 dangling
			echo cap >capable
			! command -v setcap >/dev/null || setcap cap_net_raw=ep capable
		fi
		! command -v setfacl >/dev/null || setfacl -m u:1234:r zero 2>/dev/null || true
		name=$(printf 'd%.0s' $(seq 200))
		for _ in $(seq 40); do
			mkdir "$name"
			cd "$name" || exit
		done
		echo bottom >bottom
	)
}

brain_up
hard_tree tree
tree_list tree >tree.list
# What is not in the list, neither a socket nor a device, is made in the environment.

for name in $providers; do
	export name
	test_expect "B26 B27 B28 B29 B30 B31 B32 B33 $name: create, as it was" '
		limb create "$name" --provider "$name" --from tree --json >created
		jq -e ".state == \"live\" and .files > $entries" created
		tree_list "$(root_of "$name")" >after
		same_tree tree.list after
		verify_equal "$name"
		jq -c .unsupported verify.json
	'

	test_expect "B26 B28 B29 B30 B31 B32 B33 $name: lost and rebuilt, as it was or listed" '
		root=$(root_of "$name")
		mv "$root" "$root.gone"
		kill_9 "$(pid_of "$name" init)"
		rm -rf "$root.gone"
		wait_state "$name" halted
		LIMB_TIME_S=120 limb rebuild "$name" --json >rebuilt
		jq -e .equal rebuilt
		jq -c "[.mask, .unsupported]" rebuilt
		tree_list "$(root_of "$name")" >after
		if jq -e "(.unsupported | length) == 0" rebuilt; then
			masked="$(jq -r "if any(.mask[]; test(\"posix_acl\")) then \"system.posix_acl\" else \"//\" end" rebuilt)"
			same_tree <(grep -av "^$masked" tree.list) <(grep -av "^$masked" after)
		fi
		verify_equal "$name"
	'
done

if have fuse; then
	test_expect 'B26 B28 B30 B31 B33 the view in mode work is that tree' '
		limb trust "$name"
		wait_for "test -e \"$LIMB_STATE/mnt/$name/zero\""
		root=$(root_of "$name")
		# a mount says nothing of capabilities and lists of rights that are not its own
		tree_list "$root" | grep -avE "^(security|system)\\." >root.list
		tree_list "$LIMB_STATE/mnt/$name" | grep -avE "^(security|system)\\." >view.list
		same_tree root.list view.list
	'
fi

test_expect 'two environments of one tree have one hash' '
	for name in $providers again; do
		provider=$name
		test "$name" != again || provider=local
		limb inspect "$name" >/dev/null 2>&1 || limb create "$name" --provider "$provider" --from tree >/dev/null
		limb verify "$name" --json | jq -c "[.mask, .journal.full]"
	done >hashes
	# What one provider cannot hold for a user, ACLs that name others, another can.
	have root || sed -i "/posix_acl/d" hashes
	test "$(jq -r ".[1]" hashes | sort -u | wc -l)" = 1
'

test_expect 'one ns, one mode bit, one byte of an attribute: full changes; a flipped byte is found' '
	root=$(root_of again)
	full() { limb verify again --json | jq -re "select(.equal) | .journal.full"; }
	content() { limb verify again --json | jq -re "select(.equal) | .journal.content"; }
	full >f.0
	content >c.0
	touch -d "1960-01-02 03:04:05.123456788 UTC" "$root/zero"
	full >f.1
	chmod 0754 "$root/mode0755"
	full >f.2
	setfattr -n user.bytes -v 0x00ff0a01 "$root/mode0755"
	full >f.3
	content >c.3
	cmp c.0 c.3
	chmod 0654 "$root/mode0755"
	content >c.4
	test "$(cat f.[0-3] | sort -u | wc -l)" = 4
	refute cmp c.0 c.4
'

test_expect 'verify of some paths is of these, with what is beneath them' '
	mkdir -p parts/a/b parts/ab
	echo 1 >parts/a/b/one
	echo 22 >parts/a/two
	echo 333 >parts/ab/three
	limb create parts --provider local --from parts
	limb verify parts --json --paths a | jq -e ".equal and .files == 2 and .directories == 2 and .bytes == 5"
	limb verify parts --json --paths a/b ab/three | jq -e ".equal and .files == 2 and .directories == 1"
	# Not "equal": a mistyped path would be taken for one that was compared.
	expect_code 125 limb verify parts --json --paths a nothing >out
	jq -e ".error == \"file_not_found\" and (.detail | test(\"nothing\"))" out
	expect_code 125 limb verify parts --paths ../x
	limb rm parts --force
'

test_expect 'B20 same size, mtime put back, two edits at once: all seen' '
	root=$(root_of again)
	seq 1000 >"$root/edited"
	limb sync again
	for i in 1 2 3 4 5; do
		touch -r "$root/edited" stamp
		printf "%s" "$i" | dd of="$root/edited" bs=1 seek=100 conv=notrunc status=none
		touch -r stamp "$root/edited"
		limb sync again
		limb cp again:edited - | cmp - "$root/edited"
		printf a | dd of="$root/edited" bs=1 seek=5 conv=notrunc status=none
		printf "%s" "$i" | dd of="$root/edited" bs=1 seek=5 conv=notrunc status=none
		limb sync again
		limb cp again:edited - | cmp - "$root/edited"
	done
	verify_equal again
'

test_expect 'B19 an edit after a date in the future is the newer one, odd dates stay' '
	root=$(root_of again)
	echo first >"$root/dated"
	touch -d "+1 day" "$root/dated"
	limb sync again
	echo second >"$root/dated"
	limb sync again
	test "$(limb cp again:dated -)" = second
	for date in @0 @-1000000.5 "2106-12-31 23:59:59.5 UTC"; do
		touch -d "$date" "$root/dated"
		verify_equal again
	done
'

test_expect 'B27 sockets, devices, a file that becomes a fifo: what stands beside them comes' '
	root=$(root_of again)
	mkdir "$root/special"
	for i in $(seq 100); do echo "$i" >"$root/special/f$i"; done
	mkfifo "$root/special/fifo"
	if command -v python3 >/dev/null; then
		(cd "$root/special"; python3 -c "import socket; socket.socket(socket.AF_UNIX).bind(\"socket\")")
	fi
	test "$(id -u)" != 0 || mknod "$root/special/null" c 1 3
	rm "$root/special/f1"
	mkfifo "$root/special/f1"
	timeout 50 limb sync again
	limb ls again:special --json >ls
	jq -e "([.entries[] | select(.type == \"file\")] | length) == 99" ls
	jq -e "any(.entries[]; .name == \"f1\" and .type == \"fifo\")" ls
	verify_equal again
'

test_expect 'B33 a name more, a name less, what is written through one is in all' '
	root=$(root_of again)
	ln "$root/links/first" "$root/links/fourth"
	echo more >>"$root/links/one/second"
	limb sync again
	limb cp again:links/fourth - | cmp - "$root/links/first"
	limb ls again:links/fourth --json | jq -e ".entries[0].links == 4"
	rm "$root/links/first"
	limb sync again
	limb ls again:links/fourth --json | jq -e ".entries[0].links == 3"
	verify_equal again
'

test_expect 'B26 names are exact in JSON, and no name makes a line of its own' '
	limb ls again: --json >ls
	printf "\377\376" | base64 >want
	jq -r ".entries[] | select(.path_base64) | .path_base64" ls | grep -xFf want
	jq -e "any(.entries[]; .name == \"new\\nline\")" ls
	limb ls again: >plain
	test "$(wc -l <plain)" -le "$(jq "(.entries | length) + 1" ls)"
	refute grep -a "$(printf "\033")" plain
	limb ls again: -z | tr "\\0" "\\n" | grep -aqx "$(printf "\377\376")"
'

test_expect 'B30 what is deeper than a path can say is removed again' '
	root=$(root_of again)
	rm -rf "$root"/dddd*
	limb sync again
	verify_equal again
'

for name in $providers again; do
	limb rm "$name" --force >/dev/null
done
test_done
