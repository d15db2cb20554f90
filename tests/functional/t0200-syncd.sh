#!/bin/bash
# limb-syncd needs nothing but itself: it attaches, is started again, and ends with all that it
# started, in a tree that holds only it and busybox.
. "${0%/*}/lib.sh"
need bwrap busybox

syncd=$(command -v limb-syncd)
env_id=00112233445566778899aabbccddeeff
# With sanitizers it is linked dynamically: then the tree holds the machine's libraries, too.
libraries=()
if ldd "$syncd" >/dev/null 2>&1; then
	for dir in /lib /lib64 /usr/lib; do
		[ ! -d $dir ] || libraries+=(--ro-bind "$dir" "$dir")
	done
fi

mkdir "$T/run" "$T/root"
box=(bwrap --bind "$T/root" /w --bind "$T/run" /run "${libraries[@]}"
	--ro-bind "$syncd" /bin/limb-syncd --ro-bind "$(command -v busybox)" /bin/busybox
	--proc /proc --dev /dev --unshare-pid --die-with-parent --setenv PATH /bin
	--setenv LIMB_TEST_ID "$LIMB_TEST_ID")
# With another number, bwrap would put a second user namespace into the one that owns the rest.
[ "$(id -u)" = 0 ] || box+=(--unshare-user --uid 0 --gid 0)
args=(--dir /run/d --root /w --env "$env_id")

# stream_start COMMAND...: the first 16 bytes are the start mark of the wire; it ends with its
# stdin.
stream_start() {
	local got pid
	rm -f "$T/in" "$T/out"
	mkfifo "$T/in" "$T/out"
	"$@" <"$T/in" >"$T/out" 2>>"$T/stream.log" &
	pid=$!
	exec 8>"$T/in"
	got=$(timeout 20 head -c 16 <"$T/out" | od -An -c | tr -d ' \n')
	exec 8>&-
	wait "$pid"
	test "$got" = '\0LIMB-WIRE-0001\n'
}

test_expect 'it is static' '
	if [ ${#libraries[@]} = 0 ]; then
		file "$syncd" | grep "statically linked"
	fi
	limb-syncd version | grep -E "^limb-syncd [0-9.]+ sha256:[0-9a-f]{64}$"
	test "$(limb-syncd version | sed "s/.*sha256://")" = "$(sha256sum "$syncd" | cut -d" " -f1)"
'

test_expect 'wrong arguments are refused with status 2' '
	expect_code 2 limb-syncd
	expect_code 2 limb-syncd daemon --dir "$T/x" --root "$T/root"
	expect_code 2 limb-syncd attach --dir "$T/x" --root "$T/root" --env 12
	expect_code 2 limb-syncd stop
	expect_code 0 limb-syncd stop --dir "$T/nowhere"
	test ! -e "$T/nowhere"
'

test_expect 'an attach starts the daemon in a bare tree' '
	stream_start "${box[@]}" -- limb-syncd attach "${args[@]}"
	wait_for "test_none_left"
'

if ldd "$syncd" >/dev/null 2>&1; then
	test_skip 'also without /proc and /dev' 'built with sanitizers, which need /proc'
else
	test_expect 'also without /proc and /dev' '
		bare=()
		for arg in "${box[@]}"; do
			case $arg in --proc | /proc | --dev | /dev) ;; *) bare+=("$arg") ;; esac
		done
		stream_start "${bare[@]}" -- /bin/limb-syncd attach "${args[@]}"
		wait_for "test_none_left"
	'
fi

run_bg init "${box[@]}" --as-pid-1 -- limb-syncd init "${args[@]}"

inside() {
	local init name how=()
	init=$(pgrep -P "$(cat "$T/init.pid")")
	[ "$(id -u)" = 0 ] || how=(--preserve-credentials)
	# Those that are its own: others are not a user's to enter.
	for name in user mnt pid ipc uts net; do
		[ "/proc/self/ns/$name" -ef "/proc/$init/ns/$name" ] || how+=("--${name/mnt/mount}")
	done
	nsenter -t "$init" "${how[@]}" "$@"
}

daemon_pid() {
	inside /bin/busybox ps -o pid,args | awk '$2 == "limb-syncd" && $3 == "daemon" { print $1 }'
}

test_expect 'init starts the daemon, and starts it again' '
	wait_for "test -n \"\$(daemon_pid)\""
	first=$(daemon_pid)
	test -n "$first"
	stream_start inside /bin/limb-syncd attach "${args[@]}" --wait
	inside /bin/busybox kill -9 "$first"
	wait_for "test -n \"\$(daemon_pid)\""
	test "$first" != "$(daemon_pid)"
	stream_start inside /bin/limb-syncd attach "${args[@]}" --wait
'

test_expect 'init reaps what nobody else does' '
	inside /bin/busybox sh -c "(/bin/busybox sleep 0.1 &) ; (/bin/busybox sleep 0.2 &)"
	wait_for "inside /bin/busybox ps -o stat,comm | refute grep sleep"
'

test_expect 'a second daemon gives way' '
	expect_code 1 inside /bin/limb-syncd daemon "${args[@]}"
'

test_expect 'init ends on SIGTERM, and everything with it' '
	kill -s TERM "$(pgrep -P "$(cat "$T/init.pid")")"
	wait_for "test_none_left"
'

allow_error 'is started again'
test_done
