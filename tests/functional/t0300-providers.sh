#!/bin/bash
# Our providers do as limb-provider(7) says: every verb twice, by its deadline, and nothing left.
. "${0%/*}/lib.sh"
need jq setpriv

providers=$LIMB_TOP_BUILDDIR/providers
id=$(tr -d - </proc/sys/kernel/random/uuid)

# In place of limb-syncd: stays as init and daemon, and runs code inside.
mkdir "$T/bin"
cat >"$T/bin/limb-syncd" <<'X'
#!/bin/sh
case $1 in
init|daemon)
	trap 'exit 0' TERM
	if [ -n "$LIMB_PROBE_CHILD" ]; then
		setsid sh -c 'sleep 1000 & env -i sleep 5432 & wait' &
	fi
	while :; do sleep 0.05; done
	;;
attach)
	eval "$2"
	;;
esac
X
chmod 755 "$T/bin" "$T/bin/limb-syncd"

mkfifo never
{
	timeout 20 "$providers/local" info <>never >late.out 2>/dev/null
	echo $? >late.status
} &

# ask PROVIDER VERB [MORE]: as $user; the answer in out
user=
hands=
ask() {
	local r=0
	jq -nc --arg hands "$hands" --arg syncd "$T/bin/limb-syncd" --arg id "$id" --arg brain "$LIMB_TEST_ID" \
		'{protocol: 1, environment: "web", id: $id, incarnation: 1, brain: $brain,
		dir: ($hands + "/hands"), deadline_ms: 10000,
		spec: {root: ($hands + "/root"), syncd: $syncd}} * '"${3:-{\}}" >in
	$user "$providers/$1" "$2" <in >out 2>>"$T/providers.txt" || r=$?
	jq -e 'type == "object"' out >/dev/null
	return "$r"
}

# inside PROVIDER CODE: through `command`
inside() {
	ask "$1" command "{argv: [\"$T/bin/limb-syncd\", \"attach\", $(jq -nc --arg c "$2" '$c')]}"
	mapfile -d '' -t argv < <(jq -j '.argv[] + "\u0000"' out)
	$user "${argv[@]}"
}

# Alive, of our test, with the mark of our environment.
marked() {
	grep -lzFx "LIMB_HANDS=$1 $LIMB_TEST_ID $id" /proc/[0-9]*/environ 2>/dev/null
}

life() {
	ask "$1" info
	jq -e ".protocol == 1 and .name == \"$1\" and (.verbs | index(\"command\")) and
		(.isolation | type) == \"array\" and .keeps.stop == \"files\"" out
	ask "$1" status
	jq -e '.status == "NotFound"' out
	ask "$1" delete
	for _ in 1 2; do
		ask "$1" create
		jq -e '.handle and .root and .host_root and .dir and .syncd' out
		test -d "$(jq -r .host_root out)"
	done
	ask "$1" status
	jq -e '.status == "Stopped"' out
	ask "$1" start
	jq -e '.status == "Running" and .init_pid > 1' out
	first=$(jq .init_pid out)
	ask "$1" start
	test "$(jq .init_pid out)" = "$first"
	ask "$1" status
	test "$(jq .init_pid out)" = "$first"
	ask "$1" list
	jq -e ".environments | map(select(.id == \"$id\")) ==
		[{id: \"$id\", handle: \"$id\", brain: \"$LIMB_TEST_ID\"}]" out
	test "$(echo hello | inside "$1" 'read x; echo "$x to you"; exit 0')" = 'hello to you'
	expect_code 7 inside "$1" 'exit 7'
	test "$(inside "$1" 'echo said >&2' 2>&1 >/dev/null | tail -n 1)" = said
	for _ in 1 2; do
		ask "$1" stop
		jq -e '.status == "Stopped"' out
	done
	test_gone "$first"
	ask "$1" start
	test "$(jq .init_pid out)" != "$first"
	for _ in 1 2; do
		ask "$1" delete
		jq -e '.status == "NotFound"' out
	done
	test -z "$(marked "$1")"
	ask "$1" list
	jq -e ".environments | all(.id != \"$id\")" out
	test -d "$hands/root"
}

# Runs each of the tests for `local` and `bwrap`, as us and as a normal user.
for who in us user; do
	if [ $who = user ]; then
		if ! have user || [ "$(id -u)" != 0 ]; then
			test_skip 'the same as a normal user' 'needs root to become another user'
			continue
		fi
		user='setpriv --reuid=65534 --regid=65534 --clear-groups'
	fi
	hands=$T/$who
	mkdir "$hands"
	[ $who = us ] || chown 65534:65534 "$hands"

	test_expect "local as $who: each verb, twice" 'life local'
	test_expect "local as $who: stop ends what left its session" '
		export LIMB_PROBE_CHILD=1
		ask local create
		ask local start
		# the holder of a job keeps the mark, the job has an environment of its own
		wait_for "test \"\$(marked local | wc -l)\" -ge 3"
		init=$(jq .init_pid out)
		holder=$(pgrep -P "$init" -f "env -i sleep 5432")
		wait_for "pgrep -P $holder -f \"^sleep 5432\""
		job=$(pgrep -P "$holder" -f "^sleep 5432")
		kill -KILL "$init"
		ask local stop
		test -z "$(marked local)"
		test_gone "$job"
		ask local delete
	'
	if ! have bwrap; then
		test_skip "bwrap as $who" "$why_not"
		continue
	fi
	test_expect "bwrap as $who: each verb, twice" 'life bwrap'

	test_expect "bwrap as $who: what is inside" '
		export LIMB_PROBE_CHILD=1
		ask bwrap create
		ask bwrap start
		cat >probe.sh <<-"X"
		fail() { echo "FAIL $*"; }
		[ "$(cat /proc/1/comm)" = limb-syncd ] || fail pid namespace
		[ "$(hostname)" = web ] || fail hostname
		[ "$(ls /sys/class/net 2>/dev/null; sed 1,2d /proc/net/dev | cut -d: -f1 | tr -d " ")" = lo ] || fail network
		grep -q "^NoNewPrivs:.1" /proc/self/status || fail new privileges
		touch /usr/x 2>/dev/null && fail /usr is writable
		touch /etc/x 2>/dev/null && fail /etc is writable
		touch /x 2>/dev/null && fail / is writable
		for f in /etc/shadow /etc/ssh /etc/ssl/private /home/* /root/.ssh /var/lib/*; do
			case $f in "$HOME") continue ;; esac
			[ ! -e "$f" ] || fail "$f is inside"
		done
		# Opened, never written to: where this fails, it is a file of the host.
		for f in /proc/sys/kernel/core_pattern /proc/sys/vm/swappiness /proc/sysrq-trigger \
			/proc/irq/default_smp_affinity /proc/mtrr /proc/pressure/memory; do
			[ -f "$f" ] || continue
			(: >>"$f") 2>/dev/null && fail "$f is writable"
		done
		[ "$(ls -A /tmp)" = "" ] || fail /tmp is not private
		touch /tmp/x /run/limb/x /w/x "$HOME/x" || fail not writable
		[ ! -e /run/limb/bwrap.json ] || fail the record is inside
		[ ! -e /run/limb/../bwrap.json ] || fail the record is inside
		touch /run/limb-syncd 2>/dev/null && fail limb-syncd is writable
		[ -r /etc/passwd ] && ls /dev/fd/0 >/dev/null && [ -w /dev/null ] || fail system
		env | grep -q LIMB_STATE && fail LIMB_STATE
		mount -t tmpfs none /tmp 2>/dev/null && fail may mount
		[ "$(readlink /proc/self/fd/2 | cut -c1-5)" = pipe: ] || fail stderr is a file of the host
		[ "$(ls /proc/self/fd | wc -l)" = 4 ] || fail descriptors: $(ls -l /proc/self/fd)
		id -u; ulimit -n; grep CapEff /proc/self/status
		X
		inside bwrap "$(cat probe.sh)" >probed </dev/null
		cat probed
		test -z "$(grep FAIL probed || true)"
		test -e "$hands/root/x"
		test -e "$hands/hands/run/x"
		test -e "$hands/hands/bwrap.json"
	'

	test_expect "bwrap as $who: ids and capabilities" '
		ask bwrap start
		inside bwrap "id -u; cut -c1-40 /proc/self/uid_map; grep CapEff /proc/self/status" >probed
		if [ -z "$user" ] && [ "$(id -u)" = 0 ]; then
			grep -E " 0 +0 +[0-9]{5,}" probed
			inside bwrap "touch /w/owned && chown 12:34 /w/owned && chmod 4755 /w/owned"
			test "$(stat -c %u:%g:%a "$hands/root/owned")" = 12:34:4755
			grep -x "CapEff:.00000000800000fb" probed
			grep CapEff: "/proc/$(jq .init_pid out || cat init)/status" || true
		else
			grep -E "^CapEff:.0000000000000000" probed
		fi
	'

	test_expect "bwrap as $who: the first process killed takes all with it, and it starts again" '
		ask bwrap start
		init=$(jq .init_pid out)
		kill -KILL "$init"
		wait_for "test -z \"\$(marked bwrap)\""
		ask bwrap status
		jq -e ".status == \"Stopped\"" out
		r=0
		inside bwrap true || r=$?
		test $r = 125
		ask bwrap start
		test "$(jq .init_pid out)" != "$init"
		test "$(inside bwrap "cat /w/x; echo again")" = again
	'

	test_expect "bwrap as $who: a transport that is killed leaves nothing inside" '
		ask bwrap start
		ask bwrap command "{argv: [\"x\", \"attach\", \"touch /w/here; exec sleep 4321\"]}"
		mapfile -t argv < <(jq -r ".argv[]" out)
		$user "${argv[@]}" &
		wait_for "test -e \"\$hands/root/here\""
		sleepers="grep -la [s]leep.4321 /proc/[0-9]*/cmdline | wc -l"
		test "$(inside bwrap "$sleepers")" = 1
		kill -KILL $!
		wait $! || true
		wait_for "test \"\$(inside bwrap \"\$sleepers\")\" = 0"
	'

	test_expect "bwrap as $who: a lost record is made up by the mark" '
		ask bwrap start
		init=$(jq .init_pid out)
		echo "{}" >"$hands/hands/bwrap.json"
		ask bwrap status
		test "$(jq .init_pid out)" = "$init"
		ask bwrap stop
		test -z "$(marked bwrap)"
	'

	test_expect "bwrap as $who: a number that is another's by now is left alone" '
		sleep 1000 &
		boot=$(tr -d - </proc/sys/kernel/random/boot_id)
		echo "{\"pid\":$!,\"start_ticks\":1,\"boot_id\":\"$boot\"}" >"$hands/hands/bwrap.json"
		ask bwrap status
		jq -e ".status == \"Stopped\"" out
		ask bwrap stop
		kill -0 $!
		start=$(sed "s/.*) //" /proc/$!/stat | cut -d" " -f20)
		echo "{\"pid\":$!,\"start_ticks\":$start,\"boot_id\":\"00000000000000000000000000000000\"}" \
			>"$hands/hands/bwrap.json"
		ask bwrap stop
		kill -0 $!
		kill $!
	'

	test_expect "bwrap as $who: a start that fails leaves no process and says why" '
		ask bwrap create
		echo "#!/nonexistent" >bad
		chmod 755 bad
		expect_code 1 ask bwrap start "{spec: {syncd: \"$T/bad\"}}"
		jq -e ".error == \"unsupported\" and (.detail | contains(\"bwrap\")) and (.next_steps | length) > 0" out
		test -z "$(marked bwrap)"
		rmdir "$hands/root2" 2>/dev/null || true
		expect_code 1 ask bwrap start "{spec: {root: \"$hands/root2\"}}"
		jq -e ".error == \"file_not_found\"" out
		test ! -e "$hands/root2"
		ask bwrap delete
	'
done
user=
hands=$T/us

test_expect 'without bwrap in PATH: unsupported, with the remedy' '
	ask bwrap info
	jq_path=$(command -v jq)
	PATH=/nonexistent "$providers/bwrap" create <in >out 2>/dev/null || true
	"$jq_path" -e ".error == \"unsupported\" and (.next_steps[0] | contains(\"bubblewrap\"))" out
'

test_expect 'bad input is an error object, never a crash' '
	for p in local bwrap; do
		for text in "" "x" "[]" "{" "{}" "{\"id\":\"../x\",\"dir\":\"/tmp\"}" "{\"id\":\"aa\",\"dir\":\"rel\"}" \
			"{\"id\":\"aa\",\"dir\":7}"; do
			r=0
			printf "%s" "$text" | "$providers/$p" create >out 2>/dev/null || r=$?
			test "$r" = 1
			jq -e ".error and .detail and (.next_steps | type) == \"array\"" out
		done
		r=0
		echo "{}" | "$providers/$p" nosuch >out 2>/dev/null || r=$?
		test "$r" = 2
		jq -e ".error == \"unsupported\"" out
	done
	expect_code 1 ask local create "{spec: {root: \"rel\"}}"
	jq -e ".error == \"invalid_path\"" out
	expect_code 1 ask local create "{spec: {root: \"/\"}}"
	jq -e ".error == \"invalid_path\"" out
'

test_expect 'every verb ends by its deadline' '
	ask local create
	exec 9>>"$hands/hands/provider.lock"
	flock 9
	expect_code 1 ask local start "{deadline_ms: 200}"
	jq -e ".error == \"timed_out\"" out
	exec 9>&-
	ask local status
	# nor did the one that never got its input, begun with the script
	wait_for "test -s late.status"
	test "$(cat late.status)" = 1
	jq -e ".error == \"timed_out\"" late.out
'

test_done
