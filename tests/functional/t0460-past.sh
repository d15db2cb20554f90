#!/bin/bash
# MNT/.at/NAME@POINT is the tree of that moment, whatever happens later, and cannot be written;
# it needs no limbd, and ends with its environment.
. "${0%/*}/brain-lib.sh"
need fuse getfattr python3

A=$T/state/mnt/.at
export A
moments=30
operations=100
mkdir tree
brain_up
limb create box --provider local --root "$T/tree" >/dev/null || test_result 'not ok' create

# operate SEED N: N operations of all kinds on the tree.
cat >operate.py <<'END'
import os, random, sys
random.seed(int(sys.argv[1]))
os.chdir(sys.argv[3])
names = ["a", "b", "c", "dir", "e f", "g\n", "h"]
# What is there is looked at now and then: most of it is still there ten operations later.
def look():
    global directories, entries
    walk = list(os.walk("."))
    directories = [d for d, _, _ in walk]
    entries = [os.path.join(d, n) for d, ds, fs in walk for n in ds + fs]
def fresh():
    d = random.choice(directories)
    return os.path.join(d if d.count("/") < 4 else ".", random.choice(names) + str(random.randrange(40)))
def write(p, mode):
    if os.path.islink(p) or os.path.isdir(p):
        return
    with open(p, mode) as f:
        f.write(random.randbytes(random.choice([0, 1, 100, 5000])))
def remove(p):
    if os.path.isdir(p) and not os.path.islink(p):
        for e in os.listdir(p):
            remove(os.path.join(p, e))
        os.rmdir(p)
    else:
        os.unlink(p)
def one():
    old, new = random.choice(entries or ["."]), fresh()
    plain = os.path.isfile(old) and not os.path.islink(old)
    kind = random.choice("wwwwwaammmdddlsrtcxx")
    if kind == "w": write(new, "wb")
    elif kind == "a" and plain: write(old, "ab")
    elif kind == "m" and old != ".": os.rename(old, new)
    elif kind == "d": os.mkdir(new)
    elif kind == "l" and plain: os.link(old, new)
    elif kind == "s": os.symlink(random.choice(["a1", "../b2", "/etc/passwd", "../../../../x"]), new)
    elif kind == "r" and random.randrange(3) == 0 and old != ".": remove(old)
    elif kind == "t" and plain: os.truncate(old, random.choice([0, 10, 10000]))
    elif kind == "c" and not os.path.islink(old) and old != ".": os.chmod(old, random.choice([0o600, 0o644, 0o755, 0o700]) | (0o100 if os.path.isdir(old) else 0))
    elif kind == "x" and plain: os.setxattr(old, "user.k", random.randbytes(5))
    else: return False
    return True
n = tries = 0
while n < int(sys.argv[2]):
    if tries % 10 == 0:
        look()
    tries += 1
    try:
        n += one()
    except OSError:
        pass
END
operate() {
	python3 "$T/operate.py" "$1" "$2" "$T/tree"
}
# past_list NAME@POINT
past_list() {
	tree_list "$A/$1/"
}

test_expect "a history of $((moments * operations)) operations, and how the tree was at $moments moments" '
	mkdir want got
	for i in $(seq '$moments'); do
		operate $i '$operations'
		limb sync box --json | jq .seq >seq.$i
		date -u +%Y-%m-%dT%H:%M:%S.%NZ >time.$i
		tree_list tree >want/$i
	done
	test "$(cat seq.* | sort -un | wc -l)" = '$moments'
	cat want/* | grep " l " >/dev/null
	cat want/* | grep "links 2 " >/dev/null
'
test_expect "B91 $moments past views, walked in parallel while new writes arrive, are what was there; the live view is not changed" '
	(
		set +x
		for i in $(seq 1000 1400); do
			test ! -e stop || break
			operate $i 20
		done
	) &
	writer=$!
	walkers=()
	for i in $(seq '$moments'); do
		past_list "box@$(cat seq.$i)" >got/$i &
		walkers+=($!)
	done
	for pid in "${walkers[@]}"; do
		wait $pid
	done
	touch stop
	wait $writer
	for i in $(seq '$moments'); do
		same_tree want/$i got/$i
	done
	limb sync box
	tree_list tree >want/live
	tree_list "$T/state/mnt/box" >got/live
	same_tree want/live got/live
	# and once more, warm
	for i in 1 17 30; do
		past_list "box@$(cat seq.$i)" >got/$i
		same_tree want/$i got/$i
	done
'
test_expect 'times, labels and jobs name the same trees; what moves on is a link to where it was' '
	for i in 3 29; do
		past_list "box@$(cat time.$i)" >got/time
		same_tree want/$i got/time
	done
	limb label box old --at "$(cat seq.7)"
	past_list box@old >got/label
	same_tree want/7 got/label
	# equal content has equal numbers: nothing of it is read
	test "$(stat -c "%d %i" "$A/box@old" "$A/box@$(cat seq.7)" | sort -u | wc -l)" = 1
	diff -r "$A/box@old" "$A/box@$(cat seq.7)"
	limb label box old --at "$(cat seq.8)"
	wait_for "past_list box@old >got/label; same_tree want/8 got/label"
	limb exec box --json -- sh -c "echo job >by-job" | jq -r .job_id >job
	test "$(cat "$A/box@after:$(cat job)/by-job")" = job
	test ! -e "$A/box@before:$(cat job)/by-job"
	test -d "$A/box@before:$(cat job)"
	head=$(inspect_of box .seq)
	for name in HEAD now; do
		test "$(readlink "$A/box@$name")" = "box@$head"
	done
	test "$(readlink "$A/box@HEAD~1")" = "box@$(limb points box --json | jq "[.points[] | select(.kind != \"label\" and .seq < $head)][0].seq")"
	tree_list tree >want/head
	past_list box@HEAD >got/head
	same_tree want/head got/head
'
test_expect 'what is no point of no environment is not there, and nothing is listed' '
	for name in box@999999999 box@0 box@ @1 box nobody@1 box@no-label box@before:j-none \
		box@1999-01-01T00:00:00Z box@HEAD~9999 "box@a b" "box@1x" "$(printf %0200d 1)@1"; do
		test ! -e "$A/$name"
		expect_code 2 ls -d "$A/$name" 2>said
		grep "No such file or directory" said
	done
	test -z "$(ls -A "$A")"
	test "$(find "$A" | wc -l)" = 1
	test "$(ls "$T/state/mnt")" = box
	# as soon as there is one
	test ! -e "$A/box@fresh"
	limb label box fresh
	test -d "$A/box@fresh"
'
test_expect 'every write is refused: the file system is read-only' '
	cd "$A/box@$(cat "$T/seq.30")"
	file=$(find . -type f -size +0 -print -quit)
	dir=$(find . -mindepth 1 -type d -print -quit)
	test -n "$file"
	test -n "$dir"
	refused() {
		expect_code 1 "$@" 2>"$T/said"
		grep -i "read-only file system" "$T/said"
	}
	refused touch "$file"
	refused touch new
	refused mkdir new
	refused mkdir "$A/new"
	refused rmdir "$dir"
	refused rm -f "$file"
	refused ln "$file" new
	refused ln -s x new
	refused mv "$file" new
	refused chmod 600 "$file"
	refused truncate -s 0 "$file"
	refused setfattr -n user.x -v y "$file"
	refused mkfifo new
	refused dd if=/dev/null of="$file" conv=notrunc status=none
	python3 - "$file" <<-"END"
		import errno, mmap, os, sys
		for flags in (os.O_RDWR, os.O_WRONLY, os.O_RDWR | os.O_TRUNC, os.O_WRONLY | os.O_APPEND, os.O_RDONLY | os.O_TRUNC):
		    try:
		        os.open(sys.argv[1], flags)
		        sys.exit("flags %o were taken" % flags)
		    except OSError as e:
		        assert e.errno == errno.EROFS, e
		fd = os.open(sys.argv[1], os.O_RDONLY)
		try:
		    mmap.mmap(fd, 1, mmap.MAP_SHARED, mmap.PROT_READ | mmap.PROT_WRITE)
		    sys.exit("a shared writable mapping was given")
		except OSError as e:
		    assert e.errno == errno.EACCES, e
		assert len(mmap.mmap(fd, 0, mmap.MAP_SHARED, mmap.PROT_READ)) > 0
	END
	cd "$T"
	past_list "box@$(cat seq.30)" >got/30
	same_tree want/30 got/30
'
test_expect 'of itself it says which record it shows' '
	seq=$(cat seq.5)
	test "$(getfattr --absolute-names --only-values -n user.limb.seq "$A/box@$seq")" = $seq
	test "$(getfattr --absolute-names --only-values -n user.limb.state "$A/box@$seq")" = past
	grep " $A ro,nosuid,nodev,noexec,relatime .* fuse.limbfs " /proc/self/mountinfo
	df "$A/box@$seq"
	echo "from here" | limb cp - box:copied
	limb exec box -- sh -c "echo there >made"
	limb label box both
	for dir in "$T/state/mnt/box" "$A/box@both"; do
		test "$(getfattr --absolute-names --only-values -n user.limb.origin "$dir/copied")" = brain
		test "$(getfattr --absolute-names --only-values -n user.limb.origin "$dir/made")" = environment
		expect_code 1 getfattr -n user.limb.job "$dir/made"
		test -z "$(getfattr -d -m user.limb "$dir/made")"
	done
'
test_expect 'limbd is killed: the past is there, also what nobody had looked at; the next limbd finds it served' '
	past=$(pids_with limb-fs " --past ")
	kill_9 "$(pid_of box limbd)"
	for i in 2 11 23; do
		past_list "box@$(cat time.$i)" >got/$i
		same_tree want/$i got/$i
	done
	limb up -q
	test "$(pids_with limb-fs " --past ")" = "$past"
	wait_state box live
	past_list "box@$(cat seq.12)" >got/12
	same_tree want/12 got/12
'
test_expect 'its limb-fs is killed: another takes its place' '
	past=$(pids_with limb-fs " --past ")
	cd "$A/box@$(cat seq.1)"
	kill_9 "$past"
	cd "$T"
	wait_for "[[ \$(pids_with limb-fs \" --past \") != @(|$past) ]] && test -d $A/box@$(cat seq.1)"
	past_list "box@$(cat seq.1)" >got/1
	same_tree want/1 got/1
	test "$(grep -c " $A " /proc/self/mountinfo)" = 1
'
test_expect 'B59 what was deleted stays deleted from then on, and is there before, also after a restart' '
	mkdir -p tree/del/dir
	echo one >tree/del/file
	echo two >tree/del/again
	echo three >tree/del/dir/x
	limb label box full
	rm -r tree/del/file tree/del/dir tree/del/again
	limb label box less
	echo new >tree/del/again
	limb label box more
	limb down -q
	wait_for "! grep -q \" $A \" /proc/self/mountinfo"
	test ! -e "$A"
	limb up -q
	wait_state box live
	for again in no yes; do
		test "$(cat "$A/box@full/del/again")" = two
		test "$(cat "$A/box@full/del/dir/x")" = three
		test "$(cat "$A/box@full/del/file")" = one
		test -z "$(ls -A "$A/box@less/del")"
		test "$(ls -A "$A/box@more/del")" = again
		test "$(cat "$A/box@more/del/again")" = new
		mv tree/del tree/moved-$again
		limb rebuild box --force -q || limb verify box
		mv tree/moved-$again tree/del
		limb sync box
	done
'
test_expect 'the past of what is not trusted is as harmless as its present' '
	mkdir -p links/d/e
	printf "#!/bin/sh\necho ran\n" >links/run
	chmod 4755 links/run
	echo secret >links/private
	chmod 600 links/private
	ln -s /etc/passwd links/d/absolute
	ln -s ../../../etc/passwd links/d/e/up
	ln -s ../../x links/d/e/two
	ln links/d/e/two links/two
	limb create other --provider local --root "$T/links" >/dev/null
	limb trust other --off
	limb label other then
	rm -r links/d
	P=$A/other@then
	wait_for "test $(stat -c %U "$P/run") != $(id -un)"
	test "$(stat -c %a "$P/run" "$P/private" "$P/d" | tr "\n" " ")" = "555 444 555 "
	expect_code 126 "$P/run"
	test "$(cat "$P/private")" = secret
	test "$(readlink "$P/d/absolute")" = ../etc/passwd
	test "$(readlink "$P/d/e/up")" = ../../etc/passwd
	test "$(readlink "$P/d/e/two")" = ../../x
	# the same link, with another name: there it would lead out
	test "$(readlink "$P/two")" = x
	test "$(stat -c %h "$P/two")" = 2
	test ! -e "$P/d/absolute"
	limb trust other
	wait_for "test \"\$(stat -c %U $P/run)\" = $(id -un)"
	test "$(readlink "$P/d/absolute")" = /etc/passwd
	test "$(stat -c %a "$P/private")" = 600
	expect_code 126 "$P/run"
'
test_expect 'an environment that is removed has no past, unless its journal was kept; the name is the next one'\''s' '
	first=$(inspect_of other .seq)
	exec 5<"$A/other@then/private"
	limb rm other --force
	wait_for "test ! -e $A/other@then"
	expect_code 2 ls "$A/other@$first" 2>said
	grep "No such file or directory" said
	test "$(cat <&5)" = secret
	exec 5<&-
	limb create other --provider local --root "$T/links" >/dev/null
	test ! -e "$A/other@then"
	limb label other second
	test "$(cat "$A/other@second/private")" = secret
	limb rm other --force --keep-journal
	sleep 1.2
	test "$(cat "$A/other@second/private")" = secret
	test "$(stat -c %a "$A/other@second/private")" = 444
	limb down -q
	limb up -q
	wait_state box live
	test "$(cat "$A/other@second/private")" = secret
	mkdir third
	limb create other --provider local --root "$T/third" >/dev/null
	wait_for "test ! -e $A/other@second"
'
test_done
