#!/bin/bash
# Processes that are stopped for a moment, or until further notice, stand still, go on where
# they were, and whoever dies meanwhile leaves none of them behind stopped.
. "${0%/*}/brain-lib.sh"
brain_up

# counter NAME: the number that its job has written last; it writes on and on
counter() {
	cat "$(root_of "$1")/count" 2>/dev/null || echo 0
}
# counts NAME: it goes on
counts() {
	local n
	n=$(counter "$1")
	wait_for "test \"\$(counter $1)\" -gt ${n:-0}"
}
# stands NAME: every process of its job is stopped. (One that was stopped between vfork and
# exec leaves its parent in state D: that one waits for it.)
stands() {
	local n
	wait_for "limb ps $1 --json | jq -e '[.processes[] | select(.argv[0] == \"sh\") | .state] | any(. == \"T\") and all(. == \"T\" or . == \"D\")'"
	n=$(counter "$1")
	sleep 0.2
	test "$(counter "$1")" = "$n"
}

for provider in $providers; do
	export provider
	test_expect "$provider: sync --freeze is consistent, and the job goes on" '
		limb create f --provider $provider
		limb exec -d f -- sh -c "i=0; while :; do i=\$((i + 1)); echo \$i >count.new; mv count.new count; sleep 0.01; done" >job
		counts f
		limb sync f --freeze --json >sync.json
		jq -e .consistent sync.json
		counts f
	'
	test_expect "$provider: pause, resume; a limbd and a limb-syncd that die change neither" '
		limb pause f --json | jq -e ".state == \"paused\""
		test "$(state_of f)" = paused
		stands f
		limb pause f
		limb status f
		r=0
		limb exec f -- true 2>err || r=$?
		test $r = 125
		grep "limb resume" err
		r=0
		limb migrate f --to local 2>err || r=$?
		test $r = 125
		limb sync f
		kill_9 "$(pid_of f limbd)"
		limb up
		wait_state f paused
		stands f
		[ $provider != local ] || kill_9 $(pid_of f syncd)
		wait_state f paused
		stands f
		limb resume f --json | jq -e ".state != \"paused\""
		wait_state f live
		counts f
		limb resume f
	'
	test_expect "$provider: limbd killed while it was frozen: the job goes on" '
		have faults || exit 0
		limb down
		export LIMB_FAULT=migrate.freeze:1:kill
		limb up
		unset LIMB_FAULT
		wait_state f live
		limb migrate f --to local --jobs stop && exit 1
		limb up
		wait_state f live
		verify_equal f
		limb exec -d f -- sh -c "i=0; while :; do i=\$((i + 1)); echo \$i >count.new; mv count.new count; sleep 0.01; done"
		counts f
		limb rm f --force
	'
done

test_done
