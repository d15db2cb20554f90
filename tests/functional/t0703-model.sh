#!/bin/bash
# Whatever both sides do, with lines cut and daemons killed at any time: when it is quiet
# both are equal, nothing is left beside, and each version that was ever acknowledged is in
# the journal.
#
# A seed makes a script, a line each:
#
#	E put PATH TEXT | add PATH TEXT | mkdir PATH | mv A B | rm PATH | mode PATH MODE
#	B put PATH TEXT | mv A B | rm PATH		the same by limb cp, mv, rm
#	cut, back					the line
#	kill limbd | ingest | syncd
#	quiet						everything has to be as said above
#
# MODEL_SEEDS="N..." runs these seeds, MODEL_SCRIPT=FILE a script; SEEDS=N so many of them
# with check-long (1000). One that fails is made as short as it can be, and printed.
. "${0%/*}/away-lib.sh"

# ---- scripts ----

paths=(a b d/a d/b d/e/a d/e f/a f)
one_line() {
	local path=${paths[RANDOM % ${#paths[@]}]} other=${paths[RANDOM % ${#paths[@]}]}
	case $((RANDOM % 20)) in
	0 | 1 | 2) echo "E put $path e$RANDOM" ;;
	3) echo "E add $path e$RANDOM" ;;
	4) echo "E mkdir $path" ;;
	5) echo "E mv $path $other" ;;
	6) echo "E rm $path" ;;
	7) echo "E mode $path 6$((RANDOM % 8))4" ;;
	8 | 9 | 10 | 11) echo "B put $path b$RANDOM" ;;
	12) echo "B mv $path $other" ;;
	13) echo "B rm $path" ;;
	14) echo cut ;;
	15) echo back ;;
	16) echo "kill $(((RANDOM % 3) ? 0 : 1))" | sed 's/ 0/ limbd/; s/ 1/ syncd/' ;;
	17) echo 'kill ingest' ;;
	18) echo quiet ;;
	19) echo cut ;;
	esac
}
script_of() {
	local n
	RANDOM=$1
	for path in a d/a d/e/a b; do
		echo "E put $path base$path" | sed 's|\(base.*\)/|\1-|; s|\(base.*\)/|\1-|'
	done
	echo quiet
	for ((n = 0; n < 24; n++)); do
		one_line
	done
	echo quiet
}

# ---- one script, in an environment of its own ----

on_environment() {
	local root=$1
	shift
	case $1 in
	put)
		mkdir -p "$root/$(dirname "$2")"
		printf %s "$3" >"$root/$2.new"
		mv -T "$root/$2.new" "$root/$2" || rm -f "$root/$2.new"
		;;
	add) [ -d "$root/$2" ] || printf %s "$3" >>"$root/$2" ;;
	mkdir) mkdir -p "$root/$2" ;;
	mv) mv -T "$root/$2" "$root/$3" ;;
	rm) rm -r "$root/${2:?}" ;;
	mode)
		chmod "$3" "$root/$2"
		# One that may not be entered only root could compare.
		[ ! -d "$root/$2" ] || chmod u+x "$root/$2"
		;;
	esac
} 2>/dev/null
# What is said to be kept is noted.
on_brain() {
	local name=$1
	shift
	case $1 in
	put)
		if printf %s "$3" | limb cp - "$name:$2"; then
			printf %s "$3" | sha256sum | cut -d' ' -f1 >>"$name.acknowledged"
		fi
		;;
	mv) limb mv "$name:$2" "$name:$3" ;;
	rm) limb rm "$name:$2" ;;
	esac
} >/dev/null 2>&1
kill_one() {
	local pid
	case $2 in
	limbd)
		kill_9 "$(pid_of "$1" limbd)"
		limb up -q >/dev/null
		;;
	ingest) kill -KILL "$(inspect_of "$1" .pids.ingest)" ;;
	syncd)
		for pid in $(pgrep -f "daemon --dir $T/far/$1/"); do
			kill -KILL "$pid"
		done
		;;
	esac
} 2>/dev/null
# Whether all holds; else what does not.
is_quiet() {
	local name=$1 root=$2
	back "$name" || return 1
	wait_for -t 60 "test \"\$(status_of $name '.counts.pending_changes')\" = 0" || {
		echo "changes wait for ever"
		return 1
	}
	limb sync "$name" >/dev/null || return 1
	verify_equal "$name" || {
		echo "not equal"
		return 1
	}
	test "$(status_of "$name" .counts.unapplied)" = 0 || {
		echo "refused"
		return 1
	}
	test -z "$(find "$root" -name '.limb-*')" || {
		echo "left beside: $(find "$root" -name '.limb-*')"
		return 1
	}
	find "$root" -type f -exec sha256sum {} + | cut -d' ' -f1 >>"$name.acknowledged"
	limb journal dump "$name" --json | grep -o 'sha256:[0-9a-f]*' | sort -u >"$name.had"
	sort -u "$name.acknowledged" | sed 's/^/sha256:/' | comm -23 - "$name.had" >lost
	test ! -s lost || {
		echo "versions are lost: $(cat lost)"
		return 1
	}
	# Reads every content again.
	limb journal verify "$name" >verify.out || {
		cat verify.out
		return 1
	}
}
# run_script NAME FILE
run_script() {
	local - name=$1 file=$2 root r=0 who rest
	set +ex
	away_create "$name" || return 1
	root=$(away_root "$name")
	: >"$name.acknowledged"
	while read -r who rest; do
		# shellcheck disable=SC2086 # words
		case $who in
		E) on_environment "$root" $rest ;;
		B) on_brain "$name" $rest ;;
		cut) away "$name" >/dev/null ;;
		back) back "$name" >/dev/null ;;
		kill) kill_one "$name" $rest ;;
		quiet)
			is_quiet "$name" "$root" || {
				r=1
				break
			}
			;;
		esac
	done <"$file"
	rm -f "$T/down/$name"
	limb rm "$name" --force >/dev/null 2>&1
	return "$r"
}
# Each line is left out that is not needed for it to fail.
shrink() {
	local file=$1 n=0 line lines
	lines=$(wc -l <"$file")
	for ((line = lines - 1; line > 0 && n < 60; line--)); do
		sed "${line}d" "$file" >"$file.less"
		n=$((n + 1))
		run_script "s$n" "$file.less" >/dev/null 2>&1 || mv "$file.less" "$file"
	done
}
try() {
	local name=$1 file=$2
	run_script "$name" "$file" >said 2>&1 && return
	cat said
	! have long || shrink "$file"
	echo "the script:"
	cat "$file"
	return 1
}

brain_up
if [ -n "${MODEL_SCRIPT-}" ]; then
	cp "$MODEL_SCRIPT" script
	test_expect "the script $MODEL_SCRIPT" 'try model script'
	test_done
fi
seeds=${MODEL_SEEDS-'1 2 3'}
! have long || seeds=${MODEL_SEEDS-$(seq "${SEEDS:-1000}")}
# shellcheck disable=SC2034 # in tests
for seed in $seeds; do
	script_of "$seed" >script
	test_expect "seed $seed" 'try "m$seed" script'
done
test_done
