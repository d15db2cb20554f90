#!/bin/bash
# When a call in a writable view returns is a matter of its class. Strong: when the environment
# has it, with its errno if it refuses, and at once with one while it is away. Eventual: what
# is written is not waited for, and while it is away only the last of it counts.
. "${0%/*}/away-lib.sh"
need fuse python3 getfattr
brain_up
away_view '{"view": {"write": true}, "class": "strong"}'

# class PATH CLASS: it is of that one
class() {
	test "$(getfattr --absolute-names --only-values -n user.limb.class "$V/$1")" = "$2"
}
# how often the kernel has asked for a directory
mkdirs() {
	getfattr --absolute-names --only-values -n user.limb.messages "$V" | tr ' ' '\n' |
		sed -n 's/^9://p'
}
# how many changes of the log have been taken in
intents() {
	limb journal dump box --json |
		jq -s "[.[] | select(.type == \"intent\" and .path == \"logs/sub/l\")] | length"
}
# fails ERRNO CODE: the Python code ends with that one, from the system
cat >"$T/bin/fails" <<'END'
#!/usr/bin/python3
import errno, os, signal, sys, time
V, R = os.environ["V"], os.environ["R"]
try:
    exec(sys.argv[2])
except OSError as e:
    if e.errno == getattr(errno, sys.argv[1]):
        sys.exit(0)
    raise
sys.exit("it was done")
END
chmod 755 "$T/bin/fails"

test_expect 'strong: what has returned is in the environment' '
	wait_for "class . strong"
	cat >strong.py <<"END"
import os, stat
V, R = os.environ["V"], os.environ["R"]
def there(name):
    return open(R + "/" + name).read()
os.mkdir(V + "/d", 0o750)
assert stat.S_IMODE(os.stat(R + "/d").st_mode) == 0o750
fd = os.open(V + "/d/f", os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o640)
assert there("d/f") == ""
os.write(fd, b"one")
assert there("d/f") == "one"
os.pwrite(fd, b"ON", 0)
assert there("d/f") == "ONe"
os.ftruncate(fd, 2)
assert there("d/f") == "ON"
os.fchmod(fd, 0o604)
assert stat.S_IMODE(os.stat(R + "/d/f").st_mode) == 0o604
os.utime(fd, ns=(10**18 + 1, 10**18 + 1))
assert os.stat(R + "/d/f").st_mtime_ns == 10**18 + 1
os.setxattr(fd, "user.x", b"y")
os.close(fd)
os.link(V + "/d/f", V + "/d/g")
assert os.stat(R + "/d/f").st_ino == os.stat(R + "/d/g").st_ino
os.symlink("f", V + "/d/s")
assert os.readlink(R + "/d/s") == "f"
os.rename(V + "/d", V + "/e")
assert there("e/g") == "ON" and not os.path.exists(R + "/d")
os.unlink(V + "/e/g")
assert not os.path.exists(R + "/e/g") and os.path.exists(R + "/e/f")
for n in ("f", "s"):
    os.unlink(V + "/e/" + n)
os.rmdir(V + "/e")
assert not os.path.exists(R + "/e")
END
	python3 strong.py
	drained box
'
# More of them than limb-fs has threads, each in a directory of its own, as the kernel has one at a
# time in a directory.
test_expect 'strong: who waits keeps nobody from reading, and can be interrupted' '
	for i in $(seq 13); do mkdir "$V/p$i"; done
	echo seen >"$V/p1/seen"
	before=$(mkdirs)
	stopped=$(pgrep -f "limb-syncd daemon --dir $T/far/box/")
	kill -STOP $stopped
	pids=
	for i in $(seq 12); do
		mkdir "$V/p$i/w" &
		pids="$pids $!"
	done
	fails EINTR "signal.signal(signal.SIGTERM, lambda *_: None); os.mkdir(V + \"/p13/w\")" &
	late=$!
	wait_for "test \$(mkdirs) = $((before + 13))"
	test "$(timeout 20 cat "$V/p1/seen")" = seen
	timeout 20 ls -l "$V" >/dev/null
	kill -TERM $late
	wait $late
	kill -CONT $stopped
	wait $pids
	for i in $(seq 12); do test -d "$R/p$i/w"; done
	wait_for "test -d $R/p13/w"
	test -d "$V/p13/w"
'
test_expect 'strong: when limbd dies who waits hears that nobody knows, and the change arrives' '
	before=$(mkdirs)
	kill -STOP $(pgrep -f "limb-syncd daemon --dir $T/far/box/")
	fails ETIMEDOUT "os.mkdir(V + \"/p1/unsure\")" &
	wait_for "test \$(mkdirs) = $((before + 1))"
	kill_9 "$(pid_of box limbd)"
	wait $!
	kill -CONT $(pgrep -f "limb-syncd daemon --dir $T/far/box/")
	wait_for "test -d $V/p1/unsure"
	limb up -q >/dev/null
	wait_for "test -d $R/p1/unsure"
	wait_state box live
	wait_for "test \"\$(getfattr --absolute-names --only-values -n user.limb.state $V)\" = live"
'
if have immutable; then
	test_expect 'strong: what the environment refuses the caller hears, and nothing is left of it' '
		mkdir "$V/fixed"
		echo x >"$V/fixed/old"
		chattr +i "$R/fixed"
		fails EPERM "os.mkdir(V + \"/fixed/d\")"
		fails EPERM "os.unlink(V + \"/fixed/old\")"
		chattr -i "$R/fixed"
		test "$(status_of box .counts.unapplied)" = 0
		wait_for "test ! -e $V/fixed/d && test -e $V/fixed/old"
		mkdir "$V/fixed/d"
		test -d "$R/fixed/d"
	'
else
	test_skip 'strong: what the environment refuses the caller hears' 'no file can be made immutable here'
fi
test_expect 'classes of paths: the last pattern that meets the nearest name' '
	limb set box class=ordered "class=strong:*.db" "class=eventual:/logs/" "class=strong:/logs/must" --json >out
	jq -e ".class == \"ordered\" and (.spec.classes | length) == 3" out
	mkdir -p "$V/logs/sub"
	echo x | tee "$V/a" "$V/a.db" "$V/logs/sub/l" "$V/logs/must" >/dev/null
	test "$(cat "$R/a.db" "$R/logs/must")" = "x
x"
	wait_for "class a ordered"
	class a.db strong
	class logs eventual
	class logs/sub/l eventual
	class logs/must strong
	mv "$V/a" "$V/b.db"
	test "$(cat "$R/b.db")" = x
	limb set box class=:/logs/must >/dev/null
	wait_for "class logs/must eventual"
'
test_expect 'away: strong is refused at once and nothing is kept, ordered waits, eventual does not' '
	echo new >"$V/plain"
	limb sync box >/dev/null
	away box
	wait_for "test \"\$(getfattr --absolute-names --only-values -n user.limb.state $V)\" = away"
	# Its own, of which it told last.
	left=$(status_of box .counts.pending_changes)
	fails EHOSTUNREACH "os.mkdir(V + \"/d.db\")"
	fails EHOSTUNREACH "os.truncate(V + \"/a.db\", 0)"
	fails EHOSTUNREACH "os.write(os.open(V + \"/a.db\", os.O_WRONLY), b\"y\")"
	fails EHOSTUNREACH "os.rename(V + \"/plain\", V + \"/plain.db\")"
	fails EHOSTUNREACH "os.unlink(V + \"/b.db\")"
	test ! -e "$V/d.db"
	test "$(cat "$V/a.db" "$V/b.db")" = "x
x"
	test "$(status_of box .counts.pending_changes)" = "$left"
	intents >before
	for i in 1 2 3; do
		echo "log $i" >>"$V/logs/sub/l"
		echo "plain $i" >"$V/plain"
		wait_for "test \$(status_of box .counts.pending_changes) -ge $((left + i))"
	done
	test "$(intents)" = "$(cat before)"
	test "$(tail -n 1 "$V/logs/sub/l")" = "log 3"
	back box
	wait_for "test \"\$(tail -n 1 $R/logs/sub/l)\" = \"log 3\""
	test "$(intents)" = $(($(cat before) + 1))
	limb sync box >/dev/null
	test "$(cat "$R/plain")" = "plain 3"
	test "$(status_of box .counts.conflicts)" = 0
	test "$(status_of box .counts.unapplied)" = 0
	limb set box class=strong >/dev/null
	wait_for "class . strong"
	mkdir "$V/again"
	test -d "$R/again"
'
test_expect 'what waits for longer than the spec says makes writers wait, and then hear it' '
	echo "{\"view\": {\"write\": true, \"wait_s\": 1}}" >spec.json
	limb create old --provider "command:$T/bin/far old" --spec spec.json >/dev/null
	limb trust old >/dev/null
	V=$T/state/mnt/old
	wait_for "mkdir $V/first"
	limb sync old >/dev/null
	away old
	fails EDQUOT "[(os.mkdir(V + \"/d%d\" % i), time.sleep(.1)) for i in range(300)]"
	test -d "$V/d0"
	back old
	limb sync old >/dev/null
	test -d "$(away_root old)/d0"
	wait_for "mkdir $V/second"
'
test_done
