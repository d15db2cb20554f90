/* A stream that is made from a base: copies of what limbd sends and literals give the content,
 * unchanged chunks are not stored again, nothing waits for it that need not, and no sequence of
 * copies and no answer of limbd makes more of it than was told, or less than a refusal. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "tests/unit/ingest-rig.h"

#define BASE_BYTES (5u << 20)

static uint8_t *base, base_sha[SHA256_BYTES];

static int setup(void **state)
{
	base = malloc(BASE_BYTES);
	if (!base)
		return -1;
	rig_bytes(base, BASE_BYTES, 1);
	sha256(base, BASE_BYTES, base_sha);
	return 0;
}

static int teardown(void **state)
{
	free(base);
	return 0;
}

struct said {
	struct rig *r;
	uint32_t stream;
	uint64_t offset, size;
	struct buf out; /* what must come of it */
};

static struct said begin(struct rig *r, uint32_t stream, uint64_t size)
{
	return (struct said){.r = r, .stream = stream, .size = size, .out = BUF_INIT(64 << 20)};
}

static void say(struct said *s, uint64_t from, uint64_t bytes, const void *literal, size_t n,
		bool last)
{
	Limbwire__Data m = LIMBWIRE__DATA__INIT;

	m.stream = s->stream;
	m.offset = s->offset;
	if (s->offset == 0) {
		m.base_node = 7;
		m.base_sha256 = (ProtobufCBinaryData){SHA256_BYTES, base_sha};
		m.size_bytes = s->size;
	}
	m.copy_from = from;
	m.copy_bytes = bytes;
	m.last = last;
	rig_say(s->r, WIRE_DATA, &m.base, literal, n);
	s->offset += bytes + n;
	if (bytes && from + bytes <= BASE_BYTES)
		assert_int_equal(buf_add(&s->out, base + from, bytes), 0);
	if (n)
		assert_int_equal(buf_add(&s->out, literal, n), 0);
}

static void answer(struct rig *r, const struct entry_base *e, int error)
{
	struct entry_base_data d = {.request = e->request, .size_bytes = BASE_BYTES};

	assert_int_equal(e->node, 7);
	assert_memory_equal(e->sha256, base_sha, SHA256_BYTES);
	d.error = error;
	if (!error && e->offset < BASE_BYTES)
		d.len = (uint32_t)MIN((uint64_t)e->len, BASE_BYTES - e->offset);
	rig_tell(r, ENTRY_BASE_DATA, &d, sizeof(d), base + (d.len ? e->offset : 0), d.len);
}

/* What is here and not places; NULL: nothing. Lent until the next. */
static const struct entry_head *next_here(struct rig *r)
{
	buf_consume(&r->from_limb, r->taken);
	r->taken = 0;
	for (;;) {
		const struct entry_head *e = (const void *)buf_data(&r->from_limb);
		ssize_t n = entry_whole(e, buf_len(&r->from_limb));
		const char *why;

		assert_true(n >= 0);
		if (n == 0)
			return NULL;
		assert_int_equal(entry_check(e, &why), 0);
		if (e->type != ENTRY_PLACES) {
			r->taken = (size_t)n;
			return e;
		}
		rig_take_places(r, (const void *)e);
		buf_consume(&r->from_limb, (size_t)n);
	}
}

/* Answers what is asked, and gives packs, until the environment gets its DATA_DONE; returns
 * how many packs. */
static unsigned serve(struct rig *r, Limbwire__DataDone **ret, int error)
{
	unsigned packs = 0;
	struct wframe f;
	struct wframe_decoder d;

	wframe_decoder_init(&d);
	for (;;) {
		const struct entry_head *e = next_here(r);
		size_t n = buf_len(&r->from_wire);
		uint8_t *p;

		if (e && e->type == ENTRY_PACK_FULL) {
			rig_pack(r, 600 << 10);
			packs++;
		} else if (e) {
			assert_int_equal(e->type, ENTRY_BASE);
			answer(r, (const void *)e, error);
		} else if (n) {
			assert_int_equal(wframe_decoder_reserve(&d, n, &p), 0);
			memcpy(p, buf_data(&r->from_wire), n);
			wframe_decoder_commit(&d, n);
			buf_consume(&r->from_wire, n);
			if (wframe_decoder_next(&d, &f) > 0)
				break;
		} else {
			size_t before = buf_len(&r->from_limb);

			RIG_UNTIL(r, buf_len(&r->from_limb) > before || buf_len(&r->from_wire));
		}
	}
	assert_int_equal(f.type, WIRE_DATA_DONE);
	*ret = limbwire__data_done__unpack(NULL, f.body_len, f.body);
	assert_non_null(*ret);
	wframe_decoder_done(&d);
	/* The next one begins with a mark for the decoder, too. */
	assert_int_equal(buf_add(&r->from_wire, WIRE_START, WIRE_START_BYTES), 0);
	return packs;
}

static void assert_made(struct said *s)
{
	Limbwire__DataDone *done;
	uint8_t sha[SHA256_BYTES];

	(void)serve(s->r, &done, 0);
	sha256(buf_data(&s->out), buf_len(&s->out), sha);
	assert_int_equal(done->stream, s->stream);
	assert_int_equal(done->error, 0);
	assert_int_equal(done->size_bytes, buf_len(&s->out));
	assert_int_equal(done->sha256.len, SHA256_BYTES);
	assert_memory_equal(done->sha256.data, sha, SHA256_BYTES);
	limbwire__data_done__free_unpacked(done, NULL);
}

static void name_it(struct said *s, uint64_t node)
{
	struct rig_change c;

	rig_change_init(s->r, &c);
	c.wops[rig_add_file(&c, node, buf_data(&s->out), buf_len(&s->out))].stream = s->stream;
	rig_say_change(s->r, &c);
	(void)rig_change_entry(s->r, s->r->number);
	buf_done(&s->out);
}

static void put_together(void **state)
{
	struct said s;
	struct rig r;

	rig_start(&r);
	s = begin(&r, 1, BASE_BYTES + 10);
	say(&s, 0, 3 << 20, NULL, 0, false);
	say(&s, 0, 0, "literal", 7, false);
	say(&s, (3 << 20) + 1, BASE_BYTES - (3 << 20) - 1, NULL, 0, false);
	say(&s, 0, 0, NULL, 0, true);
	assert_made(&s);
	name_it(&s, 100);

	/* backwards, again and again, byte by byte around the pieces */
	s = begin(&r, 2, 8 << 20);
	say(&s, 4 << 20, 1 << 20, NULL, 0, false);
	say(&s, 0, 1 << 20, NULL, 0, false);
	for (unsigned i = 0; i < 40; i++)
		say(&s, (i % 10) * ENTRY_BASE_MAX + ENTRY_BASE_MAX - 1, i % 10 == 9 ? 1 : 2, NULL,
		    0, false);
	say(&s, BASE_BYTES - 1, 1, NULL, 0, true);
	assert_made(&s);
	name_it(&s, 101);

	/* nothing but literals */
	s = begin(&r, 3, 100);
	say(&s, 0, 0, "whole", 5, true);
	assert_made(&s);
	name_it(&s, 102);
	rig_hang_up(&r);
}

/* A pack is filled and followed by another in the middle of a copy; chunks that limbd says are
 * there are not written. */
static void packs_fill_meanwhile(void **state)
{
	Limbwire__DataDone *done;
	struct said s;
	struct rig r;
	size_t places;

	rig_start_without_pack(&r);
	rig_pack(&r, 600 << 10);
	s = begin(&r, 1, BASE_BYTES);
	say(&s, 0, BASE_BYTES, NULL, 0, true);
	assert_true(serve(&r, &done, 0) > 1);
	assert_memory_equal(done->sha256.data, base_sha, SHA256_BYTES);
	limbwire__data_done__free_unpacked(done, NULL);
	places = r.n_places;
	assert_true(places > 20);
	name_it(&s, 100);

	/* It is known now, as after a seed. */
	places = r.n_places;
	s = begin(&r, 2, BASE_BYTES);
	say(&s, 0, BASE_BYTES, NULL, 0, true);
	assert_made(&s);
	name_it(&s, 101);
	assert_int_equal(r.n_places, places);
	rig_hang_up(&r);
}

/* Other words of the environment pass while limbd is slow with the base. */
static void others_pass(void **state)
{
	struct said s;
	struct rig r;
	const struct entry_base *e;
	struct entry_base kept;

	rig_start(&r);
	s = begin(&r, 1, BASE_BYTES);
	say(&s, 0, BASE_BYTES, NULL, 0, true);
	e = rig_entry(&r, ENTRY_BASE);
	kept = *e;
	rig_say_small(&r, "passes");
	(void)rig_change_entry(&r, 1);
	answer(&r, &kept, 0);
	assert_made(&s);
	name_it(&s, 100);
	rig_hang_up(&r);
}

/* What waits for limbd is bounded: then nothing more is taken. */
static void what_waits_is_bounded(void **state)
{
	uint8_t *literal = calloc(1, 1 << 20);
	struct said s;
	struct rig r;

	rig_bytes(literal, 1 << 20, 5);
	rig_start(&r);
	s = begin(&r, 1, 20 << 20);
	say(&s, 0, 1, NULL, 0, false);
	for (unsigned i = 0; i < 19; i++)
		say(&s, 0, 0, literal, 1 << 20, false);
	say(&s, 1, 1, NULL, 0, true);
	while (rig_step(&r, 300))
		;
	assert_true(buf_len(&r.to_wire) > 10 << 20);
	assert_made(&s);
	name_it(&s, 100);
	rig_hang_up(&r);
	free(literal);
}

static void refusals(void **state)
{
	Limbwire__DataDone *done;
	struct said s;
	struct rig r;

	rig_start(&r);
	s = begin(&r, 1, BASE_BYTES);
	say(&s, 0, 2 << 20, NULL, 0, false);
	say(&s, 0, 0, "more", 4, false);
	say(&s, 9, 1 << 20, NULL, 0, true);
	(void)serve(&r, &done, ENOENT);
	assert_int_equal(done->error, ENOENT);
	assert_int_equal(done->sha256.len, 0);
	limbwire__data_done__free_unpacked(done, NULL);
	buf_done(&s.out);

	/* far larger than its base */
	s = begin(&r, 1, 1ull << 40);
	say(&s, 0, 2 << 20, NULL, 0, true);
	(void)serve(&r, &done, 0);
	assert_int_equal(done->error, EFBIG);
	limbwire__data_done__free_unpacked(done, NULL);
	buf_done(&s.out);

	/* the same number again, for a good one */
	s = begin(&r, 1, BASE_BYTES);
	say(&s, 5, 2 << 20, NULL, 0, true);
	assert_made(&s);
	name_it(&s, 100);
	rig_hang_up(&r);
}

/* Taken back while its base is on its way. */
static void aborted(void **state)
{
	Limbwire__Data abort_it = LIMBWIRE__DATA__INIT;
	const struct entry_base *e;
	struct entry_base kept;
	struct said s;
	struct rig r;

	rig_start(&r);
	for (unsigned i = 0; i < 20; i++) {
		s = begin(&r, 1, BASE_BYTES);
		say(&s, i << 10, 1 << 20, NULL, 0, false);
		e = rig_entry(&r, ENTRY_BASE);
		kept = *e;
		abort_it.stream = 1;
		abort_it.abort = true;
		rig_say(&r, WIRE_DATA, &abort_it.base, NULL, 0);
		buf_done(&s.out);
		rig_say_small(&r, "so that it is taken");
		(void)rig_change_entry(&r, i + 1);
		answer(&r, &kept, i % 2 ? 0 : EIO);
	}
	s = begin(&r, 1, BASE_BYTES);
	say(&s, 5, 2 << 20, NULL, 0, true);
	assert_made(&s);
	name_it(&s, 100);
	rig_hang_up(&r);
}

/* ---- lies ---- */

static void bend(struct rig *r, int i)
{
	Limbwire__Data m = LIMBWIRE__DATA__INIT;
	const char *bulk = NULL;

	m.stream = 1;
	m.base_node = 7;
	m.base_sha256 = (ProtobufCBinaryData){SHA256_BYTES, base_sha};
	m.size_bytes = BASE_BYTES;
	m.copy_bytes = 10;
	switch (i) {
	case -1: break; /* it is the time that is wrong */
	case 0: m.base_sha256.len = 31; break;
	case 1: m.base_sha256.len = 0; break;
	case 2: m.size_bytes = UINT64_MAX; break;
	case 3: m.copy_bytes = 0; break;
	case 4: bulk = "x"; break;
	case 5: m.copy_bytes = 0, m.hole_bytes = 4096; break;
	case 6: m.copy_bytes = BASE_BYTES + 1; break;
	case 7: m.copy_bytes = UINT64_MAX; break;
	case 8: m.base_node = 0; break; /* no base at all */
	case 9:
		rig_say(r, WIRE_DATA, &m.base, NULL, 0);
		m.offset = 10;
		break; /* a base in the middle */
	case 10: m.copy_from = UINT64_MAX; break;
	default: fail();
	}
	rig_say(r, WIRE_DATA, &m.base, bulk, bulk ? 1 : 0);
}

static void lies(void **state)
{
	static const char *const rules[] = {
		"without its SHA-256",	     "without its SHA-256",
		"more than a file can have", "a copy of nothing",
		"both bytes and a copy",     "a hole where a base is copied",
		"bytes that were told",	     "bytes that were told",
		"a copy, and no base",	     "a base for what has begun",
		"beyond any file",
	};

	struct rig r;

	for (int i = 0; i < (int)ARRAY_SIZE(rules); i++) {
		if (i == 9)
			continue; /* something is asked of limbd before */
		rig_check_hostile(bend, i, rules[i]);
	}
	rig_start(&r);
	bend(&r, 9);
	(void)rig_entry(&r, ENTRY_BASE);
	rig_hostile(&r, rules[9]);
}

/* Found out only when limbd says how long the base is. */
static void beyond_the_base(void **state)
{
	static const struct {
		uint64_t from, bytes;
	} copies[] = {{BASE_BYTES, 1},
		      {BASE_BYTES - 1, 2},
		      {0, BASE_BYTES + 1},
		      {1ull << 40, 1},
		      {BASE_BYTES + ENTRY_BASE_MAX, ENTRY_BASE_MAX}};

	for (size_t i = 0; i < ARRAY_SIZE(copies); i++) {
		struct said s;
		struct rig r;

		rig_start(&r);
		s = begin(&r, 1, BASE_BYTES + (1 << 20));
		say(&s, copies[i].from, copies[i].bytes, NULL, 0, true);
		answer(&r, rig_entry(&r, ENTRY_BASE), 0);
		rig_hostile(&r, "beyond the base");
		buf_done(&s.out);
	}
}

/* A CHANGE may not name what is not yet made, nor what could not be. */
static void named_too_early(void **state)
{
	struct rig_change c;
	struct said s;
	struct rig r;

	rig_start(&r);
	s = begin(&r, 1, BASE_BYTES);
	say(&s, 0, 100, NULL, 0, true);
	(void)rig_entry(&r, ENTRY_BASE);
	rig_change_init(&r, &c);
	c.wops[rig_add_file(&c, 100, base, 100)].stream = 1;
	rig_say_change(&r, &c);
	rig_hostile(&r, "has not ended");
	buf_done(&s.out);
}

/* limbd hears of no base before it has said whose line this is. */
static void before_welcome(void **state)
{
	char *argv[] = {(char *)rig_program(), NULL};
	struct rig r;

	rig_spawn_with(&r, argv);
	assert_int_equal(buf_add(&r.to_wire, WIRE_START, WIRE_START_BYTES), 0);
	rig_say_hello(&r);
	(void)rig_entry(&r, ENTRY_HELLO);
	rig_pack(&r, PACK_SEAL_BYTES);
	bend(&r, -1);
	rig_hostile(&r, "before WELCOME");
}

/* limbd's own words are judged, too. */
static void answers_that_nobody_asked_for(void **state)
{
	struct entry_base_data d = {.request = 77};
	struct rig r;

	rig_start(&r);
	assert_int_equal(entry_add(&r.to_limb, ENTRY_BASE_DATA, &d, sizeof(d), NULL, 0), 0);
	RIG_UNTIL(&r, r.limbd_eof);
	rig_end(&r, 1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(put_together),
		cmocka_unit_test(packs_fill_meanwhile),
		cmocka_unit_test(others_pass),
		cmocka_unit_test(what_waits_is_bounded),
		cmocka_unit_test(refusals),
		cmocka_unit_test(aborted),
		cmocka_unit_test(lies),
		cmocka_unit_test(beyond_the_base),
		cmocka_unit_test(named_too_early),
		cmocka_unit_test(before_welcome),
		cmocka_unit_test(answers_that_nobody_asked_for),
	};

	return cmocka_run_group_tests(tests, setup, teardown);
}
