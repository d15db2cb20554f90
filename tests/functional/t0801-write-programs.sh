#!/bin/bash
# Programs work in a writable view as in any directory, and the environment then holds what they
# left there: git, tar, sed -i, an editor's save, sqlite, a mapping.
. "${0%/*}/write-lib.sh"
need git

export GIT_CONFIG_NOSYSTEM=1
git config --global user.email you@example.org
git config --global user.name you
git config --global --add safe.directory '*'
git config --global init.defaultBranch main
write_up

equal() {
	limb sync w --timeout 120 >/dev/null
	verify_equal w
	tree_list "$R" >there
	tree_list "$V" >here
	same_tree here there
}

git init -q here.git
(
	cd here.git || exit
	mkdir -p src/deep
	for i in $(seq 12); do echo "file $i" >"src/f$i"; done
	seq 20000 >src/deep/long
	ln -s src/f1 link
	git add .
	git commit -qm one
)

test_expect 'git clone, commit, branch, checkout, status, fsck' '
	git clone -q "$T/here.git" "$V/repo"
	cd "$V/repo"
	test -z "$(git status --porcelain)"
	echo more >>src/f3
	git rm -q src/f4
	git mv src/f5 src/g5
	git commit -qam two
	git checkout -q -b other HEAD~1
	test -e src/f4
	git checkout -q main
	test ! -e src/f4
	git fsck --strict
	cd "$T"
	LIMB_TIME_S=300 limb exec w -- git -C repo fsck --strict
	test -z "$(git -C "$R/repo" status --porcelain)"
	test -z "$(git -C "$V/repo" status --porcelain)"
	equal
'
test_expect 'tar into the view is the tree that was packed' '
	mkdir -p tree/a/b
	for i in $(seq 15); do head -c $((i * 997)) /dev/urandom >tree/a/f$i; done
	ln tree/a/f1 tree/a/b/hard
	# For one with .. tar puts a file without any mode there first, which no user may read.
	if have root; then ln -s ../f2 tree/a/b/soft; else ln -s f2 tree/a/b/soft; fi
	chmod 640 tree/a/f3
	chmod 700 tree/a/b
	tar --format=posix -cf tree.tar tree
	tar xf tree.tar -C "$V"
	tree_list tree >want
	tree_list "$V/tree" | sed "s/^tree.//" >got
	same_tree want got
	equal
	tree_list "$R/tree" >got
	same_tree want got
'
test_expect 'sed -i, and saves by a file beside and by truncation' '
	printf "one\ntwo\n" >"$V/text"
	sed -i s/two/three/ "$V/text"
	test "$(cat "$V/text")" = "one
three"
	cp "$V/text" "$V/.text.swp"
	echo four >>"$V/.text.swp"
	mv "$V/text" "$V/text~"
	mv "$V/.text.swp" "$V/text"
	rm "$V/text~"
	grep -q four "$V/text"
	for i in 1 2 3 4 5; do
		echo "version $i" >"$V/other"
		test "$(limb exec w -- cat other)" = "version $i"
	done
	equal
'
test_expect 'sqlite with a rollback journal' '
	cat >db.py <<-END
	import sqlite3, sys
	d = sqlite3.connect(sys.argv[1] + "/db")
	d.execute("create table t (i integer primary key, s text)")
	d.commit()
	for i in range(12):
	    d.execute("insert into t values (?, ?)", (i, "x" * 500))
	    d.commit()
	assert d.execute("pragma integrity_check").fetchone()[0] == "ok"
	END
	python3 db.py "$V"
	equal
	python3 -c "import sqlite3; d = sqlite3.connect(\"$R/db\"); assert d.execute(\"select count(*) from t\").fetchone()[0] == 12; assert d.execute(\"pragma integrity_check\").fetchone()[0] == \"ok\""
'
test_expect 'what is stored through a mapping is there at the next exec' '
	head -c 20000 /dev/zero >"$V/mapped"
	cat >map.py <<-END
	import mmap, sys, subprocess
	f = open(sys.argv[1] + "/mapped", "r+b")
	m = mmap.mmap(f.fileno(), 0)
	for i in range(3):
	    m[10000:10005] = b"hello" if i % 2 == 0 else b"world"
	    out = subprocess.run(["limb", "exec", "w", "--", "dd", "if=mapped", "bs=1", "skip=10000", "count=5", "status=none"], stdout=subprocess.PIPE, check=True).stdout
	    assert out == bytes(m[10000:10005]), out
	END
	python3 map.py "$V"
	equal
'
test_expect 'unlinked while open, appended by many, truncated and punched' '
	exec 5<>"$V/open"
	echo kept >&5
	rm "$V/open"
	echo more >&5
	test "$(cat /proc/self/fd/5)" = "kept
more"
	exec 5>&-
	for i in 1 2 3 4; do
		(for j in $(seq 50); do echo "$i $j" >>"$V/lines"; done) &
	done
	wait
	test "$(wc -l <"$V/lines")" = 200
	test "$(sort -u "$V/lines" | wc -l)" = 200
	head -c 100000 /dev/urandom >"$V/holes"
	fallocate -p -o 8192 -l 8192 "$V/holes"
	truncate -s 50000 "$V/holes"
	truncate -s 60000 "$V/holes"
	test "$(stat -c %s "$V/holes")" = 60000
	test "$(dd if="$V/holes" bs=4096 skip=2 count=2 status=none | tr -d "\0" | wc -c)" = 0
	equal
'
test_expect 'a tree is removed' '
	rm -rf "$V/repo" "$V/tree"
	test ! -e "$V/repo"
	limb sync w >/dev/null
	test ! -e "$R/repo"
	equal
'
test_done
