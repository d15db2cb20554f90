#!/bin/bash
# A database that is written all the time, its sandbox lost: the last consistent point holds a
# whole database with everything that was committed before it.
#
# ROUNDS=N: so many times with check-long (200), else 2 times a journal mode.
. "${0%/*}/brain-lib.sh"
need bwrap sqlite3
rounds=2
! have long || rounds=$((${ROUNDS:-200} / 2))

query() {
	limb exec box -- sqlite3 -cmd '.timeout 20000' db "$@"
}
cat >writer <<'END'
# Transactions without an end: rows that go, rows that change, rows that come, in many pages.
i=0
while :; do
	i=$((i + 1))
	sqlite3 -cmd '.timeout 20000' db "begin;
		insert into log values ($i);
		insert into data select abs(random()) % 100000, randomblob(700) from log limit 30;
		update data set b = randomblob(900) where k % 7 = $i % 7;
		delete from data where k % 11 = $i % 11;
		commit;" || exit
done
END
brain_up
for mode in delete wal; do
	export mode
	test_expect "sqlite, journal mode $mode: $rounds times under load, killed, rebuilt at the consistent point" '
		limb create box --provider bwrap >/dev/null
		root=$(root_of box)
		cp writer "$root/writer"
		limb sync box
		query "pragma journal_mode = $mode; create table log(i integer); create table data(k integer, b blob);"
		for round in $(seq "$rounds"); do
			job=$(limb exec box -d -- sh writer)
			wait_for "test \$(query \"select count(*) from log\") -gt $((round * 3))"
			committed=$(query "select count(*) from log")
			limb sync box --freeze --json | jq -e .consistent
			more=$(query "select count(*) from log")
			wait_for "test \$(query \"select count(*) from log\") -gt $more"
			root=$(root_of box)
			mv "$root" "$root.gone"
			kill_9 "$(pid_of box init)"
			rm -rf "$root.gone"
			wait_state box halted
			LIMB_TIME_S=120 limb rebuild box --at consistent --json >rebuilt
			jq -e .equal rebuilt
			test "$(query "pragma integrity_check")" = ok
			test "$(query "select count(*) from log")" -ge "$committed"
			expect_code 125 limb wait "$job" 2>/dev/null
		done
		limb rm box
	'
done
test_done
