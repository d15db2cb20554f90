#!/bin/bash
# kill -9 of limbd, of limb-fs or of both while programs write in the view: everything that
# returned is in the environment afterwards, once and in order.
. "${0%/*}/write-lib.sh"
allow_killed
write_up

rounds=3
! have long || rounds=30

# Says what returned: one line for each file whose fsync, or whose rename, did.
cat >writer.py <<'END'
import os, sys
view, told, first = sys.argv[1], sys.argv[2], int(sys.argv[3])
log = os.open(told, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
try:
    lines = os.open(view + "/lines", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    for i in range(first, first + 100000):
        data = b"%d\n" % i * (i % 50 + 1)
        f = os.open(view + "/temp", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
        os.write(f, data)
        if i % 3:
            os.fsync(f)
        os.close(f)
        os.rename(view + "/temp", view + "/f%d" % i)
        os.write(lines, b"%d\n" % i)
        os.write(log, b"%d\n" % i)
except OSError as e:
    os.write(2, b"writer: %s\n" % str(e).encode())
END

cat >check.py <<'END'
import sys
root, told = sys.argv[1], [int(i) for i in open(sys.argv[2])]
bad = [i for i in told if open(root + "/f%d" % i).read() != "%d\n" % i * (i % 50 + 1)]
lines = [int(i) for i in open(root + "/lines")]
assert not bad, ("not what was written", bad)
assert len(set(lines)) == len(lines), "a line twice"
assert set(told) <= set(lines), ("missing", sorted(set(told) - set(lines)))
assert lines == sorted(lines), "not in order"
END

check() {
	arrived 120
	python3 check.py "$R" told
	cmp "$V/lines" "$R/lines"
}

# during WHO: writes until it dies, brings it back, and looks.
during() {
	local who=$1 pid

	for _ in $(seq "$rounds"); do
		first=$(($(tail -n 1 told 2>/dev/null || echo 0) + 2)) # one more may be there unsaid
		python3 writer.py "$V" told "$first" 2>writer.err &
		pid=$!
		wait_for "test \$(tail -n 1 told 2>/dev/null || echo 0) -gt $((first + 20 + RANDOM % 20))"
		# shellcheck disable=SC2086 # several
		killed $who
		test "$who" = limbd || wait "$pid" || true
		test "$who" != limbd || wait_for "test \$(tail -n 1 told) -gt $((first + 60))"
		kill "$pid" 2>/dev/null || true
		wait "$pid" 2>/dev/null || true
		wait_state w live
		check
	done
}

test_expect 'limbd is killed' 'during limbd'
test_expect 'limb-fs is killed' 'during fs'
test_expect 'both are' 'during "limbd fs"'
test_expect 'what is half written when limb-fs is killed is there, too' '
	exec 5>"$V/half"
	echo one >&5
	kill -9 "$(pid_of w fs)"
	exec 5>&- || true
	wait_for "test -e $V/half"
	test "$(cat "$V/half")" = one
	limb sync w >/dev/null
	test "$(cat "$R/half")" = one
'
test_expect 'both sides are equal' 'verify_equal w'
test_done
