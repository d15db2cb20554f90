/* Lies of the wire: numbers, answers, jobs, frames, floods, beginnings. */
#include "tests/functional/hostile/hostile.h"

#include <lz4.h>
#include <zstd.h>

/* ---- numbers ---- */

static void number_gap(void)
{
	number += 10;
	tell_name(known.dir, "late", 4);
}

static void number_zero(void)
{
	number = UINT64_MAX;
	tell_name(known.dir, "none", 4);
}

static void barrier_ahead(uint8_t type, uint64_t request)
{
	if (type == WIRE_BARRIER)
		say_barrier_done(request, number + 1000);
}

/* ---- answers ---- */

static void answer_nothing(uint8_t type, uint64_t request)
{
}

static void answer_other_kind(uint8_t type, uint64_t request)
{
	Limbwire__Done m = LIMBWIRE__DONE__INIT;
	Limbwire__TreePart part = LIMBWIRE__TREE_PART__INIT;

	m.request = part.request = request;
	m.number = UINT64_MAX;
	if (type == WIRE_APPLY)
		say(WIRE_TREE_PART, &part.base, NULL, 0);
	else
		say(WIRE_APPLIED, &m.base, NULL, 0);
}

static void answers_unasked(void)
{
	Limbwire__TreePart part = LIMBWIRE__TREE_PART__INIT;
	Limbwire__Restored restored = LIMBWIRE__RESTORED__INIT;
	Limbwire__Done done = LIMBWIRE__DONE__INIT;

	for (uint64_t i = 1; i < 100; i++) {
		part.request = restored.request = done.request = i;
		part.last = true;
		say(WIRE_TREE_PART, &part.base, NULL, 0);
		say(WIRE_RESTORED, &restored.base, NULL, 0);
		say(WIRE_APPLIED, &done.base, NULL, 0);
	}
}

/* A tree without an end: names that go ever deeper. */
static void tree_endless(uint8_t type, uint64_t request)
{
	Limbwire__TreePart part = LIMBWIRE__TREE_PART__INIT;
	Limbwire__TreeEntry entries[1000], *ptrs[1000];
	Limb__Attr attr = LIMB__ATTR__INIT;
	static char name[255];
	uint64_t n = 0;

	if (type != WIRE_TREE_GET) {
		if (type == WIRE_BARRIER)
			say_barrier_done(request, number);
		return;
	}
	memset(name, 'n', sizeof(name));
	attr.type = LIMB__NODE_TYPE__NODE_DIRECTORY;
	part.request = request;
	part.n_entries = ARRAY_SIZE(entries);
	part.entries = ptrs;
	for (;;) {
		for (size_t i = 0; i < ARRAY_SIZE(entries); i++) {
			ptrs[i] = &entries[i];
			limbwire__tree_entry__init(ptrs[i]);
			entries[i].parent = n++;
			set_bytes(&entries[i].name, name, sizeof(name));
			entries[i].attr = &attr;
		}
		say(WIRE_TREE_PART, &part.base, NULL, 0);
	}
}

static void say_job_exit(const char *job, uint64_t up_to)
{
	Limbwire__JobExit m = LIMBWIRE__JOB_EXIT__INIT;

	m.job = (char *)(uintptr_t)job;
	m.number = up_to;
	say(WIRE_JOB_EXIT, &m.base, NULL, 0);
}

static void say_output(const char *job, uint32_t stream, uint64_t offset)
{
	Limbwire__JobOutput m = LIMBWIRE__JOB_OUTPUT__INIT;

	m.job = (char *)(uintptr_t)job;
	m.stream = stream;
	m.offset = offset;
	say(WIRE_JOB_OUTPUT, &m.base, "output", 6);
}

static void jobs_unknown(void)
{
	Limbwire__JobInputHad had = LIMBWIRE__JOB_INPUT_HAD__INIT;
	Limbwire__JobList list = LIMBWIRE__JOB_LIST__INIT;
	Limbwire__JobList__Job one = LIMBWIRE__JOB_LIST__JOB__INIT, *ptrs[] = {&one};

	had.job = one.job = (char *)"j-never";
	had.bytes = 1 << 30;
	one.running = true;
	list.n_jobs = 1;
	list.jobs = ptrs;
	say_output("j-never", 1, 0);
	say(WIRE_JOB_INPUT_HAD, &had.base, NULL, 0);
	say(WIRE_JOB_LIST, &list.base, NULL, 0);
	say_job_exit("j-never", number);
}

static void job_long_id(void)
{
	static char id[2000];

	memset(id, 'j', sizeof(id) - 1);
	say_output(id, 1, 0);
}

static void job_stream_3(void)
{
	say_output("j-never", 3, 0);
}

static void job_offset(void)
{
	say_output("j-never", 1, UINT64_MAX);
}

/* ---- frames ---- */

static void frame_body_huge(void)
{
	say_head(WIRE_CHANGE, 0, UINT32_MAX, 0, 0);
}

static void frame_bulk_huge(void)
{
	say_head(WIRE_DATA, 0, 4, UINT32_MAX, 0);
}

static void frame_unknown(void)
{
	say_head(99, 0, 0, 0, 0);
}

static void frame_flags(void)
{
	say_head(WIRE_STATUS, 0xfe, 0, 0, 0);
}

static void frame_reserved(void)
{
	say_head(WIRE_STATUS, 0, 0, 0, 1);
}

/* What only the brain says. */
static void frame_of_brain(void)
{
	say_head(WIRE_RESTORE, 0, 0, 0, 0);
}

static void frame_garbage(void)
{
	static const char garbage[] = "\xff\xff\xff\xff\xff\xff\xff\xff";

	say_raw(WIRE_CHANGE, garbage, 8, NULL, 0);
}

static void say_packed(uint8_t flag, uint32_t claimed, const void *block, size_t n)
{
	uint8_t length[4];

	say_head(WIRE_DATA, flag, 0, (uint32_t)(sizeof(length) + n), 0);
	put_le32(length, claimed);
	say_bytes(length, sizeof(length));
	say_bytes(block, n);
}

static void say_lz4(uint32_t length, const void *block, size_t n)
{
	say_packed(WIRE_FLAG_LZ4, length, block, n);
}

static void lz4_claims_huge(void)
{
	say_lz4(UINT32_MAX, "\x10", 2);
}

/* A small block that becomes more than it says. */
static void lz4_bomb(void)
{
	static char zeros[1 << 20], block[1 << 16];
	int n = LZ4_compress_default(zeros, block, sizeof(zeros), sizeof(block));

	say_lz4(1000, block, (size_t)n);
}

static void lz4_garbage(void)
{
	say_lz4(1 << 20, "\xff\xff\xff\xff\xff\xff\xff", 7);
}

static void zstd_claims_huge(void)
{
	say_packed(WIRE_FLAG_ZSTD, UINT32_MAX, "(\xb5/\xfd", 4);
}

static void zstd_bomb(void)
{
	static char zeros[1 << 20], frame[1 << 16];

	say_packed(WIRE_FLAG_ZSTD, 1000, frame,
		   ZSTD_compress(frame, sizeof(frame), zeros, sizeof(zeros), 3));
}

static void zstd_garbage(void)
{
	say_packed(WIRE_FLAG_ZSTD, 1 << 20, "(\xb5/\xfd\xff\xff\xff", 7);
}

/* A tree beside its message that is none. */
static void tree_bulk_garbage(void)
{
	Limbwire__TreePart m = LIMBWIRE__TREE_PART__INIT;

	m.request = 1;
	m.in_bulk = true;
	say(WIRE_TREE_PART, &m.base, "\xff\xff\xff", 3);
}

static void tree_hashes_odd(void)
{
	Limbwire__TreeGet m = LIMBWIRE__TREE_GET__INIT;

	m.request = 1;
	say(WIRE_TREE_GET, &m.base, "seventeen bytes..", 17);
}

/* As many as fit, and none of them right: again and again. */
static void flood_tree_hashes(void)
{
	Limbwire__TreeGet m = LIMBWIRE__TREE_GET__INIT;
	static uint8_t hashes[1 << 20];

	for (uint64_t i = 1; i < 200; i++) {
		m.request = i;
		say(WIRE_TREE_GET, &m.base, hashes, sizeof(hashes));
	}
}

/* Two bytes of body for each hundred bytes of message. */
static void message_bomb(void)
{
	static uint8_t body[WIRE_BODY_MAX];

	for (size_t i = 0; i + 1 < sizeof(body); i += 2) {
		body[i] = 2 << 3 | 2; /* ops, of no bytes */
		body[i + 1] = 0;
	}
	say_raw(WIRE_CHANGE, body, sizeof(body), NULL, 0);
}

/* As large as frames get, and right: content that nobody names, and then it is forgotten. */
static void frames_maximal(void)
{
	static uint8_t bulk[1 << 20];
	Limbwire__Data m = LIMBWIRE__DATA__INIT;

	m.stream = 1;
	for (int i = 0; i < 64; i++) {
		memset(bulk, i, sizeof(bulk));
		say(WIRE_DATA, &m.base, bulk, sizeof(bulk));
		m.offset += sizeof(bulk);
	}
	m.abort = true;
	say(WIRE_DATA, &m.base, NULL, 0);
}

/* ---- floods ---- */

static void flood_status(void)
{
	static char detail[500];
	Limbwire__Reason reason = LIMBWIRE__REASON__INIT, *ptrs[40];
	Limbwire__Status m = LIMBWIRE__STATUS__INIT;

	memset(detail, 'x', sizeof(detail) - 1);
	reason.code = (char *)"flood";
	reason.detail = detail;
	for (size_t i = 0; i < ARRAY_SIZE(ptrs); i++)
		ptrs[i] = &reason;
	m.n_reasons = ARRAY_SIZE(ptrs);
	m.reasons = ptrs;
	for (int i = 0; i < 20000; i++)
		say(WIRE_STATUS, &m.base, NULL, 0);
	m.n_reasons = 0;
	say(WIRE_STATUS, &m.base, NULL, 0);
}

static void flood_errors(void)
{
	Limbwire__Error m = LIMBWIRE__ERROR__INIT;

	m.detail = (char *)"flood";
	for (uint64_t i = 0; i < 100000; i++) {
		m.request = i;
		m.error = EIO;
		say(WIRE_ERROR, &m.base, NULL, 0);
	}
}

static void flood_tree_gets(void)
{
	Limbwire__TreeGet m = LIMBWIRE__TREE_GET__INIT;

	for (uint64_t i = 1; i < 1000; i++) {
		m.request = i;
		say(WIRE_TREE_GET, &m.base, NULL, 0);
	}
}

static void flood_pings(void)
{
	Limbwire__Ping m = LIMBWIRE__PING__INIT;

	for (int i = 0; i < 200000; i++)
		say(WIRE_PING, &m.base, NULL, 0);
}

static void pull_foreign(void)
{
	uint64_t ids[] = {known.file, 1, known.link, UINT64_MAX, welcome->node_end};
	Limbwire__Pull m = LIMBWIRE__PULL__INIT;

	m.request = 1;
	m.n_nodes = ARRAY_SIZE(ids);
	m.nodes = ids;
	say(WIRE_PULL, &m.base, NULL, 0);
}

static void pull_many(void)
{
	static uint64_t ids[300];
	Limbwire__Pull m = LIMBWIRE__PULL__INIT;

	m.request = 1;
	m.n_nodes = ARRAY_SIZE(ids);
	m.nodes = ids;
	say(WIRE_PULL, &m.base, NULL, 0);
}

/* ---- beginnings ---- */

static void hello_twice(void)
{
	say_hello();
}

static void change_before_welcome(void)
{
	say_bytes(WIRE_START, WIRE_START_BYTES);
	node = 1000;
	tell_name(1, "early", 5);
	say_hello();
}

static void no_start_mark(void)
{
	static char noise[1 << 20];

	memset(noise, 'n', sizeof(noise));
	for (int i = 0; i < 17; i++)
		say_bytes(noise, sizeof(noise));
}

static void hello_of_another(void)
{
	Limbwire__Hello m = LIMBWIRE__HELLO__INIT;
	static const uint8_t id[16] = {1, 2, 3};

	say_bytes(WIRE_START, WIRE_START_BYTES);
	m.protocol_min = m.protocol_max = WIRE_PROTOCOL_VERSION;
	m.syncd_version = (char *)"0.1.0";
	set_bytes(&m.environment_id, id, sizeof(id));
	say(WIRE_HELLO, &m.base, NULL, 0);
}

static void hello_too_new(void)
{
	Limbwire__Hello m = LIMBWIRE__HELLO__INIT;

	say_bytes(WIRE_START, WIRE_START_BYTES);
	m.protocol_min = m.protocol_max = 4000000000u;
	m.syncd_version = (char *)"0.1.0";
	say(WIRE_HELLO, &m.base, NULL, 0);
}

static void ends_at_once(void)
{
	exit(0);
}

const struct lie lies_of_wire[] = {
	{"none", NULL, NULL, NULL},
	{"number-gap", number_gap, NULL, NULL},
	{"number-zero", number_zero, NULL, NULL},
	{"barrier-ahead", NULL, barrier_ahead, NULL},
	{"answer-nothing", NULL, answer_nothing, NULL},
	{"answer-other-kind", NULL, answer_other_kind, NULL},
	{"answers-unasked", answers_unasked, NULL, NULL},
	{"tree-endless", NULL, tree_endless, NULL},
	{"jobs-unknown", jobs_unknown, NULL, NULL},
	{"job-long-id", job_long_id, NULL, NULL},
	{"job-stream-3", job_stream_3, NULL, NULL},
	{"job-offset", job_offset, NULL, NULL},
	{"frame-body-huge", frame_body_huge, NULL, NULL},
	{"frame-bulk-huge", frame_bulk_huge, NULL, NULL},
	{"frame-unknown", frame_unknown, NULL, NULL},
	{"frame-flags", frame_flags, NULL, NULL},
	{"frame-reserved", frame_reserved, NULL, NULL},
	{"frame-of-brain", frame_of_brain, NULL, NULL},
	{"frame-garbage", frame_garbage, NULL, NULL},
	{"lz4-claims-huge", lz4_claims_huge, NULL, NULL},
	{"lz4-bomb", lz4_bomb, NULL, NULL},
	{"lz4-garbage", lz4_garbage, NULL, NULL},
	{"zstd-claims-huge", zstd_claims_huge, NULL, NULL},
	{"zstd-bomb", zstd_bomb, NULL, NULL},
	{"zstd-garbage", zstd_garbage, NULL, NULL},
	{"tree-bulk-garbage", tree_bulk_garbage, NULL, NULL},
	{"tree-hashes-odd", tree_hashes_odd, NULL, NULL},
	{"flood-tree-hashes", flood_tree_hashes, NULL, NULL},
	{"message-bomb", message_bomb, NULL, NULL},
	{"frames-maximal", frames_maximal, NULL, NULL},
	{"flood-status", flood_status, NULL, NULL},
	{"flood-errors", flood_errors, NULL, NULL},
	{"flood-tree-gets", flood_tree_gets, NULL, NULL},
	{"flood-pings", flood_pings, NULL, NULL},
	{"pull-foreign", pull_foreign, NULL, NULL},
	{"pull-many", pull_many, NULL, NULL},
	{"hello-twice", hello_twice, NULL, NULL},
	{"change-before-welcome", NULL, NULL, change_before_welcome},
	{"no-start-mark", NULL, NULL, no_start_mark},
	{"hello-of-another", NULL, NULL, hello_of_another},
	{"hello-too-new", NULL, NULL, hello_too_new},
	{"ends-at-once", NULL, NULL, ends_at_once},
	{NULL, NULL, NULL, NULL},
};
