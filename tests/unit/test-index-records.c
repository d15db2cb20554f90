#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "index-fixture.h"
#include "journal/record.h"

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

static uint64_t keyed_job(struct journal *j, const char *job, const char *key)
{
	Limb__JobStart start = LIMB__JOB_START__INIT;
	Limb__Record rec = LIMB__RECORD__INIT;

	start.key = (char *)(uintptr_t)key;
	rec.job = (char *)(uintptr_t)job;
	rec.body_case = LIMB__RECORD__BODY_JOB_START;
	rec.job_start = &start;
	return journal_record(j, RECORD_JOB_START, &rec);
}

static void assert_job_body(const struct index_job_record *r, const char *job)
{
	Limb__Record *back = limb__record__unpack(NULL, r->n, r->body);

	assert_non_null(back);
	assert_string_equal(back->job, job);
	limb__record__free_unpacked(back, NULL);
	assert_true(r->time_ns > 1500000000000000000 && r->time_ns <= clock_real_ns());
}

static int print_job(const struct index_job *job, void *userdata)
{
	return buf_printf(userdata, "%.*s ", (int)job->id_len, job->id);
}

static void assert_jobs(struct index_txn *t, int (*list)(struct index_txn *, index_job_fn, void *),
			const char *wanted)
{
	_cleanup_(buf_done) struct buf b = BUF_INIT(0);
	cleanup_free char *got = NULL;

	assert_int_equal(list(t, print_job, &b), 0);
	assert_int_equal(buf_to_str(&b, &got), 0);
	assert_string_equal(got, wanted);
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

/* A key leads to the first job that had it, whatever comes later, and to none before. */
static void job_keys(void **state)
{
	char most[INDEX_KEY_MAX + 1], more[INDEX_KEY_MAX + 2];
	struct index_txn *t;
	struct journal j;
	const char *id;
	size_t n;

	memset(most, 'k', sizeof(most));
	most[INDEX_KEY_MAX] = 0;
	memset(more, 'm', sizeof(more));
	more[INDEX_KEY_MAX + 1] = 0;
	journal_open(&j);
	assert_int_equal(keyed_job(&j, "j-1", "k"), 1);
	assert_int_equal(keyed_job(&j, "j-2", "k"), 2);
	assert_int_equal(keyed_job(&j, "j-3", most), 3);
	assert_int_equal(keyed_job(&j, "j-4", more), 4);
	assert_int_equal(keyed_job(&j, "j-5", ""), 5);
	assert_int_equal(job_record(&j, RECORD_JOB_END, "j-1"), 6);
	for (int i = 0; i < 2; i++) {
		assert_int_equal(index_read_begin(j.ix, &t), 0);
		assert_int_equal(index_job_by_key(t, "k", &id, &n), 0);
		assert_int_equal(n, 3);
		assert_memory_equal(id, "j-1", 3);
		assert_int_equal(index_job_by_key(t, most, &id, &n), 0);
		assert_memory_equal(id, "j-3", 3);
		assert_int_equal(index_job_by_key(t, more, &id, &n), -ENOENT);
		assert_int_equal(index_job_by_key(t, "", &id, &n), -ENOENT);
		assert_int_equal(index_job_by_key(t, "j-1", &id, &n), -ENOENT);
		assert_jobs(t, index_jobs, "j-5 j-4 j-3 j-2 j-1 ");
		assert_jobs(t, index_jobs_open, "j-2 j-3 j-4 j-5 ");
		index_read_end(t);
		journal_close(&j);
		assert_int_equal(unlinkat(scratch, "index", 0), 0);
		journal_open(&j);
	}
	journal_close(&j);
}

/* Points are listed newest first, labels lead to their positions, jobs to their records. */
static void points_and_jobs(void **state)
{
	static char long_label[300];
	struct index_job job;
	struct index_txn *t;
	struct journal j;
	uint64_t a;

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
		assert_int_equal(index_job(t, "j-1", &job), 0);
		assert_true(job.start.seq == 2 && job.end.seq == 5);
		assert_job_body(&job.start, "j-1");
		assert_job_body(&job.end, "j-1");
		assert_int_equal(index_job(t, "j-2", &job), 0);
		assert_true(job.start.seq == 4 && job.end.seq == 0 && job.end.n == 0);
		assert_job_body(&job.start, "j-2");
		assert_int_equal(index_job(t, "j-3", &job), -ENOENT);
		assert_int_equal(index_job(t, "\1k", &job), -ENOENT);
		assert_int_equal(index_job(t, "\2j-2", &job), -ENOENT);
		assert_jobs(t, index_jobs, "j-2 j-1 ");
		assert_jobs(t, index_jobs_open, "j-2 ");
		assert_int_equal(index_seq(t), 7);
		index_read_end(t);
		journal_close(&j);
		assert_int_equal(unlinkat(scratch, "index", 0), 0);
		journal_open(&j);
	}
	journal_close(&j);
}

static uint64_t intent(struct journal *j, uint64_t change)
{
	Limb__Intent in = LIMB__INTENT__INIT;
	Limb__Record rec = LIMB__RECORD__INIT;

	in.change = change;
	rec.body_case = LIMB__RECORD__BODY_INTENT;
	rec.intent = &in;
	return journal_record(j, RECORD_INTENT, &rec);
}

static void intent_end(struct journal *j, uint64_t change)
{
	Limb__IntentEnd e = LIMB__INTENT_END__INIT;
	Limb__Record rec = LIMB__RECORD__INIT;

	e.change = change;
	rec.body_case = LIMB__RECORD__BODY_INTENT_END;
	rec.intent_end = &e;
	(void)journal_record(j, RECORD_INTENT_END, &rec);
}

static void unapplied(struct journal *j, uint64_t change, int error)
{
	Limb__Unapplied u = LIMB__UNAPPLIED__INIT;
	Limb__Record rec = LIMB__RECORD__INIT;

	u.change = change;
	u.error = error;
	rec.body_case = LIMB__RECORD__BODY_UNAPPLIED;
	rec.unapplied = &u;
	(void)journal_record(j, RECORD_UNAPPLIED, &rec);
}

static void conflict(struct journal *j, uint64_t change)
{
	Limb__Conflict c = LIMB__CONFLICT__INIT;
	Limb__Record rec = LIMB__RECORD__INIT;

	c.change = change;
	rec.body_case = LIMB__RECORD__BODY_CONFLICT;
	rec.conflict = &c;
	(void)journal_record(j, RECORD_CONFLICT, &rec);
}

static void decision(struct journal *j, const char *verb, const char *key)
{
	Limb__Decision d = LIMB__DECISION__INIT;
	Limb__Record rec = LIMB__RECORD__INIT;

	d.verb = (char *)(uintptr_t)verb;
	d.key = (char *)(uintptr_t)key;
	rec.body_case = LIMB__RECORD__BODY_DECISION;
	rec.decision = &d;
	(void)journal_record(j, RECORD_DECISION, &rec);
}

static int print_intent(const struct index_intent *in, void *userdata)
{
	assert_true(in->n > 0 && in->seq > 0 && in->time_ns > 1500000000000000000);
	return buf_printf(userdata, "%d:%d ", (int)in->change, in->error);
}

/* waits; ends that are kept; conflicts */
static void assert_intents(struct journal *j, const char *wanted, uint64_t conflicts)
{
	_cleanup_(buf_done) struct buf b = BUF_INIT(0);
	cleanup_free char *got = NULL;
	struct index_txn *t;

	assert_int_equal(index_read_begin(j->ix, &t), 0);
	assert_int_equal(index_intents(t, print_intent, &b), 0);
	assert_int_equal(buf_add_str(&b, "/ "), 0);
	assert_int_equal(index_intent_ends(t, print_intent, &b), 0);
	assert_int_equal(buf_add_str(&b, "/ "), 0);
	assert_int_equal(index_conflicts(t, print_intent, &b), 0);
	assert_int_equal(index_conflict_count(t), conflicts);
	assert_int_equal(index_last_change(t), 9);
	index_read_end(t);
	assert_int_equal(buf_to_str(&b, &got), 0);
	assert_string_equal(got, wanted);
}

static void intents_and_conflicts(void **state)
{
	struct journal j;

	journal_open(&j);
	(void)intent(&j, 2);
	(void)intent(&j, 3);
	(void)intent(&j, 9);
	assert_intents(&j, "2:0 3:0 9:0 / / ", 0);
	intent_end(&j, 2);
	unapplied(&j, 3, ENOSPC);
	unapplied(&j, 77, EIO); /* there is none */
	assert_intents(&j, "3:28 9:0 / 2:0 / ", 0);
	conflict(&j, 9);
	conflict(&j, 9); /* said again after a crash: one */
	intent_end(&j, 9);
	assert_intents(&j, "3:28 / 2:0 9:0 / 9:0 ", 1);
	decision(&j, "retry", "3");
	decision(&j, "retry", "nonsense");
	decision(&j, "accept", "3");
	assert_intents(&j, "3:0 / 2:0 9:0 / 9:0 ", 1);
	/* With the last one goes what was kept for it. */
	decision(&j, "drop", "3");
	assert_intents(&j, "/ / 9:0 ", 1);
	for (int i = 0; i < 2; i++) {
		journal_close(&j);
		if (i == 1)
			assert_int_equal(unlinkat(scratch, "index", 0), 0);
		journal_open(&j);
		assert_intents(&j, "/ / 9:0 ", 1);
	}
	decision(&j, "take", "9");
	decision(&j, "take", "9");
	assert_intents(&j, "/ / ", 0);
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
		TEST(incarnations_and_grants), TEST(points_and_jobs),	      TEST(job_keys),
		TEST(intents_and_conflicts),   TEST(strange_bodies_in_a_log), TEST(purged_bodies),
		TEST(recent_is_bounded),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
