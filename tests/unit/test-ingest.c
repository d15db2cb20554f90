/* What an environment says of its files reaches limbd as entries, in order and once, with
 * its content in the pack byte for byte before the entry that names it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "tests/unit/ingest-rig.h"

/* The next operation of a change. */
static struct change_op next_op(struct entry_cursor *c)
{
	struct change_op op;

	assert_true(entry_next_op(c, &op));
	return op;
}

static void assert_content(struct rig *r, const struct content_ref *ref, const void *data, size_t n)
{
	uint8_t hash[SHA256_BYTES];
	struct buf b = BUF_INIT(0);

	sha256(data, n, hash);
	assert_int_equal(ref->size_bytes, n);
	assert_memory_equal(ref->sha256, hash, SHA256_BYTES);
	rig_content(r, ref, &b);
	if (n)
		assert_memory_equal(buf_data(&b), data, n);
	buf_done(&b);
}

static void hello_and_start_mark(void **state)
{
	char *argv[] = {(char *)rig_program(), NULL};
	Limbwire__Hello hello = LIMBWIRE__HELLO__INIT;
	const struct entry_hello *e;
	uint8_t id[32];
	struct rig r;

	rig_bytes(id, sizeof(id), 1);
	hello.protocol_min = 1;
	hello.protocol_max = 3;
	hello.capabilities = 1ull << 63;
	hello.syncd_version = (char *)"1.2\n\x1b[0m and more than thirty-five characters";
	hello.syncd_sha256 = (ProtobufCBinaryData){32, id};
	hello.environment_id = (ProtobufCBinaryData){16, id + 1};
	hello.boot_id = (ProtobufCBinaryData){16, id + 2};
	hello.mark = (ProtobufCBinaryData){16, id + 3};
	hello.shadow_incarnation = 4;
	hello.shadow_number = 5;
	hello.self_uid = 1000;
	hello.root_empty = true;

	rig_spawn_with(&r, argv);
	assert_int_equal(buf_add_str(&r.to_wire, "Welcome to this shell!\r\n"), 0);
	assert_int_equal(buf_add(&r.to_wire, WIRE_START, WIRE_START_BYTES), 0);
	rig_say(&r, WIRE_HELLO, &hello.base, NULL, 0);
	e = rig_entry(&r, ENTRY_HELLO);
	assert_int_equal(e->protocol_max, 3);
	assert_true(e->capabilities == 1ull << 63);
	assert_memory_equal(e->syncd_sha256, id, 32);
	assert_memory_equal(e->environment_id, id + 1, 16);
	assert_memory_equal(e->boot_id, id + 2, 16);
	assert_memory_equal(e->mark, id + 3, 16);
	assert_int_equal(e->has_mark, 1);
	assert_int_equal(e->shadow_incarnation, 4);
	assert_int_equal(e->shadow_number, 5);
	assert_int_equal(e->self_uid, 1000);
	assert_int_equal(e->root_empty, 1);
	assert_int_equal(e->root_missing, 0);
	assert_string_equal(e->syncd_version, "1.2??[0m?and?more?than?thirty-five?");
	RIG_UNTIL(&r, buf_len(&r.from_wire) >= WIRE_START_BYTES);
	assert_memory_equal(buf_data(&r.from_wire), WIRE_START, WIRE_START_BYTES);
	rig_hang_up(&r);
}

static void a_change_with_each_operation(void **state)
{
	Limb__Xattr x = LIMB__XATTR__INIT, *xs[] = {&x};
	const struct entry_change *e;
	struct entry_cursor c;
	struct rig_change w;
	struct change_op op;
	struct rig r;
	size_t i;

	rig_start(&r);
	rig_change_init(&r, &w);
	w.change.job = (char *)"j-7";
	w.change.time_ns = -5;
	w.change.base_seq = 99;
	i = rig_add_inline(&w, 10, "hello", 5);
	rig_set_name(&x.name, "user.x");
	rig_set_name(&x.value, "v");
	w.attrs[i].xattrs = xs;
	w.attrs[i].n_xattrs = 1;
	w.attrs[i].mtime_ns = INT64_MIN;
	w.ops[i].base_version = 3;
	i = rig_add_op(&w, LIMB__OP_KIND__OP_PUT); /* a link */
	w.ops[i].node = 11;
	w.ops[i].attr = &w.attrs[i];
	w.attrs[i].type = LIMB__NODE_TYPE__NODE_SYMLINK;
	rig_set_name(&w.attrs[i].target, "../elsewhere");
	i = rig_add_op(&w, LIMB__OP_KIND__OP_PUT); /* attributes alone */
	w.ops[i].node = 12;
	w.ops[i].attr = &w.attrs[i];
	w.attrs[i].type = LIMB__NODE_TYPE__NODE_FILE;
	w.attrs[i].mode = 07777;
	(void)rig_add_link(&w, 1, "name \xff of bytes", 10);
	i = rig_add_op(&w, LIMB__OP_KIND__OP_UNLINK);
	w.ops[i].parent = 1;
	w.ops[i].evidence = LIMB__EVIDENCE__EVIDENCE_REPLACED;
	rig_set_name(&w.ops[i].name, "gone");
	i = rig_add_op(&w, LIMB__OP_KIND__OP_MOVE);
	w.ops[i].parent = 1;
	w.ops[i].to_parent = 2;
	rig_set_name(&w.ops[i].name, "old");
	rig_set_name(&w.ops[i].to_name, "new");
	(void)rig_add_inline(&w, 13, "", 0);
	(void)rig_add_inline(&w, 14, "world", 5);
	rig_say_change(&r, &w);

	e = rig_change_entry(&r, 1);
	assert_string_equal(e->job, "j-7");
	assert_true(e->time_ns == -5 && e->base_seq == 99 && e->n_ops == 8);
	entry_cursor_init(&c, &e->head);
	op = next_op(&c);
	assert_true(op.kind == CHANGE_PUT && op.node == 10 && op.base_version == 3 &&
		    op.has_content && op.attr.mtime_ns == INT64_MIN && op.attr.mode == 0644);
	assert_int_equal(op.attr.xattrs_len, 2 + 6 + 4 + 1);
	assert_memory_equal(op.attr.xattrs, "\x06\0user.x\1\0\0\0v", 13);
	assert_content(&r, &op.attr.content, "hello", 5);
	op = next_op(&c);
	assert_true(op.node == 11 && op.attr.type == NODE_TYPE_SYMLINK && !op.has_content);
	assert_int_equal(op.attr.target_len, 12);
	assert_memory_equal(op.attr.target, "../elsewhere", 12);
	op = next_op(&c);
	assert_true(op.node == 12 && !op.has_content && op.attr.mode == 07777);
	op = next_op(&c);
	assert_true(op.kind == CHANGE_LINK && op.parent == 1 && op.node == 10);
	assert_int_equal(op.name_len, 15);
	assert_memory_equal(op.name, "name \xff of bytes", 15);
	op = next_op(&c);
	assert_true(op.kind == CHANGE_UNLINK && op.evidence == EVIDENCE_REPLACED_);
	op = next_op(&c);
	assert_true(op.kind == CHANGE_MOVE && op.parent == 1 && op.to_parent == 2);
	assert_memory_equal(op.to_name, "new", 3);
	op = next_op(&c);
	assert_content(&r, &op.attr.content, "", 0);
	op = next_op(&c);
	assert_content(&r, &op.attr.content, "world", 5);
	assert_false(entry_next_op(&c, &op));
	rig_hang_up(&r);
}

/* Contents of all sizes around the limits of the format, by both ways. */

#define BIG_BYTES (5u << 20)

static int drop_piece(enum frame_kind kind, const uint8_t hash[SHA256_BYTES], const void *data,
		      size_t n, void *userdata)
{
	return 0;
}

/* The reference is the one that FORMAT 5 gives this content, however it came. */
static void assert_ref(const struct content_ref *ref, const uint8_t *data, size_t n, size_t hole_at,
		       size_t hole)
{
	struct content_writer *w;
	struct content_ref want;

	assert_int_equal(content_writer_new(drop_piece, NULL, &w), 0);
	content_writer_begin(w);
	assert_int_equal(content_writer_data(w, data, hole ? hole_at : n), 0);
	if (hole) {
		assert_int_equal(content_writer_hole(w, hole), 0);
		assert_int_equal(content_writer_data(w, data + hole_at + hole, n - hole_at - hole),
				 0);
	}
	assert_int_equal(content_writer_end(w, &want), 0);
	content_writer_free(w);
	assert_int_equal(ref->depth, want.depth);
	assert_int_equal(ref->holes, want.holes);
	assert_memory_equal(ref->root, want.root, SHA256_BYTES);
}

static size_t hole_before(size_t at, size_t size)
{
	return size > (1 << 20) && at == (300 << 10) ? 700 << 10 : 0;
}

/* As a stream in pieces, with a hole where the file has one: data is zeros there. */
static void say_stream(struct rig *r, uint32_t stream, const uint8_t *data, size_t n, size_t piece)
{
	size_t at = 0;

	do {
		size_t hole = hole_before(at, n), part = MIN(n - at, piece);

		if (at < (300u << 10))
			part = MIN(part, (300u << 10) - at);
		if (hole)
			part = hole;
		rig_say_data(r, stream, at, hole ? NULL : data + at, hole ? 0 : part, hole,
			     at + part == n);
		at += part;
	} while (at < n);
}

static void what_is_in_the_pack_is_what_was_sent(void **state)
{
	static const size_t sizes[] = {0,	  1,	   7,	      4096,	 (64 << 10) - 1,
				       64 << 10,  65537,   256 << 10, (1 << 20), 1 << 17,
				       (3 << 20), 1500000, BIG_BYTES};
	static const size_t pieces[] = {1 << 20, 100000, 4097};
	uint8_t *data = malloc(BIG_BYTES);
	struct rig r;

	assert_non_null(data);
	rig_start(&r);
	for (size_t i = 0; i < ARRAY_SIZE(sizes); i++) {
		for (size_t k = 0; k <= ARRAY_SIZE(pieces); k++) {
			bool stream = k < ARRAY_SIZE(pieces);
			const struct entry_change *e;
			struct entry_cursor c;
			struct rig_change w;
			struct change_op op;
			size_t n = sizes[i];

			if (!stream && n > WIRE_BULK_MAX)
				continue;
			rig_bytes(data, n, i * 100 + k);
			/* Half of them compress, and the hole is one. */
			for (size_t at = 0; i % 2 && at < n; at += 2)
				data[at] = 'x';
			if (stream && hole_before(300 << 10, n))
				memset(data + (300 << 10), 0, 700 << 10);
			rig_change_init(&r, &w);
			if (stream) {
				say_stream(&r, 9, data, n, pieces[k]);
				w.wops[rig_add_file(&w, 10, data, n)].stream = 9;
			} else {
				(void)rig_add_inline(&w, 10, data, n);
			}
			rig_say_change(&r, &w);
			e = rig_change_entry(&r, r.number);
			entry_cursor_init(&c, &e->head);
			op = next_op(&c);
			assert_ref(&op.attr.content, data, n, 300 << 10,
				   stream ? hole_before(300 << 10, n) : 0);
			assert_content(&r, &op.attr.content, data, n);
		}
	}
	rig_hang_up(&r);
	free(data);
}

static void streams_side_by_side(void **state)
{
	const size_t n = 200000;
	uint8_t *data = malloc(8 * n);
	const struct entry_change *e;
	struct entry_cursor c;
	struct rig_change w;
	struct rig r;

	assert_non_null(data);
	rig_bytes(data, 8 * n, 3);
	rig_start(&r);
	rig_change_init(&r, &w);
	for (size_t at = 0; at < n; at += 10000)
		for (uint32_t s = 0; s < 8; s++)
			rig_say_data(&r, 100 + s, at, data + s * n + at, 10000, 0, at + 10000 == n);
	/* Used in another order than they came in. */
	for (uint32_t s = 8; s-- > 0;)
		w.wops[rig_add_file(&w, 10 + s, data + s * n, n)].stream = 100 + s;
	rig_say_change(&r, &w);
	e = rig_change_entry(&r, 1);
	entry_cursor_init(&c, &e->head);
	for (uint32_t s = 8; s-- > 0;) {
		struct change_op op = next_op(&c);

		assert_content(&r, &op.attr.content, data + s * n, n);
	}
	rig_hang_up(&r);
	free(data);
}

static void a_stream_that_was_given_up_is_forgotten(void **state)
{
	Limbwire__Data abort_it = LIMBWIRE__DATA__INIT;
	const struct entry_change *e;
	struct entry_cursor c;
	struct rig_change w;
	struct change_op op;
	struct rig r;

	rig_start(&r);
	abort_it.abort = true;
	abort_it.stream = 77; /* of the connection before */
	rig_say(&r, WIRE_DATA, &abort_it.base, NULL, 0);
	/* More often than streams may be open, ended or not. */
	for (uint32_t i = 1; i < 200; i++) {
		rig_say_data(&r, i, 0, "half", 4, 0, i % 2);
		abort_it.stream = i;
		rig_say(&r, WIRE_DATA, &abort_it.base, NULL, 0);
	}
	rig_say_data(&r, 5, 0, "whole", 5, 0, true);
	rig_change_init(&r, &w);
	w.wops[rig_add_file(&w, 10, "whole", 5)].stream = 5;
	rig_say_change(&r, &w);
	e = rig_change_entry(&r, 1);
	entry_cursor_init(&c, &e->head);
	op = next_op(&c);
	assert_content(&r, &op.attr.content, "whole", 5);
	rig_hang_up(&r);
}

static void known_content_is_not_stored_again(void **state)
{
	const struct entry_change *e;
	struct entry_cursor c;
	struct rig_change w;
	struct change_op op;
	struct rig r;
	size_t places;

	rig_start(&r);
	rig_seed(&r, "seeded", 6);
	/* The seed is read before the change: they come on different descriptors. */
	rig_change_init(&r, &w);
	(void)rig_add_inline(&w, 10, "twice", 5);
	(void)rig_add_inline(&w, 11, "twice", 5);
	rig_say_change(&r, &w);
	(void)rig_change_entry(&r, 1);
	assert_int_equal(r.n_places, 1);
	places = r.n_places;

	rig_change_init(&r, &w);
	(void)rig_add_inline(&w, 12, "twice", 5);
	(void)rig_add_inline(&w, 13, "seeded", 6);
	rig_say_change(&r, &w);
	e = rig_change_entry(&r, 2);
	assert_int_equal(r.n_places, places);
	entry_cursor_init(&c, &e->head);
	op = next_op(&c);
	assert_content(&r, &op.attr.content, "twice", 5);
	rig_hang_up(&r);
}

static void small_contents_share_a_frame(void **state)
{
	uint8_t data[CHANGE_OPS_MAX][900];
	struct rig_change w;
	struct rig r;

	rig_bytes(&data[0][0], sizeof(data), 5);
	rig_start(&r);
	rig_change_init(&r, &w);
	for (size_t i = 0; i < CHANGE_OPS_MAX; i++)
		(void)rig_add_inline(&w, 10 + i, data[i], sizeof(data[i]));
	rig_say_change(&r, &w);
	(void)rig_change_entry(&r, 1);
	assert_int_equal(r.n_places, CHANGE_OPS_MAX);
	assert_int_equal(r.places_entries, 1);
	rig_hang_up(&r);
}

static void numbers_sent_again_are_not_repeated(void **state)
{
	struct entry_start start = {.durable_number = 5};
	struct entry_send send = {.len = 7};
	struct rig r;

	rig_start_without_pack(&r);
	rig_tell(&r, ENTRY_START, &start, sizeof(start), NULL, 0);
	rig_pack(&r, PACK_SEAL_BYTES);
	/* HELLO was read before START: ask for a sign that START was, too. */
	RIG_UNTIL(&r, buf_len(&r.from_wire) >= WIRE_START_BYTES);
	rig_tell(&r, ENTRY_SEND, &send, sizeof(send), "a frame", 7);
	RIG_UNTIL(&r, buf_len(&r.from_wire) > WIRE_START_BYTES);

	for (r.number = 3; r.number < 8;)
		rig_say_small(&r, "text");
	(void)rig_change_entry(&r, 6);
	(void)rig_change_entry(&r, 7);
	(void)rig_change_entry(&r, 8);
	/* A later WELCOME of the same incarnation knows less than what came since. */
	rig_tell(&r, ENTRY_START, &start, sizeof(start), NULL, 0);
	for (r.number = 6; r.number < 9;)
		rig_say_small(&r, "text");
	(void)rig_change_entry(&r, 9);
	rig_hang_up(&r);
}

static void without_a_pack_content_waits(void **state)
{
	Limbwire__Status status = LIMBWIRE__STATUS__INIT;
	struct rig r;

	rig_start_without_pack(&r);
	rig_say(&r, WIRE_STATUS, &status.base, NULL, 0);
	rig_say_small(&r, "waits");
	rig_say(&r, WIRE_STATUS, &status.base, NULL, 0);
	(void)rig_entry(&r, ENTRY_STATUS);
	rig_quiet(&r);
	rig_pack(&r, PACK_SEAL_BYTES);
	(void)rig_change_entry(&r, 1);
	(void)rig_entry(&r, ENTRY_STATUS);
	rig_hang_up(&r);
}

static void a_full_pack_is_followed_by_another(void **state)
{
	const size_t n = 300000;
	uint8_t *data = malloc(n);
	struct content_ref refs[6];
	const struct entry_pack_full *full;
	struct rig r;

	assert_non_null(data);
	rig_start_without_pack(&r);
	rig_pack(&r, 500000);
	for (unsigned i = 0; i < ARRAY_SIZE(refs); i++) {
		struct rig_change w;

		rig_bytes(data, n, i);
		rig_change_init(&r, &w);
		(void)rig_add_inline(&w, 10, data, n);
		rig_say_change(&r, &w);
	}
	for (unsigned i = 0; i < ARRAY_SIZE(refs); i++) {
		const struct entry_change *e = rig_change_entry(&r, i + 1);
		struct entry_cursor c;
		struct change_op op;

		entry_cursor_init(&c, &e->head);
		op = next_op(&c);
		refs[i] = op.attr.content;
		if (i % 2 == 1) {
			full = rig_entry(&r, ENTRY_PACK_FULL);
			assert_true(full->length == r.pack_end);
			assert_true(full->length >= 500000);
			rig_pack(&r, 500000);
		}
	}
	for (unsigned i = 0; i < ARRAY_SIZE(refs); i++) {
		rig_bytes(data, n, i);
		assert_content(&r, &refs[i], data, n);
	}
	rig_hang_up(&r);
	free(data);
}

/* What is held for its content keeps its place among what needs none. */
static void the_order_is_kept(void **state)
{
	Limbwire__BarrierDone done = LIMBWIRE__BARRIER_DONE__INIT;
	uint8_t data[1000];
	struct rig r;

	rig_start(&r);
	for (unsigned i = 1; i <= 500; i++) {
		struct rig_change w;

		rig_bytes(data, sizeof(data), i);
		rig_change_init(&r, &w);
		(void)rig_add_inline(&w, 10, data, sizeof(data));
		rig_say_change(&r, &w);
		done.request = i;
		rig_say(&r, WIRE_BARRIER_DONE, &done.base, NULL, 0);
	}
	for (unsigned i = 1; i <= 500; i++) {
		const struct entry_barrier_done *e;

		(void)rig_change_entry(&r, i);
		e = rig_entry(&r, ENTRY_BARRIER_DONE);
		assert_int_equal(e->request, i);
	}
	rig_hang_up(&r);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(hello_and_start_mark),
		cmocka_unit_test(a_change_with_each_operation),
		cmocka_unit_test(what_is_in_the_pack_is_what_was_sent),
		cmocka_unit_test(streams_side_by_side),
		cmocka_unit_test(a_stream_that_was_given_up_is_forgotten),
		cmocka_unit_test(known_content_is_not_stored_again),
		cmocka_unit_test(small_contents_share_a_frame),
		cmocka_unit_test(numbers_sent_again_are_not_repeated),
		cmocka_unit_test(without_a_pack_content_waits),
		cmocka_unit_test(a_full_pack_is_followed_by_another),
		cmocka_unit_test(the_order_is_kept),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
