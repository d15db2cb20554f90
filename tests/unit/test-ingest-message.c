/* Each message that is not a change reaches limbd as the entry of its kind with every field
 * in its place, cut to what an entry holds where it says more. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "tests/unit/ingest-rig.h"

static struct rig rig;

static int setup(void **state)
{
	rig_start(&rig);
	return 0;
}

static int teardown(void **state)
{
	rig_hang_up(&rig);
	return 0;
}

static ProtobufCBinaryData bytes(const char *s)
{
	return (ProtobufCBinaryData){strlen(s), (uint8_t *)s};
}

static void assert_text(const char *p, size_t n, const char *want)
{
	assert_int_equal(n, strlen(want));
	assert_memory_equal(p, want, n);
}

/* 700 bytes where an entry holds 512. */
static char *long_text(void)
{
	static char text[701];

	memset(text, 't', 700);
	return text;
}

static void texts(void **state)
{
	Limbwire__Error error = LIMBWIRE__ERROR__INIT;
	Limbwire__Ping pong = LIMBWIRE__PING__INIT;
	Limbwire__Done done = LIMBWIRE__DONE__INIT;
	static const uint8_t types[] = {WIRE_ACCEPTED, WIRE_APPLIED, WIRE_FROZEN};
	const struct entry_text *e;
	const struct entry_pong *p;
	const struct entry_done *d;

	error.request = 7;
	error.error = ETIMEDOUT;
	error.detail = (char *)"too slow";
	rig_say(&rig, WIRE_ERROR, &error.base, NULL, 0);
	e = rig_entry(&rig, ENTRY_ERROR);
	assert_int_equal(e->request, 7);
	assert_int_equal(e->error, ETIMEDOUT);
	assert_text(entry_tail(e), e->len, "too slow");
	error.request = 0; /* of no request */
	error.detail = long_text();
	rig_say(&rig, WIRE_ERROR, &error.base, NULL, 0);
	e = rig_entry(&rig, ENTRY_ERROR);
	assert_int_equal(e->len, ENTRY_TEXT_MAX);

	pong.id = UINT64_MAX;
	rig_say(&rig, WIRE_PONG, &pong.base, NULL, 0);
	p = rig_entry(&rig, ENTRY_PONG);
	assert_true(p->id == UINT64_MAX);

	done.detail = (char *)"busy";
	done.error = -5;
	for (size_t i = 0; i < ARRAY_SIZE(types); i++) {
		done.request = i + 1;
		done.number = i + 100;
		rig_say(&rig, types[i], &done.base, NULL, 0);
		d = rig_entry(&rig, ENTRY_DONE);
		assert_int_equal(d->request, i + 1);
		assert_int_equal(d->number, i + 100);
		assert_int_equal(d->error, -5);
		assert_text(entry_tail(d), d->len, "busy");
	}
}

static void barrier(void **state)
{
	Limbwire__BarrierDone m = LIMBWIRE__BARRIER_DONE__INIT;
	Limbwire__Unsettled u[150], *us[150];
	const struct entry_barrier_done *e;
	const struct entry_unsettled *got;
	struct entry_cursor c;
	const char *path;
	size_t n = 0;

	m.request = 3;
	m.number = 4;
	m.quiet = true;
	m.unsettled = us;
	m.n_unsettled = ARRAY_SIZE(us);
	for (size_t i = 0; i < ARRAY_SIZE(us); i++) {
		limbwire__unsettled__init(&u[i]);
		u[i].path = (ProtobufCBinaryData){i, (uint8_t *)long_text()};
		u[i].size_bytes = i;
		u[i].since_ns = -(int64_t)i;
		us[i] = &u[i];
	}
	rig_say(&rig, WIRE_BARRIER_DONE, &m.base, NULL, 0);
	e = rig_entry(&rig, ENTRY_BARRIER_DONE);
	assert_true(e->request == 3 && e->number == 4 && e->quiet == 1);
	entry_cursor_init(&c, &e->head);
	for (; entry_next_unsettled(&c, &got, &path); n++) {
		assert_int_equal(got->len, n);
		assert_int_equal(got->size_bytes, n);
		assert_true(got->since_ns == -(int64_t)n);
	}
	assert_int_equal(n, ENTRY_UNSETTLED_MAX);
}

static void status(void **state)
{
	Limbwire__Status m = LIMBWIRE__STATUS__INIT;
	Limbwire__Reason r[40], *rs[40];
	const struct entry_status *e;
	const struct entry_reason *got;
	const char *detail, *path;
	struct entry_cursor c;
	size_t n = 0;

	for (size_t i = 0; i < ARRAY_SIZE(rs); i++) {
		limbwire__reason__init(&r[i]);
		r[i].code = (char *)"mount_changed";
		r[i].detail = i == 1 ? long_text() : (char *)"why";
		r[i].path = bytes("a/b");
		r[i].since_ns = 5;
		rs[i] = &r[i];
	}
	m.reasons = rs;
	m.n_reasons = ARRAY_SIZE(rs);
	m.files = 1;
	m.directories = 2;
	m.watches = 3;
	m.polled_directories = 4;
	m.overflows = 5;
	m.rescans = 6;
	m.pending_changes = 7;
	m.pending_bytes = 8;
	m.ignored_names = 9;
	m.ignored_bytes = 10;
	m.sweep_period_ms = 11;
	m.audit_differences = 12;
	m.scanned_files = 13;
	m.scanned_bytes = 14;
	m.refused = 15;
	m.scanning = m.halted = true;
	rig_say(&rig, WIRE_STATUS, &m.base, NULL, 0);
	e = rig_entry(&rig, ENTRY_STATUS);
	assert_true(e->files == 1 && e->directories == 2 && e->watches == 3 &&
		    e->polled_directories == 4 && e->overflows == 5 && e->rescans == 6 &&
		    e->pending_changes == 7 && e->pending_bytes == 8 && e->ignored_names == 9 &&
		    e->ignored_bytes == 10 && e->sweep_period_ms == 11 &&
		    e->audit_differences == 12 && e->scanned_files == 13 &&
		    e->scanned_bytes == 14 && e->refused == 15);
	assert_true(e->scanning && !e->mount_changed && e->halted);
	entry_cursor_init(&c, &e->head);
	for (; entry_next_reason(&c, &got, &detail, &path); n++) {
		assert_string_equal(got->code, "mount_changed");
		assert_int_equal(got->detail_len, n == 1 ? ENTRY_TEXT_MAX : 3);
		assert_text(path, got->path_len, "a/b");
		assert_int_equal(got->since_ns, 5);
	}
	assert_int_equal(n, ENTRY_REASONS_MAX);
}

static void restore(void **state)
{
	Limbwire__TreeGet get = LIMBWIRE__TREE_GET__INIT;
	Limbwire__Pull pull = LIMBWIRE__PULL__INIT;
	Limbwire__Restored m = LIMBWIRE__RESTORED__INIT;
	Limbwire__Restored__Unsupported u = LIMBWIRE__RESTORED__UNSUPPORTED__INIT;
	Limbwire__Restored__Unsupported *us[1200];
	const struct entry_unsupported *got;
	const struct entry_tree_get *g;
	const struct entry_restored *e;
	const struct entry_pull *p;
	const struct entry_pull_node *pn;
	Limbwire__Pull__Base base = LIMBWIRE__PULL__BASE__INIT, *bases[] = {&base};
	const char *path, *field;
	uint64_t nodes[] = {5, UINT64_MAX};
	struct entry_cursor c;
	size_t n = 0;

	get.request = 9;
	rig_say(&rig, WIRE_TREE_GET, &get.base, NULL, 0);
	g = rig_entry(&rig, ENTRY_TREE_GET);
	assert_int_equal(g->request, 9);

	pull.request = 10;
	pull.nodes = nodes;
	pull.n_nodes = 2;
	base.node = UINT64_MAX;
	base.sha256 = (ProtobufCBinaryData){32, (uint8_t *)"0123456789abcdef0123456789abcdef"};
	pull.bases = bases;
	pull.n_bases = 1;
	rig_say(&rig, WIRE_PULL, &pull.base, NULL, 0);
	p = rig_entry(&rig, ENTRY_PULL);
	assert_true(p->request == 10 && p->n == 2);
	pn = entry_tail(p);
	assert_true(pn[0].node == nodes[0] && !pn[0].has_base);
	assert_true(pn[1].node == nodes[1] && pn[1].has_base);
	assert_memory_equal(pn[1].base, base.sha256.data, 32);

	m.request = 11;
	m.files = 12;
	m.bytes = 13;
	m.error = ENOSPC;
	m.detail = (char *)"disk";
	m.unsupported = us;
	m.n_unsupported = ARRAY_SIZE(us);
	u.path = bytes("dev/null");
	u.field = (char *)"device";
	for (size_t i = 0; i < ARRAY_SIZE(us); i++)
		us[i] = &u;
	rig_say(&rig, WIRE_RESTORED, &m.base, NULL, 0);
	e = rig_entry(&rig, ENTRY_RESTORED);
	assert_true(e->request == 11 && e->files == 12 && e->bytes == 13 && e->error == ENOSPC);
	assert_text(entry_tail(e), e->detail_len, "disk");
	entry_cursor_init(&c, &e->head);
	for (; entry_next_unsupported(&c, &got, &path, &field); n++) {
		assert_text(path, got->path_len, "dev/null");
		assert_text(field, got->field_len, "device");
	}
	assert_int_equal(n, ENTRY_UNSUPPORTED_MAX);
}

/* A tree that is longer as entries than an entry may be comes as several, and only the last
 * of them is the last. */
static void trees(void **state)
{
	const size_t n = 5000;
	Limbwire__TreeEntry *t = calloc(n, sizeof(*t)), **ts = calloc(n, sizeof(*ts));
	Limbwire__TreePart m = LIMBWIRE__TREE_PART__INIT;
	Limb__Content content = LIMB__CONTENT__INIT;
	Limb__Attr dir = LIMB__ATTR__INIT, file = LIMB__ATTR__INIT;
	const struct entry_tree_entry *got;
	uint8_t hash[SHA256_BYTES] = {9};
	char(*names)[16] = calloc(n, sizeof(*names));
	const struct entry_tree_part *e;
	struct entry_cursor c;
	const char *name;
	struct node node;
	size_t at = 0;
	unsigned parts = 0;

	assert_true(t && ts && names);
	dir.type = LIMB__NODE_TYPE__NODE_DIRECTORY;
	file.type = LIMB__NODE_TYPE__NODE_FILE;
	file.mode = 0600;
	content.size_bytes = 77;
	content.sha256 = (ProtobufCBinaryData){SHA256_BYTES, hash};
	for (size_t i = 0; i < n; i++) {
		limbwire__tree_entry__init(&t[i]);
		ts[i] = &t[i];
		t[i].parent = i / 10;
		t[i].same_as = i == 3 ? 2 : 0;
		t[i].root = i == 0;
		t[i].error = i == 4 ? EACCES : 0;
		(void)snprintf(names[i], sizeof(names[i]), "n%zu", i);
		if (i > 0)
			t[i].name = bytes(names[i]);
		if (i != 4)
			t[i].attr = i % 2 ? &file : &dir;
		if (i % 2)
			t[i].content = &content;
	}
	m.request = 8;
	m.entries = ts;
	m.n_entries = n;
	m.last = true;
	rig_say(&rig, WIRE_TREE_PART, &m.base, NULL, 0);
	do {
		e = rig_entry(&rig, ENTRY_TREE_PART);
		parts++;
		assert_int_equal(e->request, 8);
		entry_cursor_init(&c, &e->head);
		for (; entry_next_tree(&c, &got, &name, &node); at++) {
			assert_text(name, got->name_len, at ? names[at] : "");
			assert_int_equal(got->parent, at / 10);
			assert_int_equal(got->same_as, at == 3 ? 2 : 0);
			assert_int_equal(got->error, at == 4 ? EACCES : 0);
			assert_int_equal(got->attr.has_content, at % 2);
			assert_int_equal(node.type, at == 4  ? NODE_TYPE_NONE
						    : at % 2 ? NODE_TYPE_FILE
							     : NODE_TYPE_DIRECTORY);
			if (at % 2) {
				assert_int_equal(node.content.size_bytes, 77);
				assert_memory_equal(node.content.sha256, hash, SHA256_BYTES);
			}
		}
	} while (!e->last);
	assert_int_equal(at, n);
	assert_true(parts > 1);

	/* An empty part, not the last. */
	m.n_entries = 0;
	m.last = false;
	rig_say(&rig, WIRE_TREE_PART, &m.base, NULL, 0);
	e = rig_entry(&rig, ENTRY_TREE_PART);
	assert_true(e->n == 0 && e->last == 0);
	free(t);
	free(ts);
	free(names);
}

static void jobs(void **state)
{
	Limbwire__JobStarted started = LIMBWIRE__JOB_STARTED__INIT;
	Limbwire__JobOutput output = LIMBWIRE__JOB_OUTPUT__INIT;
	Limbwire__JobExit ended = LIMBWIRE__JOB_EXIT__INIT;
	Limbwire__Unsettled u = LIMBWIRE__UNSETTLED__INIT, *us[] = {&u};
	const struct entry_unsettled *got;
	const struct entry_job_output *o;
	const struct entry_job *e;
	struct entry_cursor c;
	const char *path;

	started.request = 5;
	started.job = (char *)"j-5";
	started.pid = 44;
	started.error = ENOENT;
	started.detail = (char *)"exec";
	rig_say(&rig, WIRE_JOB_STARTED, &started.base, NULL, 0);
	e = rig_entry(&rig, ENTRY_JOB_STARTED);
	assert_string_equal(e->job, "j-5");
	assert_true(e->request == 5 && e->pid == 44 && e->error == ENOENT);
	assert_text(entry_tail(e), e->detail_len, "exec");

	output.job = (char *)"j-5";
	output.stream = 2;
	output.offset = 1ull << 40;
	output.eof = true;
	rig_say(&rig, WIRE_JOB_OUTPUT, &output.base, "bytes", 5);
	o = rig_entry(&rig, ENTRY_JOB_OUTPUT);
	assert_string_equal(o->job, "j-5");
	assert_true(o->stream == 2 && o->offset == 1ull << 40 && o->eof == 1);
	assert_text(entry_tail(o), o->len, "bytes");
	rig_say(&rig, WIRE_JOB_OUTPUT, &output.base, NULL, 0);
	o = rig_entry(&rig, ENTRY_JOB_OUTPUT);
	assert_int_equal(o->len, 0);

	u.path = bytes("still/moving");
	ended.job = (char *)"j-5";
	ended.exit_code = -1;
	ended.signal = 9;
	ended.timed_out = ended.background = true;
	ended.stdout_bytes = 10;
	ended.stderr_bytes = 11;
	ended.duration_ms = 12;
	ended.number = 13;
	ended.started_ns = 14;
	ended.ended_ns = 15;
	ended.killed_by = (char *)"a very long reason";
	ended.unsettled = us;
	ended.n_unsettled = 1;
	rig_say(&rig, WIRE_JOB_EXIT, &ended.base, NULL, 0);
	e = rig_entry(&rig, ENTRY_JOB_EXIT);
	assert_true(e->exit_code == -1 && e->signal == 9 && e->timed_out && !e->unknown &&
		    e->background && e->stdout_bytes == 10 && e->stderr_bytes == 11 &&
		    e->duration_ms == 12 && e->number == 13 && e->started_ns == 14 &&
		    e->ended_ns == 15);
	assert_string_equal(e->killed_by, "a very long");
	entry_cursor_init(&c, &e->head);
	assert_true(entry_next_unsettled(&c, &got, &path));
	assert_text(path, got->len, "still/moving");
}

static void job_list(void **state)
{
	Limbwire__JobList m = LIMBWIRE__JOB_LIST__INIT;
	Limbwire__JobList__Job j[2] = {LIMBWIRE__JOB_LIST__JOB__INIT,
				       LIMBWIRE__JOB_LIST__JOB__INIT};
	Limbwire__JobList__Job *js[] = {&j[0], &j[1]};
	const struct entry_job_known *known;
	const struct entry_job_list *e;

	j[0].job = (char *)"j-1";
	j[0].running = true;
	j[0].pid = 5;
	j[1].job = (char *)"j-2";
	j[1].stdout_bytes = 6;
	j[1].stderr_bytes = 7;
	m.jobs = js;
	m.n_jobs = 2;
	rig_say(&rig, WIRE_JOB_LIST, &m.base, NULL, 0);
	e = rig_entry(&rig, ENTRY_JOB_LIST);
	assert_int_equal(e->n, 2);
	known = entry_tail(e);
	assert_string_equal(known[0].job, "j-1");
	assert_true(known[0].running && known[0].pid == 5);
	assert_string_equal(known[1].job, "j-2");
	assert_true(!known[1].running && known[1].stdout_bytes == 6 && known[1].stderr_bytes == 7);
	m.n_jobs = 0;
	rig_say(&rig, WIRE_JOB_LIST, &m.base, NULL, 0);
	e = rig_entry(&rig, ENTRY_JOB_LIST);
	assert_int_equal(e->n, 0);
}

static void job_input(void **state)
{
	Limbwire__JobInputHad m = LIMBWIRE__JOB_INPUT_HAD__INIT;
	const struct entry_job_input *e;

	m.job = (char *)"j-1";
	m.bytes = 1ull << 40;
	rig_say(&rig, WIRE_JOB_INPUT_HAD, &m.base, NULL, 0);
	e = rig_entry(&rig, ENTRY_JOB_INPUT);
	assert_string_equal(e->job, "j-1");
	assert_int_equal(e->bytes, 1ull << 40);
}

static void processes(void **state)
{
	const size_t n = 4200;
	Limbwire__PsDone__Process p = LIMBWIRE__PS_DONE__PROCESS__INIT,
				  **ps = calloc(n, sizeof(*ps));
	Limbwire__PsDone__Process big = LIMBWIRE__PS_DONE__PROCESS__INIT;
	ProtobufCBinaryData argv[] = {bytes("sh"), {0}, bytes("-c")}, one;
	Limbwire__PsDone m = LIMBWIRE__PS_DONE__INIT;
	char *huge = malloc(10000);
	const struct entry_process *got;
	const struct entry_ps_done *e;
	struct entry_cursor c;
	const char *args;
	size_t i;

	assert_true(ps && huge);
	memset(huge, 'h', 10000);
	p.pid = 1;
	p.ppid = 2;
	p.job = (char *)"j-3";
	p.state = (char *)"sleeping";
	p.memory_bytes = 3;
	p.started_ns = 4;
	p.argv = argv;
	p.n_argv = 3;
	big.argv = &one;
	big.n_argv = 1;
	one = (ProtobufCBinaryData){10000, (uint8_t *)huge};
	for (i = 0; i < n; i++)
		ps[i] = i == 0 ? &big : &p;
	m.request = 6;
	m.processes = ps;
	m.n_processes = n;
	rig_say(&rig, WIRE_PS_DONE, &m.base, NULL, 0);
	e = rig_entry(&rig, ENTRY_PS_DONE);
	assert_int_equal(e->request, 6);
	assert_int_equal(e->n, ENTRY_PROCESSES_MAX);
	entry_cursor_init(&c, &e->head);
	assert_true(entry_next_process(&c, &got, &args));
	assert_int_equal(got->argv_len, ENTRY_ARGV_MAX);
	assert_int_equal(args[ENTRY_ARGV_MAX - 1], '\0');
	assert_int_equal(strlen(args), ENTRY_ARGV_MAX - 1);
	for (i = 1; entry_next_process(&c, &got, &args); i++) {
		assert_true(got->pid == 1 && got->ppid == 2 && got->memory_bytes == 3 &&
			    got->started_ns == 4);
		assert_string_equal(got->job, "j-3");
		assert_string_equal(got->state, "sleepin");
		assert_int_equal(got->argv_len, 7);
		assert_memory_equal(args, "sh\0\0-c\0", 7);
	}
	assert_int_equal(i, ENTRY_PROCESSES_MAX);

	for (i = 0; i < 100; i++)
		ps[i] = &big;
	m.n_processes = 100;
	rig_say(&rig, WIRE_PS_DONE, &m.base, NULL, 0);
	e = rig_entry(&rig, ENTRY_PS_DONE);
	assert_int_equal(e->n, 100);
	free(ps);
	free(huge);
}

int main(void)
{
#define TEST(fn) cmocka_unit_test_setup_teardown(fn, setup, teardown)
	static const struct CMUnitTest tests[] = {
		TEST(texts), TEST(barrier),  TEST(status),    TEST(restore),   TEST(trees),
		TEST(jobs),  TEST(job_list), TEST(job_input), TEST(processes),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
