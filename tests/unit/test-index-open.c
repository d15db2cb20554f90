#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/fault.h"
#include "base/text.h"
#include "child.h"
#include "index-fixture.h"
#include "journal/index-mark.h"
#include "journal/record.h"

/* ---- helpers ---- */

enum { FILES = 300 };

static void add_file(struct journal *j, uint64_t node)
{
	char name[32];

	(void)snprintf(name, sizeof(name), "file%d", (int)node);
	assert_int_equal(journal_ops(j, op_file(node, name), op_link(1, name, node)), 0);
}

static void fill(struct journal *j)
{
	for (uint64_t node = 2; node < 2 + FILES; node++)
		add_file(j, node);
}

static uint64_t files_of(struct index *ix)
{
	struct index_counts c;
	struct index_txn *t;

	if (index_read_begin(ix, &t) < 0)
		return UINT64_MAX;
	(void)index_counts(t, &c);
	index_read_end(t);
	return c.files;
}

static struct index_mark mark(void)
{
	struct index_mark m;

	assert_int_equal(index_mark_read(scratch, &m), 0);
	return m;
}

static bool exists(const char *path)
{
	struct stat st;

	return fstatat(scratch, path, &st, AT_SYMLINK_NOFOLLOW) == 0;
}

/* As if the machine had been started again since the mark was made. */
static void restart_machine(void)
{
	_cleanup_(buf_done) struct buf b = BUF_INIT(0);
	cleanup_free char *text = NULL;
	uint8_t hash[SHA256_BYTES];

	assert_int_equal(file_read(scratch, "index", &b), 0);
	assert_int_equal(buf_to_str(&b, &text), 0);
	memset(strstr(text, "boot ") + 5, '0', 32);
	*(strstr(text, "clean ") + 6) = '0';
	char *check = strstr(text, "check ");
	sha256(text, (size_t)(check - text), hash);
	text_hex(check + 6, hash, 8);
	check[22] = '\n';
	assert_int_equal(file_replace(scratch, "index", text, strlen(text)), 0);
}

/* The same, and pages that were not synced are garbage, while the file's head is as good
 * as ever. */
static void lose_power(void)
{
	char garbage[4096], name[INDEX_NAME_MAX], path[64];
	int fd;

	restart_machine();
	index_mark_name(name, mark().number);
	(void)snprintf(path, sizeof(path), "%s/data.mdb", name);
	fd = openat(scratch, path, O_WRONLY);
	assert_true(fd >= 0);
	memset(garbage, 0xa5, sizeof(garbage));
	for (off_t at = 2 * sizeof(garbage); at < lseek(fd, 0, SEEK_END); at += sizeof(garbage))
		assert_int_equal(pwrite(fd, garbage, sizeof(garbage), at), sizeof(garbage));
	assert_int_equal(close(fd), 0);
}

static int kill_writer(void *arg)
{
	struct journal j;

	(void)arg;
	journal_open_log(&j);
	if (index_open(scratch, INDEX_WRITE, j.log_fd, NULL, NULL, &j.ix) < 0)
		return 2;
	add_file(&j, 1000);
	(void)log_write(j.log);
	(void)kill(getpid(), SIGKILL);
	return 3;
}

static void count_replayed(uint64_t seq, uint64_t last, void *userdata)
{
	(void)last;
	*(uint64_t *)userdata = seq;
}

/* ---- tests ---- */

/* Closed cleanly, an index is taken as it is; the mark is away while it is written. */
static void a_clean_index_is_kept(void **state)
{
	struct journal j;

	journal_open(&j);
	fill(&j);
	assert_false(mark().clean);
	journal_close(&j);
	assert_true(mark().clean);
	journal_open(&j);
	assert_false(mark().clean);
	assert_int_equal(mark().number, 1);
	assert_int_equal(files_of(j.ix), FILES);
	journal_close(&j);
}

/* After kill -9 of the writer its commits are there, and what the log has beyond them is
 * replayed into the same index. */
static void a_killed_writer(void **state)
{
	struct journal j;
	struct change_op ops[] = {op_file(2000, "x"), op_link(1, "x", 2000)};
	struct change c = {.origin = ORIGIN_BRAIN_, .ops = ops, .n_ops = 2};
	_cleanup_(buf_done) struct buf body = BUF_INIT(0);

	journal_open(&j);
	fill(&j);
	journal_close(&j);
	assert_int_equal(child_run(kill_writer, NULL), -SIGKILL);
	assert_false(mark().clean);
	journal_open_log(&j);
	assert_int_equal(change_pack(&c, &body), 0);
	(void)journal_append(&j, RECORD_CHANGE, buf_data(&body), buf_len(&body), NULL);
	uint64_t replayed = 0;
	assert_int_equal(
		index_open(scratch, INDEX_WRITE, j.log_fd, count_replayed, &replayed, &j.ix), 0);
	assert_int_equal(replayed, FILES + 2);
	assert_int_equal(mark().number, 1);
	assert_int_equal(files_of(j.ix), FILES + 2);
	journal_close(&j);
}

/* What was not closed cleanly is not trusted after a restart of the machine, good as it
 * may look. */
static void another_boot(void **state)
{
	struct journal j;

	journal_open(&j);
	fill(&j);
	journal_close(&j);
	restart_machine();
	journal_open(&j);
	assert_int_equal(mark().number, 2);
	assert_int_equal(files_of(j.ix), FILES);
	journal_close(&j);
}

/* After a loss of power the index is made again from the log: the damaged file is not
 * even opened. */
static void power_lost_without_a_copy(void **state)
{
	struct journal j;

	journal_open(&j);
	fill(&j);
	journal_close(&j);
	lose_power();
	journal_open(&j);
	assert_int_equal(mark().number, 2);
	assert_false(exists("index.1"));
	assert_int_equal(files_of(j.ix), FILES);
	journal_close(&j);
}

/* With a synced copy it goes on from that, again and again: seen by the copy, which each
 * new index takes over. */
static void power_lost_with_a_copy(void **state)
{
	struct journal j;

	journal_open(&j);
	fill(&j);
	assert_int_equal(index_sync(j.ix), 0);
	add_file(&j, 900);
	journal_close(&j);
	for (int i = 0; i < 3; i++) {
		lose_power();
		journal_open(&j);
		assert_int_equal(mark().number, 2 + i);
		assert_int_equal(files_of(j.ix), FILES + 1 + i);
		assert_true(exists(i == 0   ? "index.2/copy"
				   : i == 1 ? "index.3/copy"
					    : "index.4/copy"));
		add_file(&j, 901 + (uint64_t)i);
		journal_close(&j);
	}
}

/* A copy that is damaged, or ahead of the log, is passed by. */
static void power_lost_with_a_bad_copy(void **state)
{
	struct journal j;
	int fd;

	journal_open(&j);
	fill(&j);
	assert_int_equal(index_sync(j.ix), 0);
	journal_close(&j);
	lose_power();
	fd = openat(scratch, "index.1/copy", O_WRONLY | O_TRUNC);
	assert_true(fd >= 0);
	assert_int_equal(write(fd, "short", 5), 5);
	(void)close(fd);
	journal_open(&j);
	assert_int_equal(files_of(j.ix), FILES);
	assert_false(exists("index.2/copy"));

	assert_int_equal(index_sync(j.ix), 0);
	assert_int_equal(log_sync(j.log), 0);
	assert_int_equal(log_truncate(j.log, 10), 0);
	journal_close(&j);
	lose_power();
	journal_open(&j);
	assert_int_equal(files_of(j.ix), 10);
	journal_close(&j);
}

/* A failed copy leaves the one before. */
static void a_copy_is_whole_or_not_there(void **state)
{
	static const char *const plans[] = {"index.copy.sync:1:error", "index.copy.rename:1:error"};
	struct journal j;

	journal_open(&j);
	fill(&j);
	assert_int_equal(index_sync(j.ix), 0);
	add_file(&j, 900);
	for (size_t i = 0; i < ARRAY_SIZE(plans); i++) {
#ifdef LIMB_FAULTS
		assert_int_equal(fault_set(plans[i]), 0);
		assert_int_equal(index_sync(j.ix), -EIO);
		assert_int_equal(fault_set(NULL), 0);
#endif
	}
	journal_close(&j);
	lose_power();
	journal_open(&j);
	assert_int_equal(files_of(j.ix), FILES + 1);
	assert_true(exists("index.2/copy"));
	journal_close(&j);
}

/* An index that knows more than the log, or something else, is not the log's. */
static void an_index_of_another_log(void **state)
{
	static const struct log_ids others = {.log_id = {9}, .brain_id = {8}, .term = 1};
	struct journal j;

	journal_open(&j);
	fill(&j);
	assert_int_equal(log_sync(j.log), 0);
	assert_int_equal(log_truncate(j.log, FILES - 1), 0);
	journal_close(&j);
	journal_open(&j);
	assert_int_equal(files_of(j.ix), FILES - 1);
	/* Cut, then grown beyond what the index knew. */
	assert_int_equal(log_sync(j.log), 0);
	index_close(j.ix);
	j.ix = NULL;
	assert_int_equal(log_truncate(j.log, FILES - 2), 0);
	for (int i = 0; i < 3; i++) {
		struct change c = {.origin = ORIGIN_BRAIN_};
		_cleanup_(buf_done) struct buf body = BUF_INIT(0);
		uint64_t seq;
		assert_int_equal(change_pack(&c, &body), 0);
		assert_int_equal(
			log_append(j.log, RECORD_CHANGE, buf_data(&body), buf_len(&body), 0, &seq),
			0);
	}
	assert_int_equal(log_sync(j.log), 0);
	journal_close(&j);
	journal_open(&j);
	assert_int_equal(files_of(j.ix), FILES - 2);
	journal_close(&j);

	/* The same records under another id. */
	assert_int_equal(file_remove_tree(scratch, "log"), 0);
	assert_int_equal(file_make_dir(scratch, "log"), 0);
	j.log_fd = file_open_dir(scratch, "log");
	assert_int_equal(log_open(j.log_fd, &others, LOG_CREATE, &j.log, NULL), 0);
	assert_int_equal(index_open(scratch, INDEX_WRITE, j.log_fd, NULL, NULL, &j.ix), 0);
	assert_int_equal(files_of(j.ix), 0);
	journal_close(&j);
}

/* A mark that is damaged, missing or of another format makes the index again; what lies
 * around of others goes. */
static void marks_that_do_not_hold(void **state)
{
	static const char *const texts[] = {
		"", "limb index", "limb index 1\nnumber 1\ncheck 0123456789abcdef\n", NULL};
	struct journal j;

	journal_open(&j);
	fill(&j);
	journal_close(&j);
	for (size_t i = 0; i < ARRAY_SIZE(texts); i++) {
		assert_int_equal(file_make_dir(scratch, "index.77"), 0);
		if (texts[i])
			scratch_write(scratch, "index", texts[i]);
		else
			assert_int_equal(unlinkat(scratch, "index", 0), 0);
		journal_open(&j);
		assert_int_equal(files_of(j.ix), FILES);
		assert_false(exists("index.77"));
		journal_close(&j);
	}
	/* The data is gone, or shorter than it says. */
	assert_int_equal(unlinkat(scratch, "index.1/data.mdb", 0), 0);
	journal_open(&j);
	assert_int_equal(files_of(j.ix), FILES);
	journal_close(&j);
}

/* There is one writer. */
static void one_writer(void **state)
{
	struct index *second = NULL;
	struct journal j;

	journal_open(&j);
	assert_int_equal(index_open(scratch, INDEX_WRITE, j.log_fd, NULL, NULL, &second), -EAGAIN);
	assert_null(second);
	journal_close(&j);
}

/* ---- beside a writer, in another process ---- */

struct reader {
	int go[2], done[2];
};

/* Waits for a byte, answers with what it sees. */
static int reader_main(void *arg)
{
	struct reader *r = arg;
	struct index *ix = NULL;
	uint64_t seen, until;
	char what;

	/* So that the parent's end is seen. */
	(void)close(r->go[1]);
	(void)close(r->done[0]);
	while (read(r->go[0], &what, 1) == 1) {
		if (what == 'o') {
			index_close(ix);
			ix = NULL;
			seen = (uint64_t)-index_open(scratch, INDEX_READ, -1, NULL, NULL, &ix);
		} else if (what == 'c') {
			seen = files_of(ix);
		} else {
			/* Until the move is noticed. */
			until = clock_mono_ms() + 60000;
			do {
				struct index_txn *t;
				int q = index_read_begin(ix, &t);
				if (q == 0)
					index_read_end(t);
				seen = (uint64_t)-q;
			} while (seen == 0 && clock_mono_ms() < until);
		}
		if (write(r->done[1], &seen, sizeof(seen)) != sizeof(seen))
			return 1;
	}
	index_close(ix);
	return 0;
}

static uint64_t ask(struct reader *r, char what)
{
	uint64_t seen = 0;

	assert_int_equal(write(r->go[1], &what, 1), 1);
	assert_int_equal(read(r->done[0], &seen, sizeof(seen)), sizeof(seen));
	return seen;
}

/* A reader in another process finds no index before there is one, sees each commit, and
 * learns that the writer has moved to another index. */
static void a_reader_beside_the_writer(void **state)
{
	struct reader r;
	struct journal j;
	pid_t pid;

	assert_int_equal(pipe(r.go), 0);
	assert_int_equal(pipe(r.done), 0);
	pid = child_start(reader_main, &r);
	assert_int_equal(ask(&r, 'o'), ENOENT);
	journal_open(&j);
	assert_int_equal(ask(&r, 'o'), 0);
	assert_int_equal(ask(&r, 'c'), 0);
	add_file(&j, 2);
	assert_int_equal(ask(&r, 'c'), 1);
	/* A writer that goes and comes is no move. */
	journal_close(&j);
	assert_int_equal(ask(&r, 'c'), 1);
	journal_open(&j);
	add_file(&j, 3);
	assert_int_equal(ask(&r, 'c'), 2);
	assert_int_equal(index_reap_readers(j.ix), 0);
	journal_close(&j);
	assert_int_equal(unlinkat(scratch, "index", 0), 0);
	journal_open(&j);
	assert_int_equal(ask(&r, 'm'), ESTALE);
	assert_int_equal(ask(&r, 'o'), 0);
	assert_int_equal(ask(&r, 'c'), 2);
	(void)close(r.go[1]);
	assert_int_equal(child_wait(pid), 0);
	(void)close(r.go[0]);
	(void)close(r.done[0]);
	(void)close(r.done[1]);
	journal_close(&j);
}

static int die_reading(void *arg)
{
	struct index_txn *t;
	struct index *ix;

	(void)arg;
	if (index_open(scratch, INDEX_READ, -1, NULL, NULL, &ix) < 0 ||
	    index_read_begin(ix, &t) < 0)
		return 1;
	(void)kill(getpid(), SIGKILL);
	return 2;
}

/* What a reader held that was killed is freed. */
static void dead_readers_are_reaped(void **state)
{
	struct journal j;

	journal_open(&j);
	fill(&j);
	assert_int_equal(child_run(die_reading, NULL), -SIGKILL);
	assert_int_equal(index_reap_readers(j.ix), 1);
	assert_int_equal(index_reap_readers(j.ix), 0);
	journal_close(&j);
}

/* ---- copies of a state directory ---- */

static void copy_file(const char *from, const char *to)
{
	_cleanup_(buf_done) struct buf b = BUF_INIT(0);

	assert_int_equal(file_read(scratch, from, &b), 0);
	assert_int_equal(file_replace(scratch, to, buf_data(&b), buf_len(&b)), 0);
}

static int open_copy(const struct journal *j, struct index **ret)
{
	int fd = file_open_dir(scratch, "copied"), r;

	assert_true(fd >= 0);
	r = index_open(fd, INDEX_COPY, j->log_fd, NULL, NULL, ret);
	(void)close(fd);
	return r;
}

/* A copy is opened where it is clean and complete, on a read-only file system too; one
 * that is not says so. */
static void copied_directories(void **state)
{
	struct index *ix = NULL;
	struct journal j;

	journal_open(&j);
	fill(&j);
	assert_int_equal(file_make_dir(scratch, "copied"), 0);
	assert_int_equal(open_copy(&j, &ix), -ESTALE); /* no index */
	assert_int_equal(mkdirat(scratch, "copied/index.1", 0700), 0);
	copy_file("index", "copied/index");
	copy_file("index.1/data.mdb", "copied/index.1/data.mdb");
	assert_int_equal(open_copy(&j, &ix), -ESTALE); /* taken while it was written */
	journal_close(&j);

	copy_file("index", "copied/index");
	copy_file("index.1/data.mdb", "copied/index.1/data.mdb");
	journal_open_log(&j);
	assert_int_equal(open_copy(&j, &ix), 0);
	assert_int_equal(files_of(ix), FILES);
	assert_int_equal(index_begin(ix), -EBADFD);
	assert_int_equal(index_sync(ix), -EBADFD);
	index_close(ix);
	ix = NULL;
	assert_false(exists("copied/index.1/lock.mdb"));
	assert_false(exists("copied/index.lock"));

	(void)journal_append(&j, RECORD_STATE, "", 0, NULL);
	assert_int_equal(open_copy(&j, &ix), -ESTALE); /* the log goes on */
	log_close(j.log);
	(void)close(j.log_fd);
}

/* ---- records ---- */

static uint64_t incarnation(struct journal *j, uint64_t number, uint64_t grant_end)
{
	Limb__Incarnation in = LIMB__INCARNATION__INIT;
	Limb__Record rec = LIMB__RECORD__INIT;

	in.node_grant_end = grant_end;
	rec.incarnation = number;
	rec.body_case = LIMB__RECORD__BODY_INCARNATION_START;
	rec.incarnation_start = &in;
	return journal_record(j, RECORD_INCARNATION, &rec);
}

static int change_by(struct journal *j, uint64_t incarnation_, uint64_t number, uint64_t node)
{
	struct change_op ops[] = {op_file(node, "x"), op_link(1, "x", node)};
	struct change c = {.incarnation = incarnation_,
			   .number = number,
			   .origin = ORIGIN_ENVIRONMENT_,
			   .ops = ops,
			   .n_ops = 2};
	int r;

	assert_int_equal(index_begin(j->ix), 0);
	r = journal_apply(j, &c);
	if (r == 0)
		assert_int_equal(index_number(index_writer_txn(j->ix), incarnation_), number);
	assert_int_equal(index_commit(j->ix), 0);
	return r;
}

static void assert_numbers(struct journal *j, uint64_t next_node, uint64_t newest, uint64_t of_1,
			   uint64_t of_2)
{
	struct index_txn *t;

	assert_int_equal(index_read_begin(j->ix, &t), 0);
	assert_int_equal(index_next_node(t), next_node);
	assert_int_equal(index_incarnation(t), newest);
	assert_int_equal(index_number(t, 1), of_1);
	assert_int_equal(index_number(t, 2), of_2);
	assert_int_equal(index_number(t, 3), 0);
	index_read_end(t);
}

/* Grants, numbers and the newest incarnation follow from the records, the same after a
 * rebuild; and an environment gets no node that was not granted. */
static void incarnations_and_grants(void **state)
{
	Limb__Record rec = LIMB__RECORD__INIT, *back;
	Limb__Lease lease = LIMB__LEASE__INIT;
	struct index_txn *t;
	struct journal j;
	const void *body;
	size_t n;

	journal_open(&j);
	assert_numbers(&j, 2, 0, 0, 0);
	assert_int_equal(change_by(&j, 1, 1, 5), -EINVAL);
	assert_string_equal(j.why, "the node id was never granted");
	(void)incarnation(&j, 1, 100);
	assert_numbers(&j, 100, 1, 0, 0);
	assert_int_equal(change_by(&j, 1, 7, 99), 0);
	assert_int_equal(change_by(&j, 1, 8, 100), -EINVAL);
	(void)incarnation(&j, 2, 200);
	assert_int_equal(change_by(&j, 2, 1, 150), 0);
	assert_int_equal(change_by(&j, 1, 9, 50), 0);
	assert_numbers(&j, 200, 2, 9, 1);
	assert_int_equal(journal_ops(&j, op_file(300, "x"), op_link(1, "y", 300)), 0);
	assert_numbers(&j, 301, 2, 9, 1);
	lease.to_incarnation = 4;
	rec.body_case = LIMB__RECORD__BODY_LEASE;
	rec.lease = &lease;
	rec.incarnation = 2;
	rec.number = 33;
	(void)journal_record(&j, RECORD_LEASE, &rec);

	for (int i = 0; i < 3; i++) {
		assert_numbers(&j, 301, 4, 9, 33);
		assert_int_equal(index_read_begin(j.ix, &t), 0);
		assert_int_equal(index_node_used(t, 2, 100), 99);
		assert_int_equal(index_node_used(t, 2, 99), 50); /* dead, but used */
		assert_int_equal(index_node_used(t, 100, 150), 99);
		assert_int_equal(index_node_used(t, 100, 1000), 300);
		assert_int_equal(index_meta_get(t, "incarnation_body", &body, &n), 0);
		back = limb__record__unpack(NULL, n, body);
		assert_non_null(back);
		assert_int_equal(back->incarnation, 2);
		limb__record__free_unpacked(back, NULL);
		assert_int_equal(index_meta_get(t, "nothing", &body, &n), -ENOENT);
		index_read_end(t);
		journal_close(&j);
		if (i == 1)
			assert_int_equal(unlinkat(scratch, "index", 0), 0);
		journal_open(&j);
	}
	journal_close(&j);
}

static uint64_t point(struct journal *j, const char *label, uint64_t at, const char *job)
{
	Limb__Point p = LIMB__POINT__INIT;
	Limb__Record rec = LIMB__RECORD__INIT;

	p.label = (char *)(uintptr_t)label;
	p.kind = (char *)(uintptr_t) "label";
	p.at_seq = at;
	p.consistent = at == 0;
	rec.job = (char *)(uintptr_t)job;
	rec.body_case = LIMB__RECORD__BODY_POINT;
	rec.point = &p;
	return journal_record(j, RECORD_POINT, &rec);
}

static uint64_t job_record(struct journal *j, uint16_t type, const char *job)
{
	Limb__Record rec = LIMB__RECORD__INIT;

	rec.job = (char *)(uintptr_t)job;
	return journal_record(j, type, &rec);
}

static int print_point(const struct index_point *p, void *userdata)
{
	/* Recorded a moment ago. */
	assert_true(p->time_ns > 1500000000000000000 && p->time_ns <= clock_real_ns());
	return buf_printf(userdata, "%d@%d %.*s %.*s %.*s %d\n", (int)p->seq, (int)p->at_seq,
			  (int)p->label_len, p->label, (int)p->kind_len, p->kind, (int)p->job_len,
			  p->job, p->consistent);
}

static void assert_points(struct index_txn *t, uint64_t before, const char *wanted)
{
	_cleanup_(buf_done) struct buf b = BUF_INIT(0);
	cleanup_free char *got = NULL;

	assert_int_equal(index_points(t, before, print_point, &b), 0);
	assert_int_equal(buf_to_str(&b, &got), 0);
	assert_string_equal(got, wanted);
}

/* Points are listed newest first, labels lead to their positions, jobs to their records. */
static void points_and_jobs(void **state)
{
	static char long_label[300];
	struct index_txn *t;
	struct journal j;
	uint64_t a, b;

	memset(long_label, 'l', sizeof(long_label) - 1);
	journal_open(&j);
	assert_int_equal(point(&j, "one", 0, ""), 1);
	assert_int_equal(job_record(&j, RECORD_JOB_START, "j-1"), 2);
	assert_int_equal(point(&j, "", 2, "j-1"), 3);
	assert_int_equal(job_record(&j, RECORD_JOB_START, "j-2"), 4);
	assert_int_equal(job_record(&j, RECORD_JOB_END, "j-1"), 5);
	assert_int_equal(point(&j, "one", 4, ""), 6);
	assert_int_equal(point(&j, long_label, 4, ""), 7); /* nobody could ask for it */
	for (int i = 0; i < 2; i++) {
		assert_int_equal(index_read_begin(j.ix, &t), 0);
		assert_points(t, INDEX_NOW,
			      "6@4 one label  0\n3@2  label j-1 0\n1@1 one label  1\n");
		assert_points(t, 6, "3@2  label j-1 0\n1@1 one label  1\n");
		assert_points(t, 1, "");
		assert_int_equal(index_label(t, "one", &a), 0);
		assert_int_equal(a, 4);
		assert_int_equal(index_label(t, "two", &a), -ENOENT);
		assert_int_equal(index_label(t, "", &a), -ENOENT);
		assert_int_equal(index_label(t, long_label, &a), -ENOENT);
		assert_int_equal(index_job(t, "j-1", &a, &b), 0);
		assert_true(a == 2 && b == 5);
		assert_int_equal(index_job(t, "j-2", &a, &b), 0);
		assert_true(a == 4 && b == 0);
		assert_int_equal(index_job(t, "j-3", &a, &b), -ENOENT);
		assert_int_equal(index_seq(t), 7);
		index_read_end(t);
		journal_close(&j);
		assert_int_equal(unlinkat(scratch, "index", 0), 0);
		journal_open(&j);
	}
	journal_close(&j);
}

/* Bodies that no writer of ours wrote are passed over by a replay, and counted. */
static void strange_bodies_in_a_log(void **state)
{
	struct index_txn *t;
	struct journal j;

	journal_open(&j);
	fill(&j);
	for (uint16_t type = 0; type < 30; type++) {
		(void)journal_append(&j, type, "\xff\xff\xff", 3, NULL);
		(void)journal_append(&j, type, "", 0, NULL);
		(void)journal_append(&j, type, "\x92\x01\x02\x0a\x00", 5,
				     NULL);				 /* change, empty op */
		(void)journal_append(&j, type, "\x8a\x01\x00", 3, NULL); /* incarnation */
	}
	journal_close(&j);
	journal_open(&j);
	assert_int_equal(index_read_begin(j.ix, &t), 0);
	assert_int_equal(index_seq(t), FILES + 120);
	/* Of each type the one that is no message; of changes all that are no change. */
	assert_int_equal(index_refused(t), 30 + 3);
	index_read_end(t);
	assert_int_equal(files_of(j.ix), FILES);
	add_file(&j, 900);
	journal_close(&j);
}

/* A body that was purged is passed over, and so is what builds on it, operation by
 * operation; the rest of the log is applied. */
static void purged_bodies(void **state)
{
	uint8_t header[RECORD_HEADER_BYTES], zeros[4096] = {0};
	struct record_header h;
	struct index_txn *t;
	uint64_t at, node;
	struct journal j;
	int fd;

	journal_open(&j);
	assert_int_equal(journal_ops(&j, op_file(2, "secret"), op_link(1, "secret", 2)), 0);
	assert_int_equal(journal_ops(&j, op_file(3, "a"), op_link(1, "a", 3),
				     op_unlink(1, "secret"), op_file(4, "b"), op_link(1, "b", 4)),
			 0);
	assert_int_equal(log_sync(j.log), 0);
	journal_close(&j);

	char **names;
	size_t n, segment = SIZE_MAX;
	int log_fd = file_open_dir(scratch, "log");
	assert_int_equal(file_list(log_fd, ".", 10, &names, &n), 0);
	for (size_t i = 0; i < n; i++) {
		if (strlen(names[i]) == 20)
			segment = i;
	}
	assert_true(segment < n);
	fd = openat(log_fd, names[segment], O_RDWR);
	assert_true(fd >= 0);
	file_names_free(names, n);
	at = SEGMENT_HEADER_BYTES;
	assert_int_equal(pread(fd, header, sizeof(header), (off_t)at), sizeof(header));
	assert_int_equal(record_header_parse(header, &h), RECORD_OK);
	assert_true(h.body_len < sizeof(zeros));
	assert_int_equal(pwrite(fd, zeros, h.body_len, (off_t)at + RECORD_HEADER_BYTES),
			 h.body_len);
	(void)close(fd);
	(void)close(log_fd);

	assert_int_equal(unlinkat(scratch, "index", 0), 0);
	journal_open(&j);
	assert_int_equal(index_read_begin(j.ix, &t), 0);
	assert_int_equal(index_lookup(t, 1, "secret", 6, 1, &node), -ENOENT);
	assert_int_equal(index_lookup(t, 1, "a", 1, 2, &node), 0);
	assert_int_equal(index_lookup(t, 1, "b", 1, 2, &node), 0);
	assert_int_equal(index_refused(t), 1);
	index_read_end(t);
	/* What is new is judged as strictly as ever. */
	assert_int_equal(journal_ops(&j, op_unlink(1, "secret")), -EINVAL);
	journal_close(&j);
}

static int note_seq(const struct index_recent *r, void *userdata)
{
	uint64_t *seqs = userdata;

	seqs[0] = MIN(seqs[0], r->seq);
	seqs[1] = r->seq;
	return 0;
}

/* The last INDEX_RECENT records are told of, live and after a rebuild, and no older ones. */
static void recent_is_bounded(void **state)
{
	struct journal j;

	journal_open(&j);
	add_file(&j, 2);
	assert_int_equal(index_begin(j.ix), 0);
	for (int i = 0; i < INDEX_RECENT + 5000; i++) {
		struct change_op op = op_file(2, NULL);
		struct change c = {.origin = ORIGIN_VIEW_, .ops = &op, .n_ops = 1};
		assert_int_equal(journal_apply(&j, &c), 0);
	}
	assert_int_equal(index_commit(j.ix), 0);
	assert_int_equal(log_sync(j.log), 0);
	for (int i = 0; i < 2; i++) {
		uint64_t last = INDEX_RECENT + 5001, seqs[2] = {UINT64_MAX, 0};
		struct index_txn *t;

		assert_int_equal(index_read_begin(j.ix, &t), 0);
		assert_int_equal(index_recent(t, last - INDEX_RECENT - 1, note_seq, seqs),
				 -EOVERFLOW);
		assert_int_equal(index_recent(t, last - INDEX_RECENT, note_seq, seqs), 0);
		assert_int_equal(seqs[0], last - INDEX_RECENT + 1);
		assert_int_equal(seqs[1], last);
		index_read_end(t);
		journal_close(&j);
		assert_int_equal(unlinkat(scratch, "index", 0), 0);
		journal_open(&j);
	}
	journal_close(&j);
}

int main(void)
{
#define TEST(fn) cmocka_unit_test_setup_teardown(fn, scratch_setup, scratch_teardown)
	static const struct CMUnitTest tests[] = {
		TEST(a_clean_index_is_kept),
		TEST(a_killed_writer),
		TEST(another_boot),
		TEST(power_lost_without_a_copy),
		TEST(power_lost_with_a_copy),
		TEST(power_lost_with_a_bad_copy),
		TEST(a_copy_is_whole_or_not_there),
		TEST(an_index_of_another_log),
		TEST(marks_that_do_not_hold),
		TEST(one_writer),
		TEST(a_reader_beside_the_writer),
		TEST(dead_readers_are_reaped),
		TEST(copied_directories),
		TEST(incarnations_and_grants),
		TEST(points_and_jobs),
		TEST(strange_bodies_in_a_log),
		TEST(purged_bodies),
		TEST(recent_is_bounded),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
