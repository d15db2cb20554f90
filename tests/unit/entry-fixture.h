/*
 * entry-fixture.h - an entry of each type, right as it is, and reading all of one.
 */
#ifndef TESTS_ENTRY_FIXTURE_H
#define TESTS_ENTRY_FIXTURE_H

#include "base/util.h"
#include "brain/entry.h"

static const uint8_t xattrs[] = {6, 0, 'u', 's', 'e', 'r', '.', 'a', 2, 0, 0, 0, 'x', 'y'};

static inline struct node a_file(void)
{
	struct node n = {
		.type = NODE_TYPE_FILE,
		.uid_kind = NODE_OWNER_NUMBER,
		.gid_kind = NODE_OWNER_ROOT,
		.mode = 0644,
		.uid = 5,
		.gid = UINT32_MAX,
		.mtime_ns = INT64_MIN,
		.ctime_ns = 7,
		.inode = 8,
		.generation = 9,
		.device = UINT64_MAX,
		.unheld = 3,
		.torn = true,
		.allocated_bytes = 11,
		.xattrs = xattrs,
		.xattrs_len = sizeof(xattrs),
	};

	n.content.size_bytes = 12;
	n.content.depth = 1;
	n.content.holes = true;
	memset(n.content.sha256, 0xaa, SHA256_BYTES);
	memset(n.content.root, 0xbb, SHA256_BYTES);
	return n;
}

static inline struct node a_link(void)
{
	static const uint8_t target[] = "../to/somewhere";

	return (struct node){
		.type = NODE_TYPE_SYMLINK,
		.mode = 0777,
		.target = target,
		.target_len = sizeof(target) - 1,
	};
}

static inline struct change_op sample_op(unsigned i, char name[NODE_NAME_MAX + 1])
{
	struct change_op op = {
		.kind = (uint8_t)(CHANGE_PUT + i % 4),
		.node = 100 + i,
		.base_version = i,
	};

	for (size_t k = 0; k < NODE_NAME_MAX; k++)
		name[k] = (char)('a' + (i + k) % 26);
	if (op.kind == CHANGE_PUT) {
		op.attr = i % 8 ? a_file() : a_link();
		op.has_content = i % 8 && i % 3;
		return op;
	}
	op.parent = i + 1;
	op.name = name;
	op.name_len = (uint16_t)(1 + i * 4 % NODE_NAME_MAX);
	if (op.kind == CHANGE_UNLINK)
		op.evidence = (uint8_t)(1 + i % 4);
	if (op.kind == CHANGE_MOVE) {
		op.to_parent = i + 2;
		op.to_name = name + 1;
		op.to_name_len = NODE_NAME_MAX - 1;
	}
	return op;
}

/* Entries of each type, right as they are. */
static inline void make_change(struct buf *b, unsigned n_ops)
{
	struct entry_change c = {
		.number = 7, .time_ns = -1, .base_seq = 9, .n_ops = n_ops, .job = "j-1"};
	char name[NODE_NAME_MAX + 1];
	size_t at;

	assert_int_equal(entry_begin(b, ENTRY_CHANGE, &c, sizeof(c), &at), 0);
	for (unsigned i = 0; i < n_ops; i++) {
		struct change_op op = sample_op(i, name);

		assert_int_equal(entry_add_op(b, &op), 0);
	}
	assert_int_equal(entry_end(b, at), 0);
}

static inline void make_tree(struct buf *b)
{
	struct entry_tree_part t = {.request = 5, .n = 4, .last = 1};
	struct entry_tree_entry e = {.node = 1, .parent = 0};
	struct node file = a_file(), link = a_link(), none = {0},
		    dir = {.type = NODE_TYPE_DIRECTORY};
	size_t at;

	assert_int_equal(entry_begin(b, ENTRY_TREE_PART, &t, sizeof(t), &at), 0);
	assert_int_equal(entry_add_tree(b, &e, NULL, 0, &dir, false), 0);
	e.parent = 1;
	assert_int_equal(entry_add_tree(b, &e, "file", 4, &file, true), 0);
	e.same_as = 2;
	assert_int_equal(entry_add_tree(b, &e, "link", 4, &link, false), 0);
	e.error = EACCES;
	assert_int_equal(entry_add_tree(b, &e, "secret", 6, &none, false), 0);
	assert_int_equal(entry_end(b, at), 0);
}

static inline void add_unsettled(struct buf *b)
{
	struct entry_unsettled u = {.len = 3, .size_bytes = 10, .since_ns = -5};

	assert_int_equal(entry_add_part(b, &u, sizeof(u), "a/b", 3, NULL, 0), 0);
	u.len = 8;
	assert_int_equal(entry_add_part(b, &u, sizeof(u), "12345678", 8, NULL, 0), 0);
}

static inline void make_barrier_done(struct buf *b)
{
	struct entry_barrier_done e = {.request = 1, .number = 2, .n_unsettled = 2};
	size_t at;

	assert_int_equal(entry_begin(b, ENTRY_BARRIER_DONE, &e, sizeof(e), &at), 0);
	add_unsettled(b);
	assert_int_equal(entry_end(b, at), 0);
}

static inline void make_job_exit(struct buf *b)
{
	struct entry_job e = {
		.job = "j-2", .killed_by = "timeout", .detail_len = 5, .n_unsettled = 2};
	size_t at;

	assert_int_equal(entry_begin(b, ENTRY_JOB_EXIT, &e, sizeof(e), &at), 0);
	assert_int_equal(entry_add_part(b, "where", 5, NULL, 0, NULL, 0), 0);
	add_unsettled(b);
	assert_int_equal(entry_end(b, at), 0);
}

static inline void make_status(struct buf *b)
{
	struct entry_status e = {.files = 3, .n_reasons = 2};
	struct entry_reason reason = {.code = "watches", .detail_len = 4, .path_len = 2};
	size_t at;

	assert_int_equal(entry_begin(b, ENTRY_STATUS, &e, sizeof(e), &at), 0);
	assert_int_equal(entry_add_part(b, &reason, sizeof(reason), "text", 4, "/p", 2), 0);
	reason.detail_len = reason.path_len = 0;
	assert_int_equal(entry_add_part(b, &reason, sizeof(reason), NULL, 0, NULL, 0), 0);
	assert_int_equal(entry_end(b, at), 0);
}

static inline void make_restored(struct buf *b)
{
	struct entry_restored e = {.request = 1, .detail_len = 3, .n_unsupported = 2};
	struct entry_unsupported u = {.path_len = 5, .field_len = 5};
	size_t at;

	assert_int_equal(entry_begin(b, ENTRY_RESTORED, &e, sizeof(e), &at), 0);
	assert_int_equal(entry_add_part(b, "why", 3, NULL, 0, NULL, 0), 0);
	assert_int_equal(entry_add_part(b, &u, sizeof(u), "p/a/t", 5, "owner", 5), 0);
	assert_int_equal(entry_add_part(b, &u, sizeof(u), "p/a/u", 5, "xattr", 5), 0);
	assert_int_equal(entry_end(b, at), 0);
}

static inline void make_ps_done(struct buf *b)
{
	struct entry_ps_done e = {.request = 1, .n = 2};
	struct entry_process p = {.pid = 3, .job = "j-1", .state = "S", .argv_len = 8};
	size_t at;

	assert_int_equal(entry_begin(b, ENTRY_PS_DONE, &e, sizeof(e), &at), 0);
	p.length = sizeof(p) + 8;
	assert_int_equal(entry_add_part(b, &p, sizeof(p), "sh\0-c\0x", 8, NULL, 0), 0);
	p.argv_len = 0;
	p.length = sizeof(p);
	assert_int_equal(entry_add_part(b, &p, sizeof(p), NULL, 0, NULL, 0), 0);
	assert_int_equal(entry_end(b, at), 0);
}

static inline void make_places(struct buf *b)
{
	struct entry_places e = {.n = 2, .pack_end = 4096};
	struct entry_place p[2] = {{.offset = 64, .len = 5, .kind = FRAME_CHUNK},
				   {.offset = 128, .len = 9, .kind = FRAME_LIST}};

	assert_int_equal(entry_add(b, ENTRY_PLACES, &e, sizeof(e), p, sizeof(p)), 0);
}

static inline void make_fixed(struct buf *b)
{
	struct entry_pack pack = {.offset = 64, .seal_bytes = 1, .zstd_level = 1};
	struct entry_start start = {.durable_number = 1};
	struct entry_hello hello = {.syncd_version = "0.1.0"};
	struct entry_tree_get get = {.request = 1};
	struct entry_pack_full full = {.length = 1};
	struct entry_pong pong = {.id = 1};
	struct entry_head stop = {0};
	struct entry_send send = {.len = 5};

	assert_int_equal(entry_add(b, ENTRY_PACK, &pack, sizeof(pack), NULL, 0), 0);
	assert_int_equal(entry_add(b, ENTRY_SEND, &send, sizeof(send), "bytes", 5), 0);
	assert_int_equal(entry_add(b, ENTRY_START, &start, sizeof(start), NULL, 0), 0);
	assert_int_equal(entry_add(b, ENTRY_HELLO, &hello, sizeof(hello), NULL, 0), 0);
	assert_int_equal(entry_add(b, ENTRY_TREE_GET, &get, sizeof(get), NULL, 0), 0);
	assert_int_equal(entry_add(b, ENTRY_PACK_FULL, &full, sizeof(full), NULL, 0), 0);
	assert_int_equal(entry_add(b, ENTRY_PONG, &pong, sizeof(pong), NULL, 0), 0);
	assert_int_equal(entry_add(b, ENTRY_STOP, &stop, sizeof(stop), NULL, 0), 0);
	assert_int_equal(entry_add(b, ENTRY_SEAL, &stop, sizeof(stop), NULL, 0), 0);
}

static inline void make_tails(struct buf *b)
{
	struct entry_text text = {.request = 1, .error = 2, .len = 5};
	struct entry_done done = {.request = 1, .len = 3};
	struct entry_pull pull = {.request = 1, .n = 2};
	struct entry_pull_node nodes[] = {{.node = 5}, {.node = 6, .has_base = 1}};
	struct entry_job_output out = {.job = "j-1", .stream = 1, .len = 3};
	struct entry_job_list list = {.n = 1};
	struct entry_job_known known = {.job = "j-9"};
	struct entry_job started = {.job = "j-1", .request = 4, .detail_len = 3};
	struct entry_job_input input = {.job = "j-1", .bytes = 70000};
	static const uint16_t texts[] = {ENTRY_ERROR, ENTRY_BYE, ENTRY_HOSTILE};

	for (size_t i = 0; i < ARRAY_SIZE(texts); i++)
		assert_int_equal(entry_add(b, texts[i], &text, sizeof(text), "words", 5), 0);
	assert_int_equal(entry_add(b, ENTRY_DONE, &done, sizeof(done), "ok!", 3), 0);
	assert_int_equal(entry_add(b, ENTRY_PULL, &pull, sizeof(pull), nodes, sizeof(nodes)), 0);
	assert_int_equal(entry_add(b, ENTRY_JOB_OUTPUT, &out, sizeof(out), "abc", 3), 0);
	assert_int_equal(entry_add(b, ENTRY_JOB_LIST, &list, sizeof(list), &known, sizeof(known)),
			 0);
	assert_int_equal(entry_add(b, ENTRY_JOB_INPUT, &input, sizeof(input), NULL, 0), 0);
	assert_int_equal(entry_add(b, ENTRY_JOB_STARTED, &started, sizeof(started), "cwd", 3), 0);
}

static inline void make_all(struct buf *b)
{
	make_change(b, 9);
	make_tree(b);
	make_barrier_done(b);
	make_job_exit(b);
	make_status(b);
	make_restored(b);
	make_ps_done(b);
	make_places(b);
	make_fixed(b);
	make_tails(b);
}

/* Reads everything that a right entry has; a byte past its end is an error of
 * AddressSanitizer, for which the entry stands in memory of just its size. */
static inline unsigned read_parts(const struct entry_head *e)
{
	const struct entry_unsupported *unsupported;
	const struct entry_tree_entry *tree;
	const struct entry_unsettled *u;
	const struct entry_process *p;
	const struct entry_reason *reason;
	const char *x, *y;
	struct entry_cursor c;
	struct change_op op;
	struct node node;
	uint8_t sum = 0;
	unsigned n = 0;

#define EAT(bytes, len)                               \
	for (size_t k_ = 0; k_ < (size_t)(len); k_++) \
	sum = (uint8_t)(sum + ((const uint8_t *)(bytes))[k_])

	entry_cursor_init(&c, e);
	switch (e->type) {
	case ENTRY_CHANGE:
		for (; entry_next_op(&c, &op); n++) {
			EAT(op.name, op.name_len);
			EAT(op.to_name, op.to_name_len);
			EAT(op.attr.target, op.attr.target_len);
			EAT(op.attr.xattrs, op.attr.xattrs_len);
		}
		break;
	case ENTRY_TREE_PART:
		for (; entry_next_tree(&c, &tree, &x, &node); n++) {
			EAT(x, tree->name_len);
			EAT(node.target, node.target_len);
			EAT(node.xattrs, node.xattrs_len);
		}
		break;
	case ENTRY_BARRIER_DONE:
	case ENTRY_JOB_EXIT:
		for (; entry_next_unsettled(&c, &u, &x); n++)
			EAT(x, u->len);
		break;
	case ENTRY_STATUS:
		for (; entry_next_reason(&c, &reason, &x, &y); n++) {
			EAT(reason->code, strlen(reason->code));
			EAT(x, reason->detail_len);
			EAT(y, reason->path_len);
		}
		break;
	case ENTRY_RESTORED:
		for (; entry_next_unsupported(&c, &unsupported, &x, &y); n++) {
			EAT(x, unsupported->path_len);
			EAT(y, unsupported->field_len);
		}
		break;
	case ENTRY_PS_DONE:
		for (; entry_next_process(&c, &p, &x); n++) {
			EAT(x, p->argv_len);
			EAT(p->state, strlen(p->state));
		}
		break;
	default: break;
	}
	assert_true(!c.p || c.p <= (const uint8_t *)e + e->length);
	return n + (sum & 0);
}

#endif
