#!/bin/bash
# Random operations on a writable view answer as those on its native twin do, and leave the same:
# in the view, and in the environment. SEED and OPS choose others.
. "${0%/*}/write-lib.sh"

export twin=$LIMB_TOP_BUILDDIR/tests/functional/twin/twin
OPS=${OPS:-2500}
SEED=${SEED:-$RANDOM}
write_up
mkdir native "$V/twin"

# The seed is in the trace of what fails, and in the output of what does not.
echo "# seed $SEED"
test_expect 'the view and its twin answer the same, and hold the same' '
	"$twin" "$V/twin" native --seed "$SEED" --ops "$OPS"
'
test_expect 'so does the environment' '
	arrived 50
	"$twin" --compare "$R/twin" native
	verify_equal w
'
test_done
