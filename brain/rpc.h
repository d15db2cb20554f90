/*
 * rpc.h - how clients (limb, limb mcp) speak to limbd: JSON-RPC 2.0 on the
 * unix socket STATE/limbd.sock, one message a frame, and bytes beside it.
 *
 *	frame:  u32 length of the payload (little-endian, at most RPC_FRAME_MAX),
 *		u8 kind, 3 zero bytes, payload
 *	'J'	one JSON-RPC request, response or notification
 *	'i'	stdin of the call in progress; an empty one is its end
 *	'o' 'r'	stdout, stderr of the call in progress (exec, logs, show)
 *
 * A connection makes one call at a time.  A request's method is the verb of the
 * command-line contract ("create", "exec", ...), its params one object: the
 * verb's arguments and flags by the names of the verb table (bridge/verbs.h;
 * arguments "name", "path", "src", "dst", "argv"; flags as written with '-'
 * replaced by '_').  The result is the contract's object.  An error has code 1,
 * the detail as message, and the contract's error object as `data`, with `exit`.
 * Notifications from limbd with method "progress" carry {text, files, bytes,
 * total_files?, total_bytes?}; "output" (logs with json) {stream, offset, data,
 * data_base64?, at}, "job" (attach) JOB as it is then.  Those to limbd: "cancel"; "resize" {rows, cols} (exec, attach).
 *
 * Bytes that are not UTF-8 travel in params as {"base64": "..."} in place of a
 * string.  When the connection closes, the call is cancelled (exec without -d:
 * the job gets SIGTERM, then SIGKILL; with `outlive` it runs on, and only "cancel" ends
 * it).  What a call does to a job in other verbs ends with the call, the job runs on.
 *
 * Params beside the flags: exec {json, stdin, outlive, rows, cols, term}, where `json`
 * has head and tail of the output in the answer and none in frames, and `stdin` keeps
 * the job's stdin open for frames 'i', with -d for `input`; wait, attach {json,
 * max_output_bytes}; logs {json}, or {limit_bytes, wait_ms}: then the answer is JOB and
 * `pieces`, an array of what "output" carries, `stdout_offset` and `stderr_offset` (where
 * to go on), at most limit_bytes; when there is nothing it comes after wait_ms or when
 * there is.  For tools: exec {wait_ms: answered by then, the job runs on; stdin_text: its
 * input, with `stdin` the first of it}; signal {tree}; ls {follow, limit}; and the methods
 * file_read {path, point, offset, limit, max_bytes}, file_stat {path, point}, file_search
 * {path, point, pattern, text, ignore_case, limit}, file_write {path, content or
 * content_base64, base_sha256, no_replace}, file_edit {path, edits: [{old_text, new_text,
 * replace_all}], base_sha256}.
 *
 * This file is what both ends share; the server is rpc-server.c, the client
 * bridge/client.c.
 */
#ifndef BRAIN_RPC_H
#define BRAIN_RPC_H

#include <stdint.h>

#define RPC_FRAME_MAX (64u << 20)
#define RPC_HEADER_BYTES 8

enum rpc_kind {
	RPC_JSON = 'J',
	RPC_STDIN = 'i',
	RPC_STDOUT = 'o',
	RPC_STDERR = 'r',
};

#endif
