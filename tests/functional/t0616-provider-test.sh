#!/bin/bash
# The contract of providers: ours keep it, the example of limb-provider(7) keeps it and
# carries an environment, and one that breaks it is found out.
. "${0%/*}/brain-lib.sh"
example=$LIMB_TOP_SRCDIR/doc/provider-example.sh
export XDG_RUNTIME_DIR=$T

kept() {
	limb provider test "$1" --json >out
	jq -c ".checks[] | select(.status != \"ok\")" out
	jq -e ".ok and (.checks | length > 20)" out >/dev/null
}
for provider in $providers; do
	test_expect "$provider keeps the contract" "kept $provider"
done
cat >"$T/kubectl" <<END
#!/bin/bash
exec env HOME=$T/home "\$@"
END
chmod 755 "$T/kubectl"
test_expect 'command keeps the contract' 'kept "command:$T/kubectl"'
test_expect 'a script of a user keeps the contract' 'kept "$example"'
test_expect 'plain, a line for each check' '
	limb provider test "$example" >out
	test "$(grep -c ^ok out)" -gt 20
	expect_code 125 limb provider test no-such-provider
	expect_code 125 limb provider test /no/such/file
	expect_code 2 limb provider test
'

# broken SED SENTENCE...: the example with these faults is found out.
broken() {
	sed "$1" "$example" >faulty
	chmod 755 faulty
	shift
	expect_code 1 limb provider test ./faulty >out
	for sentence; do
		grep "FAIL.*$sentence" out
	done
}
test_expect 'what does not keep it is found out, and named' '
	broken "s/protocol: 1/protocol: 2/; s/, \"list\"\]/]/; s/argv: .argv/argv: [\"true\"]/; s/rm -rf .*run.*/true/
		s/host_root: .root/host_root: \"\/nowhere\"/; s/fail usage .*/true/" \
		"protocol is not 1" "list. is not in verbs" "limb-syncd is not heard" \
		"Stopped, not NotFound" "is not there" "input that is no JSON"
	broken "s/^in=.*/in=; exit 0/" "no JSON object"
'
test_expect 'an environment lives by the example' '
	limb up -q
	limb create a --provider "$example"
	test "$(limb exec a -- sh -c "echo hello | tee f")" = hello
	verify_equal a
	limb stop a
	limb start a
	wait_state a live
	mv "$(root_of a)" "$T/lost"
	wait_state a halted
	limb rebuild a
	test "$(limb exec a -- cat f)" = hello
	limb rm a
	limb down
'
allow_error '^(bwrap|local|command): '
test_done
