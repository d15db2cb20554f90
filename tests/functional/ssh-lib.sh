# shellcheck shell=bash
# ssh-lib.sh - brain-lib.sh, and another machine: a real sshd of the test's own on this one,
# with its own host key, port and configuration. Its accounts' home is $T/far.
#
#	ssh_up			starts it; then "box" is the host, by $LIMB_SSH
#	ssh_config HOST LINE...	another name for it
#	ssh_line		"far" is box behind a line of ours, $line (line.c)
#	say SETTING...		to that line
#
# What is started there carries LIMB_TEST_ID, so lib.sh sees what is left of it.
. "${0%/*}/brain-lib.sh"
PATH=$PATH:/usr/sbin
need sshd ssh-keygen

far=$T/far
ssh_user=${ssh_user:-$(id -un)}
ssh_dir=$T/ssh
mkdir "$far" "$ssh_dir"
export LIMB_SSH="ssh -F $ssh_dir/config"
# (sshd clears its environment, so nobody else would know it. First said, last done: what runs
# there is stopped over it.)
at_exit 'for pid in $(cat "$T"/sshd-*.pid 2>/dev/null); do kill "$pid" 2>/dev/null; done; true'

# ssh_sshd NAME LINE...: an sshd with these lines more; its port in $ssh_dir/NAME.port
ssh_sshd() {
	local name=$1 port
	shift
	for _ in 1 2 3 4 5 6 7 8 9 10; do
		port=$((20000 + RANDOM % 20000))
		{
			printf '%s\n' "Port $port" 'ListenAddress 127.0.0.1' "HostKey $ssh_dir/host" \
				"AuthorizedKeysFile $ssh_dir/authorized" 'StrictModes no' 'UsePAM no' \
				'PidFile none' 'PasswordAuthentication no' 'PermitRootLogin yes' \
				'MaxStartups 100' 'AcceptEnv LIMB_TEST_ID'
			printf '%s\n' "$@"
		} >"$ssh_dir/$name.conf"
		run_bg "sshd-$name" "$(command -v sshd)" -D -e -f "$ssh_dir/$name.conf"
		wait_for "grep -qE 'Server listening|error|fatal' '$T/sshd-$name.log'" || return 1
		if grep -q 'Server listening' "$T/sshd-$name.log"; then
			echo "$port" >"$ssh_dir/$name.port"
			return
		fi
		mv "$T/sshd-$name.log" "$T/sshd-$name.busy"
	done
	return 1
}

# ssh_config HOST SSHD LINE...
ssh_config() {
	local host=$1 port
	port=$(cat "$ssh_dir/$2.port")
	shift 2
	printf '%s\n' "Host $host" 'HostName 127.0.0.1' "Port $port" "User $ssh_user" \
		"IdentityFile $ssh_dir/id" 'IdentitiesOnly yes' 'SendEnv LIMB_TEST_ID' "$@" \
		"UserKnownHostsFile $ssh_dir/known" '' >>"$ssh_dir/config"
}

# ssh_know SSHD: its host key is known
ssh_know() {
	echo "[127.0.0.1]:$(cat "$ssh_dir/$1.port") $(cut -d' ' -f1,2 "$ssh_dir/host.pub")" \
		>>"$ssh_dir/known"
}

ssh_up() {
	ssh-keygen -qt ed25519 -N '' -f "$ssh_dir/host"
	ssh-keygen -qt ed25519 -N '' -f "$ssh_dir/id"
	cp "$ssh_dir/id.pub" "$ssh_dir/authorized"
	[ "$(id -u)" != 0 ] || mkdir -p /run/sshd
	ssh_sshd main "SetEnv HOME=$far" || skip_all 'sshd does not start here'
	ssh_config box main
	ssh_know main
	$LIMB_SSH box true || skip_all 'sshd lets nobody in here'
}

line=$LIMB_TOP_BUILDDIR/tests/functional/line
ssh_line() {
	mkfifo "$T/control"
	run_bg line "$line" "control=$T/control" "$(cat "$ssh_dir/main.port")"
	wait_for 'grep -q ^port "$T/line.log"'
	sed -n 's/^port //p' "$T/line.log" >"$ssh_dir/line.port"
	ssh_config far line
	ssh_know line
}
say() {
	printf '%s\n' "$@" >"$T/control"
}

# of_ssh NAME: pids of what runs there for it
of_ssh() {
	local -
	set +x
	{ grep -laF "$(inspect_of "$1" .id | tr -d -)" /proc/[0-9]*/environ 2>/dev/null || true; } |
		cut -d/ -f3 | while read -r pid; do
		test_gone "$pid" || echo "$pid"
	done
}

# noise SEED BYTES: bytes that no compressor and no difference finds anything in, the same ones at
# each run: where contents are cut into chunks decides what a difference costs.
noise() {
	python3 -c 'import random, sys
sys.stdout.buffer.write(random.Random(int(sys.argv[1])).randbytes(int(sys.argv[2])))' "$1" "$2"
}

# insert FILE OFFSET [N]: N random bytes there, written in place
insert() {
	python3 - "$@" <<-'END'
		import random, sys
		path, at = sys.argv[1], int(sys.argv[2])
		n = int(sys.argv[3]) if len(sys.argv) > 3 else 1024
		with open(path, 'r+b') as f:
		    f.seek(at)
		    rest = f.read()
		    f.seek(at)
		    f.write(random.Random(at + n).randbytes(n) + rest)
	END
}
