#!/bin/bash
# The official clients of the protocol, of both eras, get an agent through its day: tools,
# a clone, edits, a build, a cancelled command, a sandbox lost in the middle, and on.
. "${0%/*}/mcp-lib.sh"
need node npm git make bwrap

# Pinned, and in a directory of this test; npm's own cache and nothing else of the user.
npm_dir=$T/npm
mkdir "$npm_dir"
echo '{"private":true}' >"$npm_dir/package.json"
(
	cd "$npm_dir" || exit
	timeout 120 npm i --no-audit --no-fund --ignore-scripts --fetch-retries 1 --fetch-timeout 30000 \
		@modelcontextprotocol/sdk@1.32.2 @modelcontextprotocol/client@2.4.0 \
		@modelcontextprotocol/inspector@2.12.0 ajv@8
) >"$T/npm.out" 2>&1 || skip_all 'the packages cannot be had from the npm registry'
cp "$LIMB_TOP_SRCDIR/tests/functional/mcp-day.mjs" "$npm_dir"
export npm_dir

brain_up
mkdir seed
(
	cd seed || exit
	git init -q --bare upstream.git
	git clone -q upstream.git w 2>/dev/null
	cd w || exit
	echo 'hello world' >hello.txt
	printf 'hello.out: hello.txt\n\ttr a-z A-Z <hello.txt >hello.out\n' >Makefile
	printf 'hello.out\nnotes\n' >.gitignore
	git add .
	git -c user.name=a -c user.email=a@b commit -qm one
	git push -q origin HEAD
	cd ..
	rm -rf w
) >"$T/seed.out" 2>&1 || test_result 'not ok' 'a repository to clone'

# outside WORD: what the agent does not do
cat >outside <<'END'
#!/bin/bash
set -e
case $1 in
lose)
	limb inspect "$NAME" --json >"$T/inspected.json"
	init=$(jq .pids.init "$T/inspected.json") root=$(jq -r .host_root "$T/inspected.json")
	# limbd starts the sandbox again as soon as it can: nothing is waited for in between.
	kill -KILL "$init"
	mv "$root" "$root.lost"
	rm -rf "$root.lost"
	for i in $(seq 300); do
		limb status "$NAME" --json >"$T/lost.json" || true
		! jq -e '.environments[0].state == "halted"' "$T/lost.json" >/dev/null || exit 0
		sleep 0.1
	done
	exit 1
	;;
mend)
	limb rebuild "$NAME"
	;;
esac
END
chmod 755 outside

for kind in v1 v2 v2-auto v2-modern; do
	export kind
	NAME=day-$kind
	export NAME
	limb create "$NAME" --provider bwrap --from seed >/dev/null || test_result 'not ok' "create $NAME"
	test_expect "an agent's day, client $kind" '
		timeout 240 node "$npm_dir/mcp-day.mjs" $kind "$mcp_limb" $NAME "$T/outside" >day 2>day.err || {
			cat day day.err
			false
		}
		# at STEP FILTER
		at() {
			jq -se "[.[] | select(.step == \"$1\")] | length == 1 and (.[0] | $2)" day || {
				jq -c "select(.step == \"$1\")" day
				return 1
			}
		}
		at tools "(.names | length) >= 15"
		case $kind in
		v2-auto | v2-modern) at tools ".version == \"2026-07-28\"" ;;
		v2) at tools ".version == \"2025-11-25\"" ;;
		esac
		at clone ".result.exit_code == 0 and (.result.stdout | contains(\"hello.txt\"))"
		at read ".result.content == \"hello world\\n\" and .text == \"hello world\\n\""
		at edit ".result.replacements == 1"
		at write ".result.created"
		at build ".result.exit_code == 0"
		at fail ".error == null and .result.exit_code == 3 and (.text | test(\"\\\\[exit 3, [0-9.]+ s, cwd [^]]+\\\\]$\"))"
		at search ".result.matches == [{\"path\":\"project/hello.txt\",\"line\":1,\"text\":\"hello limbfs\"}]"
		at stat ".result.type == \"file\" and .result.size_bytes == 13"
		at list "[.result.entries[].name] | index(\"hello.out\") != null"
		at label ".result.points[0].label == \"built\""
		at points "[.result.points[].kind][0:3] == [\"label\",\"after_job\",\"before_job\"]"
		at progress-count ".progress >= 1"
		at cancelled "(.text | length) > 0"
		at after-cancel ".result.jobs == []"
		at lost "(.text | test(\"outcome unknown.*may have run\"; \"s\")) and .result.state == \"unknown\""
		at refused ".error == \"halted\" and (.text | contains(\"limb rebuild $NAME\"))"
		at read-lost ".result.content == \"hello limbfs\\n\""
		at write-lost ".error == \"halted\""
		at again ".result.exit_code == 0 and .result.stdout == \"HELLO LIMBFS\\n\""
		at again-build ".result.exit_code == 0 and .result.stdout == \" M hello.txt\\n\""
		at migrate ".error == null and .result.equal"
		at end ".result.exit_code == 0 and (.result.stdout | tonumber) == 2"
		refute jq -e "select(.step == \"never\")" day
		verify_equal $NAME
		test ! -s "$T/mcp.log"
	'
done

test_expect 'the Inspector, in both eras: tools are portable, calls work, failures are failures' '
	cd "$npm_dir"
	inspector="npx --no-install mcp-inspector --cli -q --format json"
	for era in legacy modern; do
		timeout 60 $inspector "$mcp_limb" mcp --protocol-era $era --method tools/list --strict -e LIMB_STATE="$LIMB_STATE" >out 2>err || {
			cat out err
			false
		}
		timeout 60 $inspector "$mcp_limb" mcp --protocol-era $era -e LIMB_STATE="$LIMB_STATE" \
			--method tools/call --tool-name exec \
			--tool-args-json "{\"command\":\"echo hi\",\"environment\":\"$NAME\"}" >out 2>err || {
			cat out err
			false
		}
		jq -e ".. | objects | select(has(\"structuredContent\")) | .structuredContent.stdout == \"hi\\n\"" out
		expect_code 5 timeout 60 $inspector "$mcp_limb" mcp --protocol-era $era -e LIMB_STATE="$LIMB_STATE" \
			--method tools/call --tool-name read_file \
			--tool-args-json "{\"path\":\"none\",\"environment\":\"$NAME\"}" >out 2>err
	done
'

test_expect 'every answer is as its output schema says, by a validator' '
	cat >"$npm_dir/check.mjs" <<-END
		import Ajv from "ajv/dist/2020.js";
		import { readFileSync } from "node:fs";
		const lines = readFileSync(process.argv[2], "utf8").trim().split("\n").map(JSON.parse);
		const tools = lines.find((l) => l.id === 1).result.tools;
		const ajv = new Ajv({ strict: false });
		let n = 0;
		for (const l of lines.filter((l) => String(l.id).startsWith("t:"))) {
			const tool = tools.find((t) => t.name === l.id.split(":")[2]);
			ajv.compile(tool.inputSchema);
			const ok = ajv.compile(tool.outputSchema);
			if (l.result.isError || !ok(l.result.structuredContent)) {
				console.log(l.id, JSON.stringify(ok.errors), JSON.stringify(l.result).slice(0, 500));
				process.exit(1);
			}
			n++;
		}
		console.log(n);
	END
	mcp_open --environment $NAME
	hello
	request 1 tools/list "{}" >/dev/null
	n=0
	while read -r name arguments; do
		n=$((n + 1))
		tool "\"t:$n:$name\"" "$name" "$arguments" >/dev/null
	done <<-END
		exec {"command":"echo a; exit 1"}
		exec {"command":"kill -9 \$\$"}
		exec {"command":"sleep 50","timeout_ms":200}
		exec {"command":"printf \\"\\\\377\\""}
		exec {"command":"sleep 1","background":true,"key":"k"}
		exec {"command":"cat","wait_ms":100,"keep_stdin":true,"key":"j"}
		write_file {"path":"s/f","content":"text\n"}
		write_file {"path":"s/bytes","content_base64":"/w=="}
		edit_file {"path":"s/f","edits":[{"old_text":"text","new_text":"more"}]}
		read_file {"path":"s/f"}
		read_file {"path":"s/bytes"}
		read_file {"path":"s/f","limit":1}
		list_directory {}
		list_directory {"path":"s","limit":1}
		stat_file {"path":""}
		stat_file {"path":"s/f"}
		search_files {"pattern":"*"}
		search_files {"text":"more"}
		list_environments {}
		label_point {"label":"l"}
		list_points {}
		list_jobs {}
		list_jobs {"all":true}
	END
	job=$(limb jobs --json | jq -r "[.jobs[] | select(.key == \"j\")][0].job_id")
	tool "\"t:90:read_job\"" read_job "{\"job_id\":\"$job\"}"
	tool "\"t:91:write_job\"" write_job "{\"job_id\":\"$job\",\"input\":\"x\\n\"}"
	tool "\"t:92:read_job\"" read_job "{\"job_id\":\"$job\",\"wait_ms\":5000}"
	tool "\"t:93:kill_job\"" kill_job "{\"job_id\":\"$job\"}"
	mcp_close
	test "$(node "$npm_dir/check.mjs" mcp.out)" = $((n + 4))
'

test_done
