#!/bin/bash
# An environment in a container of podman's: its root here, its walls and limits the
# engine's, no network unless asked; lost, made again, cut off, removed without a trace.
. "${0%/*}/brain-lib.sh"
need podman busybox
! have sanitizers || skip_all 'with sanitizers limb-syncd needs libraries that the container has not'

# An engine of the test's own: its storage, its files, no image.
cat >"$T/containers.conf" <<END
[containers]
default_ulimits = ["nofile=20000:20000", "nproc=20000:20000"]
[engine]
$(! command -v runc >/dev/null || echo 'runtime = "runc"')
cgroup_manager = "cgroupfs"
events_logger = "none"
tmp_dir = "$T/podman-tmp"
END
cat >"$T/storage.conf" <<END
[storage]
driver = "overlay"
graphroot = "$T/podman"
runroot = "$T/podman-run"
END
export CONTAINERS_CONF=$T/containers.conf CONTAINERS_STORAGE_CONF=$T/storage.conf
rootfs=$T/rootfs
mkdir -p "$rootfs"/{bin,etc,proc,sys,dev,tmp}
cp "$(command -v busybox)" "$rootfs/bin/busybox"
for name in sh true cat ls id sleep head wc mkdir rm env ps dd seq; do
	ln -s busybox "$rootfs/bin/$name"
done
at_exit 'podman rm -f -a >/dev/null 2>&1; umount "$T/podman/overlay" 2>/dev/null; true'
podman_first
if ! timeout 60 podman run --rm --network=none --rootfs "$rootfs:O" /bin/sh -c true 2>"$T/why"; then
	umount "$T/podman/overlay" 2>/dev/null
	skip_all "podman makes no container here: $(tail -n 1 "$T/why")"
fi
find "$rootfs" | sort >"$T/rootfs.before"
brain_up

container_of() {
	inspect_of "$1" .provider_handle
}

test_expect 'a container is made from a root file system, and a command runs in it' '
	limb create a --provider "container:$rootfs" --json >out
	jq -e ".state == \"live\" and .root == \"/w\"" out
	limb exec a -- sh -c "pwd; id -u; echo hello >f; ls /bin/busybox; test ! -e $T" >out
	printf "%s\n" /w 0 /bin/busybox | diff - out
	test "$(cat "$(root_of a)/f")" = hello
	verify_equal a
	inspect_of a .isolation
	test -e "/proc/$(pid_of a init)"
'
test_expect 'it has no network, no new privileges, and nothing of it is in the root file system' '
	limb exec a -- ls /sys/class/net >out
	test "$(cat out)" = lo
	limb exec a -- cat /proc/self/status | grep "NoNewPrivs:.1"
	limb exec a -- sh -c "echo x >/etc/mine; mkdir /outside"
	find "$rootfs" | sort | diff "$T/rootfs.before" -
'
test_expect 'the spec has limits, and a network when it asks' '
	echo "{\"limits\": {\"pids\": 40}}" >spec
	# An account without a cgroup of its own: podman makes it without limits.
	if ! have root && ! limb create small --provider "container:$rootfs" --spec spec 2>err; then
		grep "does not keep the limit .pids." err
		test "$(podman ps -a -q | wc -l)" = 1
		exit 0
	fi
	have root || limb rm small
	echo "{\"limits\": {\"memory_bytes\": 67108864, \"pids\": 40, \"cpu\": 0.5}}" >spec
	limb create small --provider "container:$rootfs" --spec spec
	inspect_of small ".limits | map({(.name): .enforced}) | add" | jq -se ".[0] == {memory_bytes: \"kernel\", pids: \"kernel\", cpu: \"kernel\"}"
	podman inspect "$(container_of small)" >out
	jq -e ".[0].HostConfig | .Memory == 67108864 and .PidsLimit == 40 and .NanoCpus == 500000000" out
	# Killed, where the machine has no swap to lend.
	limb exec small -- dd if=/dev/zero of=/dev/null bs=200M count=1 || test $? = 137
	limb exec small -- id
	limb rm small
	echo "{\"network\": \"host\"}" >spec
	limb create net --provider "container:$rootfs" --spec spec
	limb exec net -- ls /sys/class/net | tr -d " " >out
	ls /sys/class/net | diff - out
	limb rm net
'
# refused SENTENCE PROVIDER [FLAG...]
refused() {
	local - want=$1 provider=$2 r=0
	set +x
	shift 2
	limb create no --provider "$provider" "$@" 2>err || r=$?
	cat err
	[ "$r" = 125 ] || [ "$r" = 2 ]
	[ "$(wc -l <err)" = 1 ]
	grep -qE "$want" err
	[ "$(podman ps -a -q | wc -l)" = 1 ]
}
test_expect 'what cannot be is one sentence, and leaves no container' '
	refused "needs an image" container
	refused "names no image" "container:--privileged"
	refused "No such file" "container:/no/such/directory"
	echo "{\"limits\": {\"disk_bytes\": 1}}" >spec
	refused "cannot keep the limit .disk_bytes" "container:$rootfs" --spec spec
	echo "{\"network\": 7}" >spec
	refused "true, false or a network" "container:$rootfs" --spec spec
	refused "podman cannot make the container" "container:localhost:1/no/such"
'
test_expect 'stopped and started it has its files, and what was outside the root is there, too' '
	limb stop a
	wait_state a stopped
	limb start a
	wait_state a live
	limb exec a -- cat f /etc/mine
'
test_expect 'its first process dies: another life by itself' '
	before=$(inspect_of a .incarnation)
	kill_9 "$(pid_of a init)"
	wait_for "test \"\$(inspect_of a .incarnation)\" = $((before + 1))"
	wait_state a live
	limb exec a -- cat f
'
test_expect 'B25 cut off twenty times, there is one attach inside, one client here' '
	limb exec a -- true
	# Rootless it goes on as a child of itself.
	clients=$(pids_with "podman exec -i $(container_of a)" | wc -l)
	for i in $(seq 20); do
		# Asked to, it does not wait any longer before it tries again.
		[ $((i % 3)) != 0 ] || limb start a -q || true
		wait_state a live
		if [ $((i % 2)) = 0 ]; then
			kill_9 "$(pid_of a transport)"
		else
			kill_9 "$(pid_of a ingest)"
		fi
	done
	wait_state a live
	inside="podman top $(container_of a) args"
	wait_for "test \$($inside | grep -c attach) = 1"
	test "$($inside | grep -c "limb-syncd daemon")" = 1
	test "$(pids_with "podman exec -i $(container_of a)" | wc -l)" = "$clients"
	! have root || test "$clients" = 1
	verify_equal a
'
test_expect 'B10 its root is removed here: halted, and made again, equal' '
	limb exec a -- sh -c "mkdir d; seq 1000 >d/n"
	rm -rf "$(root_of a)"
	wait_state a halted
	limb rebuild a
	limb exec a -- sh -c "test ! -e /etc/mine"
	limb exec a -- sh -c "mkdir -p d; seq 1000 >d/n"
	verify_equal a
'
test_expect 'its container is removed behind our back: made again, equal' '
	podman rm -f "$(container_of a)"
	wait_for "case \$(state_of a) in lost | away | halted) true ;; *) false ;; esac"
	limb rebuild a
	verify_equal a
	limb exec a -- cat d/n | wc -l | grep -qx 1000
'
test_expect 'removed, no container is left' '
	limb rm a
	test -z "$(podman ps -a -q)"
'
allow_error '^(container|limbd): '
test_done
