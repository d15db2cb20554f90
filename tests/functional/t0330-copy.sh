#!/bin/bash
# limb-copy makes the same tree again, hard cases too, and touches nothing else.
. "${0%/*}/lib.sh"
need jq setfattr getfattr

PATH=$LIMB_TOP_BUILDDIR/bridge:$PATH

# Every entry with all that is to be kept; paths as bytes, deep ones too.
list() {
	(cd "$1" && find . -printf '%P %y %m %U %G %T@ %l\0' | sort -z | tr '\0' '\n') | sed 1d
	# names that share an inode, by number of names
	(cd "$1" && find . ! -type d -links +1 -printf '%P\t%i\0' | sort -z |
		awk -v RS='\0' -F '\t' '{ if (!($2 in n)) n[$2] = ++k; print n[$2], $1 }')
	(cd "$1" && find . -type f -size -2M -exec cksum {} +) | sort
}
same() {
	list "$1" >"$T/list.1"
	list "$2" >"$T/list.2"
	cmp "$T/list.1" "$T/list.2" || diff "$T/list.1" "$T/list.2" | head -n 20
	cmp -s "$T/list.1" "$T/list.2"
}

test_expect 'a tree of hard cases' '
	mkdir -p src/a/b src/many src/empty
	cd src
	echo hello >a/f
	ln a/f a/b/g
	ln a/f top
	ln -s /nowhere/"$(printf "%04080d" 0)" long
	ln -s loop loop
	ln loop a/loop2
	mkfifo fifo
	ln fifo a/fifo2
	: >"$(printf "bad\\377\\nname")"
	: >"$(printf "%0255d" 0)"
	: >"$(printf "caf\\303\\251")"
	: >"$(printf "cafe\\314\\201")"
	touch setid closed
	chmod 6755 setid
	chmod 1777 empty
	echo x >closed
	if [ "$(id -u)" = 0 ]; then
		chown 12:34 setid
		chmod 6755 setid
		chmod 0 closed
		mknod device c 1 3
		chown -h 12:34 loop
	fi
	setfattr -n user.limb -v "a value" a/f
	setfattr -n user.d -v "of a directory" a
	touch -d "1960-01-02 03:04:05.123456789" a/f
	touch -d "2106-12-31 03:04:05.999999999" fifo
	touch -h -d "2001-02-03 04:05:06.000000007" loop
	(cd many; seq 10000 | xargs touch)
	truncate -s 100M hole
	printf middle | dd of=hole bs=1 seek=50000000 conv=notrunc status=none
	touch -d @1 a
	cd ..
	limb-copy src dst >out 2>err
	cat err
	test ! -s err
	same src dst
	getfattr --only-values -n user.limb dst/a/b/g | grep "a value"
	getfattr --only-values -n user.d dst/a | grep "of a directory"
	test "$(du -k dst/hole | cut -f1)" -le 100
	cmp src/hole dst/hole
	test "$(ls -A | grep -c links)" = 0
'

test_expect 'the last line counts' '
	tail -n 1 out | grep "\"done\":true"
	tail -n 1 out | grep "\"unreadable\":0,"
	tail -n 1 out | grep "\"directories\":5,"
'

# More levels than directories are kept open; a file behind each on the way back.
test_expect 'paths deeper than 4096 bytes, hard links out of the depth' '
	mkdir -p deep/src
	cd deep/src
	echo bottom >first
	for i in $(seq 150); do
		name=$(printf "%040d" "$i")
		mkdir "$name"
		echo "$i" >zz
		mv first "$name/"
		cd "$name"
	done
	ln first second
	cd "$T/deep"
	limb-copy src dst >out
	grep "\"files\":152," out
	cd dst
	for i in $(seq 150); do
		test "$(cat zz)" = "$i"
		cd "$(printf "%040d" "$i")"
	done
	test "$(cat second)" = bottom
	test first -ef second
	cd "$T/deep"
	rm -rf src dst
'

test_expect 'one in the other, the same, not empty, a file: refused, nothing made' '
	mkdir -p r/in/in r/full
	touch r/full/x r/file
	expect_code 125 limb-copy r r/in/new
	expect_code 125 limb-copy r/in r
	expect_code 125 limb-copy r r
	expect_code 125 limb-copy r/in r/full
	expect_code 125 limb-copy r/file r/new
	expect_code 125 limb-copy r/absent r/new
	expect_code 125 limb-copy r/in r/absent/new
	expect_code 2 limb-copy r
	limb-copy r/file r/new >out || true
	jq -e ".detail | contains(\"r/file\")" out
	test "$(find r | wc -l)" = 6
	mkdir r2
	limb-copy r r2 >/dev/null
	test -e r2/full/x
'

if ! have user; then
	test_skip 'what cannot be read is named and counted, the rest is there' "$why_not"
else
	test_expect 'what cannot be read is named and counted, the rest is there' '
		install -d -m 777 mine
		as_user mkdir -p mine/src/closed mine/src/open
		as_user touch mine/src/open/y mine/src/shut
		as_user sh -c "echo z >mine/src/closed/z; chmod 0 mine/src/closed mine/src/shut"
		as_user sh -c "limb-copy mine/src mine/dst 2>mine/err" >out
		cp mine/err err
		grep "closed.*Permission denied" err
		grep "shut.*Permission denied" err
		tail -n 1 out | grep "\"unreadable\":2,"
		test -e mine/dst/open/y
		test "$(stat -c %a mine/dst/closed)" = 0
		test ! -e mine/dst/shut
		chmod 700 mine/src/closed mine/dst/closed
	'
fi

if [ "$(id -u)" = 0 ] && unshare -m true 2>/dev/null; then
	test_expect 'a mount point is not entered' '
		mkdir -p m/src/mnt m/src/bound
		touch m/src/plain
		unshare -m sh -c "mount -t tmpfs none m/src/mnt && touch m/src/mnt/inside &&
			mount --bind src m/src/bound && mount --bind src/top m/src/plain &&
			limb-copy m/src m/dst" >out 2>err
		test "$(grep -c "a mount point" err)" = 3
		test -d m/dst/mnt
		test -z "$(ls -A m/dst/mnt m/dst/bound | grep -v :)"
		test ! -e m/dst/plain
		tail -n 1 out | grep "\"mounts\":3,"
	'
else
	test_skip 'a mount point is not entered' 'needs root and mount namespaces'
fi

test_expect 'a full disk ends it with a reason' '
	if [ "$(id -u)" = 0 ] && unshare -m true 2>/dev/null; then
		mkdir full large
		head -c 1M /dev/zero >large/file
		unshare -m sh -c "mount -t tmpfs -o size=200k none full &&
			! limb-copy large full/dst" >out 2>err
		grep "No space left" err
	fi
'

test_expect 'nobody reads its progress: it ends' '
	mkdir big
	(cd big; seq 30000 | xargs touch)
	status=0
	limb-copy big big2 >/dev/full 2>err || status=$?
	test $status = 125
'

test_done
