/*
 * index-fixture.h - a log and its index in the scratch directory.
 *
 *	struct journal j;
 *	journal_open(&j);			makes both, or opens what is there
 *	journal_change(&j, ops, n);		appends, applies, commits; 0 or -EINVAL
 *	journal_close(&j);
 */
#ifndef TESTS_UNIT_INDEX_FIXTURE_H
#define TESTS_UNIT_INDEX_FIXTURE_H

#include "scratch.h"

#include "base/clock.h"
#include "journal/body.h"
#include "journal/index.h"
#include "journal/log.h"

struct journal {
	int env_fd, log_fd;
	struct log *log;
	struct index *ix;
	const char *why; /* of the last refusal */
};

static inline void journal_open_log(struct journal *j)
{
	static const struct log_ids ids = {.log_id = {7}, .brain_id = {8}, .term = 1};

	*j = (struct journal){.env_fd = scratch};
	assert_int_equal(file_make_dir(scratch, "log"), 0);
	j->log_fd = file_open_dir(scratch, "log");
	assert_true(j->log_fd >= 0);
	assert_int_equal(log_open(j->log_fd, &ids, LOG_CREATE, &j->log, NULL), 0);
}

static inline void journal_open(struct journal *j)
{
	journal_open_log(j);
	assert_int_equal(index_open(j->env_fd, INDEX_WRITE, j->log_fd, NULL, NULL, &j->ix), 0);
}

static inline void journal_close(struct journal *j)
{
	index_close(j->ix);
	log_close(j->log);
	(void)close(j->log_fd);
}

/* Appends a body to the log; the index does not learn of it. */
static inline uint64_t journal_append(struct journal *j, uint16_t type, const void *body, size_t n,
				      int64_t *ret_time)
{
	int64_t time_ns = clock_real_ns();
	uint64_t seq;

	assert_int_equal(log_append(j->log, type, body, n, time_ns, &seq), 0);
	assert_int_equal(log_write(j->log), 0);
	if (ret_time)
		*ret_time = time_ns;
	return seq;
}

/* A change that the index accepts, inside an open transaction. */
static inline int journal_apply(struct journal *j, const struct change *c)
{
	_cleanup_(buf_done) struct buf body = BUF_INIT(0);
	int64_t time_ns;
	uint64_t seq;
	int r;

	j->why = NULL;
	r = index_check_change(j->ix, c, &j->why);
	if (r < 0) {
		assert_int_equal(r, -EINVAL);
		assert_non_null(j->why);
		/* Refused alike by who does not ask first. */
		assert_int_equal(index_apply_change(j->ix, log_last(j->log) + 1, 1, c), -EINVAL);
		return r;
	}
	assert_int_equal(change_pack(c, &body), 0);
	seq = journal_append(j, RECORD_CHANGE, buf_data(&body), buf_len(&body), &time_ns);
	assert_int_equal(index_apply_change(j->ix, seq, time_ns, c), 0);
	return 0;
}

static inline int journal_change(struct journal *j, struct change_op *ops, size_t n)
{
	struct change c = {.origin = ORIGIN_BRAIN_, .ops = ops, .n_ops = n};
	int r;

	assert_int_equal(index_begin(j->ix), 0);
	r = journal_apply(j, &c);
	assert_int_equal(index_commit(j->ix), 0);
	return r;
}

#define journal_ops(j, ...)                                  \
	journal_change(j, (struct change_op[]){__VA_ARGS__}, \
		       sizeof((struct change_op[]){__VA_ARGS__}) / sizeof(struct change_op))

/* A record of another type, through log and index. */
static inline uint64_t journal_record(struct journal *j, uint16_t type, const Limb__Record *rec)
{
	struct log_record lr = {.type = type};
	uint8_t body[4096];

	assert_true(limb__record__get_packed_size(rec) <= sizeof(body));
	lr.n = limb__record__pack(rec, body);
	lr.body = body;
	lr.seq = journal_append(j, type, body, lr.n, &lr.time_ns);
	memcpy(lr.chain, log_chain(j->log), sizeof(lr.chain));
	assert_int_equal(index_begin(j->ix), 0);
	assert_int_equal(index_apply(j->ix, &lr), 0);
	assert_int_equal(index_commit(j->ix), 0);
	return lr.seq;
}

/* ---- operations ---- */

static inline struct change_op op_put(uint64_t node, uint8_t type, const char *content)
{
	struct change_op op = {
		.kind = CHANGE_PUT,
		.node = node,
		.attr = {.type = type, .mode = type == NODE_TYPE_FILE ? 0644 : 0755}};

	if (type == NODE_TYPE_SYMLINK) {
		op.attr.target = (const uint8_t *)content;
		op.attr.target_len = (uint32_t)strlen(content);
	} else if (content) {
		op.has_content = true;
		op.attr.content.size_bytes = strlen(content);
		sha256(content, strlen(content), op.attr.content.sha256);
	}
	return op;
}

static inline struct change_op op_file(uint64_t node, const char *content)
{
	return op_put(node, NODE_TYPE_FILE, content);
}

static inline struct change_op op_dir(uint64_t node)
{
	return op_put(node, NODE_TYPE_DIRECTORY, NULL);
}

static inline struct change_op op_link(uint64_t parent, const char *name, uint64_t node)
{
	return (struct change_op){.kind = CHANGE_LINK,
				  .node = node,
				  .parent = parent,
				  .name = name,
				  .name_len = (uint16_t)strlen(name)};
}

static inline struct change_op op_unlink(uint64_t parent, const char *name)
{
	return (struct change_op){.kind = CHANGE_UNLINK,
				  .parent = parent,
				  .name = name,
				  .name_len = (uint16_t)strlen(name),
				  .evidence = EVIDENCE_ABSENT_};
}

static inline struct change_op op_move(uint64_t parent, const char *name, uint64_t to_parent,
				       const char *to_name)
{
	return (struct change_op){.kind = CHANGE_MOVE,
				  .parent = parent,
				  .name = name,
				  .name_len = (uint16_t)strlen(name),
				  .to_parent = to_parent,
				  .to_name = to_name,
				  .to_name_len = (uint16_t)strlen(to_name)};
}

/* ---- a tree of many files ---- */

enum { FILES = 300 };

static inline void add_file(struct journal *j, uint64_t node)
{
	char name[32];

	(void)snprintf(name, sizeof(name), "file%d", (int)node);
	assert_int_equal(journal_ops(j, op_file(node, name), op_link(1, name, node)), 0);
}

static inline void fill(struct journal *j)
{
	for (uint64_t node = 2; node < 2 + FILES; node++)
		add_file(j, node);
}

static inline uint64_t files_of(struct index *ix)
{
	struct index_counts c;
	struct index_txn *t;

	if (index_read_begin(ix, &t) < 0)
		return UINT64_MAX;
	(void)index_counts(t, &c);
	index_read_end(t);
	return c.files;
}

#endif
