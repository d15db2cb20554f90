# shellcheck shell=bash
# write-lib.sh - brain-lib.sh, and environment w, made by write_up, at $R with a writable view
# at $V.
. "${0%/*}/brain-lib.sh"
need fuse

V=$T/state/mnt/w
R=$T/r
export V R
mkdir "$R"
echo '{"view": {"write": true}}' >spec.json

write_up() {
	brain_up
	limb create w --provider local --root "$R" --spec spec.json >/dev/null
	wait_for "mountpoint -q $V"
}

# arrived SECONDS: all that was written is in the environment, and nothing of it was lost or refused.
arrived() {
	limb sync w --timeout "$1" >/dev/null
	test "$(status_of w .counts.conflicts)" = 0
	test "$(status_of w .counts.unapplied)" = 0
}

# killed WHO...: fs, limbd or both are, at once; returns when the view is served again. What the
# kernel has in its cache is there also while nobody serves it, so it proves nothing. (Not a
# function: other programs call it, too.)
cat >"$T/bin/killed" <<END
#!/bin/bash
set -e
fs=\$(limb inspect w --json | jq -r .pids.fs)
limbd=\$({ limb status --json || true; } | jq -r .limbd.pid)
pids=
for who; do pids="\$pids \${!who}"; done
kill -9 \$pids
limb up -q >/dev/null
for _ in \$(seq 3000); do
	now=\$(limb inspect w --json | jq -r .pids.fs)
	view=\$({ limb status w --json || true; } | jq -r '.environments[0].view')
	case " \$* " in
	*" fs "*) [ "\$now" != "\$fs" ] ;;
	esac && [ "\$now" != null ] && [ "\$view" = mounted ] && test -e "$V/." && exit 0
	sleep 0.02
done
echo "view of w: \$view, limb-fs was \$fs, is \$now" >&2
exit 1
END
chmod 755 "$T/bin/killed"

# What is said of it in logs.
allow_killed() {
	allow_error 'limb-fs ended|its view is absent|went away|transport endpoint|process .* ended'
}
