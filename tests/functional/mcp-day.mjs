// An agent's day, by the official clients: what it saw, one JSON object a line.
// usage: node mcp-day.mjs v1|v2|v2-auto|v2-modern LIMB ENVIRONMENT SCRIPT
// SCRIPT WORD is what happens outside meanwhile: lose (the sandbox, in the middle of a
// command), mend (a person rebuilds it).
import { execFileSync, spawn } from 'node:child_process';

const [kind, limb, environment, script] = process.argv.slice(2);
const { Client } = await import(kind === 'v1' ? '@modelcontextprotocol/sdk/client/index.js'
	: '@modelcontextprotocol/client');
const { StdioClientTransport } = await import(kind === 'v1' ? '@modelcontextprotocol/sdk/client/stdio.js'
	: '@modelcontextprotocol/client/stdio');
const modes = { 'v2-auto': 'auto', 'v2-modern': { pin: '2026-07-28' } };
const options = { capabilities: {} };
if (modes[kind])
	options.versionNegotiation = { mode: modes[kind] };

const say = (step, seen) => console.log(JSON.stringify({ step, ...seen }));
const client = new Client({ name: 'day', version: '1' }, options);
await client.connect(new StdioClientTransport({
	command: limb, args: ['mcp', '--environment', environment],
	env: { ...process.env, LIMB_STATE: process.env.LIMB_STATE },
}));
const names = (await client.listTools()).tools.map((t) => t.name);
say('tools', {
	names,
	version: kind === 'v1' ? undefined : client.getNegotiatedProtocolVersion(),
});

const seen = (r) => ({
	error: r.isError ? (r._meta?.['limbfs/error']?.error ?? 'exec') : undefined,
	text: r.content.map((c) => c.text).join('').slice(-2000),
	result: r.structuredContent,
});
// v1 gives its result schema in second place, v2 does not.
const call = async (step, name, args, opts) => {
	const p = { name, arguments: args };
	const r = await (kind === 'v1' ? client.callTool(p, undefined, opts) : client.callTool(p, opts));
	say(step, seen(r));
	return r;
};
const outside = (word) => execFileSync(script, [word], { stdio: ['ignore', 2, 2] });

await call('clone', 'exec', { command: 'git clone -q upstream.git project && ls project' });
await call('read', 'read_file', { path: 'project/hello.txt' });
await call('edit', 'edit_file', { path: 'project/hello.txt', edits: [{ old_text: 'world', new_text: 'limbfs' }] });
await call('write', 'write_file', { path: 'project/notes/plan.md', content: '# plan\n' });
await call('build', 'exec', { command: 'make', cwd: 'project' });
await call('fail', 'exec', { argv: ['sh', '-c', 'echo no >&2; exit 3'] });
await call('search', 'search_files', { path: 'project', text: 'limbfs', pattern: '*.txt' });
await call('stat', 'stat_file', { path: 'project/hello.out' });
await call('list', 'list_directory', { path: 'project' });
await call('label', 'label_point', { label: 'built' });
await call('points', 'list_points', { limit: 3 });

let progress = 0;
await call('progress', 'exec', { command: 'sleep 3' }, { onprogress: () => progress++ });
say('progress-count', { progress });

const abort = new AbortController();
const long = call('never', 'exec', { command: 'echo > cancel-me; sleep 300' }, { signal: abort.signal })
	.catch((e) => say('cancelled', { text: String(e) }));
for (let n = 0; n < 300; n++) {
	const r = await client.callTool({ name: 'stat_file', arguments: { path: 'cancel-me' } });
	if (!r.isError)
		break;
	await new Promise((done) => setTimeout(done, 100));
}
abort.abort();
await long;
for (let n = 0; n < 300; n++) {
	const r = await client.callTool({ name: 'list_jobs', arguments: {} });
	if (r.structuredContent.jobs.length === 0)
		break;
	await new Promise((done) => setTimeout(done, 100));
}
await call('after-cancel', 'list_jobs', {});

const lost = call('lost', 'exec', { command: 'echo > lose-me; sleep 300' });
for (let n = 0; n < 300; n++) {
	const r = await client.callTool({ name: 'stat_file', arguments: { path: 'lose-me' } });
	if (!r.isError)
		break;
	await new Promise((done) => setTimeout(done, 100));
}
outside('lose');
await lost;
await call('refused', 'exec', { command: 'true' });
await call('read-lost', 'read_file', { path: 'project/hello.txt' });
await call('write-lost', 'write_file', { path: 'x', content: '' });
outside('mend');
await call('again', 'exec', { argv: ['cat', 'project/hello.out'] });
await call('again-build', 'exec', { command: 'make -q && git status --short', cwd: 'project' });
if (names.includes('migrate'))
	await call('migrate', 'migrate', { to: 'bwrap', jobs: 'stop' });
await call('end', 'exec', { command: 'git -c user.name=a -c user.email=a@b commit -qam done && git log --oneline | wc -l', cwd: 'project' });
await client.close();
