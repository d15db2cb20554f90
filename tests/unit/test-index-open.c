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
#include "journal/index-impl.h"
#include "mark-fixture.h"

static struct mark mark(void)
{
	struct mark m;

	assert_int_equal(mark_read(scratch, &index_mark, &m), 0);
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
	mark_edit("index", true, false);
}

/* The same, and pages that were not synced are garbage, while the file's head is as good
 * as ever. */
static void lose_power(void)
{
	char garbage[4096], name[MARK_INDEX_NAME_MAX], path[64];
	int fd;

	restart_machine();
	mark_index_name(name, mark().number);
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
	uint64_t seq;

	journal_open(&j);
	fill(&j);
	assert_int_equal(index_copied(j.ix, &seq), -ENOENT);
	assert_int_equal(index_sync(j.ix), 0);
	assert_int_equal(index_copied(j.ix, &seq), 0);
	assert_int_equal(seq, log_last(j.log));
	add_file(&j, 900);
	assert_int_equal(index_copied(j.ix, &seq), 0);
	assert_int_equal(seq, log_last(j.log) - 1);
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
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
