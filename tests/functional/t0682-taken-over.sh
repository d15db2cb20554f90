#!/bin/bash
# A limb-ingest that was taken over gets no content of another environment, not by its hash
# either, and no file; its environment is cut off, and limbd goes on.
. "${0%/*}/liar-lib.sh"

# limbd finds its helpers beside itself: a tree like ours, but for limb-ingest.
mkdir -p "$T/tree/brain"
cp "$LIMB_TOP_BUILDDIR/brain/limbd" "${hostile%/*}/limb-ingest-rogue" "$T/tree/brain"
mv "$T/tree/brain/limb-ingest-rogue" "$T/tree/brain/limb-ingest"
ln -s "$LIMB_TOP_BUILDDIR"/{bridge,fs,journal,providers,syncd} "$T/tree"
echo "$LIMB_TOP_BUILDDIR/brain/limb-ingest" >"$T/tree/brain/real"

liar "$T/tree/brain/known"

mkdir -p "$LIMB_STATE"
run_bg limbd "$T/tree/brain/limbd" --state "$LIMB_STATE" --mount "$LIMB_STATE/mnt" --foreground
wait_for 'limb status' || test_result 'not ok' 'limbd runs'
at_exit 'limb down --stop >/dev/null'

test_expect 'an environment with a secret, and one beside it' '
	limb create good --provider local
	limb exec good -- sh -c "echo needle-\$(head -c 18 /dev/urandom | base64 | tr -d /+=) >secret"
	limb cp good:secret secret
	limb create bad --provider "$T/liar"
	limb sync bad --timeout 20
	pid_of bad limbd >limbd.pid
	inspect_of bad .id | tr -d - >bad.id
'

# taken_over HOW [REASON]
taken_over() {
	test_expect "it tries by $1: ${2:-nothing} comes of it" "
		echo $1 \$(cat bad.id) \$(sha256sum <secret | cut -d' ' -f1) \$(stat -c %s secret) \$(head -c 12 secret) >tree/brain/orders
		: >limbd.log
		kill_9 \"\$(pid_of bad transport)\"
		wait_for -t 60 'grep -q \"rogue: tried\" limbd.log || test \"\$(state_of bad)\" = hostile'
		${2:+wait_state bad hostile}
		${2:+status_of bad .reasons | grep '$2'}
		rm tree/brain/orders
		refute grep LEAK limbd.log
		refute limb cp bad:d/stolen -
		limb start bad
		wait_state bad live
		test \"\$(cat limbd.pid)\" = \"\$(pid_of bad limbd)\"
		test \"\$(limb exec good -- cat secret)\" = \"\$(cat secret)\"
	"
}
taken_over claim 'did not send'
taken_over garbage 'not what it says'
taken_over list 'not its own'
taken_over early 'did not send'
taken_over pull
# What it may not call ends it.
test_expect 'it tries to read files: it is ended, and nothing comes of it' '
	echo files $(cat bad.id) $(sha256sum <secret | cut -d" " -f1) 31 needle >tree/brain/orders
	: >limbd.log
	kill_9 "$(pid_of bad transport)"
	wait_for -t 60 "grep -q \"rogue: refused\" limbd.log"
	rm tree/brain/orders
	refute grep "rogue: tried" limbd.log
	refute grep LEAK limbd.log
	limb start bad
	wait_state bad live
	test "$(cat limbd.pid)" = "$(pid_of bad limbd)"
'

allow_error '^limb-ingest: error'
test_done
