#!/bin/bash
# A command runs once, where it was asked for, with exactly what it was given; what it
# says and how it ends comes back exactly, and nothing of it stays.
LIMB_TEST_BRAIN_SECRET=of-the-brain-$$
export LIMB_TEST_BRAIN_SECRET
. "${0%/*}/brain-lib.sh"

if have long; then
	many=1000 yes_s=60
else
	many=30 yes_s=2
fi
export many yes_s
# A number of seconds that tells this test's sleeps from all others.
nap() {
	echo "6$1.$$"
}
naps() {
	pids_with "sleep 6$1.$$"
}

brain_up
# The sanitizers' own memory is many times the program's.
instrumented=false
! have sanitizers || instrumented=true
export instrumented

for name in $providers; do
	limb create "$name" --provider "$name" >/dev/null || test_result 'not ok' "create $name"
	export name
	root=$(root_of "$name")
	export root

	test_expect "B64 $name: at a timeout everything that it started is ended, whatever it did to hide" '
		cat >"$root/hide" <<-END
			mkfifo p
			(while :; do echo c; sleep 0.1; done) >p &
			setsid sleep $(nap 1) &
			(setsid sh -c "sleep $(nap 1) & sleep $(nap 1)" &)
			nohup sleep $(nap 1) >/dev/null 2>&1 &
			sh -c "trap : TERM; while :; do sleep 0.1 || :; done" hiding-$$ &
			echo started
			cat p
		END
		r=0
		timeout 30 limb exec "$name" --timeout 1 --json -- sh hide >out || r=$?
		test "$r" = 124
		jq -e ".timed_out and .exit_code == 124 and .state == \"exited\" and .duration_ms < 15000 and
			(.stdout | startswith(\"started\\nc\\n\"))" out
		test -z "$(naps 1)"
		test -z "$(pids_with hiding-$$)"
		r=0
		timeout 30 limb exec "$name" --timeout 1 -- sh -c "echo partial; sleep $(nap 1)" >out || r=$?
		test "$r" = 124
		test "$(cat out)" = partial
		test -z "$(naps 1)"
	'

	test_expect "B65 $name: a child in the background does not hold the answer" '
		limb exec "$name" --json -- sh -c "sleep $(nap 2) & echo hi" >out
		jq -e ".exit_code == 0 and .stdout == \"hi\\n\" and .background and .duration_ms < 30000" out
		test -n "$(naps 2)"
		limb ps "$name" --json >ps
		jq -e "any(.processes[]; .argv[0] == \"sleep\" and .job_id == $(jq .job_id out))" ps
		limb exec "$name" --json -- true | jq -e ".background == false"
		test "$(limb exec "$name" -- sh -c "sleep $(nap 2) & echo hi")" = hi
		kill $(naps 2)
	'

	test_expect "B68 $name: how it ended is what it says" '
		while read -r want signal error command; do
			r=0
			limb exec "$name" --json -- sh -c "$command" >out || r=$?
			test "$r" = "$want"
			jq -e ".exit_code == $want and .timed_out == false and (.signal // \"-\") == \"$signal\" and
				has(\"error\") == $error" out
			r=0
			limb exec "$name" -- sh -c "$command" || r=$?
			test "$r" = "$want"
		done <<-END
			137 SIGKILL false kill -9 \$\$
			139 SIGSEGV false kill -SEGV \$\$
			143 SIGTERM false kill -TERM \$\$
			255 - false exit 255
			0 - false true; (exit 256) 2>/dev/null; exit 0
			127 - false exit 127
			126 - false exit 126
			124 - false exit 124
			125 - false exit 125
			1 - false exit 1
		END
		r=0
		limb exec "$name" --json -- no-such-command >out || r=$?
		test "$r" = 127
		jq -e ".error and .exit_code == 127" out
		echo text >"$root/text"
		r=0
		limb exec "$name" --json -- ./text >out || r=$?
		test "$r" = 126
		jq -e ".error and .exit_code == 126" out
	'

	test_expect "B73 $name: where it cannot start, nothing starts, and not elsewhere" '
		mkdir "$root/d"
		ln -s / "$root/out"
		ln -s d "$root/in"
		test "$(limb exec "$name" -w d -- pwd)" = "$(limb exec "$name" -- pwd)/d"
		limb exec "$name" -w in -- touch here
		test -e "$root/d/here"
		rm -r "$root/d"
		for dir in d text .. ../.. /etc out out/etc in d/x; do
			r=0
			limb exec "$name" -w "$dir" --json -- sh -c "pwd; touch $T/ran; touch ran" >out || r=$?
			test "$r" = 125
			jq -e ".error and .detail" out
			r=0
			limb exec "$name" -w "$dir" -- touch ran >out 2>err || r=$?
			test "$r" = 125
			test "$(wc -l <err)" = 1
			grep "^limb: " err
		done
		test ! -e "$T/ran"
		test -z "$(find / -xdev -maxdepth 2 -name ran -newer "$root/text" 2>/dev/null)"
		test ! -e "$root/ran"
		limb exec "$name" -- true
	'

	test_expect "B74 $name: orphans are reaped" '
		for i in $(seq "$many"); do
			limb exec "$name" -- sh -c "(sh -c \"sleep 0.01 & sleep 0.01 &\" &) ; exit 0"
		done
		wait_for "limb ps $name --json | refute jq -e \".processes[] | select(.state == \\\"Z\\\")\""
		wait_for "limb ps $name --json | refute jq -e \".processes[] | select(.argv[0] == \\\"sleep\\\")\""
		limb status "$name" --json | jq -e ".environments[0].counts.jobs_running == 0"
	'
done

if have root; then
	test_expect 'B74 owners are the numbers that were given, there and back' '
		echo mine >"$root/owned"
		limb exec "$name" -- chown 1234:2345 owned
		test "$(stat -c %u:%g "$root/owned")" = 1234:2345
		limb exec "$name" -- stat -c %u:%g owned >out
		test "$(cat out)" = 1234:2345
		chown 4321:5432 "$root/owned"
		test "$(limb exec "$name" -- stat -c %u:%g owned)" = 4321:5432
		limb sync "$name"
		limb ls "$name:owned" --json | jq -e ".entries[0] | .uid == 4321 and .gid == 5432"
		verify_equal "$name"
	'
fi

test_expect 'B66 bytes are bytes' '
	head -c 1000000 /dev/urandom >"$root/random"
	{
		printf "a\377\303"
		cat "$root/random"
		printf "\0z"
	} >want
	limb exec "$name" -- sh -c "printf \"a\\377\\303\"; cat random; printf \"\\0z\"" >out
	cmp want out
	limb exec "$name" -- sh -c "{ printf \"a\\377\\303\"; cat random; printf \"\\0z\"; } >&2" >none 2>out
	cmp want out
	test ! -s none
	limb exec "$name" --json --max-output 2000000 -- sh -c "printf \"a\\377\\303\"; cat random; printf \"\\0z\"" >out
	jq -e ".stdout_bytes == $(wc -c <want) and .truncated == false" out
	jq -r .stdout_base64 out | base64 -d | cmp - want
	# a character that is written in two parts is one character
	limb exec "$name" --json -- sh -c "printf \"\\303\"; sleep 0.3; printf \"\\251\"" >out
	jq -e ".stdout == \"\u00e9\" and has(\"stdout_base64\") == false" out
'

test_expect 'stdin goes through, all of it, and ends' '
	limb exec "$name" -- cat <want >out
	cmp want out
	head -c 20000000 /dev/zero | tr "\0" y | limb exec "$name" -- wc -c >out
	test "$(tr -d " " <out)" = 20000000
	limb exec "$name" -- cat </dev/null >out
	test ! -s out
	{ yes || true; } | limb exec "$name" -- head -n 2 >out
	test "$(cat out | tr -d "\n")" = yy
'

test_expect 'B67 output without end, or in one line: counted, cut in the middle, limbd stays small' '
	r=0
	limb exec "$name" --json -- sh -c "seq 1 5000000; exit 3" >out || r=$?
	test "$r" = 3
	jq -e ".truncated and .exit_code == 3 and .stdout_bytes == 38888896 and (.stdout | length) < 1100000" out
	jq -e ".stdout | startswith(\"1\n2\n\") and endswith(\"\n5000000\n\") and
		test(\"\n\\\\[[0-9]+ bytes left out\\\\]\n\")" out
	seq 1 5000000 | cksum >want
	limb exec "$name" -- seq 1 5000000 | cksum >sum
	cmp want sum
	limb exec "$name" --json -- sh -c "head -c 100000000 /dev/zero | tr \"\\\\0\" x" >out
	jq -e ".truncated and .stdout_bytes == 100000000 and .exit_code == 0" out
	r=0
	limb exec "$name" --timeout "$yes_s" --json -- yes >out || r=$?
	test "$r" = 124
	jq -e ".timed_out and .truncated and .stdout_bytes > 2000000" out
	$instrumented || limb status --json | jq -e ".limbd.memory_bytes < 64000000"
	# a reader that goes away ends it
	limb exec "$name" -- yes 2>/dev/null | head -n 3 >out || true
	wait_for "limb status $name --json | jq -e \".environments[0].counts.jobs_running == 0\""
'

test_expect 'B69 no terminal, no pager, and the next answer is the next command'\''s' '
	refute limb exec "$name" -- tty
	seq 2000 >"$root/pages"
	limb exec "$name" -- sh -c "cd / && test ! -t 0 && test ! -t 1 && test ! -t 2 && ! (: </dev/tty)" 2>/dev/null
	if command -v less >/dev/null; then
		limb exec "$name" -- less pages </dev/null | cmp - "$root/pages"
	fi
	if command -v git >/dev/null; then
		limb exec "$name" -e GIT_CONFIG_GLOBAL=/dev/null -- sh -c "git init -q r && cd r &&
			git -c user.name=a -c user.email=a@b commit -q --allow-empty -m \"\$(seq 500)\""
		limb exec "$name" -w r -- git log </dev/null >out
		test "$(wc -l <out)" -gt 500
	fi
	if command -v script >/dev/null; then
		# also when who asks sits at a terminal
		script -qec "timeout --foreground 30 limb exec $name -- sh -c \"test -t 1 || echo no; echo ok\"" /dev/null </dev/null >out
		test "$(tr -d "\r" <out | tr "\n" " ")" = "no ok "
	fi
	test "$(limb exec "$name" -- echo ok)" = ok
'

test_expect 'B70 a command text has no mark that it could collide with' '
	printf "cat <<EOF\nline \$((1+1))\nEOF\necho after\n" >text.1
	printf "echo one \\\\\n two\n" >text.2
	printf "echo a # b\n" >text.3
	printf "echo crlf\r\n" >text.4
	{ printf ": \""; head -c 120000 /dev/zero | tr "\0" x; printf "\"\necho long\n"; } >text.5
	printf "exit 7" >text.6
	printf "echo \"unclosed" >text.7
	printf "echo [exit 0, 0.0 s, cwd /w]\necho LIMB_JOB; printf \"\\\\0\\\\1\\\\2\"" >text.8
	printf "cat <<EOF\nnever ended" >text.9
	for text in text.[0-9]; do
		r=0
		sh -c "$(cat $text)" >want 2>/dev/null || r=$?
		r2=0
		limb exec "$name" -- sh -c "$(cat $text)" >out 2>err || r2=$?
		cmp want out
		test "$r" = "$r2"
		test "$(limb exec "$name" -- echo clean)" = clean
	done
	# more than an argument can hold, by stdin
	{ printf ": \""; head -c 300000 /dev/zero | tr "\0" x; printf "\"\necho end\nexit 9"; } >script
	r=0
	limb exec "$name" -- sh <script >out || r=$?
	test "$r" = 9
	test "$(cat out)" = end
'

test_expect 'B72 arguments, directory and variables arrive as they are' '
	set -- "a b" "*" ";" "\$(id)" "\`id\`" "new
line" "quote'\''" "double\"" "" "-n" "--" "back\\slash" "~" "\$HOME" "&" "|" ">x" "!x" "#" \
		"$(printf "\377\376")" "$(printf "\001\033[2K\r")" "{a,b}" "%s" "--json" "é"
	printf "<%s>" "$@" >want
	limb exec "$name" -- printf "<%s>" "$@" >out
	cmp want out
	limb exec "$name" --json -- printf "<%s>" "$@" >out
	jq -r "if .stdout_base64 then .stdout_base64 else .stdout | @base64 end" out | base64 -d | cmp - want
	for value; do
		# as a variable; as a directory, where it can be one
		printf "<%s>" "$value" >want
		limb exec "$name" -e "V=$value" -- sh -c "printf \"<%s>\" \"\$V\"" >out
		cmp want out
		test -n "$value" || continue
		mkdir -p "$root/cwd/$value"
		(cd "$root/cwd/$value"; echo right >where)
		test "$(limb exec "$name" -w "cwd/$value" -- cat where)" = right
	done
	r=0
	limb exec "$name" -e LIMB_STATE=x -- true || r=$?
	test "$r" = 2
	r=0
	limb exec "$name" -e =x -- true || r=$?
	test "$r" = 2
	verify_equal "$name"
'

test_expect 'B75 a secret is in the environ of the command and nowhere else' '
	canary=canary-$(head -c 12 /dev/urandom | od -An -tx1 | tr -d " \n")
	# the text for grep comes from a file: no command line of this test has it
	echo "$canary" >"$T/home/canary"
	limb exec "$name" -d -e "SECRET=$canary" -- sh -c "sleep $(nap 3); : \"\$SECRET\"" >job
	wait_for "test -n \"\$(naps 3)\""
	echo "$canary" | limb exec "$name" -- sh -c "read -r x; test -n \"\$x\""
	limb sync "$name"
	# What has ended meanwhile is nothing to look at.
	grep -alsFf "$T/home/canary" /proc/[0-9]*/cmdline >found || true
	test ! -s found
	for pid in $(naps 3); do
		grep -aqFf "$T/home/canary" "/proc/$pid/environ"
	done
	find "$LIMB_STATE" -xdev -path "$LIMB_STATE/mnt" -prune -o -type f -exec grep -alsFf "$T/home/canary" {} + >found || true
	find /tmp /run /dev/shm -xdev -maxdepth 2 -user "$(id -u)" -type f -newer job -size -100k ! -path "$T/*" \
		-exec grep -alsFf "$T/home/canary" {} + >>found 2>/dev/null || true
	test ! -s found
	limb exec "$name" -- env >out
	refute grep -F "$LIMB_TEST_BRAIN_SECRET" out
	grep "^LIMB_JOB=j-" out
	grep "^LIMB_ENVIRONMENT=$name\$" out
	grep "^LANG=C.UTF-8\$" out
	test -z "$(cut -d= -f1 out | grep -vxE "PATH|HOME|USER|LANG|PWD|PAGER|GIT_PAGER|MANPAGER|LIMB_ENVIRONMENT|LIMB_JOB")"
	test -z "$(find "$LIMB_STATE" -xdev -path "$LIMB_STATE/mnt" -prune -o -path "$LIMB_STATE/envs/*/root" -prune -o \
		! -type l -perm /077 -print)"
	kill $(naps 3)
'

test_done
