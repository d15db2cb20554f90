#!/bin/bash
# limb-journal reads a copied state directory of format 1 as it was written, changes nothing in it,
# and names whatever has become of it since.
# shellcheck disable=SC2034 # the code of a test is text
. "${0%/*}/lib.sh"
need jq

SAMPLE=$LIMB_TOP_SRCDIR/tests/data/journal-1
ALPHA=$(printf '%032d' 0 | tr 0 a)
GAMMA=$(printf '%032d' 0 | tr 0 c)
FIRST=0000000000000001.log
LAST=0000000000000008.log

# A fresh copy to spoil.
fresh() {
	rm -rf d
	cp -R "$SAMPLE" d
	chmod -R u+w d
	log=d/envs/$ALPHA/log
}
# fails CODE COMMAND...: stdout in out, stderr, without the trace, in err
fails() {
	local want=$1 r=0
	shift
	"$@" >out 2>err || r=$?
	[ "$r" = "$want" ]
}
# kinds WANTED: what verify says of alpha, sorted and counted.
kinds() {
	fails 1 limb-journal verify d/ --environment alpha --json
	test "$(wc -l <out)" = 1
	jq -e '.ok == false' out
	got=$(jq -r '[.problems[].kind] | unique | join(" ")' out)
	[ "$got" = "$1" ] || {
		echo "found: $got"
		cat out
		return 1
	}
}
flip() {
	local byte
	byte=$(od -An -tu1 -j "$2" -N 1 "$1")
	printf '%b' "\\x$(printf %x $((byte ^ 1)))" | dd of="$1" bs=1 seek="$2" conv=notrunc status=none
}
# The places of a segment's records and its end, in $at.
places() {
	local place=128 len
	at=()
	while [ "$(dd if="$1" bs=1 skip="$place" count=4 status=none | tr -d '\0')" = LREC ]; do
		at+=("$place")
		len=$(od -An -tu4 -j $((place + 8)) -N 4 "$1")
		place=$((place + 128 + (len + 7) / 8 * 8))
	done
	at+=("$place")
}
# cut_out FILE FROM TO
cut_out() {
	{
		head -c "$2" "$1"
		tail -c +$(($3 + 1)) "$1"
	} >new
	mv new "$1"
}
piece() {
	tail -c +$(($2 + 1)) "$1" | head -c $(($3 - $2))
}

test_expect 'the sample is sound, and stays as it is' '
	fresh
	find d -type f -exec cksum {} + | sort >before
	limb-journal verify d/ --environment alpha --json >out
	jq -e ".ok and .records == 11 and .first_seq == 1 and .last_seq == 11 and .segments == 2" out
	jq -e ".bytes == 2368 and .torn_tail_bytes == 0 and .problems == [] and .content_checked" out
	jq -e ".head_hash | test(\"^sha256:[0-9a-f]{64}$\")" out
	limb-journal verify d/ --environment alpha >out
	grep -x ok out
	grep "^records *11 " out
	test -z "$(limb-journal verify d/ --environment alpha -q)"
	limb-journal dump d/ --environment alpha >out
	find d -type f -exec cksum {} + | sort >after
	cmp before after
'

test_expect 'dump gives what was written' '
	limb-journal dump --json "$SAMPLE" --environment alpha >out
	test "$(wc -l <out)" = 11
	test "$(jq -r .seq out)" = "$(seq 1 11)"
	jq -r "[.type] | join(\" \")" out | tr "\n" " " >types
	test "$(cat types)" = "genesis incarnation change change job_start change job_end point change change change "
	test "$(head -n 1 out | jq -r .at)" = 2027-01-02T03:04:10.000000030Z
	jq -r .at out | sort -c
	# of each record what is in it, as it was put there
	jq -c "del(.at, .seq, .type)" out >got
	cat >want <<-"END"
	{"incarnation":0,"log_id":"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa","name":"alpha","kind":"environment"}
	{"incarnation":1,"provider":"local","root":"/w","node_grant_first":2,"node_grant_end":4294967296,"why":"create","mark":"01020304"}
	{"incarnation":1,"number":1,"origin":"environment","ops":[{"op":"put","node":2,"attr":{"type":"directory","mode":"0755","modified_at":"1970-01-01T00:00:00.000000005Z"},"path":"src"},{"op":"link","node":2,"parent":1,"name":"src","path":"src"}]}
	END
	head -n 3 got | diff want -
	sed -n 4p got | jq -e ".number == 2 and .ops[0].content.size_bytes == 6 and
		.ops[0].content.sha256 == \"sha256:$(printf "hello\n" | sha256sum | cut -c -64)\" and
		.ops[0].attr == {type: \"file\", mode: \"0640\", uid_kind: \"root\", modified_at: \"2027-01-02T03:04:05.000000001Z\"} and
		.ops[1].path == \"src/a.txt\""
	sed -n 5p got | jq -e ".principal == \"agent\" and .job_id == \"j-1\" and .task_id == \"t-1\" and .cwd == \"src\" and
		.argv == [\"echo\", \"\\ufffd\"] and .argv_base64 == [\"ZWNobw==\", \"/w==\"]"
	sed -n 6p got | jq -e ".ops[0] | .op == \"move\" and .path == \"src/a.txt\" and .to_path == \"b\\ufffd.txt\" and
		.to_path_base64 == \"Yv8udHh0\" and (has(\"path_base64\") | not)"
	sed -n 7p got | jq -e ". == {incarnation: 1, job_id: \"j-1\", exit_code: 3, duration_ms: 12, error_code: \"timed_out\"}"
	sed -n 8p got | jq -e ". == {incarnation: 1, label: \"good\", kind: \"label\", at_seq: 7, consistent: true}"
	seq -f "line %.0f" 1 20000 >lines
	head -c 199995 lines | sha256sum | cut -c -64 >sum
	sed -n 9p got | jq -e ".ops[0].content | .size_bytes == 199995 and .depth == 1 and .sha256 == \"sha256:$(cat sum)\""
	sed -n 9p got | jq -e ".ops[0].attr.mode == \"4755\" and .ops[0].path == \"src/lines\""
	sed -n 10p got | jq -e ".ops[0] | .op == \"unlink\" and .evidence == \"absent\" and .path_base64 == \"Yv8udHh0\""
	sed -n 11p got | jq -e ".origin == \"view\" and (.ops[0] | has(\"content\") | not)"
'

test_expect 'dump --since goes on behind a record, with the paths of before' '
	limb-journal dump --json "$SAMPLE" --environment alpha --since 8 >out
	test "$(jq -r .seq out | tr "\n" " ")" = "9 10 11 "
	head -n 1 out | jq -e ".ops[1].path == \"src/lines\""
	test -z "$(limb-journal dump "$SAMPLE" --environment alpha --since 11)"
	test "$(limb-journal dump -q "$SAMPLE" --environment alpha --since 9 | tr "\n" " ")" = "10 11 "
	limb-journal dump "$SAMPLE" --environment alpha --since 10 | grep "^11 2027-.* change {.*}$"
'

test_expect 'which journal: by name, by id, by directory' '
	name() {
		limb-journal dump --json "$@" | sed -n 1p | jq -r ".name // .kind"
	}
	test "$(name "$SAMPLE/" --environment gamma)" = beta
	test "$(name "$SAMPLE/" --environment $GAMMA)" = beta
	test "$(name "$SAMPLE/" --environment aaaaaaaa-aaaa-aaaa-aaaa-aaaaaaaaaaaa)" = alpha
	test "$(name "$SAMPLE/envs/$ALPHA")" = alpha
	test "$(name "$SAMPLE/envs/$ALPHA/log")" = alpha
	test "$(name "$SAMPLE/brain")" = brain
	limb-journal verify "$SAMPLE/envs/$ALPHA" --json | jq -e ".content_checked"
	limb-journal verify "$SAMPLE/brain" --json | jq -e ".ok and .records == 4"

	fails 2 limb-journal verify "$SAMPLE/" --json
	jq -e ".error == \"usage\" and (.detail | test(\"several\"))" out
	for gone in beta nosuch "$(printf %032d 7)"; do
		fails 125 limb-journal verify "$SAMPLE/" --environment "$gone" --json
		jq -e ".error == \"environment_not_found\"" out
	done

	# without the log of the brain the name is the one it was born with
	fresh
	rm -r d/brain
	test "$(name d --environment beta)" = beta
	fails 125 limb-journal dump d --environment gamma
	rm -r "d/envs/$GAMMA"
	test "$(name d)" = alpha
'

test_expect 'mistakes and what is not there: one line, one object' '
	for args in "" "verify" "verify a b" "nosuch d" "verify --nosuch d" "dump --since x d" "dump --since -1 d"; do
		# shellcheck disable=SC2086
		fails 2 limb-journal $args
		test ! -s out
		test "$(wc -l <err)" = 1
		grep "^limb: " err
		# shellcheck disable=SC2086
		fails 2 limb-journal --json $args
		jq -e ".error == \"usage\" and (.detail | length) > 0 and (.next_steps | length) > 0" out
		test "$(wc -l <out)" = 1
	done
	mkdir empty
	for dir in empty missing /etc/passwd; do
		fails 125 limb-journal verify "$dir" --json
		jq -e ".error == \"file_not_found\" or .error == \"not_directory\"" out
		test "$(wc -l <err)" = 1
	done
	test "$(ls -A empty)" = ""
	fails 125 sh -c "limb-journal dump \"$SAMPLE\" --environment alpha >/dev/full"
	fails 125 sh -c "limb-journal verify \"$SAMPLE\" --environment alpha >/dev/full"
'

test_expect 'B60 the last records dropped, cut or blank' '
	for n in 1 2 3 4; do
		fresh
		places $log/$LAST
		truncate -s "${at[4 - n]}" $log/$LAST
		kinds missing_tail
		truncate -s +4096 $log/$LAST
		kinds missing_tail
	done
	rm $log/$LAST
	kinds missing_tail
'

test_expect 'B60 a middle record dropped' '
	for n in 0 1 2; do
		fresh
		places $log/$LAST
		cut_out $log/$LAST "${at[n]}" "${at[n + 1]}"
		kinds missing_record
		jq -e ".problems | length == 1 and .[0].seq == $((8 + n)) and .[0].segment == \"$LAST\"" out
	done
	fresh
	places $log/$FIRST
	truncate -s "${at[6]}" $log/$FIRST
	kinds missing_record
	jq -e ".problems[0].seq == 7" out
'

test_expect 'B60 two records swapped' '
	fresh
	f=$log/$FIRST
	places $f
	{
		piece $f 0 "${at[1]}"
		piece $f "${at[4]}" "${at[5]}"
		piece $f "${at[2]}" "${at[4]}"
		piece $f "${at[1]}" "${at[2]}"
		piece $f "${at[5]}" "${at[7]}"
	} >new
	test "$(stat -c %s new)" = "$(stat -c %s $f)"
	cp new $f
	kinds swapped
	jq -e "[.problems[].seq] == [5, 2]" out
'

test_expect 'B60 appended behind a torn tail' '
	fresh
	f=$log/$LAST
	places $f
	# half of record 11, then record 11
	{
		piece $f 0 "$((at[3] + 104))"
		piece $f "${at[3]}" "${at[4]}"
	} >new
	cp new $f
	rm $log/head
	kinds checksum
	jq -e ".torn_tail_bytes == 0 and .problems[0].seq == 11" out
'

test_expect 'a torn tail alone is no problem' '
	fresh
	rm $log/head
	places $log/$LAST
	truncate -s $((at[3] + 140)) $log/$LAST
	limb-journal verify d --environment alpha --json >out
	jq -e ".ok and .records == 10 and .torn_tail_bytes > 100 and .torn_tail_bytes <= 140" out
	limb-journal verify d --environment alpha | grep "^torn tail"
	limb-journal dump -q d --environment alpha | tail -n 1 | grep -x 10
'

test_expect 'the other kinds' '
	fresh
	rm $log/$FIRST
	kinds missing_segment
	fresh
	flip $log/$FIRST 70
	kinds bad_header
	fresh
	places $log/$FIRST
	flip $log/$FIRST $((at[3] + 150))
	kinds checksum
	jq -e ".records == 10 and .problems[0].seq == 4" out
	# a history that is sound, and is another
	fresh
	cp "d/envs/$GAMMA/log/head" $log/head
	kinds rolled_back
	fresh
	flip $log/head 20
	flip $log/head 532
	kinds bad_header
'

test_expect 'dump says where it cannot go on' '
	fresh
	places $log/$FIRST
	flip $log/$FIRST $((at[3] + 150))
	fails 125 limb-journal dump d --environment alpha --json
	test "$(wc -l <out)" = 4
	tail -n 1 out | jq -e ".error == \"io_error\""
	head -n 3 out | jq -e .seq
	grep "^limb: .*journal verify" err
'

test_expect 'content that is lost or damaged' '
	fresh
	pack=$(echo d/store/main/packs/*.pack)
	flip $pack $(($(stat -c %s $pack) - 100))
	kinds content
	chmod 400 $pack # nobody writes to it any more
	kinds content
	jq -e "[.problems[].segment] | index(\"${pack##*/}\")" out
	rm -f $pack
	kinds content
	jq -e "[.problems[].seq] == [4, 9] and .records == 11" out
	jq -e ".problems[0].segment == \"$FIRST\" and .problems[1].segment == \"$LAST\"" out
	jq -e ".problems[0].detail | test(\"sha256:5891b5b5\")" out
	rm -r d/store
	limb-journal verify d --environment alpha --json | jq -e ".ok and (.content_checked | not)"
'

test_done
