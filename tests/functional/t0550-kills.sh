#!/bin/bash
# Whatever is killed, alone or in pairs, and whenever: what was durable is there, all goes
# on by itself or after the one rebuild that is named, and nothing is left behind.
. "${0%/*}/brain-lib.sh"

# kill_parts NAME PART...: -9, all at once
kill_parts() {
	local name=$1 pids
	shift
	mapfile -t pids < <(for part; do pid_of "$name" "$part"; done)
	kill_9 "${pids[@]}"
	case " $* " in
	*' limbd '*) limb up >/dev/null ;;
	esac
}
# comes_back NAME: by itself, or by the one command that its state names
comes_back() {
	wait_for "case \$(state_of $1) in live|halted) ;; *) false ;; esac"
	if [ "$(state_of "$1")" = halted ]; then
		status_of "$1" '.reasons[0].next_steps[]' | grep -qx "limb rebuild $1"
		limb rebuild "$1" --json >"$T/rebuilt"
		jq -e .equal "$T/rebuilt"
	fi
	wait_state "$1" live
}
# The jobs' holders that have a command now
holders() {
	local - pid
	set +x
	for pid in $(pids_with 'limb-syncd spawner'); do
		[ "$(cat "/proc/$pid/comm")" = limb-holder ] || continue
		[ -z "$(cat "/proc/$pid/task/$pid/children")" ] || echo "$pid"
	done
}

single='limbd ingest syncd fs init'
pairs='limbd,syncd limbd,ingest limbd,fs syncd,ingest ingest,fs limbd,init'
have fuse || single=${single/ fs/} pairs='limbd,syncd limbd,ingest syncd,ingest limbd,init'
# In a rebuild, and while a command runs on
rebuild_parts='limbd,syncd init'
if have long; then
	rounds='1 2 3 4 5'
	rebuild_parts="limbd syncd ingest $rebuild_parts"
else
	rounds=1
	pairs='limbd,syncd ingest,fs limbd,init'
	have fuse || pairs='limbd,syncd limbd,init'
fi
export rounds rebuild_parts

brain_up
mkdir tree
(
	cd tree || exit
	for i in $(seq 20); do
		mkdir "d$i"
		seq "$i" 400 | split -l 20 - "d$i/f"
		head -c 200000 /dev/urandom >"d$i/random"
	done
	ln d1/random d2/link
	ln -s d3 link
)
tree_list tree >tree.list

for what in $single $pairs; do
	export what parts="${what/,/ }"
	provider=local
	[ "$what" != init ] || provider=${providers##* }
	export provider
	test_expect "kill -9 of $what in the first sync, at rest, while a command runs" '
		for round in $rounds; do
			cp -a tree root
			limb create k --provider local --root "$T/root" >create.out 2>&1 &
			create=$!
			wait_for "limb inspect k --json | jq -e .pids.ingest || ! kill -0 $create"
			if limb inspect k >/dev/null 2>&1; then
				kill_parts k $parts
			fi
			wait "$create" || true
			cat create.out
			if ! limb inspect k >/dev/null; then
				limb create k --provider local --root "$T/root"
			fi
			comes_back k
			limb sync k
			tree_list root >after
			same_tree tree.list after
			verify_equal k

			echo "durable $round" >root/durable
			limb sync k
			kill_parts k $parts
			comes_back k
			test "$(limb cp k:durable -)" = "durable $round"
			test "$(cat root/durable)" = "durable $round"
			verify_equal k

			limb exec k -- sh -c "seq 100000; echo made >made; while test ! -e go; do sleep 0.05; done; seq 5; exit 3" >exec.out 2>exec.err &
			exec=$!
			wait_for "test -e root/made"
			kill_parts k $parts
			touch root/go
			r=0
			wait "$exec" || r=$?
			cat exec.err
			comes_back k
			wait_for "test \$(status_of k .counts.jobs_running) = 0"
			limb sync k
			# what came of the job is in its record, whoever was there to hear of it
			limb journal dump k >dump
			grep JOB dump | tail -n 3
			test "$(cat root/made)" = made
			verify_equal k
			limb rm k --force
			rm -rf root
		done
	'
done

for provider in $providers; do
	export provider
	test_expect "$provider: kill -9 of a holder: its job ends as unknown, others go on" '
		limb create h --provider "$provider"
		root=$(root_of h)
		limb exec h --json -- sh -c "touch one; sleep 61.$$" >one.out 2>&1 &
		one=$!
		wait_for "test -e $root/one"
		victim=$(holders)
		test -n "$victim"
		limb exec h --json -- sh -c "touch two; while test ! -e go; do sleep 0.05; done; echo ended" >two.out 2>&1 &
		two=$!
		wait_for "test -e $root/two"
		kill_9 $victim
		r=0
		wait "$one" || r=$?
		cat one.out
		test "$r" = 125
		jq -e ".state == \"unknown\" or .error" one.out
		touch "$root/go"
		wait "$two"
		jq -e ".stdout == \"ended\\n\" and .exit_code == 0" two.out
		limb exec h -- true
		limb rm h --force
		wait_for "test -z \"\$(pids_with sleep 61.$$)\""
	'

	test_expect "$provider: a command outlives limb-syncd, limbd and both: output and status are whole" '
		limb create j --provider "$provider"
		root=$(root_of j)
		for parts in syncd limbd "limbd syncd"; do
			rm -f "$root/go" "$root/began"
			limb sync j
			limb exec j -d -- sh -c "seq 50000; touch began; while test ! -e go; do sleep 0.05; done; seq 50000; exit 7" >job
			wait_for "test -e $root/began"
			kill_parts j $parts
			touch "$root/go"
			comes_back j
			wait_for "test \$(status_of j .counts.jobs_running) = 0"
			job=$(cat job)
			wait_for "limb journal dump j --json | grep -F \"$job\" | jq -se \"any(.[]; .exit_code == 7)\""
			{ seq 50000; seq 50000; } | cmp - "$LIMB_STATE/envs/$(inspect_of j .provider_handle)/jobs/$job/stdout"
		done
		limb rm j --force
	'

	test_expect "$provider: kill -9 in the middle of a rebuild: again, and it is equal" '
		for parts in $rebuild_parts; do
			limb create r --provider "$provider" --from tree
			root=$(root_of r)
			tree_list "$root" >before
			init=$(pid_of r init)
			mv "$root" "$root.gone"
			kill_9 "$init"
			rm -rf "$root.gone"
			wait_state r halted
			limb rebuild r >rebuild.out 2>&1 &
			rebuild=$!
			wait_for "limb inspect r --json | jq -e \"(.pids.ingest and .state != \\\"halted\\\") or .incarnation == 2\" || ! kill -0 $rebuild"
			kill_parts r ${parts/,/ } || true
			wait "$rebuild" || true
			cat rebuild.out
			comes_back r
			root=$(root_of r)
			tree_list "$root" >after
			same_tree before after
			verify_equal r
			limb rm r --force
		done
	'
done

test_expect 'all of it is gone' '
	limb ls --json | jq -e "(.environments | length) == 0"
	wait_for "test -z \"\$(ls $LIMB_STATE/envs)\""
	test -z "$(test_mounts | grep -v "/\.at\$")"
	limb down --stop
	test -z "$(test_mounts)"
	wait_for "test_none_left"
'

test_done
