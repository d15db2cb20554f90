#!/bin/bash
# A create or a move to another machine that fails half-way says what stays in a directory that
# a person named there, and whatever fails has the remedy of that failure.
. "${0%/*}/ssh-lib.sh"
need root mount
ssh_up
brain_up
mkdir from "$T/small"
for i in 1 2 3 4 5 6; do
	head -c 1000000 /dev/urandom >"from/$i"
done
at_exit "umount -q '$T/small'; true"
mount -t tmpfs -o size=3m none "$T/small"
mkdir "$T/small/root"

fails() {
	local - regex=$1
	set +x
	shift
	expect_code 125 "$@" >out 2>err
	grep -qE -- "$regex" err || { cat err; return 1; }
	[ "$(wc -l <err)" = 1 ]
}
test_expect 'create: what stays is said, and nothing else stays' '
	fails "o space.*what was copied to .$T/small/root. there stays: empty it" \
		limb create r --provider "ssh:box:$T/small/root" --from from
	wait_for "! limb inspect r --json"
	wait_for "test -z \"\$(ls \"\$LIMB_STATE/envs\")\""
	wait_for "test -z \"\$(ls -A \"$far/.local/share/limbfs\" 2>/dev/null)\""
'
test_expect 'once that is done it goes' '
	find "$T/small/root" -mindepth 1 -delete
	rm from/[3-6]
	limb create r --provider "ssh:box:$T/small/root" --from from
	verify_equal r
	limb rm r --force
	find "$T/small/root" -mindepth 1 -delete
'
test_expect 'of a directory of limbfs nothing stays to be said' '
	head -c 60000000 /dev/zero | tr "\\0" x >from/big
	mount -t tmpfs -o size=24m none "$far"
	at_exit "umount -q \"$far\"; true"
	fails "o space" limb create r --provider ssh:box --from from
	refute grep "what was copied" err
	umount "$far"
	rm from/big
'
test_expect 'a move: it is where it was' '
	for i in 3 4 5 6; do head -c 1000000 /dev/urandom >"from/$i"; done
	limb create m --provider local --from from
	fails "what was copied to .$T/small/root. there stays.*it is where it was" \
		limb migrate m --to "ssh:box:$T/small/root"
	verify_equal m
	limb rm m
'
test_expect 'a refusal names the directory, and its remedy is not about something else' '
	mkdir -p "$T/full/x"
	fails "$T/full. there: it is not empty; empty it" \
		limb create r --provider "ssh:box:$T/full" --from from
	printf "%s\n" "Host nowhere" "HostName 127.0.0.1" "Port 1" >>"$ssh_dir/config"
	fails "make this work first: ssh" limb create r --provider ssh:nowhere --from from
'
test_done
