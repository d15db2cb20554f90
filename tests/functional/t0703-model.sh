#!/bin/bash
# Whatever both sides do, with lines cut and daemons killed at any time, late deliveries, lost
# events, full disks, clocks that jump and trees that are made anew: when it is quiet both are
# equal, nothing is left beside, and each version that was ever acknowledged is in the journal.
#
# A seed makes a script, a line each:
#
#	E put PATH TEXT | add PATH TEXT | mkdir PATH | mv A B | rm PATH | mode PATH MODE |
#	  ln A B | sym PATH TEXT
#	B put PATH TEXT | mv A B | rm PATH		the same by limb cp, mv, rm
#	sync						what is there now is acknowledged
#	cut, back					the line
#	stall transport | ingest | syncd		stands still; what B does meanwhile is done
#	go						at once, and arrives when it goes on
#	kill limbd | ingest | syncd
#	now brain | far WORD...				LIMB_FAULT_NOW (base/fault.h) there, until
#	now						it says nothing any more
#	rebuild						its root is gone, and made anew
#	quiet						everything has to be as said above
#
# MODEL_SEEDS="N..." runs these seeds, MODEL_SCRIPT=FILE a script; SEEDS=N so many of them
# (check-long: 1000), MODEL_WORKERS=N at a time. One that fails is made as short as it can be,
# and printed.
. "${0%/*}/away-lib.sh"

# ---- scripts ----

paths=(a b d/a d/b d/e/a d/e f/a f)
brain_faults=('log.append:error=ENOSPC' 'ingest.pack:error=ENOSPC' 'keep.write:cut=ENOSPC'
	'log.sync:error=ENOSPC' clock:-7200 clock:+100000)
far_faults=('watch.read:error' 'watch.read:error' 'apply.copy:cut=ENOSPC' 'apply.push:error=ENOSPC'
	'session.send:cut' clock:-7200 clock:+100000)
have faults || brain_faults=() far_faults=()
one_of() {
	shift $((RANDOM % $#))
	echo "$1"
}
one_line() {
	local path=${paths[RANDOM % ${#paths[@]}]} other=${paths[RANDOM % ${#paths[@]}]}
	case $((RANDOM % 28)) in
	0 | 1 | 2) echo "E put $path e$RANDOM" ;;
	3) echo "E add $path e$RANDOM" ;;
	4) echo "E mkdir $path" ;;
	5) echo "E mv $path $other" ;;
	6) echo "E rm $path" ;;
	7) echo "E mode $path 6$((RANDOM % 8))4" ;;
	8) echo "E $(one_of ln sym) $path $other" ;;
	9 | 10 | 11 | 12) echo "B put $path b$RANDOM" ;;
	13) echo "B mv $path $other" ;;
	14) echo "B rm $path" ;;
	15 | 16) echo cut ;;
	17) echo back ;;
	18) echo "kill $(one_of limbd limbd syncd)" ;;
	19) echo 'kill ingest' ;;
	20) echo quiet ;;
	21) echo sync ;;
	22) echo "stall $(one_of transport ingest syncd)" ;;
	23) echo go ;;
	24) [ ${#far_faults[@]} = 0 ] || echo "now far $(one_of "${far_faults[@]}")" ;;
	25) [ ${#brain_faults[@]} = 0 ] || echo "now brain $(one_of "${brain_faults[@]}")" ;;
	26) echo now ;;
	27) [ $((RANDOM % 3)) != 0 ] || echo rebuild ;;
	esac
}
script_of() {
	local n
	RANDOM=$1
	for path in a d/a d/e/a b; do
		echo "E put $path base${path//\//-}"
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
	ln) ln -T "$root/$2" "$root/$3" ;;
	sym)
		[ -e "$root/$2" ] || [ -L "$root/$2" ] || ln -s "$3" "$root/$2"
		;;
	mode)
		[ ! -L "$root/$2" ] || return
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
limbd_up() {
	LIMB_FAULT_NOW=$T/now.brain limb up -q >/dev/null
}
pids_of() {
	case $2 in
	syncd) pgrep -f "daemon --dir $T/far/$1/" ;;
	limbd) pid_of "$1" limbd ;;
	*) inspect_of "$1" ".pids.$2 // empty" ;;
	esac
}
kill_one() {
	local pid
	case $2 in
	limbd)
		kill_9 "$(pid_of "$1" limbd)"
		limbd_up
		;;
	*)
		for pid in $(pids_of "$1" "$2"); do
			kill -KILL "$pid"
		done
		;;
	esac
} 2>/dev/null
stall() {
	local pid
	for pid in $(pids_of "$1" "$2"); do
		kill -STOP "$pid"
		stalled+=" $pid"
	done
}
go_on() {
	local pid
	for pid in $stalled; do
		kill -CONT "$pid"
	done 2>/dev/null
	stalled=
	[ ${#waiting[@]} = 0 ] || wait "${waiting[@]}"
	waiting=()
}
now_over() {
	now_say "$T/now.far.$1"
	# A round that failed is for ever.
	grep -q '^log' "$T/now.brain" || {
		now_say "$T/now.brain"
		return
	}
	now_say "$T/now.brain"
	kill_one "$1" limbd
}
tree_sha256() {
	find "$1" -type f -exec sha256sum {} + 2>/dev/null | cut -d' ' -f1
}
# What is there when it begins.
synced() {
	local had
	[ -z "$stalled" ] || return
	had=$(tree_sha256 "$2")
	! LIMB_TIME_S=20 limb sync "$1" >/dev/null 2>&1 || echo "$had" >>"$1.acknowledged"
}
rebuild() {
	go_on
	now_over "$1"
	back "$1" >/dev/null
	limb sync "$1" >/dev/null 2>&1
	rm -rf "${2:?}"
	wait_state "$1" halted >/dev/null
	limb rebuild "$1" --force
}
# Whether all holds; else what does not.
is_quiet() {
	local name=$1 root=$2
	go_on
	now_over "$name"
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
	tree_sha256 "$root" >>"$name.acknowledged"
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
# hears NAME WHO FILE: what FILE says reaches it. Of limb-ingest a normal user is not told.
hears() {
	local pid maps
	for pid in $(pids_of "$1" "$2"); do
		maps=$(cat "/proc/$pid/maps" 2>/dev/null) || return 0
		case $maps in
		*"$T/$3"*) return 0 ;;
		esac
	done
	echo "$2 does not hear $3"
	return 1
}
# run_script NAME FILE
run_script() {
	local - name=$1 file=$2 root r=0 who rest stalled='' waiting=()
	set +ex
	now_say "$T/now.far.$name"
	now_say "$T/now.brain"
	echo "set -- env 'LIMB_FAULT_NOW=$T/now.far.$name' \"\$@\"" >"$T/far/$name.rc"
	away_create "$name" || return 1
	if have faults; then
		hears "$name" syncd "now.far.$name" && hears "$name" limbd now.brain && hears "$name" ingest now.brain || return 1
	fi
	root=$(away_root "$name")
	: >"$name.acknowledged"
	while read -r who rest; do
		# shellcheck disable=SC2086 # words
		case $who in
		E) on_environment "$root" $rest ;;
		B)
			if [ -n "$stalled" ]; then
				on_brain "$name" $rest &
				waiting+=($!)
			else
				on_brain "$name" $rest
			fi
			;;
		sync) synced "$name" "$root" ;;
		stall) stall "$name" "$rest" ;;
		go) go_on ;;
		now)
			case $rest in
			'') now_over "$name" ;;
			far*) now_say "$T/now.far.$name" "${rest#far }" ;;
			brain*) now_say "$T/now.brain" "${rest#brain }" ;;
			esac
			;;
		rebuild)
			rebuild "$name" "$root" >rebuild.out 2>&1 || {
				cat rebuild.out
				r=1
				break
			}
			root=$(away_root "$name")
			;;
		cut)
			touch "$T/down/$name"
			kill_one "$name" transport
			;;
		back)
			# Whom one stands still for cannot be waited for: limbd comes back by itself.
			if [ -n "$stalled" ]; then
				rm -f "$T/down/$name"
			else
				back "$name" >/dev/null
			fi
			;;
		kill) kill_one "$name" $rest ;;
		quiet)
			is_quiet "$name" "$root" || {
				r=1
				break
			}
			;;
		esac
	done <"$file"
	go_on
	now_over "$name"
	rm -f "$T/down/$name"
	limb rm "$name" --force >/dev/null 2>&1
	return "$r"
}
# What is not needed for it to fail is left out: halves, quarters, ... single lines.
shrink() {
	local -
	set +x
	local file=$1 n=0 at part lines end=$((SECONDS + shrink_s))
	part=$(($(wc -l <"$file") / 2))
	while [ "$part" -gt 0 ]; do
		for ((at = 1; at <= $(wc -l <"$file") && SECONDS < end; )); do
			lines=$(sed "$at,$((at + part - 1))d" "$file" | tee "$file.less" | wc -l)
			# It is looked at, at its end.
			[ "$lines" -gt 0 ] || break
			[ "$(tail -n 1 "$file.less")" = quiet ] || break
			n=$((n + 1))
			if run_script "s$n" "$file.less" >/dev/null 2>&1; then
				at=$((at + part))
			else
				cp "$file.less" "$file"
			fi
		done
		part=$((part / 2))
	done
}
try() {
	local -
	set +x
	local name=$1 file=$2
	run_script "$name" "$file" >said 2>&1 && return
	cat said
	cp "$file" "$name.script"
	shrink "$file"
	echo "of the $(wc -l <"$name.script") lines of $T/$name.script these are enough:"
	cat "$file"
	return 1
}

shrink_s=${MODEL_SHRINK_S:-40}
limit_s=${MODEL_LIMIT_S:-60}
# shellcheck disable=SC2034 # of lib.sh: it runs beside others
[ "$wait_s" -gt 60 ] || wait_s=60
if [ -n "${MODEL_SCRIPT-}" ]; then
	cp "$MODEL_SCRIPT" script
	MODEL_SEEDS=
elif [ -z "${MODEL_SEEDS+set}" ]; then
	count=50
	! have sanitizers || count=10
	! have long || count=1000
	seeds=$(seq "${SEEDS:-$count}")
	workers=${MODEL_WORKERS:-4}
	for ((w = 0; w < workers; w++)); do
		MODEL_SEEDS=$(awk "NR % $workers == $w" <<<"$seeds") \
			bash "$LIMB_TOP_SRCDIR/tests/functional/${0##*/}" >"worker.$w" 2>&1 &
	done
	wait
	for seed in $seeds; do
		line=$(grep -hE "^(not )?ok [0-9]+ - seed $seed( #|\$)" worker.*)
		case $line in
		*SKIP*) test_skip "seed $seed" 'no time' ;;
		*) line=${line%% [0-9]*} && test_result "${line:-not ok}" "seed $seed" ;;
		esac
	done
	cat worker.* | grep -v '^ok\|^1\.\.' | comment
	! grep -q '^not ok [0-9]* - nothing' worker.* || test_result 'not ok' 'nothing is left behind by one'
	test_done
fi
now_say "$T/now.brain"
export LIMB_FAULT_NOW=$T/now.brain
brain_up
unset LIMB_FAULT_NOW
# What a full disk and a lost line are told with.
allow_error 'limb[a-z-]*: error'
[ -z "${MODEL_SCRIPT-}" ] || test_expect "the script $MODEL_SCRIPT" 'try model script'
# shellcheck disable=SC2034,SC2016 # in tests
for seed in $MODEL_SEEDS; do
	# On a machine that has other work the rest is for another day.
	if ! have long && [ "$SECONDS" -gt "$limit_s" ]; then
		test_skip "seed $seed" 'no time'
		continue
	fi
	script_of "$seed" >script
	test_expect "seed $seed" 'try "m$seed" script'
done
test_done
