/* The first rule that an environment breaks ends its limb-ingest: what it said before has
 * reached limbd, then which rule it was, then nothing. Here: frames and all
 * other messages. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "tests/unit/ingest-rig.h"

/* ---- frames and bodies ---- */

static void raw_header(struct rig *r, uint8_t type, uint8_t flags, uint32_t body, uint32_t bulk)
{
	uint8_t h[WIRE_HEADER_BYTES] = {type, flags};

	put_le32(h + 4, body);
	put_le32(h + 8, bulk);
	assert_int_equal(buf_add(&r->to_wire, h, sizeof(h)), 0);
}

enum frame_fault {
	FRAME_UNKNOWN,
	FRAME_BODY_1_GIB,
	FRAME_BULK_1_GIB,
	FRAME_FLAGS,
	FRAME_LZ4_BOMB,
	FRAME_LZ4_GARBAGE,
	FRAME_GARBAGE,
	FRAME_BODY_GARBAGE,
	FRAME_EMPTY_OPS,
	FRAME_EMPTY_ATTRS,
	FRAME_OF_THE_BRAIN,
	FRAME_BULK_BESIDE,
	FRAME_HELLO_AGAIN,
};

/* A body of 1 MiB made of the shortest messages: a number or request 2, then `unit` again and
 * again. */
static void say_bomb(struct rig *r, uint8_t type, const char *unit, size_t n)
{
	uint8_t *body = malloc(WIRE_BODY_MAX);
	size_t at;

	assert_non_null(body);
	memcpy(body, "\x08\x02", 2);
	for (at = 2; at + n <= WIRE_BODY_MAX; at += n)
		memcpy(body + at, unit, n);
	rig_say_raw(r, type, body, at, NULL, 0);
	free(body);
}

static void bad_frame(struct rig *r, int fault)
{
	uint8_t garbage[4096];

	switch ((enum frame_fault)fault) {
	case FRAME_UNKNOWN: rig_say_raw(r, 99, NULL, 0, NULL, 0); break;
	case FRAME_BODY_1_GIB: raw_header(r, WIRE_CHANGE, 0, 1u << 30, 0); break;
	case FRAME_BULK_1_GIB: raw_header(r, WIRE_CHANGE, 0, 0, 1u << 30); break;
	case FRAME_FLAGS: raw_header(r, WIRE_CHANGE, 4, 0, 0); break;
	case FRAME_LZ4_BOMB:
		raw_header(r, WIRE_DATA, WIRE_FLAG_LZ4, 0, 8);
		assert_int_equal(buf_add(&r->to_wire, "\xff\xff\xff\x7f\x1f\0\x01\0", 8), 0);
		break;
	case FRAME_LZ4_GARBAGE:
		raw_header(r, WIRE_DATA, WIRE_FLAG_LZ4, 0, 16);
		assert_int_equal(buf_add(&r->to_wire, "\0\1\0\0garbage.....", 16), 0);
		break;
	case FRAME_GARBAGE:
		rig_bytes(garbage, sizeof(garbage), 7);
		assert_int_equal(buf_add(&r->to_wire, garbage, sizeof(garbage)), 0);
		break;
	case FRAME_BODY_GARBAGE:
		memset(garbage, 0xff, sizeof(garbage));
		rig_say_raw(r, WIRE_CHANGE, garbage, sizeof(garbage), NULL, 0);
		break;
	case FRAME_EMPTY_OPS: say_bomb(r, WIRE_CHANGE, "\x12\0", 2); break;
	case FRAME_EMPTY_ATTRS:
		/* entries { attr {} }: 280 bytes of memory for 4. */
		say_bomb(r, WIRE_TREE_PART, "\x12\x02\x22\0", 4);
		break;
	case FRAME_OF_THE_BRAIN: rig_say_raw(r, WIRE_WELCOME, NULL, 0, NULL, 0); break;
	case FRAME_BULK_BESIDE: rig_say_raw(r, WIRE_STATUS, NULL, 0, "x", 1); break;
	case FRAME_HELLO_AGAIN: rig_say_hello(r); break;
	}
}

static void frames(void **state)
{
	rig_check_hostile(bad_frame, FRAME_UNKNOWN, "unknown type");
	rig_check_hostile(bad_frame, FRAME_BODY_1_GIB, "longer than its limit");
	rig_check_hostile(bad_frame, FRAME_BULK_1_GIB, "longer than its limit");
	rig_check_hostile(bad_frame, FRAME_FLAGS, "damaged frame");
	rig_check_hostile(bad_frame, FRAME_LZ4_BOMB, "longer than its limit");
	rig_check_hostile(bad_frame, FRAME_LZ4_GARBAGE, "damaged frame");
	rig_check_hostile(bad_frame, FRAME_GARBAGE, "longer than its limit");
	rig_check_hostile(bad_frame, FRAME_BODY_GARBAGE, "CHANGE: body is damaged");
	rig_check_hostile(bad_frame, FRAME_EMPTY_OPS, "524287 operations");
	rig_check_hostile(bad_frame, FRAME_EMPTY_ATTRS, "too much memory");
	rig_check_hostile(bad_frame, FRAME_OF_THE_BRAIN, "WELCOME: not for");
	rig_check_hostile(bad_frame, FRAME_BULK_BESIDE, "bytes beside it");
	rig_check_hostile(bad_frame, FRAME_HELLO_AGAIN, "second");
}

/* ---- before a session ---- */

static void spawn(struct rig *r)
{
	char *argv[] = {(char *)rig_program(), NULL};

	rig_spawn_with(r, argv);
}

static void before_the_session(void **state)
{
	static uint8_t noise[WIRE_NOISE_MAX + 16];
	Limbwire__Hello hello = LIMBWIRE__HELLO__INIT;
	struct rig r;

	spawn(&r);
	assert_int_equal(buf_add(&r.to_wire, noise, sizeof(noise)), 0);
	rig_hostile(&r, "no start mark");

	spawn(&r);
	assert_int_equal(buf_add(&r.to_wire, WIRE_START, WIRE_START_BYTES), 0);
	rig_say_raw(&r, WIRE_PING, NULL, 0, NULL, 0);
	rig_hostile(&r, "PING: before HELLO");

	spawn(&r);
	assert_int_equal(buf_add(&r.to_wire, WIRE_START, WIRE_START_BYTES), 0);
	hello.environment_id = (ProtobufCBinaryData){15, noise};
	rig_say(&r, WIRE_HELLO, &hello.base, NULL, 0);
	rig_hostile(&r, "HELLO: a field of 15 bytes");

	/* A change before WELCOME, which ENTRY_START announces. */
	spawn(&r);
	assert_int_equal(buf_add(&r.to_wire, WIRE_START, WIRE_START_BYTES), 0);
	rig_say_hello(&r);
	rig_pack(&r, PACK_SEAL_BYTES);
	rig_say_small(&r, "early");
	(void)rig_entry(&r, ENTRY_HELLO);
	rig_hostile(&r, "before WELCOME");
}

/* ---- other messages ---- */

enum message_fault {
	MESSAGE_NO_REQUEST,
	MESSAGE_PULL_MANY,
	MESSAGE_REASON_CODE,
	MESSAGE_REASON_PATH,
	MESSAGE_UNSETTLED_PATH,
	MESSAGE_OUTPUT_STREAM,
	MESSAGE_OUTPUT_OFFSET,
	MESSAGE_OUTPUT_JOB,
	MESSAGE_ARGV_NUL,
};

static void bad_message(struct rig *r, int fault)
{
	Limbwire__BarrierDone barrier = LIMBWIRE__BARRIER_DONE__INIT;
	Limbwire__Unsettled unsettled = LIMBWIRE__UNSETTLED__INIT, *us[] = {&unsettled};
	Limbwire__Status status = LIMBWIRE__STATUS__INIT;
	Limbwire__Reason reason = LIMBWIRE__REASON__INIT, *reasons[] = {&reason};
	Limbwire__JobOutput output = LIMBWIRE__JOB_OUTPUT__INIT;
	Limbwire__PsDone ps = LIMBWIRE__PS_DONE__INIT;
	Limbwire__PsDone__Process process = LIMBWIRE__PS_DONE__PROCESS__INIT, *ps_[] = {&process};
	ProtobufCBinaryData nul = {3, (uint8_t *)"a\0b"};
	Limbwire__Pull pull = LIMBWIRE__PULL__INIT;
	uint64_t nodes[ENTRY_PULL_MAX + 1] = {0};

	status.reasons = reasons;
	status.n_reasons = 1;
	reason.code = (char *)"watches";
	output.job = (char *)"j-1";
	output.stream = 1;
	ps.request = 1;
	ps.processes = ps_;
	ps.n_processes = 1;
	switch ((enum message_fault)fault) {
	case MESSAGE_NO_REQUEST: rig_say(r, WIRE_BARRIER_DONE, &barrier.base, NULL, 0); break;
	case MESSAGE_PULL_MANY:
		pull.request = 1;
		pull.nodes = nodes;
		pull.n_nodes = ARRAY_SIZE(nodes);
		rig_say(r, WIRE_PULL, &pull.base, NULL, 0);
		break;
	case MESSAGE_REASON_CODE:
		reason.code = (char *)"two words";
		rig_say(r, WIRE_STATUS, &status.base, NULL, 0);
		break;
	case MESSAGE_REASON_PATH:
		reason.path = nul;
		rig_say(r, WIRE_STATUS, &status.base, NULL, 0);
		break;
	case MESSAGE_UNSETTLED_PATH:
		barrier.request = 1;
		barrier.unsettled = us;
		barrier.n_unsettled = 1;
		unsettled.path = nul;
		rig_say(r, WIRE_BARRIER_DONE, &barrier.base, NULL, 0);
		break;
	case MESSAGE_OUTPUT_STREAM:
		output.stream = 3;
		rig_say(r, WIRE_JOB_OUTPUT, &output.base, "x", 1);
		break;
	case MESSAGE_OUTPUT_OFFSET:
		output.offset = INT64_MAX;
		rig_say(r, WIRE_JOB_OUTPUT, &output.base, "x", 1);
		break;
	case MESSAGE_OUTPUT_JOB:
		output.job = (char *)"";
		rig_say(r, WIRE_JOB_OUTPUT, &output.base, "x", 1);
		break;
	case MESSAGE_ARGV_NUL:
		process.argv = &nul;
		process.n_argv = 1;
		rig_say(r, WIRE_PS_DONE, &ps.base, NULL, 0);
		break;
	}
}

static void messages(void **state)
{
	rig_check_hostile(bad_message, MESSAGE_NO_REQUEST, "BARRIER_DONE: no request");
	rig_check_hostile(bad_message, MESSAGE_PULL_MANY, "257 nodes");
	rig_check_hostile(bad_message, MESSAGE_REASON_CODE, "code");
	rig_check_hostile(bad_message, MESSAGE_REASON_PATH, "NUL in a path");
	rig_check_hostile(bad_message, MESSAGE_UNSETTLED_PATH, "NUL in a path");
	rig_check_hostile(bad_message, MESSAGE_OUTPUT_STREAM, "unknown stream");
	rig_check_hostile(bad_message, MESSAGE_OUTPUT_OFFSET, "offset");
	rig_check_hostile(bad_message, MESSAGE_OUTPUT_JOB, "job");
	rig_check_hostile(bad_message, MESSAGE_ARGV_NUL, "NUL in an argument");
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(frames),
		cmocka_unit_test(before_the_session),
		cmocka_unit_test(messages),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
