// Times calls of tools by one client: ours, and those of two servers that others made.
// usage: node mcp.mjs LIMB ENVIRONMENT ROOT TIMES
// Prints p50 in us: our exec of true, echo of server-everything, our read_file of ROOT/file,
// read_text_file of server-filesystem.
import { readFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { Client } from '@modelcontextprotocol/sdk/client/index.js';
import { StdioClientTransport } from '@modelcontextprotocol/sdk/client/stdio.js';

const [limb, environment, root, times] = process.argv.slice(2);

const program = (name) => {
	const at = join(dirname(new URL(import.meta.url).pathname), 'node_modules', name);
	const bin = JSON.parse(readFileSync(join(at, 'package.json'), 'utf8')).bin;
	return join(at, typeof bin === 'string' ? bin : Object.values(bin)[0]);
};
const connect = async (command, args) => {
	const client = new Client({ name: 'bench', version: '1' }, { capabilities: {} });
	await client.connect(new StdioClientTransport({ command, args, env: process.env, stderr: 'ignore' }));
	await client.listTools();
	return client;
};
const p50 = async (client, name, args) => {
	const took = [];
	for (let i = 0; i < Number(times); i++) {
		const begin = process.hrtime.bigint();
		const r = await client.callTool({ name, arguments: args });
		took.push(Number(process.hrtime.bigint() - begin) / 1000);
		if (r.isError)
			throw new Error(JSON.stringify(r));
	}
	took.sort((a, b) => a - b);
	return Math.round(took[took.length >> 1]);
};

const everything = await connect(process.execPath, [program('@modelcontextprotocol/server-everything'), 'stdio']);
const files = await connect(process.execPath, [program('@modelcontextprotocol/server-filesystem'), root]);
const ours = await connect(limb, ['mcp', '--environment', environment]);
const figures = [
	await p50(ours, 'exec', { argv: ['true'] }),
	await p50(everything, 'echo', { message: 'hello' }),
	await p50(ours, 'read_file', { path: 'file' }),
	await p50(files, 'read_text_file', { path: join(root, 'file') }),
];
console.log(figures.join(' '));
for (const client of [everything, files, ours])
	await client.close();
