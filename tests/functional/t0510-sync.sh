#!/bin/bash
# What changes in an environment is in the journal when limb sync returns, however it changed.
. "${0%/*}/brain-lib.sh"

if have long; then
	dirs=500 files=20000 node_modules=30000 saves=100
else
	dirs=100 files=3000 node_modules=3000 saves=15
fi
export dirs files node_modules saves

# converged: sync, and both sides are equal
converged() {
	limb sync s >/dev/null
	verify_equal s
}
in_journal() {
	limb cp "s:$1" -
}

brain_up
mkdir root
limb create s --provider local --root "$T/root" >/dev/null || test_result 'not ok' create
syncd=$(pid_of s syncd)
export syncd

test_expect 'B01 what is made in a directory at once is there without another event' '
	for i in $(seq "$dirs"); do
		mkdir -p "root/d$i/x/y"
		echo "$i" >"root/d$i/x/y/f"
	done
	limb sync s
	test "$(inspect_of s .tree.files)" = "$dirs"
	for i in 1 "$dirs"; do
		test "$(in_journal "d$i/x/y/f")" = "$i"
	done
	verify_equal s
'

test_expect 'B02 more events than the queue holds: counted, and everything looked at' '
	mkdir root/flood
	(cd root/flood; seq "$files" | xargs touch)
	limb sync s
	kill -STOP "$syncd"
	(
		cd root/flood
		seq "$((files / 2))" | xargs rm
		for i in $(seq "$((files / 2 + 1))" "$((files / 2 + 100))"); do echo changed >"$i"; done
		seq -f "new%g" "$((files > 10000 ? files : 9000))" | xargs touch
		seq -f "new%g" "$((files > 10000 ? files : 9000))" | xargs touch
	)
	kill -CONT "$syncd"
	converged
	status_of s .counts
	status_of s .counts | jq -e ".overflows >= 1 and .rescans >= 1"
	test "$(inspect_of s .tree.files)" = "$(find root -type f | wc -l)"
	rm -rf root/flood
	converged
	test "$(inspect_of s .tree.files)" = "$dirs"
'

test_expect 'B04 paths after their parents were renamed are the true ones' '
	mkdir -p root/a1/a2/a3/a4/a5/a6/a7/a8/a9
	limb sync s
	mv root/a1 root/b1
	mv root/b1 root/c1
	echo deep >root/c1/a2/a3/a4/a5/a6/a7/a8/a9/f
	mkdir root/a1
	echo new >root/a1/g
	converged
	test "$(in_journal c1/a2/a3/a4/a5/a6/a7/a8/a9/f)" = deep
	test "$(in_journal a1/g)" = new
	expect_code 125 limb ls s:a1/a2
	echo again >root/c1/a2/a3/a4/a5/a6/a7/a8/a9/f
	limb sync s
	test "$(in_journal c1/a2/a3/a4/a5/a6/a7/a8/a9/f)" = again
'

if command -v python3 >/dev/null; then
	test_expect 'B05 a store through a mapping is there when sync returns' '
		head -c 100000 /dev/zero >root/mapped
		limb sync s
		mkfifo tell answer
		python3 - tell answer <<-END &
			import mmap, sys
			with open("root/mapped", "r+b") as f:
			    m = mmap.mmap(f.fileno(), 0)
			    for i in range(3):
			        open(sys.argv[1]).read()
			        m[5000 + i] = 65 + i
			        if i == 0:
			            m.flush()
			        open(sys.argv[2], "w").write("done")
			    open(sys.argv[1]).read()
		END
		for i in 0 1 2; do
			echo >tell
			cat answer
			limb sync s
			in_journal mapped | cmp - root/mapped
		done
		echo >tell
		wait $!
		converged
	'
fi

test_expect 'B07 a large tree is removed while beside it files are made' '
	mkdir -p root/node_modules
	(cd root/node_modules; for d in $(seq 100); do mkdir "$d"; seq -f "$d/f%g" "$((node_modules / 100))" | xargs touch; done)
	limb sync s
	(for i in $(seq 50); do echo "$i" >"root/sibling$i"; sleep 0.01; done) &
	rm -rf root/node_modules
	wait $!
	converged
	test "$(in_journal sibling50)" = 50
	expect_code 125 limb ls s:node_modules
	test "$(pid_of s syncd)" = "$syncd"
	wait_for "test \$(status_of s .counts.watches) = $(find root -type d | wc -l)"
'

test_expect 'B08 moved in and out as a whole, halves of a move apart in time too' '
	mkdir -p outside/tree
	(cd outside/tree; seq 100 | xargs touch)
	echo file >outside/file
	kill -STOP "$syncd"
	mv outside/tree outside/file root/
	kill -CONT "$syncd"
	converged
	limb ls s:tree --json | jq -e ".total == 100"
	mv root/tree root/tree2
	mv root/file root/tree2/
	converged
	test "$(in_journal tree2/file)" = file
	mv root/tree2 outside/
	converged
	expect_code 125 limb ls s:tree2
	expect_code 125 limb ls s:tree
'

test_expect 'B09 every save by another name is seen, what the old handle reads is the old' '
	echo 0 >root/saved
	limb sync s
	exec 5<root/saved
	for i in $(seq "$saves"); do
		case $((i % 3)) in
		0) sed -i "s/.*/$i/" root/saved ;;
		1)
			cp root/saved root/saved~
			echo "$i" >root/.saved.swp
			mv root/.saved.swp root/saved
			rm root/saved~
			;;
		2)
			ln -f root/saved root/saved.bak
			rm root/saved
			echo "$i" >root/saved
			;;
		esac
		limb sync s
		test "$(in_journal saved)" = "$i"
	done
	test "$(cat <&5)" = 0
	converged
'

if have root && unshare -Ur true 2>/dev/null; then
	test_expect 'B03 out of watches the rest is polled, and the state says so' '
		mkdir few
		for i in $(seq 200); do mkdir "few/d$i"; echo a >"few/d$i/f"; done
		unshare -Ur sh -c "echo 50 >/proc/sys/user/max_inotify_watches
			export LIMB_STATE=$T/few.state
			limb up && limb create few --provider local --root $T/few" >few.out 2>&1 || { cat few.out; false; }
		LIMB_STATE=$T/few.state limb status few --json >out || true
		jq -e ".environments[0] | .state == \"degraded\" and .counts.polled_directories > 100 and
			any(.reasons[]; .code == \"watch_limit\")" out
		echo changed >few/d180/f
		LIMB_STATE=$T/few.state limb sync few
		test "$(LIMB_STATE=$T/few.state limb cp few:d180/f -)" = changed
		LIMB_STATE=$T/few.state limb down --stop
	'
fi

test_expect 'B22 names that come and go all the time: sync and verify end well' '
	(while test ! -e stop; do echo x >root/temp1; mkdir root/tempd 2>/dev/null; echo y >root/tempd/z; mv root/temp1 root/temp2; rm -rf root/temp2 root/tempd; done) 2>/dev/null &
	for i in 1 2 3 4 5; do
		limb sync s
	done
	limb create s2 --provider local --from root
	touch stop
	wait $!
	converged
	limb rm s2 --force
	rm stop
'

test_expect 'one environment'\''s trouble is its own: another syncs while one is stopped' '
	mkdir other
	limb create o --provider local --root "$T/other"
	kill -STOP "$syncd"
	echo 1 >other/f
	limb sync o
	test "$(limb cp o:f -)" = 1
	test "$(limb exec o -- cat f)" = 1
	r=0
	limb sync s --timeout 1 || r=$?
	test "$r" = 124
	kill -CONT "$syncd"
	limb rm o --force
	converged
'

kill -CONT "$syncd" 2>/dev/null
test_done
