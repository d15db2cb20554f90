#!/bin/bash
# What the field has failed at where programs write through a mount: each is done in a writable
# view and, where it says so, in a plain directory first; then both sides are compared.
. "${0%/*}/write-lib.sh"
need git python3 sqlite3

N=$T/native
export GIT_CONFIG_NOSYSTEM=1
git config --global user.email you@example.org
git config --global user.name you
git config --global init.defaultBranch main
git config --global gc.auto 0
mkdir "$N"
allow_killed
write_up

equal() {
	arrived 120
	tree_list "$R" >there
	tree_list "$V" >here
	same_tree here there
}

cat >append.py <<'END'
import os, sys
from multiprocessing import Process
top = sys.argv[1]
def run(who):
    for i in range(60):
        with open(top + "/appended", "ab", 0) as f:
            f.write(b"%02d %04d %s\n" % (who, i, b"x" * 55))
open(top + "/appended", "w").close()
all = [Process(target=run, args=(who,)) for who in range(8)]
[p.start() for p in all]
[p.join() for p in all]
lines = open(top + "/appended", "rb").read().splitlines()
assert len(lines) == 8 * 60, len(lines)
assert all and {len(line) for line in lines} == {63}
assert len(set(lines)) == len(lines)
END
test_expect 'B36 eight append to one file: no line is lost, merged or written over' '
	for top in "$N" "$V"; do
		echo a >"$top/two"
		echo b >>"$top/two"
		test "$(cat "$top/two")" = "a
b"
		python3 append.py "$top"
	done
	equal
	cmp "$V/appended" "$R/appended"
'

cat >open.py <<'END'
import os, sys, threading
top = sys.argv[1]
def run(n):
    for i in range(5):
        name, other = "%s/open%d" % (top, n), "%s/other%d" % (top, n)
        f = os.open(name, os.O_RDWR | os.O_CREAT, 0o644)
        os.write(f, b"before")
        with open(other, "w") as o:
            o.write("other")
        if i % 2:
            os.unlink(name)
        os.rename(other, name)
        assert os.fstat(f).st_nlink == 0, os.fstat(f)
        assert os.pread(f, 100, 0) == b"before"
        os.pwrite(f, b"AFTER", 6)
        os.ftruncate(f, 9)
        os.fchmod(f, 0o600)
        assert os.pread(f, 100, 0) == b"beforeAFT"
        st = os.fstat(f)
        assert (st.st_size, st.st_mode & 0o777, st.st_nlink) == (9, 0o600, 0), st
        assert open(name).read() == "other"
        os.close(f)
    os.unlink(name)
failed = []
def guarded(n):
    try:
        run(n)
    except BaseException as e:
        failed.append((n, repr(e)))
all = [threading.Thread(target=guarded, args=(n,)) for n in range(4)]
[t.start() for t in all]
[t.join() for t in all]
assert not failed, failed
END
test_expect 'B40 what is open goes on without a name, and leaves nothing' '
	python3 open.py "$N"
	python3 open.py "$V"
	equal
	test -z "$(find "$R" "$V" -name "open*" -o -name "other*" -o -name ".fuse_hidden*")"
'
test_expect 'B42 an unnamed temporary file is refused in a way that programs know' '
	python3 - "$V" <<-END
		import errno, os, sys
		try:
		    os.open(sys.argv[1], os.O_RDWR | os.O_TMPFILE, 0o600)
		except OSError as e:
		    assert e.errno == errno.EOPNOTSUPP, e
		else:
		    raise SystemExit("it can be made")
	END
	equal
'

cat >lock.py <<'END'
import fcntl, os, signal, struct, sys, time
from multiprocessing import Process
path = sys.argv[1] + "/locked"
open(path, "w").write("0")
def run(lock):
    for _ in range(15):
        with open(path, "r+") as f:
            lock(f, fcntl.LOCK_EX)
            n = int(f.read())
            f.seek(0)
            f.write(str(n + 1))
            f.flush()
            lock(f, fcntl.LOCK_UN)
for lock in fcntl.lockf, fcntl.flock:
    all = [Process(target=run, args=(lock,)) for _ in range(6)]
    [p.start() for p in all]
    [p.join() for p in all]
    assert not any(p.exitcode for p in all)
assert open(path).read() == "180", open(path).read()
# Who holds it; one that waits is woken by a signal alone; it goes with its owner.
held, ready = os.pipe()
pid = os.fork()
if pid == 0:
    f = open(path, "r+")
    fcntl.lockf(f, fcntl.LOCK_EX)
    os.write(ready, b"x")
    time.sleep(60)
    os._exit(0)
os.read(held, 1)
f = open(path, "r+")
answer = fcntl.fcntl(f, fcntl.F_GETLK, struct.pack("hhqqi4x", fcntl.F_WRLCK, 0, 0, 0, 0))
kind, _, _, _, owner = struct.unpack("hhqqi4x", answer)
assert (kind, owner) == (fcntl.F_WRLCK, pid), (kind, owner, pid)
class Woken(Exception):
    pass
def wake(*_):
    raise Woken
signal.signal(signal.SIGALRM, wake)
signal.setitimer(signal.ITIMER_REAL, 0.3)
try:
    fcntl.lockf(f, fcntl.LOCK_EX)
    raise SystemExit("got a lock that is held")
except Woken:
    pass
os.kill(pid, signal.SIGKILL)
os.waitpid(pid, 0)
fcntl.lockf(f, fcntl.LOCK_EX)
END
test_expect 'B43 locks: many take turns, a waiter is interrupted, they go with their owner' '
	python3 lock.py "$N"
	timeout 100 python3 lock.py "$V"
	equal
'

cat >wal.py <<'END'
import sqlite3, sys
from multiprocessing import Process
path, mode = sys.argv[1] + "/db", sys.argv[2]
def connect():
    c = sqlite3.connect(path, timeout=60, isolation_level=None)
    c.execute("pragma busy_timeout = 60000")
    return c
c = connect()
assert c.execute("pragma journal_mode = " + mode).fetchone()[0] == mode
c.execute("create table t (who int, n int)")
def write(who):
    c = connect()
    for n in range(40):
        c.execute("insert into t values (?, ?)", (who, n))
def read():
    c = connect()
    for _ in range(30):
        assert c.execute("pragma quick_check").fetchone()[0] == "ok"
all = [Process(target=write, args=(n,)) for n in range(3)] + [Process(target=read)]
[p.start() for p in all]
[p.join() for p in all]
assert not any(p.exitcode for p in all), [p.exitcode for p in all]
assert c.execute("select count(*) from t").fetchone()[0] == 120
if mode == "wal":
    c.execute("pragma wal_checkpoint(truncate)")
assert c.execute("pragma integrity_check").fetchone()[0] == "ok"
END
test_expect 'B44 sqlite with a write-ahead log, four processes' '
	timeout 200 python3 wal.py "$V" wal
	equal
	test "$(sqlite3 "$R/db" "pragma integrity_check; select count(*) from t" | tr "\n" " ")" = "ok 120 "
	rm -f "$V"/db*
'

cat >rows.py <<'END'
import sqlite3, sys
path, told = sys.argv[1] + "/hot", sys.argv[2]
c = sqlite3.connect(path, timeout=60)
c.execute("create table if not exists t (n int)")
first = (c.execute("select max(n) from t").fetchone()[0] or 0) + 1
for n in range(first, first + 100000):
    c.execute("insert into t values (?)", (n,))
    c.commit()
    with open(told, "a") as f:
        f.write("%d\n" % n)
END
test_expect 'B45 limbd and limb-fs are killed within transactions: what was committed is kept' '
	for who in fs limbd fs; do
		before=$(tail -n 1 told 2>/dev/null || echo 0)
		python3 rows.py "$V" told 2>rows.err &
		pid=$!
		wait_for "test \$(tail -n 1 told 2>/dev/null || echo 0) -gt $((before + 5))"
		killed $who
		kill -9 $pid || true
		wait $pid || true
		test "$(sqlite3 "$V/hot" "pragma integrity_check")" = ok
		test "$(sqlite3 "$V/hot" "select max(n) from t")" -ge "$(tail -n 1 told)"
	done
	wait_state w live
	equal
	test "$(sqlite3 "$R/hot" "pragma integrity_check")" = ok
	test "$(sqlite3 "$R/hot" "select max(n) from t")" -ge "$(tail -n 1 told)"
'
test_expect 'B46 git: a day of it, in turn on both sides; killed in the midst' '
	git init -q "$V/g"
	cd "$V/g"
	git config user.email you@example.org
	git config user.name you
	for i in $(seq 100); do echo "$i" >"f$i"; done
	git add .
	git commit -qm one
	git checkout -qb other
	echo x >f1
	git commit -qam two
	git checkout -q main
	echo y >f2
	git commit -qam three
	git rebase -q other
	git worktree add -q ../tree HEAD~1
	git repack -qad
	git gc -q --prune=now
	git fsck --strict --no-dangling
	cd "$T"
	LIMB_TIME_S=100 limb git w -C g fsck --strict --no-dangling
	limb exec w -- sh -c "cd g && echo there >f3 && git commit -qam four"
	wait_for "test \"\$(git -C \"$V/g\" log -n 1 --format=%s)\" = four"
	test -z "$(git -C "$V/g" status --porcelain)"
	for i in $(seq 100); do echo "more $i" >"$V/g/f$i"; done
	(cd "$V/g" && exec git commit -qam five) &
	pid=$!
	sleep 0.05
	kill -9 $pid || true
	wait $pid || true
	rm -f "$V/g/.git/index.lock" "$V/g/.git/HEAD.lock" "$V/g/.git/refs/heads/"*.lock
	git -C "$V/g" fsck --strict --no-dangling
	git -C "$V/g" commit -qam six || git -C "$V/g" log -n 1 --format=%s | grep five
	equal
	git -C "$R/g" fsck --strict --no-dangling
	test -z "$(git -C "$R/g" status --porcelain)"
'

cat >rename.py <<'END'
import os, shutil, sys
from multiprocessing import Process
top = sys.argv[1]
def run(who):
    base = "%s/m%d" % (top, who)
    os.makedirs(base)
    for i in range(4):
        away = "%s/.pkg%d.DELETE" % (base, i)
        os.makedirs(away + "/node_modules/x/lib")
        for j in range(4):
            with open("%s/node_modules/x/lib/%d.js" % (away, j), "w") as f:
                f.write("%d %d %d\n" % (who, i, j))
        os.rename(away, "%s/pkg%d" % (base, i))
        os.rename("%s/pkg%d/node_modules/x" % (base, i), "%s/pkg%d/x" % (base, i))
        os.rmdir("%s/pkg%d/node_modules" % (base, i))
        if i % 2:
            os.rename("%s/pkg%d" % (base, i), away)
            shutil.rmtree(away)
all = [Process(target=run, args=(n,)) for n in range(4)]
[p.start() for p in all]
[p.join() for p in all]
assert not any(p.exitcode for p in all)
END
test_expect 'B47 packages are unpacked aside, renamed and removed, four at a time' '
	mkdir "$N/npm" "$V/npm"
	python3 rename.py "$N/npm"
	timeout 100 python3 rename.py "$V/npm"
	diff -r "$N/npm" "$V/npm"
	equal
	diff -r "$N/npm" "$R/npm"
'
test_expect 'B53 what is on its way when all ends is there afterwards, or is said to be pending' '
	mkdir "$V/late"
	for i in $(seq 60); do echo "$i" >"$V/late/f$i"; done
	limb down -q
	limb up -q >/dev/null
	wait_for "mountpoint -q $V && test -e $V/late"
	wait_state w live
	for i in $(seq 60); do test "$(cat "$V/late/f$i")" = "$i"; done
	for i in $(seq 60); do echo "again $i" >"$V/late/f$i"; done
	killed fs limbd
	wait_state w live
	equal
	for i in $(seq 60); do test "$(cat "$R/late/f$i")" = "again $i"; done
'
test_expect 'B54 written aside, renamed, and renamed again while it travels: only the last name is there' '
	mkdir "$V/t" "$V/t/sub"
	for i in $(seq 60); do
		echo "$i" >"$V/t/$i.tmp"
		mv "$V/t/$i.tmp" "$V/t/$i.part"
		mv "$V/t/$i.part" "$V/t/sub/$i"
	done
	equal
	test "$(ls "$R/t/sub" | wc -l)" = 60
	test "$(find "$R/t" -type f ! -path "*/sub/*" | wc -l)" = 0
	for i in $(seq 60); do test "$(cat "$R/t/sub/$i")" = "$i"; done
'
test_expect 'B90 who writes at once in one repository loses nothing; what is pending keeps its environment' '
	for n in 1 2 3 4; do
		(
			for i in 1 2 3; do
				echo "$n $i" >"$V/g/by$n-$i"
				for _ in $(seq 200); do
					git -C "$V/g" add "by$n-$i" 2>/dev/null &&
						git -C "$V/g" commit -qm "by $n $i" "by$n-$i" 2>/dev/null && break
					sleep 0.05
				done
			done
		) &
	done
	wait $(jobs -p)
	test "$(git -C "$V/g" log --format=%s | grep -c "^by ")" = 12
	git -C "$V/g" fsck --strict --no-dangling
	equal
	limb stop w -q
	wait_state w stopped
	echo dirty >"$V/g/dirty"
	r=0
	limb rm w 2>err || r=$?
	test $r = 125
	cat err
	limb start w -q
	wait_state w live
	equal
	test "$(cat "$R/g/dirty")" = dirty
'

# Runs where the view was bound before; says at each word what it finds.
cat >inside.sh <<'END'
while read -r word; do
	if x=$(cat "$1/two" 2>&1); then echo "$word read $x" | tr '\n' ' '; else echo "$word failed: $x"; fi
	echo
done
END
if have bwrap; then
	test_expect 'B92 a sandbox that had the view bound gets a clear error or the new one; the machine is left clean' '
		printf "a\nb\n" >"$V/two"
		mkfifo words
		(exec bwrap --ro-bind / / --dev /dev --bind "$V" "$V" --die-with-parent \
			bash inside.sh "$V" <words >answers 2>&1) &
		pid=$!
		exec 5>words
		echo first >&5
		wait_for "grep -q \"first read a b\" answers"
		killed fs
		echo second >&5
		wait_for "grep -q \"^second\" answers"
		cat answers
		grep -E "second (read a b|failed: .*Transport endpoint is not connected)" answers
		test "$(bwrap --ro-bind / / --dev /dev --bind "$V" "$V" cat "$V/two" | tr "\n" " ")" = "a b "
		test "$(grep -c " $V " /proc/self/mountinfo)" = 1
		exec 5>&-
		wait $pid
		limb trust w --off
		limb trust w
		wait_for "test -e $V/two"
		# It may have been the old one yet, which goes before the new one comes.
		wait_for "test \"\$(grep -c \" $V \" /proc/self/mountinfo)\" = 1"
		wait_for "test -e $V/two"
	'
fi
test_done
