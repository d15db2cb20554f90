/*
 * seeds.c - what the fuzzers begin with, made by our own encoders.
 *
 *	seeds DIR		writes DIR/NAME/seed-*
 */
#include <err.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "journal/index-impl.h"
#include "tests/fuzz/fuzz.h"
#include "tests/unit/entry-fixture.h"
#include "wire/attr.h"
#include "wire/frame.h"
#include "wire/wire.pb-c.h"

static int out_dir;

static void put(const char *target, const char *name, const struct buf *b)
{
	char path[80];

	(void)snprintf(path, sizeof(path), "%s/seed-%s", target, name);
	must(file_make_dir(out_dir, target) == 0);
	if (file_replace(out_dir, path, buf_data(b), buf_len(b)) < 0)
		err(1, "cannot write '%s'", path);
}

static void put_text(const char *target, const char *name, const char *text)
{
	_cleanup_(buf_done) struct buf b = BUF_INIT(0);

	must(buf_add_str(&b, text) == 0);
	put(target, name, &b);
}

static void add_byte(struct buf *b, unsigned v)
{
	must(buf_add_u8(b, (uint8_t)v) == 0);
}

/* As fuzz_take_bytes() takes them. */
static void add_piece(struct buf *b, const void *p, size_t n)
{
	add_byte(b, n & 0xff);
	add_byte(b, n >> 8);
	must(buf_add(b, p, n) == 0);
}

/* ---- records ---- */

static void make_body(struct buf *b, unsigned n_ops)
{
	struct change_op ops[CHANGE_OPS_MAX];
	char names[CHANGE_OPS_MAX][NODE_NAME_MAX + 1];
	struct change c = {.incarnation = 1,
			   .number = 1,
			   .origin = ORIGIN_ENVIRONMENT_,
			   .principal = "somebody",
			   .job = "j-1",
			   .ops = ops,
			   .n_ops = n_ops};

	for (unsigned i = 0; i < n_ops; i++)
		ops[i] = sample_op(i, names[i]);
	must(change_pack(&c, b) == 0);
}

/* A small tree: a directory with a file that gets a second name. */
static void make_tree_body(struct buf *b)
{
	struct change_op ops[5] = {
		{.kind = CHANGE_PUT,
		 .node = 2,
		 .attr = {.type = NODE_TYPE_DIRECTORY, .mode = 0755}},
		{.kind = CHANGE_LINK, .node = 2, .parent = 1, .name = "a", .name_len = 1},
		{.kind = CHANGE_PUT, .node = 3, .attr = a_file(), .has_content = true},
		{.kind = CHANGE_LINK, .node = 3, .parent = 2, .name = "b", .name_len = 1},
		{.kind = CHANGE_LINK, .node = 3, .parent = 1, .name = "c", .name_len = 1},
	};
	struct change c = {.incarnation = 1, .number = 1, .origin = 1, .ops = ops, .n_ops = 5};

	must(change_pack(&c, b) == 0);
}

static void make_job_body(struct buf *b, bool end)
{
	Limb__Record rec = LIMB__RECORD__INIT;
	Limb__JobStart js = LIMB__JOB_START__INIT;
	Limb__JobEnd je = LIMB__JOB_END__INIT;
	uint8_t *p;

	rec.job = (char *)"a";
	js.key = (char *)"a";
	rec.body_case = end ? LIMB__RECORD__BODY_JOB_END : LIMB__RECORD__BODY_JOB_START;
	if (end)
		rec.job_end = &je;
	else
		rec.job_start = &js;
	must(buf_reserve(b, 4096, &p) == 0);
	buf_commit(b, limb__record__pack(&rec, p));
}

static void make_point_body(struct buf *b)
{
	Limb__Record rec = LIMB__RECORD__INIT;
	Limb__Point pt = LIMB__POINT__INIT;
	uint8_t *p;

	pt.label = (char *)"a";
	pt.kind = (char *)"label";
	pt.at_seq = 1;
	rec.body_case = LIMB__RECORD__BODY_POINT;
	rec.point = &pt;
	must(buf_reserve(b, 4096, &p) == 0);
	buf_commit(b, limb__record__pack(&rec, p));
}

static const struct {
	uint8_t type;
	void (*make)(struct buf *b);
} bodies[] = {
	{RECORD_CHANGE, make_tree_body},
	{RECORD_POINT, make_point_body},
};

static void records(void)
{
	_cleanup_(buf_done) struct buf b = BUF_INIT(0), log = BUF_INIT(0), index = BUF_INIT(0);

	add_byte(&b, RECORD_CHANGE);
	make_body(&b, 9);
	put("record", "change", &b);
	for (size_t i = 0; i < ARRAY_SIZE(bodies); i++) {
		buf_clear(&b);
		bodies[i].make(&b);
		add_byte(&log, 0);
		add_byte(&log, bodies[i].type);
		add_piece(&log, buf_data(&b), buf_len(&b));
		add_byte(&index, 0x80);
		add_byte(&index, bodies[i].type);
		add_piece(&index, buf_data(&b), buf_len(&b));
	}
	for (int end = 0; end < 2; end++) {
		buf_clear(&b);
		make_job_body(&b, end);
		add_byte(&index, 0x80);
		add_byte(&index, end ? RECORD_JOB_END : RECORD_JOB_START);
		add_piece(&index, buf_data(&b), buf_len(&b));
	}
	put("index", "records", &index);
	put("log", "whole", &log);
	add_byte(&log, 16); /* one that was purged, one out of order, raw bytes */
	add_byte(&log, RECORD_CHANGE);
	add_piece(&log, "gone", 4);
	add_byte(&log, 1);
	add_byte(&log, RECORD_POINT);
	must(buf_add(&log, "\t\0\0\0\0\0\0\0", 8) == 0);
	add_piece(&log, "late", 4);
	add_byte(&log, 0xff);
	add_piece(&log, "LIMB", 4);
	put("log", "torn", &log);
}

static void rows(void)
{
	_cleanup_(buf_done) struct buf b = BUF_INIT(0), row = BUF_INIT(0);
	struct node dir = {.type = NODE_TYPE_DIRECTORY, .mode = 0755}, file = a_file(),
		    link = a_link();
	const struct node *nodes[] = {&dir, &file, &link};
	uint8_t dirent[DIRENT_ROW_BYTES];
	struct key k;

	for (size_t i = 0; i < ARRAY_SIZE(nodes); i++) {
		key_u64(&k, i + 1);
		buf_clear(&row);
		must(node_row_pack(&row, 1, 1, 1, nodes[i]) == 0);
		add_byte(&b, TABLE_NODE);
		add_piece(&b, k.b, k.len);
		add_piece(&b, buf_data(&row), buf_len(&row));
	}
	key_dirent(&k, 1, "a", 1);
	dirent_row_pack(dirent, 2, 1);
	add_byte(&b, TABLE_DIRENT);
	add_piece(&b, k.b, k.len);
	add_piece(&b, dirent, sizeof(dirent));
	put("index", "rows", &b);
}

/* ---- content ---- */

static void contents(void)
{
	_cleanup_(buf_done) struct buf b = BUF_INIT(0);
	static const uint8_t lists[] = {
		0, 2, 1, 0x30, 0, 0,	0, 0, 0, 0, 0x30, 0, 0, /* depth 2, 48 bytes, all of it */
		1, 0, 2, 0x30,					/* one list of 48 ... */
		2, 0, 3, 0x10, 4, 0x20,				/* ... of 16 and 32 */
	};
	static const uint8_t changed[] = {
		0, 0, 0x10, 0, 0,	      /* its own signature, pieces of 4 KiB */
		7, 0, 0x40, 9, 0, 0x40, 0xff, /* the old content */
		7, 0, 0x40, 1, 5, 0,	9,    0, 0x40, 0xff, /* the new: something in between */
	};
	static const uint8_t written[] = {1, 4, 0, 0, 1, 1, 0, 0, 1, 6, 0, 0, 2, 2, 0, 0x10, 0};

	must(buf_add(&b, lists, sizeof(lists)) == 0);
	put("content", "lists", &b);
	buf_clear(&b);
	must(buf_add(&b, written, sizeof(written)) == 0);
	put("content", "written", &b);
	buf_clear(&b);
	must(buf_add(&b, changed, sizeof(changed)) == 0);
	put("delta", "changed", &b);
}

static void packs(void)
{
	_cleanup_(frame_builder_freep) struct frame_builder *fb = NULL;
	_cleanup_(buf_done) struct buf b = BUF_INIT(0);
	static const char text[] = "limbfs limbfs limbfs limbfs limbfs limbfs limbfs limbfs limbfs";
	uint8_t hash[SHA256_BYTES];
	struct frame f;

	must(frame_builder_new(1, &fb) == 0);
	for (size_t n = 20; n < sizeof(text); n += 20) {
		sha256(text, n, hash);
		must(frame_builder_add(fb, FRAME_CHUNK, hash, text, n) == 0);
	}
	must(frame_builder_finish(fb, &f) == 0);
	add_byte(&b, 0xc0);
	add_piece(&b, f.bytes, f.n);
	put("pack", "frame", &b);
	add_byte(&b, 2); /* stored, one member that is what it says */
	add_byte(&b, 1);
	add_byte(&b, 4);
	add_byte(&b, 0);
	add_byte(&b, 0);
	add_piece(&b, "abcd", 4);
	put("pack", "bent", &b);
}

/* ---- the wire ---- */

static void add_tree(struct buf *b, bool same)
{
	struct node nodes[4] = {{.type = NODE_TYPE_DIRECTORY, .mode = 0755},
				{.type = NODE_TYPE_DIRECTORY, .mode = 0700},
				a_file(),
				a_link()};
	static const char *const names[] = {"", "d", "f", "l"};
	Limbwire__TreePart part = LIMBWIRE__TREE_PART__INIT;
	Limbwire__TreeEntry entries[4], *ptrs[4];
	struct wire_attr_scratch s[4];
	uint8_t body[4096];

	memset(s, 0, sizeof(s));
	for (size_t i = 0; i < 4; i++) {
		ptrs[i] = &entries[i];
		limbwire__tree_entry__init(ptrs[i]);
		must(wire_attr_fill(&s[i], &nodes[i]) == 0);
		entries[i].node = i + 1;
		entries[i].parent = i < 3 ? 1 : 2;
		entries[i].name.data = (uint8_t *)(uintptr_t)names[i];
		entries[i].name.len = strlen(names[i]);
		entries[i].same = same;
		entries[i].attr = same ? NULL : &s[i].attr;
		entries[i].content = !same && nodes[i].type == NODE_TYPE_FILE ? &s[i].content
									      : NULL;
	}
	/* Pre-order: what is in "d" comes right behind it. */
	ptrs[2] = &entries[3];
	ptrs[3] = &entries[2];
	part.request = 1;
	part.last = true;
	part.n_entries = 4;
	part.entries = ptrs;
	must(limbwire__tree_part__get_packed_size(&part) < sizeof(body));
	must(wframe_encode(b, WIRE_TREE_PART, body, limbwire__tree_part__pack(&part, body), NULL, 0,
			   false) == 0);
	for (size_t i = 0; i < 4; i++)
		wire_attr_scratch_done(&s[i]);
}

static void trees(void)
{
	_cleanup_(buf_done) struct buf b = BUF_INIT(0);

	add_tree(&b, false);
	add_tree(&b, true);
	put("restore", "trees", &b);
}

static void entries(void)
{
	_cleanup_(buf_done) struct buf b = BUF_INIT(0);

	make_all(&b);
	put("entry", "all", &b);
	buf_clear(&b);
	make_change(&b, 9);
	put("entry", "change", &b);
}

/* ---- JSON ---- */

/* Every verb, of an environment that may not be there, with what most of them know. */
static void every_verb(const char *name)
{
	static const char *const verbs[] = {
		"attach",    "create",	   "exec",   "file_edit", "file_read", "file_search",
		"file_stat", "file_write", "input",  "inspect",	  "jobs",      "logs",
		"ls",	     "pause",	   "points", "ps",	  "resume",    "shell",
		"signal",    "status",	   "sync",   "verify",	  "wait",
	};
	_cleanup_(buf_done) struct buf b = BUF_INIT(0);
	char text[400];

	for (size_t i = 0; i < ARRAY_SIZE(verbs); i++) {
		(void)snprintf(
			text, sizeof(text),
			"{\"jsonrpc\":\"2.0\",\"id\":%zu,\"method\":\"%s\",\"params\":{\"name\":\"%"
			"s\","
			"\"path\":\"a\",\"job\":\"j\",\"argv\":[\"a\"],\"pattern\":\"*\",\"text\":"
			"\"a\","
			"\"content\":\"a\",\"edits\":[{\"old_text\":\"a\",\"new_text\":\"b\"}],"
			"\"limit\":1,\"stream\":\"stdout\",\"since\":0,\"json\":true}}",
			i + 1, verbs[i], name);
		add_byte(&b, 0);
		add_piece(&b, text, strlen(text));
	}
	put("rpc", name, &b);
}

static void calls(void)
{
	static const char *const texts[] = {
		"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"status\",\"params\":{}}",
		"{\"jsonrpc\":\"2.0\",\"id\":2,\"method\":\"file_read\",\"params\":{\"name\":"
		"\"box\","
		"\"path\":{\"base64\":\"YQ==\"},\"point\":\"HEAD~1\",\"offset\":1,\"limit\":2}}",
		"{\"jsonrpc\":\"2.0\",\"id\":3,\"method\":\"exec\",\"params\":{\"name\":\"box\","
		"\"argv\":[\"true\"],\"stdin\":true,\"env\":[\"A=b\"],\"timeout_ms\":5}}",
		"{\"jsonrpc\":\"2.0\",\"method\":\"cancel\"}",
		"{\"jsonrpc\":\"2.0\",\"id\":4,\"method\":\"file_edit\",\"params\":{\"name\":"
		"\"box\","
		"\"path\":\"a\",\"edits\":[{\"old_text\":\"x\",\"new_text\":\"y\"}]}}",
		"{\"jsonrpc\":\"2.0\",\"id\":5,\"method\":\"file_search\",\"params\":{\"name\":"
		"\"box\","
		"\"path\":\"\",\"pattern\":\"**/*.c\",\"text\":\"a\",\"limit\":3}}",
		"{\"jsonrpc\":\"2.0\",\"id\":6,\"method\":\"points\",\"params\":{\"name\":\"box\"}"
		"}",
		"{\"jsonrpc\":\"2.0\",\"id\":7,\"method\":\"create\",\"params\":{\"name\":"
		"\"fresh\","
		"\"provider\":\"bwrap\",\"spec\":{\"env\":{\"A\":\"b\"}}}}",
	};
	_cleanup_(buf_done) struct buf b = BUF_INIT(0);

	for (size_t i = 0; i < ARRAY_SIZE(texts); i++) {
		add_byte(&b, 0);
		add_piece(&b, texts[i], strlen(texts[i]));
		add_byte(&b, 1);
		add_piece(&b, "in", 2);
	}
	put("rpc", "calls", &b);
	every_verb("box");
	every_verb("gone");
	put_text("spec", "all",
		 "{\"env\":{\"A\":\"b\"},\"watch_limit\":100,\"class\":\"ordered\",\"services\":[]}"
		 "\n");
	put_text("mcp", "session",
		 "\x10{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"initialize\",\"params\":"
		 "{\"protocolVersion\":\"2025-11-25\",\"capabilities\":{}}}\n"
		 "{\"jsonrpc\":\"2.0\",\"method\":\"notifications/initialized\"}\n"
		 "{\"jsonrpc\":\"2.0\",\"id\":2,\"method\":\"tools/list\"}\n"
		 "{\"jsonrpc\":\"2.0\",\"id\":\"x\",\"method\":\"tools/call\",\"params\":{\"name\":"
		 "\"read_file\",\"arguments\":{\"environment\":\"box\",\"path\":\"a\"}}}\n"
		 "{\"jsonrpc\":\"2.0\",\"id\":3,\"method\":\"server/"
		 "discover\",\"params\":{\"_meta\":"
		 "{\"io.modelcontextprotocol/protocolVersion\":\"2026-07-28\","
		 "\"io.modelcontextprotocol/clientCapabilities\":{}}}}\n"
		 "{\"jsonrpc\":\"2.0\",\"method\":\"notifications/"
		 "cancelled\",\"params\":{\"requestId\":2}}\n"
		 "{\"jsonrpc\":\"2.0\",\"id\":4,\"method\":\"ping\"}\n");
}

static void ignoring(void)
{
	static const struct {
		bool person;
		const char *dir, *text;
	} files[] = {
		{false, "", "# all\n*.o\n!keep.o\n/build/\na/**/b\n**/c\nd/**\n"},
		{false, "a/b", "[a-c]?\n[!x]y\n[[:digit:]]\\*\nspace\\ \r\n"},
		{true, "", "!a/keep\n\\#x\n\\!y\n"},
	};
	static const char *const paths[] = {"a/b/c", "build", "a/keep.o", "d/e/f", "a/b/1*", "#x"};
	_cleanup_(buf_done) struct buf b = BUF_INIT(0);

	add_byte(&b, ARRAY_SIZE(files));
	for (size_t i = 0; i < ARRAY_SIZE(files); i++) {
		add_byte(&b, files[i].person);
		add_piece(&b, files[i].dir, strlen(files[i].dir));
		add_piece(&b, files[i].text, strlen(files[i].text));
	}
	add_byte(&b, 0);
	for (size_t i = 0; i < ARRAY_SIZE(paths); i++) {
		add_piece(&b, paths[i], strlen(paths[i]));
		add_byte(&b, i == 1);
	}
	put("ignore", "rules", &b);
}

int main(int argc, char **argv)
{
	if (argc != 2)
		errx(2, "usage: seeds DIR");
	out_dir = open(argv[1], O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (out_dir < 0)
		err(1, "cannot open '%s'", argv[1]);
	records();
	rows();
	contents();
	packs();
	trees();
	entries();
	calls();
	ignoring();
	return 0;
}
