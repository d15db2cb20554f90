#!/bin/bash
# Faults of the writable view that random operations found, one by one: each alone, and on purpose.
. "${0%/*}/write-lib.sh"
need python3
write_up

test_expect 'what is written anew is newer, also with the same bytes' '
	echo same >"$V/same"
	: >"$V/empty"
	touch -d 2001-02-03 "$V/same" "$V/empty"
	limb sync w >/dev/null
	stat -c %y "$R/same" | grep ^2001
	echo same >"$V/same"
	: >"$V/empty"
	limb sync w >/dev/null
	for i in "$V" "$R"; do
		stat -c %y "$i/same" | refute grep ^2001
		stat -c %y "$i/empty" | refute grep ^2001
	done
'
# Both come to limbd at once, so that it could tell them as one.
test_expect 'a file that is just made is newer when it was written after its time was set, and only then' '
	limbd=$(limb status --json | jq .limbd.pid)
	kill -STOP "$limbd"
	python3 - "$V" <<-END
		import os, sys
		for name, early, late in ("late", b"", b"bytes"), ("early", b"bytes", b""):
		    with open(sys.argv[1] + "/" + name, "wb", 0) as f:
		        f.write(early)
		        os.utime(f.fileno(), (981158400, 981158400))
		        f.write(late)
		        os.fsync(f.fileno())
	END
	kill -CONT "$limbd"
	limb sync w >/dev/null
	for i in "$V" "$R"; do
		stat -c %y "$i/late" | refute grep ^2001
		stat -c %y "$i/early" | grep ^2001
	done
'
# The queue is longer than a round, so that all of it builds on what only waits.
test_expect 'names of a file go one after the other, and none is the environment'"'"'s' '
	mkdir "$V/links"
	for i in $(seq 30); do
		echo "$i" >"$V/links/one"
		ln "$V/links/one" "$V/links/two"
		mv "$V/links/one" "$V/links/three"
		echo other >"$V/links/four"
		mv "$V/links/four" "$V/links/three"
		echo more >"$V/links/five"
		mv "$V/links/five" "$V/links/two"
		rm "$V/links/two" "$V/links/three"
	done
	limb sync w >/dev/null
	test -z "$(ls "$R/links")"
	test "$(status_of w .counts.conflicts)" = 0
'
test_expect 'both sides are equal' 'verify_equal w'
test_expect 'what is open and written keeps its number, also where the environment made it' '
	echo made there >"$R/there"
	limb sync w >/dev/null
	cat >open.py <<-END
		import os, subprocess, sys
		f = os.open(sys.argv[1], os.O_RDWR)
		ino = os.fstat(f).st_ino
		for i in range(3):
		    os.write(f, b"written here %d\n" % i)
		    os.fsync(f)
		    subprocess.run(["limb", "sync", "w"], check=True, stdout=subprocess.DEVNULL)
		    assert os.fstat(f).st_ino == ino, (i, ino, os.fstat(f))
		    assert os.stat(sys.argv[1]).st_ino == ino, (i, ino, os.stat(sys.argv[1]))
	END
	python3 open.py "$V/there"
'
test_expect 'a name that a move takes away is one that its file no longer has' '
	echo 1 >"$V/two"
	ln "$V/two" "$V/names"
	limb sync w >/dev/null
	syncd=$(pid_of w syncd)
	kill -STOP "$syncd"
	echo 2 >"$V/over"
	mv "$V/over" "$V/names"
	echo 3 >"$V/two"
	sync "$V/two"
	rm "$V/two"
	kill -CONT "$syncd"
	arrived 30
	test "$(cat "$R/names")" = 2
	refute test -e "$R/two"
'
test_done
