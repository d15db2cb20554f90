#!/bin/bash
# A large file that is written all the time, at its end and in its middle, holds nobody up:
# commands run, other files come through, and what is read of it is a version that it had, or is
# said to be of several moments.
. "${0%/*}/mcp-lib.sh"
need python3

brain_up
limb create g --provider local >/dev/null
R=$(root_of g)
export R
head -c 16777216 /dev/zero >"$R/big"
echo one >"$R/other"
limb sync g >/dev/null

# 4 KB at a time, about one a millisecond; each 16 of them the block in the middle says how many
# there are.
cat >writer <<'END'
import os, sys, time
f = os.open(sys.argv[1], os.O_RDWR)
n = 0
while not os.path.exists('stop'):
    if n % 16 == 0:
        os.pwrite(f, b'%4096d' % n, 8 << 20)
    n += 1
    os.pwrite(f, b'%4096d' % n, (16 << 20) + (n - 1) * 4096)
    time.sleep(0.001)
END
cat >judge <<'END'
import sys
b = open(sys.argv[1], 'rb').read()
n = (len(b) - (16 << 20)) // 4096
middle = int(b[8 << 20:(8 << 20) + 4096].strip(b'\0') or b'0')
blocks = [int(b[(16 << 20) + i * 4096:(16 << 20) + (i + 1) * 4096]) for i in range(n)]
print('blocks', n, 'middle', middle, *sys.argv[2:])
assert len(b) % 4096 == 0 and blocks == list(range(1, n + 1))
# The middle is written before the block that counts it. Of a mixture it is that, or a newer one.
if sys.argv[2:] == ['changing']:
    assert middle % 16 == 0 and middle >= (n - 1) // 16 * 16
else:
    assert middle in (n // 16 * 16, (n - 1) // 16 * 16)
END
run_bg writer python3 writer "$R/big"
# "Meanwhile" is not before it has begun.
wait_for 'test "$(stat -c %s "$R/big")" -gt 16777216' || exit 99
test_expect 'B23 commands run while a large file grows and changes' '
	for n in 1 2; do
		LIMB_TIME_S=20 limb exec g -- true
	done
'
test_expect 'B23 another file comes through meanwhile, both ways' '
	echo two >"$R/other"
	LIMB_TIME_S=60 limb cp --json g:big copy >answer 2>told &
	big=$!
	echo three | LIMB_TIME_S=60 limb cp - g:third >/dev/null 2>&1 &
	echo $! >third.pid
	wait_for "grep -qx three \"$R/third\""
	wait_for "limb journal dump g | grep third >/dev/null"
	test "$(LIMB_TIME_S=30 limb cp g:other -)" = two
	# It is not as it should be, or was for a moment.
	r=0
	LIMB_TIME_S=20 limb why g big || r=$?
	test $r -le 1
	wait $big
'
test_expect 'B23 what is read of it meanwhile is a version that it had, or is said to be none' '
	cat answer told
	test "$(stat -c %s copy)" -gt 16777216
	n=$(jq ".changing // 0" answer)
	said=$(grep -c "changed while it was read" told || true)
	test "$n" = "$said"
	if test "$n" = 0; then
		python3 judge copy
	else
		python3 judge copy changing
	fi
'
test_expect 'B23 each version that was read while it changed is said to be one, whoever asks' '
	limb journal dump g >dump
	seq=$(grep "\"torn\":true" dump | tail -n 1 | cut -d" " -f1)
	limb cp --json "g@$seq:big" then 2>told | jq -e ".changing == 1"
	grep -q "g:big.*changed while it was read" told
	limb cp "g@$seq:big" - 2>told >again
	cmp then again
	grep -q "changed while it was read" told
	limb cp --json "g@$seq:." all 2>told | jq -e ".changing == 1"
	grep -q "1 of its files changed" told
	mcp_open
	hello
	tool 1 read_file "{\"environment\":\"g\",\"path\":\"big\",\"point\":\"$seq\",\"limit\":1}" >/dev/null
	jq -e ".result.structuredContent.changing == true" answer
	jq -r ".result.content[].text" answer | grep "changed while it was read"
	tool 2 read_file "{\"environment\":\"g\",\"path\":\"other\"}"
	jq -e ".result.structuredContent | has(\"changing\") | not" answer
	mcp_close
'
test_expect 'B23 when it is left alone it is the same on both sides' '
	touch stop
	LIMB_TIME_S=60 limb sync g
	wait_for "test_gone $(cat third.pid)"
	verify_equal g
	limb cp --json g:big last 2>told | jq -e "has(\"changing\") | not"
	test ! -s told
	cmp last "$R/big"
	python3 judge last
'
touch stop
stop_bg writer
test_done
