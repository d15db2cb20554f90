/* limb-ingest passes on what limbd sends unread, never lets one side that does not read
 * block the other, ends when it should and with what it should say, and can do nothing else. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "tests/unit/ingest-rig.h"

#if defined(__SANITIZE_ADDRESS__)
#define SANITIZERS 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define SANITIZERS 1
#endif
#endif
#ifndef SANITIZERS
#define SANITIZERS 0
#endif

#define SEND_BYTES (1u << 20)
#define MANY 24

/* Queues the i'th MiB for the environment. */
static void queue_send(struct rig *r, unsigned i)
{
	struct entry_send e = {.len = SEND_BYTES};
	uint8_t *data = malloc(SEND_BYTES);

	assert_non_null(data);
	rig_bytes(data, SEND_BYTES, i);
	assert_int_equal(entry_add(&r->to_limb, ENTRY_SEND, &e, sizeof(e), data, SEND_BYTES), 0);
	free(data);
}

static void assert_sent(struct rig *r, unsigned n)
{
	uint8_t *data = malloc(SEND_BYTES);

	assert_non_null(data);
	RIG_UNTIL(r, buf_len(&r->from_wire) >= WIRE_START_BYTES + (size_t)n * SEND_BYTES);
	buf_consume(&r->from_wire, WIRE_START_BYTES);
	for (unsigned i = 0; i < n; i++) {
		rig_bytes(data, SEND_BYTES, i);
		assert_memory_equal(buf_data(&r->from_wire), data, SEND_BYTES);
		buf_consume(&r->from_wire, SEND_BYTES);
	}
	assert_int_equal(buf_len(&r->from_wire), 0);
	free(data);
}

static void say_output(struct rig *r, unsigned i)
{
	Limbwire__JobOutput m = LIMBWIRE__JOB_OUTPUT__INIT;
	uint8_t *data = malloc(SEND_BYTES);

	assert_non_null(data);
	rig_bytes(data, SEND_BYTES, 1000 + i);
	m.job = (char *)"j-1";
	m.stream = 1;
	m.offset = (uint64_t)i * SEND_BYTES;
	rig_say(r, WIRE_JOB_OUTPUT, &m.base, data, SEND_BYTES);
	free(data);
}

static void assert_outputs(struct rig *r, unsigned n)
{
	uint8_t *data = malloc(SEND_BYTES);

	assert_non_null(data);
	for (unsigned i = 0; i < n; i++) {
		const struct entry_job_output *e = rig_entry(r, ENTRY_JOB_OUTPUT);

		assert_true(e->offset == (uint64_t)i * SEND_BYTES);
		assert_int_equal(e->len, SEND_BYTES);
		rig_bytes(data, SEND_BYTES, 1000 + i);
		assert_memory_equal(entry_tail(e), data, SEND_BYTES);
	}
	free(data);
}

/* Until it seems that no more is taken: what is then asserted holds earlier, too. */
static void push_until_it_stops(struct rig *r)
{
	while (rig_step(r, 300))
		;
}

static void an_environment_that_does_not_read(void **state)
{
	struct rig r;
	size_t taken;

	rig_start(&r);
	r.wire_deaf = true;
	for (unsigned i = 0; i < MANY; i++)
		queue_send(&r, i);
	push_until_it_stops(&r);
	/* Its queue, an entry in the making, the pipe, and the socket. */
	taken = (size_t)MANY * SEND_BYTES - buf_len(&r.to_limb);
	assert_true(taken <= (8u << 20) + (2u << 20) + (1u << 20) + (1u << 20));
	/* The other way is open. */
	rig_say_small(&r, "still heard");
	(void)rig_change_entry(&r, 1);
	r.wire_deaf = false;
	assert_sent(&r, MANY);
	rig_hang_up(&r);
}

static void a_limbd_that_does_not_read(void **state)
{
	struct rig r;
	size_t taken;

	rig_start(&r);
	r.limbd_deaf = true;
	for (unsigned i = 0; i < MANY; i++)
		say_output(&r, i);
	push_until_it_stops(&r);
	/* Entries up to the mark and one above it, a frame in the making, pipe, socket. */
	taken = (size_t)MANY * SEND_BYTES - buf_len(&r.to_wire);
	assert_true(taken <= (2u << 20) + (2u << 20) + (1u << 20) + (1u << 20));
	queue_send(&r, 0);
	assert_sent(&r, 1);
	r.limbd_deaf = false;
	assert_outputs(&r, MANY);
	rig_hang_up(&r);
}

static void neither_side_reads(void **state)
{
	struct rig r;

	rig_start(&r);
	r.limbd_deaf = r.wire_deaf = true;
	for (unsigned i = 0; i < MANY; i++) {
		say_output(&r, i);
		queue_send(&r, i);
	}
	push_until_it_stops(&r);
	assert_true(buf_len(&r.to_wire) > 0 && buf_len(&r.to_limb) > 0);
	r.limbd_deaf = false;
	assert_outputs(&r, MANY);
	r.wire_deaf = false;
	assert_sent(&r, MANY);
	rig_hang_up(&r);
}

static void pings_are_answered_between_whole_frames(void **state)
{
	Limbwire__Ping ping = LIMBWIRE__PING__INIT;
	struct wframe_decoder d;
	struct wframe f;
	unsigned pongs = 0;
	struct rig r;
	uint8_t *p;

	rig_start(&r);
	for (unsigned i = 1; i <= 100; i++) {
		struct entry_send e;
		struct buf frame = BUF_INIT(0);

		assert_int_equal(
			wframe_encode(&frame, WIRE_DURABLE, "abcdefg", i % 8, "bulk", 4, false), 0);
		e = (struct entry_send){.len = (uint32_t)buf_len(&frame)};
		rig_tell(&r, ENTRY_SEND, &e, sizeof(e), buf_data(&frame), buf_len(&frame));
		buf_done(&frame);
		ping.id = i;
		rig_say(&r, WIRE_PING, &ping.base, NULL, 0);
	}
	wframe_decoder_init(&d);
	for (unsigned got = 0; got < 200;) {
		size_t n;

		RIG_UNTIL(&r, buf_len(&r.from_wire) > 0);
		n = MIN(buf_len(&r.from_wire), (size_t)WIRE_READ_MAX);
		assert_int_equal(wframe_decoder_reserve(&d, n, &p), 0);
		memcpy(p, buf_data(&r.from_wire), n);
		wframe_decoder_commit(&d, n);
		buf_consume(&r.from_wire, n);
		while (wframe_decoder_next(&d, &f) > 0) {
			got++;
			if (f.type == WIRE_PONG) {
				Limbwire__Ping *m =
					limbwire__ping__unpack(NULL, f.body_len, f.body);

				assert_non_null(m);
				assert_int_equal(m->id, ++pongs);
				limbwire__ping__free_unpacked(m, NULL);
			}
		}
		assert_int_equal(d.error, 0);
	}
	assert_int_equal(pongs, 100);
	wframe_decoder_done(&d);
	rig_hang_up(&r);
}

/* A terabyte of nothing takes minutes to hash; everything else goes on, and the end comes
 * at once. */
static void a_huge_hole(void **state)
{
	struct rig r;

	rig_start(&r);
	rig_say_data(&r, 1, 0, NULL, 0, 1ull << 40, true);
	rig_say_small(&r, "behind it");
	queue_send(&r, 0);
	assert_sent(&r, 1);
	rig_quiet(&r);
	close(r.limbd);
	r.limbd = -1;
	r.limbd_eof = true;
	rig_end(&r, 0);
}

/* ---- the end ---- */

static void spawn(struct rig *r)
{
	char *argv[] = {(char *)rig_program(), NULL};

	rig_spawn_with(r, argv);
}

static void assert_bye(struct rig *r, const char *want)
{
	const struct entry_text *e = rig_entry(r, ENTRY_BYE);

	assert_int_equal(e->len, strlen(want));
	assert_memory_equal(entry_tail(e), want, e->len);
	rig_end(r, 0);
}

static void the_transport_ends(void **state)
{
	struct rig r;

	/* Inside of a frame; what came before it counts. */
	rig_start(&r);
	rig_say_small(&r, "whole");
	assert_int_equal(buf_add(&r.to_wire, "\x0a\0\0\0\x05\0", 6), 0);
	(void)rig_change_entry(&r, 1);
	rig_hang_up(&r);

	spawn(&r);
	assert_int_equal(buf_add_str(&r.to_wire, "bash: limb-syncd: not found\n"), 0);
	RIG_UNTIL(&r, buf_len(&r.to_wire) == 0);
	close(r.to);
	r.to = -1;
	assert_bye(&r, "transport ended before the start mark");
}

static void a_bye(void **state)
{
	Limbwire__Bye bye = LIMBWIRE__BYE__INIT;
	struct rig r;

	rig_start(&r);
	rig_say_small(&r, "before");
	bye.reason = (char *)"the root is gone";
	rig_say(&r, WIRE_BYE, &bye.base, NULL, 0);
	rig_say_small(&r, "behind");
	(void)rig_change_entry(&r, 1);
	assert_bye(&r, "the root is gone");
}

static void limbd_says_stop(void **state)
{
	struct entry_head e = {0};
	struct rig r;

	rig_start(&r);
	queue_send(&r, 0);
	queue_send(&r, 1);
	assert_int_equal(entry_add(&r.to_limb, ENTRY_STOP, &e, sizeof(e), NULL, 0), 0);
	assert_sent(&r, 2);
	rig_end(&r, 0);
}

static void limbd_is_gone(void **state)
{
	struct rig r;

	rig_start(&r);
	close(r.limbd);
	r.limbd = -1;
	r.limbd_eof = true;
	RIG_UNTIL(&r, r.wire_eof);
	rig_end(&r, 0);
}

static void the_environment_reads_no_more(void **state)
{
	struct rig r;

	rig_start(&r);
	close(r.from);
	r.from = -1;
	r.wire_eof = true;
	for (unsigned i = 0; i < MANY; i++)
		queue_send(&r, i);
	RIG_UNTIL(&r, buf_len(&r.to_limb) == 0);
	rig_say_small(&r, "still speaks");
	(void)rig_change_entry(&r, 1);
	rig_hang_up(&r);
}

static void words_of_limbd_that_are_none(void **state)
{
	struct entry_pack pack = {.offset = 64, .seal_bytes = 1 << 20, .zstd_level = 1};
	struct entry_pong pong = {.id = 1};
	struct entry_head head = {.length = 12, .type = ENTRY_SEND};
	struct rig r;

	rig_start(&r);
	rig_tell(&r, ENTRY_PONG, &pong, sizeof(pong), NULL, 0); /* the other direction */
	rig_end(&r, 1);

	rig_start(&r);
	rig_tell(&r, ENTRY_PACK, &pack, sizeof(pack), NULL, 0); /* no file */
	rig_end(&r, 1);

	rig_start(&r);
	rig_pack(&r, 1 << 20); /* while there is one */
	rig_end(&r, 1);

	rig_start(&r);
	assert_int_equal(buf_add(&r.to_limb, &head, sizeof(head)), 0);
	RIG_UNTIL(&r, r.limbd_eof);
	rig_end(&r, 1);
}

/* What cannot be written is not announced. */
static void a_pack_that_cannot_be_written(void **state)
{
	struct rig r;
	int fd = open("/dev/null", O_RDONLY | O_CLOEXEC);

	assert_true(fd >= 0);
	rig_start_without_pack(&r);
	rig_pack_of(&r, fd, PACK_SEAL_BYTES);
	rig_say_small(&r, "lost");
	rig_end(&r, 1);
}

/* ---- what it may do ---- */

static void from_inside_nothing_else_is_possible(void **state)
{
	char *argv[] = {(char *)rig_program(), (char *)"--self-test", NULL};
	char out[8192];
	size_t n = 0, lines = 0;
	int pipes[2], status;
	pid_t pid;

	assert_int_equal(pipe2(pipes, O_CLOEXEC), 0);
	pid = rig_spawn(pipes[0], pipes[1], pipes[1], argv);
	close(pipes[1]);
	for (ssize_t k; (k = read(pipes[0], out + n, sizeof(out) - 1 - n)) > 0;)
		n += (size_t)k;
	close(pipes[0]);
	out[n] = '\0';
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(n > 0 && out[n - 1] == '\n');
	if (status != 0)
		fail_msg("%s", out);
	/* Each kind of call was possible before; inside, memory is all that is. */
	for (const char *line = out; *line; line = strchr(line, '\n') + 1) {
		bool memory = strncmp(line, "memory", 6) == 0;
		const char *inside = strstr(line, memory ? "possible inside" : "denied inside");

		assert_non_null(inside);
		assert_true(inside < strchr(line, '\n'));
		lines++;
	}
	assert_true(lines > 20);
}

static void the_running_program_is_confined(void **state)
{
	char *argv[] = {(char *)rig_program(), (char *)"--uid", (char *)"4242", NULL};
	struct rig r;

	if (getuid() != 0)
		argv[1] = NULL;
	rig_spawn_with(&r, argv);
	assert_int_equal(buf_add(&r.to_wire, WIRE_START, WIRE_START_BYTES), 0);
	rig_say_hello(&r);
	(void)rig_entry(&r, ENTRY_HELLO);
	assert_int_equal(rig_status(&r, "\nSeccomp:"), 2);
	assert_int_equal(rig_status(&r, "\nNoNewPrivs:"), 1);
	if (getuid() == 0) {
		assert_int_equal(rig_status(&r, "\nUid:"), 4242);
		assert_int_equal(rig_status(&r, "\nGid:"), 4242);
		assert_int_equal(rig_status(&r, "\nCapEff:"), 0);
		assert_int_equal(rig_status(&r, "\nCapPrm:"), 0);
	}
	rig_hang_up(&r);
}

static void at_rest_it_is_small(void **state)
{
	uint8_t *data;
	struct rig r;

	if (SANITIZERS) {
		print_message("# sanitizers take more memory than the program\n");
		skip();
	}
	data = malloc(1 << 20);
	assert_non_null(data);
	rig_start(&r);
	for (unsigned i = 0; i < 30; i++) {
		struct rig_change w;

		rig_bytes(data, 1 << 20, i);
		rig_change_init(&r, &w);
		(void)rig_add_inline(&w, 10, data, 1 << 20);
		rig_say_change(&r, &w);
		(void)rig_change_entry(&r, i + 1);
	}
	RIG_UNTIL(&r, rig_status(&r, "\nRssAnon:") <= 2048);
	/* And it works again. */
	rig_say_small(&r, "awake");
	(void)rig_change_entry(&r, 31);
	rig_hang_up(&r);
	free(data);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(an_environment_that_does_not_read),
		cmocka_unit_test(a_limbd_that_does_not_read),
		cmocka_unit_test(neither_side_reads),
		cmocka_unit_test(pings_are_answered_between_whole_frames),
		cmocka_unit_test(a_huge_hole),
		cmocka_unit_test(the_transport_ends),
		cmocka_unit_test(a_bye),
		cmocka_unit_test(limbd_says_stop),
		cmocka_unit_test(limbd_is_gone),
		cmocka_unit_test(the_environment_reads_no_more),
		cmocka_unit_test(words_of_limbd_that_are_none),
		cmocka_unit_test(a_pack_that_cannot_be_written),
		cmocka_unit_test(from_inside_nothing_else_is_possible),
		cmocka_unit_test(the_running_program_is_confined),
		cmocka_unit_test(at_rest_it_is_small),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
