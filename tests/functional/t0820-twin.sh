#!/bin/bash
# Random operations on a writable view answer as those on its native twin do, and leave the same:
# in the view, and in the environment. SEED and OPS choose others.
. "${0%/*}/brain-lib.sh"
need fuse

export twin=$LIMB_TOP_BUILDDIR/tests/functional/twin/twin
V=$T/state/mnt/w
R=$T/r
OPS=${OPS:-2500}
SEED=${SEED:-$RANDOM}
mkdir "$R"
echo '{"view": {"write": true}}' >spec.json
brain_up
limb create w --provider local --root "$R" --spec spec.json >/dev/null
wait_for "mountpoint -q $V"
mkdir native "$V/twin"

# The seed is in the trace of what fails, and in the output of what does not.
echo "# seed $SEED"
test_expect 'the view and its twin answer the same, and hold the same' '
	"$twin" "$V/twin" native --seed "$SEED" --ops "$OPS"
'
test_expect 'so does the environment' '
	limb sync w --timeout 50 >/dev/null
	"$twin" --compare "$R/twin" native
	test "$(status_of w .counts.conflicts)" = 0
	test "$(status_of w .counts.unapplied)" = 0
	verify_equal w
'
test_done
