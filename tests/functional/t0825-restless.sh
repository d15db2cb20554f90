#!/bin/bash
# A file in the environment that never rests holds up nothing else: what is copied, moved, removed,
# edited, restored there, and what was written in the view.
. "${0%/*}/write-lib.sh"
need python3
write_up

# Too large to be read between two writes.
cat >busy.py <<END
import os, random
while True:
    f = os.open("r/busy", os.O_RDWR)
    for _ in range(100):
        os.pwrite(f, os.urandom(64), random.randrange(48 << 20))
    os.close(f)
END
dd if=/dev/zero of=r/busy bs=1M count=48 status=none
echo old >r/old
limb sync w >/dev/null
limb label w before >/dev/null
run_bg busy python3 busy.py
wait_for '! limb sync w --timeout 2'

test_expect 'files are copied, moved, removed and restored at once' '
	echo hello >hello
	before=$SECONDS
	limb cp hello w:hello
	limb mv w:hello w:there
	limb rm w:there
	echo new >r/old
	limb restore w old --at before >/dev/null
	test "$(cat r/old)" = old
	test $((SECONDS - before)) -lt 30
'
test_expect 'it is said of the file itself that it cannot be synced' '
	head -c 48M /dev/zero >zeros
	refute limb cp zeros w:busy 2>err
	grep "without a rest.*cannot be synced" err
'
test_expect 'what is written in the view arrives' '
	echo from the view >"$V/a"
	mv "$V/a" "$V/b"
	wait_for "test -e r/b"
	echo again >"$V/c"
	wait_for "test -e r/c"
	rm "$V/c"
	wait_for "! test -e r/c"
'
test_expect 'when it rests all is in step' '
	stop_bg busy
	limb sync w >/dev/null
	verify_equal w
'
test_done
