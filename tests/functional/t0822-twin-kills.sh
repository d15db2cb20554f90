#!/bin/bash
# Random operations on a writable view and on its native twin end alike also while the
# environment's side writes other files, and through kill -9 of limb-fs and of limbd: what was
# answered is there, in the view and then in the environment. SEED and OPS choose others.
. "${0%/*}/write-lib.sh"

export twin=$LIMB_TOP_BUILDDIR/tests/functional/twin/twin
OPS=${OPS:-1200}
SEED=${SEED:-$RANDOM}
allow_killed
write_up

# run NAME ARG...: a twin of its own
run() {
	local name=$1
	shift
	mkdir -p "native-$name" "$V/$name"
	"$twin" "$V/$name" "native-$name" --seed "$SEED" --ops "$OPS" "$@"
	wait_state w live
	arrived 50
	"$twin" --compare "$R/$name" "native-$name"
}

others() {
	for i in $(seq 100000); do
		echo "$i" >"$R/env/env.$((i % 7))"
		mv "$R/env/env.$((i % 7))" "$R/env/env.x$((i % 3))"
		mkdir -p "$R/env.d/$((i % 4))/y"
		rm -rf "$R/env.d/$(((i + 2) % 4))" "$R/env/env.x$((i % 5))"
	done
}

echo "# seed $SEED"
test_expect 'while the environment writes other files' '
	mkdir "$R/env"
	wait_for "test -d $V/env"
	others 2>/dev/null &
	trap "kill $!" EXIT
	run env
'
test_expect 'through kill -9 of limb-fs' 'run fs --every $((OPS / 4)) "killed fs"'
test_expect 'through kill -9 of limbd, with files open' '
	run limbd --hold --every $((OPS / 4)) "killed limbd"
'
test_expect 'both sides are equal' 'verify_equal w'
test_done
