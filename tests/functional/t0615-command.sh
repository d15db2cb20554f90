#!/bin/bash
# Whatever a command line reaches that starts a program there is an environment: here a
# stand-in for kubectl, and one that does what such lines do when they go wrong.
. "${0%/*}/brain-lib.sh"
mkdir "$T/pod" "$T/pod/home"

# kubectl exec -i pod-1 -- PROGRAM ARG...; anything else is an error, in kubectl's manner.
cat >"$T/kubectl" <<END
#!/bin/bash
[ "\$1 \$2 \$4" = 'exec -i --' ] || { echo "error: unknown command" >&2; exit 1; }
[ "\$3" = pod-1 ] || { echo "Error from server (NotFound): pods \"\$3\" not found" >&2; exit 1; }
[ ! -e $T/down ] || { echo 'error: dial tcp 10.0.0.1:443: connect: connection refused' >&2; exit 1; }
shift 4
exec env -i PATH="\$PATH" HOME=$T/pod/home LIMB_TEST_ID="\$LIMB_TEST_ID" "\$@"
END
chmod 755 "$T/kubectl"
brain_up

test_expect 'a command line is a provider' '
	limb create a --provider "command:$T/kubectl exec -i pod-1 --" --json >out
	jq -e ".state == \"live\" and .host_root == null" out
	limb exec a -- sh -c "echo hello >f; pwd" >out
	grep "^$T/pod/home/.local/share/limbfs/.*/root\$" out
	test "$(cat "$(cat out)/f")" = hello
	verify_equal a
'
test_expect 'the words may stand in the spec, with a directory of theirs' '
	echo "{\"command\": [\"$T/kubectl\", \"exec\", \"-i\", \"pod-1\", \"--\"], \"path\": \"$T/pod/a b\"}" >spec
	limb create b --provider command --spec spec
	limb exec b -- touch x
	test -e "$T/pod/a b/x"
	limb exec b -- printf "<%s>" "a b" "*" "\$x" "" >out
	test "$(cat out)" = "<a b><*><\$x><>"
	limb rm b
	test -e "$T/pod/a b/x"
'
test_expect 'what goes wrong is one sentence, in its own words' '
	expect_code 125 limb create no --provider "command:$T/kubectl exec -i pod-2 --" 2>err
	grep "pods .pod-2. not found" err
	expect_code 125 limb create no --provider "command:/no/such/program" 2>err
	grep "No such file" err
	expect_code 125 limb create no --provider "command:false" 2>err
	grep "started no sh (status 1).*make this work first: .* sh -c true" err
	expect_code 2 limb create no --provider "command:'\''x" 2>err
	grep "quote that is not closed" err
	expect_code 2 limb create no --provider command 2>err
	grep "needs a command line" err
	test "$(limb ls -q)" = a
'
test_expect 'its line falls, and comes back; a job goes on and is whole' '
	limb exec a -- sh -c "for i in \$(seq 100); do echo \$i; sleep 0.02; done" >out &
	job=$!
	wait_for "test \$(wc -l <out) -gt 10"
	touch down
	kill_9 "$(pid_of a transport)"
	wait_state a away
	wait_for "status_of a .reasons | grep -q refused"
	rm down
	wait $job
	seq 100 | cmp - out
	wait_state a live
'
test_expect 'lost, and made again' '
	mv "$(inspect_of a .root)" "$T/pod/lost"
	wait_state a halted
	limb rebuild a
	test "$(limb exec a -- cat f)" = hello
'
test_expect 'removed, nothing is there' '
	limb rm a
	test -z "$(ls -A "$T/pod/home/.local/share")"
'
allow_error '^command: '
test_done
