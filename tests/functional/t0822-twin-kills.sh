#!/bin/bash
# Random operations on a writable view and on its native twin end alike also while the
# environment's side writes other files, and through kill -9 of limb-fs and of limbd: what was
# answered is there, in the view and then in the environment. SEED and OPS choose others.
. "${0%/*}/brain-lib.sh"
need fuse

export twin=$LIMB_TOP_BUILDDIR/tests/functional/twin/twin
V=$T/state/mnt/w
R=$T/r
OPS=${OPS:-1200}
SEED=${SEED:-$RANDOM}
mkdir "$R"
echo '{"view": {"write": true}}' >spec.json
brain_up
allow_error 'limb-fs ended|its view is absent|went away|transport endpoint|process .* ended'
limb create w --provider local --root "$R" --spec spec.json >/dev/null
wait_for "mountpoint -q $V"

# kill.sh fs|limbd DIR: until the view has DIR again.
cat >kill.sh <<END
#!/bin/bash
set -e
if [ \$1 = fs ]; then
	pid=\$(limb inspect w --json | jq -r .pids.fs)
else
	pid=\$({ limb status --json || true; } | jq -r .limbd.pid)
fi
kill -9 \$pid
limb up -q >/dev/null
for i in \$(seq 3000); do
	[ "\$(limb inspect w --json | jq -r .pids.fs)" = "\$pid" ] || ! test -d $V/\$2 || exit 0
	sleep 0.02
done
exit 1
END
chmod 755 kill.sh

# run NAME ARG...: a twin of its own
run() {
	local name=$1
	shift
	mkdir -p "native-$name" "$V/$name"
	"$twin" "$V/$name" "native-$name" --seed "$SEED" --ops "$OPS" "$@"
	wait_state w live
	limb sync w --timeout 50 >/dev/null
	"$twin" --compare "$R/$name" "native-$name"
	test "$(status_of w .counts.conflicts)" = 0
	test "$(status_of w .counts.unapplied)" = 0
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
	run env || { kill $!; false; }
	kill $!
'
test_expect 'through kill -9 of limb-fs' 'run fs --every $((OPS / 4)) "$T/kill.sh fs fs"'
test_expect 'through kill -9 of limbd, with files open' '
	run limbd --hold --every $((OPS / 4)) "$T/kill.sh limbd limbd"
'
test_expect 'both sides are equal' 'verify_equal w'
test_done
