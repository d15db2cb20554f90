#!/bin/bash
# A view in mode work has files that git, editors and agents of this machine obey: who changes one
# in the environment is told of; limb git runs git there.
. "${0%/*}/brain-lib.sh"
need git
brain_up

warned() {
	status_of a "" | jq -r '(.warned // [])[] | "\(.by) \(.path)"' | sort
}
mkdir -p "$T/from"
git -C "$T/from" init -q -b main
limb create a --provider local --from "$T/from" -q >/dev/null

test_expect 'what was there from the start is nothing to be told of' '
	limb exec a -- sh -c "echo x >plain; mkdir -p src/config; echo y >src/config/hooks"
	test "$(warned)" = ""
	status_of a "" | jq -e "has(\"warned\") | not"
'
test_expect 'what git, an editor or an agent obeys is' '
	limb exec a -- sh -c "
		git config core.fsmonitor /bin/evil
		echo x >.git/hooks/post-checkout; chmod +x .git/hooks/post-checkout
		mkdir .vscode; echo {} >.vscode/tasks.json
		echo {} >.mcp.json
		echo x >\"odd
name\"; mkdir -p \"d
d\"; echo x >\"d
d/.envrc\"
		mkdir -p moved/hooks; echo x >moved/hooks/pre-commit; git init -q sub; mv sub/.git moved/.git"
	warned | grep -v "^git sub/" >out # there for a moment only
	cat >expected <<-"END"
		an agent .mcp.json
		an editor .vscode/tasks.json
		direnv d
		d/.envrc
		git .git/config
		git .git/hooks/post-checkout
		git moved/.git
	END
	sort -o expected expected
	diff expected out
	limb status a >text
	grep "^a: warning: it changed .git/config, which is obeyed in the view by git$" text
	grep "warning: it changed d.x0ad/.envrc" text
	grep "^  remedy: look at it; then: limb trust a$" text
'
test_expect 'it is there until somebody has looked, also for another limbd' '
	limb down -q
	limb up -q >/dev/null
	wait_state a live
	test "$(warned | wc -l)" -ge 7
	limb trust a
	test "$(warned)" = ""
	limb exec a -- sh -c "echo y >>.git/hooks/post-checkout"
	test "$(warned)" = "git .git/hooks/post-checkout"
'
test_expect 'what the brain wrote is not; in mode look nothing is' '
	limb trust a
	echo "{}" >mcp
	limb cp mcp a:.mcp.json
	limb sync a
	test "$(warned)" = ""
	limb trust a --off
	limb exec a -- sh -c "echo z >>.git/hooks/post-checkout"
	test "$(warned)" = ""
	limb trust a
'
test_expect 'there is a bound' '
	limb exec a -- sh -c "for i in \$(seq 100); do mkdir -p \$i; echo x >\$i/.envrc; done"
	test "$(warned | wc -l)" = 16
	limb trust a
'
test_expect 'watch says it, too' '
	n=$(inspect_of a .seq)
	limb exec a -- sh -c "echo x >plain; echo x >.mcp.json"
	timeout 20 sh -c "limb watch a --since $n --json | head -n 2" >out || true
	test "$(jq -r "select(.path == \".mcp.json\").obeyed_by" out)" = "an agent"
	test "$(jq -r "select(.path == \"plain\").obeyed_by" out)" = null
'
test_expect 'limb git runs git there, with its own flags and status' '
	limb exec a -- sh -c "rm -rf .git sub moved && git init -q -b main && git config user.email a@b && git config user.name a"
	test "$(limb git a rev-parse --abbrev-ref --is-inside-work-tree | tail -n 1)" = true
	limb git a add -A
	limb git a commit -q -m "a message"
	test "$(limb git a log --format=%s -n 1)" = "a message"
	test "$(limb git a status --porcelain | wc -l)" = 0
	r=0
	limb git a log --no-such-flag=1 2>err || r=$?
	test $r = 128
	r=0
	limb git 2>err || r=$?
	test $r = 2
'
test_done
