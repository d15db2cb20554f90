# shellcheck shell=sh disable=SC2015,SC2013,SC2046,SC3045
# What the providers of remote.h run on the other machine; remote.c sends it there,
# without the comments, then its arguments, a line each, and reads lines until "over":
#
#	at DIR			where limbfs keeps its things there
#	want			limb-syncd's bytes, please, then the end of the stream
#	bin FILE, root DIR, dir DIR
#	status Running|Stopped|NotFound
#	has ID			an environment (list)
#	fail CODE TEXT
#
# Names are never part of the text of a command, so nothing is ever quoted, and
# what is not needed is not used: a shell, ls, mkdir, mv, rm, cat, wc.
set -u
old_umask=$(umask)
umask 077
LC_ALL=C
export LC_ALL
unset SSH_CLIENT SSH_CONNECTION SSH_TTY SSH_AUTH_SOCK SSH_ORIGINAL_COMMAND
cd / || exit 9

# Byte by byte, as read does: what follows is limb-syncd.
{
	IFS= read -r verb && IFS= read -r id && IFS= read -r mark && IFS= read -r hash &&
		IFS= read -r size && IFS= read -r want_root && IFS= read -r keep &&
		IFS= read -r fresh && IFS= read -r incarnation && IFS= read -r base &&
		IFS= read -r bin
} || exit 9

# A second place of one environment has its number behind the mark: both can be on one
# machine, by two names of it, or share a home.
key=$id
case $mark in
*" $id "*) key=$id.${mark##* } ;;
esac
name=limb-syncd-$hash
uid=$(id -u)
made=
why=
code=permission_denied
other=

say() {
	printf '%s\n' "$1"
}

fail() {
	[ -z "$made" ] || rmdir "$made" 2>/dev/null
	say "fail $1 $2"
	say over
	exit 0
}

# A directory, no link, that nobody else may write to: some of the places below are in
# directories of everybody.
ours() {
	set -- "$1" $(ls -ldn "$1" 2>/dev/null)
	case ${2-} in
	d????[!w]??[!w]*) [ "${4-}" = "${uid:-${4-}}" ] && [ -O "$1" ] ;;
	*) return 1 ;;
	esac
}

# each FUNCTION: with each place in turn, until one is right.
each() {
	for place in "${HOME:-/nonexistent}/.local/share/limbfs" "/var/tmp/limbfs-$uid" \
		"/tmp/limbfs-$uid" "/dev/shm/limbfs-$uid"; do
		"$1" "$place" && return 0
	done
	return 1
}

# try FILE TEXT: can it be written?
try() {
	(say "$2" >"$1") 2>/dev/null
}

usable() {
	[ -d "$1" ] || made_now=$1
	mkdir -p "$1" 2>/dev/null
	ours "$1" || return 1
	try "$1/.try.$key.$$" x
	set -- "$1" $?
	rm -f "$1/.try.$key.$$"
	[ "$2" = 0 ] && return 0
	why="'$1' cannot be written to; is its disk full?"
	code=no_space
	return 1
}

# Not on a file system that is mounted noexec.
runs() {
	try "$1/.try.$key.$$" '#!/bin/sh' && chmod 700 "$1/.try.$key.$$" && "$1/.try.$key.$$" 2>/dev/null
	set -- "$1" $?
	rm -f "$1/.try.$key.$$"
	[ "$2" = 0 ] || why="programs cannot be started from '$1'"
	return "$2"
}

# Where df is there to say so.
roomy() {
	kib=$(df -Pk "$1" 2>/dev/null | tail -n 1 | {
		read -r _ _ _ n _
		say "$n"
	})
	case $kib in
	'' | *[!0-9]*) return 0 ;;
	esac
	[ "$kib" -gt $((size / 1024 + 64)) ] && return 0
	why="'$1' has no room for limb-syncd ($size bytes)"
	code=no_space
	return 1
}

# It says its own hash, and so that it runs, too.
good() {
	[ -f "$1" ] && [ -O "$1" ] || return 1
	if command -v sha256sum >/dev/null 2>&1; then
		case $(sha256sum <"$1") in
		"$hash"*) ;;
		*) return 1 ;;
		esac
	fi
	case $("$1" version 2>&1) in
	*"sha256:$hash"*) return 0 ;;
	*) return 1 ;;
	esac
}

has_bin() {
	ours "$1" && good "$1/$name" && bin=$1/$name
}

takes_bin() {
	made_now=
	usable "$1" && runs "$1" && roomy "$1" && bin_dir=$1 && return 0
	[ -z "$made_now" ] || rmdir "$made_now" 2>/dev/null
	return 1
}

get_bin() {
	if each has_bin; then
		say "bin $bin"
		return
	fi
	each takes_bin || fail "$code" "no directory there takes limb-syncd: ${why:-none can be written to}"
	tmp=$bin_dir/.$name.$key.$$
	trap 'rm -f "$tmp"; exit 9' HUP INT TERM PIPE
	say want
	cat >"$tmp" 2>/dev/null
	got=$(wc -c <"$tmp")
	if [ "${got:-0}" -ne "$size" ]; then
		rm -f "$tmp"
		rmdir "$bin_dir" 2>/dev/null
		fail no_space "only ${got:-0} of limb-syncd's $size bytes came to '$bin_dir'; is its disk full?"
	fi
	chmod 700 "$tmp"
	if ! good "$tmp"; then
		why=$("$tmp" version 2>&1 | tail -n 1)
		rm -f "$tmp"
		rmdir "$bin_dir" 2>/dev/null
		fail unsupported "limb-syncd does not run there ($(uname -sm)): ${why:-it says nothing}"
	fi
	mv -f "$tmp" "$bin_dir/$name" || fail io_error "limb-syncd cannot be named in '$bin_dir'"
	trap - HUP INT TERM PIPE
	bin=$bin_dir/$name
	say "bin $bin"
}

takes_state() {
	made_now=
	usable "$1" && base=$1 && made=$made_now && return 0
	[ -z "$made_now" ] || rmdir "$made_now" 2>/dev/null
	return 1
}

# True if another environment's root is this one, above it, or below it.
taken_in() {
	ours "$1" || return 1
	for at in "$1"/*/at; do
		[ -f "$at" ] && [ "$at" != "$1/$key/at" ] || continue
		IFS= read -r other <"$at" || continue
		case $root/ in
		"$other"/*) return 0 ;;
		esac
		case $other/ in
		"$root"/*) return 0 ;;
		esac
	done
	return 1
}

refuse_taken() {
	each taken_in || return 0
	[ "$root" != "$other" ] ||
		fail conflict "'$root' there is the root of another environment; choose another directory"
	fail conflict "'$root' there and the root '$other' of another environment contain each other; choose another directory"
}

# rm would empty what is mounted there.
mounted_in() {
	(cd -P -- "$1" && grep -qF " $(pwd -P)/" /proc/mounts) 2>/dev/null
}

is_empty() {
	[ -z "$(ls -A "$1" 2>/dev/null)" ]
}

move_aside() {
	old=$root.before-$incarnation
	while [ -e "$old" ] || [ -L "$old" ]; do
		old=$old.1
	done
	# Of those that limbfs owns, the last one is enough.
	if [ -z "$want_root" ]; then
		for gone in "$root".before-*; do
			mounted_in "$gone" || rm -rf "$gone"
		done
	fi
	mv "$root" "$old" || fail io_error "the old root '$root' there cannot be moved aside"
}

do_create() {
	if [ -z "$base" ] || ! ours "$base"; then
		each takes_state || fail "$code" "no directory there can be limbfs's: ${why:-none can be written to}"
	fi
	say "at $base"
	d=$base/$key
	root=${want_root:-$d/root}
	if [ -e "$root" ] || [ -L "$root" ]; then
		[ -d "$root" ] || fail not_directory "'$root' there is no directory; choose another"
		root=$(cd -P -- "$root" 2>/dev/null && pwd -P) ||
			fail permission_denied "the directory '$root' there cannot be entered"
		[ -r "$root" ] && [ -w "$root" ] ||
			fail permission_denied "the directory '$root' there cannot be read and written"
	fi
	[ "$root" != / ] || fail invalid_path 'a whole machine cannot be the root; choose a directory in it'
	refuse_taken
	case $(cd -P -- "$base" && pwd -P)/ in
	"$root"/*) fail conflict "'$base', where limbfs keeps its own things there, lies in '$root'; choose another directory" ;;
	esac
	mine=
	aside=
	[ -f "$d/at" ] && IFS= read -r mine <"$d/at"
	if [ -d "$root" ] && ! is_empty "$root"; then
		if [ "$mine" = "$root" ]; then
			aside=$fresh
		elif [ -z "$keep" ]; then
			fail conflict "the directory '$root' there is not empty; choose another, or move that away"
		fi
	fi
	get_bin
	[ -z "$aside" ] || move_aside
	mkdir -p "$d/run" || fail no_space "'$d' cannot be made there; is its disk full?"
	if [ ! -d "$root" ]; then
		(umask 022 && mkdir -p "$root") || {
			rmdir "$d/run" "$d" 2>/dev/null
			fail permission_denied "the directory '$root' cannot be made there; make it first, or choose another"
		}
		root=$(cd -P -- "$root" && pwd -P)
		# It may have come by a link to where another one is.
		if each taken_in; then
			rmdir "$root" "$d/run" "$d" 2>/dev/null
			refuse_taken
		fi
	fi
	try "$d/mark" "$mark" && try "$d/at.new" "$root" && mv -f "$d/at.new" "$d/at" || {
		rm -f "$d/mark" "$d/at.new"
		rmdir "$d/run" "$d" 2>/dev/null
		fail no_space "'$d' there cannot be written to; is its disk full?"
	}
	say "root $root"
	say "dir $d/run"
}

do_start() {
	d=$base/$key
	{ [ -d "$d/run" ] && IFS= read -r root <"$d/at"; } ||
		fail file_not_found "what limbfs had in '$d' there is gone"
	[ -d "$root" ] || fail file_not_found "its root '$root' is not there any more"
	get_bin
	# Descriptors are few by default, and every directory of a deep tree is one.
	ulimit -n "$(ulimit -H -n)" 2>/dev/null
	LIMB_HANDS=$mark
	export LIMB_HANDS
	umask "$old_umask"
	why=$("$bin" start --dir "$d/run" --root "$root" --env "$id" 2>&1 </dev/null) || {
		why=$(printf '%s\n' "$why" | tail -n 1)
		fail io_error "limb-syncd does not start there: ${why:-it says nothing}"
	}
	unset LIMB_HANDS
	say "status Running"
}

# What an earlier call found in a directory of everybody may be another's by now.
runnable() {
	[ -f "$bin" ] && [ -x "$bin" ] && ours "${bin%/*}"
}

do_status() {
	d=$base/$key
	if [ ! -d "$d" ]; then
		say "status NotFound"
	elif runnable && "$bin" probe --dir "$d/run" 2>/dev/null; then
		say "status Running"
	else
		say "status Stopped"
	fi
}

# Holders of jobs outlive limb-syncd: another one finds them, and ends them.
end_all() {
	d=$base/$key
	[ -d "$d/run" ] || return
	if runnable; then
		root=/nonexistent
		[ -f "$d/at" ] && IFS= read -r root <"$d/at"
		LIMB_HANDS="$mark" "$bin" start --dir "$d/run" --root "$root" --env "$id" \
			>/dev/null 2>&1 </dev/null
		"$bin" stop --dir "$d/run" >/dev/null 2>&1 </dev/null
	fi
	# And what left its session, or closed its eyes.
	for turn in 1 2 3 4 5 6 7 8 9 10; do
		left=
		for p in $(grep -lF "LIMB_HANDS=$mark" /proc/[0-9]*/environ 2>/dev/null); do
			# No other place's, whose mark begins with ours.
			tr '\0' '\n' 2>/dev/null <"$p" | grep -qxF "LIMB_HANDS=$mark" || continue
			p=${p#/proc/}
			kill -9 "${p%/environ}" 2>/dev/null && left=$turn
		done
		[ -n "$left" ] || return
		sleep 0.1 2>/dev/null || sleep 1
	done
}

do_stop() {
	do_status >/dev/null
	end_all
	if [ -d "$d" ]; then
		say "status Stopped"
	else
		say "status NotFound"
	fi
}

holds_one() {
	ours "$1" || return 1
	for at in "$1"/*/at; do
		[ ! -f "$at" ] || return 0
	done
	return 1
}

# Who has another home, and so another place for its things, may run from there, too.
runs_from() {
	at=$(cd -P -- "$1" && pwd -P)
	for p in $(grep -lF LIMB_HANDS= /proc/[0-9]*/environ 2>/dev/null); do
		# What is ours is just ending.
		tr '\0' '\n' 2>/dev/null <"$p" | grep -qxF "LIMB_HANDS=$mark" && continue
		case $(ls -l "${p%environ}exe" 2>/dev/null) in
		*"-> $at/limb-syncd-"*) return 0 ;;
		esac
	done
	return 1
}

# What another environment is bringing there just now stays.
leave() {
	ours "$1" || return 1
	runs_from "$1" || rm -f "$1"/limb-syncd-*
	rm -f "$1"/.limb-syncd-*."$key".*
	rmdir "$1" 2>/dev/null
	return 1
}

do_delete() {
	end_all
	d=$base/$key
	! mounted_in "$d" || fail conflict "something is mounted below '$d' there; unmount it first"
	if ! rm -rf "$d" 2>/dev/null; then
		chmod -R u+rwx "$d" 2>/dev/null
		rm -rf "$d" || fail io_error "'$d' there cannot be removed"
	fi
	# limb-syncd may lie elsewhere than what it serves.
	each holds_one || each leave
	say "status NotFound"
}

list_in() {
	ours "$1" || return 1
	for at in "$1"/*/mark; do
		[ -f "$at" ] || continue
		IFS= read -r other <"$at" && say "has $other"
	done
	return 1
}

case $verb in
create | list) ;;
*)
	[ ! -e "$base" ] || ours "$base" ||
		fail permission_denied "'$base' there is not this account's alone; chmod go-w it, or see whose it is"
	;;
esac
case $verb in
create) do_create ;;
start) do_start ;;
status) do_status ;;
stop) do_stop ;;
delete) do_delete ;;
list) each list_in ;;
esac
say over
