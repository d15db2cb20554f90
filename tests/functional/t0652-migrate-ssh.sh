#!/bin/bash
# Laptop, VPS, laptop: with uncommitted work and a running job an environment moves to a user's
# account on another machine and back, and has lost nothing on the way.
. "${0%/*}/ssh-lib.sh"
need git
ssh_up
brain_up
mkdir "$T/there"

# The VPS: where we are root, an account that is not.
vps=box
if [ "$(id -u)" = 0 ]; then
	need setpriv
	cat >"$T/login" <<'END'
#!/bin/sh
exec setpriv --reuid=65534 --regid=65534 --clear-groups --inh-caps=-all \
	/bin/sh -c "${SSH_ORIGINAL_COMMAND:-exit 1}"
END
	chmod 755 "$T/login"
	chown 65534:65534 "$far" "$T/there"
	ssh_sshd vps "SetEnv HOME=$far" "ForceCommand $T/login"
	ssh_config vps vps
	ssh_know vps
	vps=vps
fi
export vps

# A repository with work that is not committed, and what a plain account cannot hold.
mkdir work
(
	cd work || exit
	git init -q
	git config user.name n
	git config user.email e@example.org
	for i in $(seq 10); do
		mkdir "d$i"
		seq "$i" 2000 | split -l 100 - "d$i/f"
	done
	git add -A
	git commit -qm one
	echo changed >d1/faa
	echo staged >d2/faa
	git add d2/faa
	echo new >untracked
	rm d3/faa
	touch -d '2001-02-03 04:05:06.123456789' d4/faa
	ln d5/faa d5/link
	ln -s d6 link
	chmod 4711 d7/faa
	if [ "$(id -u)" = 0 ]; then
		chown 4242:4243 d8/faa
		mkdir -m 2770 shared
		setfattr -n trusted.note -v hello d9/faa 2>/dev/null || true
	fi
	setfattr -n user.note -v hello d9/fab 2>/dev/null || true
)
git -C work status --porcelain >status.list

test_expect 'laptop, VPS, laptop: git, owners, modes, times, attributes, links' '
	cp -a work lap
	tree_list lap >lap.list
	limb create m --provider local --root "$T/lap"
	limb exec m -- sh -c "sleep 1000" >/dev/null 2>&1 &
	job=$!
	wait_for "test \"\$(status_of m .counts.jobs_running)\" = 1"
	limb migrate m --to "ssh:$vps:$T/there/m" --jobs restart --json >moved.json
	cat moved.json
	jq -e ".equal and .to.provider == \"ssh\" and .to.incarnation == 2" moved.json
	jq -e ".jobs[0].action == \"restarted\"" moved.json
	wait "$job" || true
	wait_for "test \"\$(status_of m .counts.jobs_running)\" = 1"
	test "$(limb exec m -- id -u)" != 0
	test "$(limb exec m -- pwd)" = "$T/there/m"
	limb exec m -- git -c safe.directory=* status --porcelain >status.there
	diff status.list status.there
	limb exec m -- sh -c "echo from there >there; echo more >>d10/faa"
	limb migrate m --to local --jobs stop --json >moved.json
	cat moved.json
	jq -e ".equal and .bytes_sent < 200000 and .jobs[0].action == \"stopped\"" moved.json
	test "$(root_of m)" = "$T/lap"
	verify_equal m
	test "$(cat lap/there)" = "from there"
	test "$(tail -n 1 lap/d10/faa)" = more
	rm lap/there
	cp -p work/d10/faa lap/d10/faa
	touch -r work lap
	touch -r work/.git lap/.git
	cp -p work/.git/index lap/.git/index
	tree_list lap >back.list
	same_tree lap.list back.list
'

test_expect 'the account there has the older copy, and nothing else of ours' '
	test -e "$T/there/m/d1/faa"
	test -z "$(pids_with "$T/there/m")"
	test ! -e "$far/.local/share/limbfs" || test -z "$(find "$far/.local/share/limbfs" -name run)"
'

test_expect 'B63 there again: only what differs travels; late work there is a fork' '
	echo late >"$T/there/m/late"
	chown --reference="$T/there/m" "$T/there/m/late"
	limb exec m -- sh -c "echo again >again"
	limb migrate m --to "ssh:$vps:$T/there/m" --json >moved.json
	cat moved.json
	jq -e ".equal and .bytes_sent < 200000" moved.json
	test ! -e "$T/there/m/late"
	test "$(cat "$T/there/m/again")" = again
	test "$(limb cp m~1:late -)" = late
	limb rm m~1
	# the same host is not another place
	r=0
	limb migrate m --to "ssh:$vps:$T/there/n" 2>err || r=$?
	test $r = 125
	grep "there already" err
	limb migrate m --to local --json | jq -e .equal
	limb rm m
	test -e lap/again
	test -e "$T/there/m/again"
'

steps='freeze lease handed'
! have long || steps='begin copy copied freeze final lease handed switched verified cleaned'
have faults || steps=
for step in $steps; do
	export step
	test_expect "B63 limbd killed at $step of a move there: one side or the other" '
		limb down --stop >/dev/null || true
		rm -rf lap state "$T/there/m"
		export LIMB_FAULT=migrate.$step:1:kill
		limb up >/dev/null
		unset LIMB_FAULT
		cp -a work lap
		limb create m --provider local --root "$T/lap"
		limb exec m -- sh -c "echo durable >durable"
		r=0
		limb migrate m --to "ssh:$vps:$T/there/m" 2>&1 || r=$?
		test $r != 0
		# whoever has lost the lease and goes on writing
		case $step in
		handed) echo late >lap/late ;;
		esac
		limb up >/dev/null
		wait_state m live
		verify_equal m
		test "$(limb exec m -- cat durable)" = durable
		case $step in
		begin|copy|copied|freeze|final|lease)
			test "$(root_of m)" = "$T/lap"
			limb migrate m --resume --json | jq -e .equal
			;;
		esac
		test "$(inspect_of m .provider)" = ssh
		wait_for "jq -e \"[.left[]? | select(.done | not)] == []\" state/envs/*/env.json"
		if [ $step = handed ]; then
			wait_for "limb inspect m~1"
			wait_state m~1 stopped
			test "$(limb cp m~1:late -)" = late
			limb rm m~1
		fi
		limb migrate m --to local --json | jq -e .equal
		test "$(root_of m)" = "$T/lap"
		test ! -e lap/late
		verify_equal m
		test -z "$(pids_with "$T/there/m")"
		limb rm m
	'
done

test_done
