/*
 * sync-brain.h - a brain in memory for tests of the sync half: implements
 * session.h's senders, applies every CHANGE to a tree of its own with each rule
 * of the journal checked, answers TREE_GET, and compares its tree with the root.
 *
 *	brain_start(&b, root path, private directory)
 *	... change things below the root ...
 *	brain_sync(&b)		a barrier
 *	brain_compare(&b)	fails the test unless tree and root are equal
 *	brain_stop(&b)
 */
#ifndef TESTS_UNIT_SYNC_BRAIN_H
#define TESTS_UNIT_SYNC_BRAIN_H

#include "tests/unit/sync-model.h"

/* ---- session.h ---- */

int session_send(struct session *s, enum session_class class, enum wire_type type,
		 const ProtobufCMessage *msg, const void *bulk, size_t bulk_len)
{
	struct brain *b = the_brain;
	size_t n = protobuf_c_message_get_packed_size(msg);
	cleanup_free uint8_t *packed = NULL;

	(void)s;
	(void)class;
	assert_true(n <= WIRE_BODY_MAX);
	assert_true(bulk_len <= WIRE_BULK_MAX);
	if (!b->attached || b->drop)
		return -ENOTCONN;
	packed = malloc(n + 1);
	(void)protobuf_c_message_pack(msg, packed);
	switch (type) {
	case WIRE_CHANGE: {
		Limbwire__WireChange *c = limbwire__wire_change__unpack(NULL, n, packed);

		brain_change(b, c, bulk, bulk_len);
		limbwire__wire_change__free_unpacked(c, NULL);
		if (b->changed)
			b->changed(b);
		break;
	}
	case WIRE_DATA: {
		Limbwire__Data *d = limbwire__data__unpack(NULL, n, packed);

		brain_take_data(b, d, bulk, bulk_len);
		limbwire__data__free_unpacked(d, NULL);
		break;
	}
	case WIRE_STATUS:
		b->statuses++;
		if (b->status)
			limbwire__status__free_unpacked(b->status, NULL);
		b->status = limbwire__status__unpack(NULL, n, packed);
		break;
	case WIRE_TREE_GET: {
		Limbwire__TreeGet *g = limbwire__tree_get__unpack(NULL, n, packed);

		b->tree_request = g->request;
		assert_int_equal(bulk_len % DIGEST_BYTES, 0);
		assert_true(b->trees || !bulk_len);
		free(b->hashes);
		b->hashes = bulk_len ? malloc(bulk_len) : NULL;
		b->n_hashes = bulk_len / DIGEST_BYTES;
		if (bulk_len)
			memcpy(b->hashes, bulk, bulk_len);
		limbwire__tree_get__free_unpacked(g, NULL);
		break;
	}
	case WIRE_TREE_PART:
		assert_true(b->n_parts < ARRAY_SIZE(b->parts));
		b->parts[b->n_parts++] = limbwire__tree_part__unpack(NULL, n, packed);
		break;
	case WIRE_ACCEPTED: {
		Limbwire__Done *d = limbwire__done__unpack(NULL, n, packed);

		b->answered = true;
		b->error = d->error;
		limbwire__done__free_unpacked(d, NULL);
		break;
	}
	default: break;
	}
	return 0;
}

int session_send_error(struct session *s, uint64_t request, int error, const char *detail)
{
	(void)s;
	(void)request;
	(void)detail;
	the_brain->answered = true;
	the_brain->error = error;
	return 0;
}

bool session_attached(const struct session *s)
{
	(void)s;
	return the_brain->attached;
}

bool session_takes_deltas(const struct session *s)
{
	(void)s;
	return the_brain->deltas;
}

bool session_has_trees(const struct session *s)
{
	(void)s;
	return the_brain->trees;
}

size_t session_queued(const struct session *s, enum session_class class)
{
	(void)s;
	return class == SESSION_BULK ? the_brain->queued : 0;
}

/* ---- TREE_GET from E ---- */

struct brain_answer {
	Limbwire__TreePart part;
	Limbwire__TreeEntry entries[256], *ptrs[256];
	struct wire_attr_scratch scratch[256];
	uint32_t number;
};

static inline void brain_answer_flush(struct brain *b, struct brain_answer *a, bool last)
{
	a->part.entries = a->ptrs;
	a->part.last = last;
	a->part.request = b->tree_request;
	sync_on_tree_part(b->sync, &a->part);
	a->part.n_entries = 0;
}

static inline void brain_answer_entry(struct brain *b, struct brain_answer *a, struct bnode *n,
				      const struct bname *e)
{
	size_t i = a->part.n_entries++;
	Limbwire__TreeEntry *m = &a->entries[i];

	limbwire__tree_entry__init(m);
	a->ptrs[i] = m;
	m->node = n->id;
	m->parent = e ? e->parent : 0;
	m->root = !e;
	if (e) {
		m->name.data = (uint8_t *)e->name;
		m->name.len = e->len;
	}
	a->number++;
	if (b->n_hashes) {
		m->same_as = n->names > 1;
	} else if (n->names > 1) {
		if (n->number)
			m->same_as = n->number;
		else
			n->number = a->number;
	}
	assert_int_equal(wire_attr_fill(&a->scratch[i], &n->n), 0);
	m->attr = &a->scratch[i].attr;
	if (n->n.type == NODE_TYPE_FILE)
		m->content = &a->scratch[i].content;
	m->had = n->had;
	b->tree_entries++;
	b->tree_had += n->had;
	if (a->part.n_entries == 256)
		brain_answer_flush(b, a, false);
}

static inline int brain_name_order(const void *x, const void *y)
{
	return strcmp((*(struct bname *const *)x)->name, (*(struct bname *const *)y)->name);
}

static inline size_t brain_children(const struct bnode *dir, struct bname ***ret)
{
	struct bname **list;
	size_t n = 0;

	for (struct bname *e = dir->children; e; e = e->next)
		n++;
	list = calloc(n + 1, sizeof(*list));
	n = 0;
	for (struct bname *e = dir->children; e; e = e->next)
		list[n++] = e;
	qsort(list, n, sizeof(*list), brain_name_order);
	*ret = list;
	return n;
}

static inline void brain_answer_dir(struct brain *b, struct brain_answer *a, struct bnode *dir)
{
	cleanup_free struct bname **list = NULL;
	size_t n = brain_children(dir, &list);

	for (size_t i = 0; i < n && !dir->had; i++) {
		brain_answer_entry(b, a, list[i]->node, list[i]);
		brain_answer_dir(b, a, list[i]->node);
	}
}

static inline int brain_digest_dir(struct digest *d, struct bnode *dir, size_t depth)
{
	cleanup_free struct bname **list = NULL;
	size_t n = brain_children(dir, &list);
	int r = 0;

	for (size_t i = 0; i < n && r == 0; i++) {
		uint8_t sha[SHA256_BYTES];
		struct digest_entry e;

		digest_of_node(list[i]->node->id, &list[i]->node->n, sha, &e);
		e.name = list[i]->name;
		e.name_len = (uint8_t)list[i]->len;
		r = digest_add(d, depth, &e);
		if (r == 0 && list[i]->node->n.type == NODE_TYPE_DIRECTORY)
			r = brain_digest_dir(d, list[i]->node, depth + 1);
	}
	return r;
}

static inline int brain_is_had(uint64_t dir, const uint8_t hash[DIGEST_BYTES], void *userdata)
{
	struct brain *b = userdata;

	for (size_t i = 0; i < b->n_hashes; i++)
		if (memcmp(b->hashes + i * DIGEST_BYTES, hash, DIGEST_BYTES) == 0)
			brain_node(b, dir)->had = true;
	return 0;
}

static inline void brain_find_had(struct brain *b)
{
	struct digest *d;

	for (unsigned h = 0; h < BRAIN_HASH; h++)
		for (struct bnode *n = b->nodes[h]; n; n = n->hash_next)
			n->had = false;
	b->tree_entries = b->tree_had = 0;
	if (!b->n_hashes)
		return;
	assert_int_equal(digest_new(NODE_ROOT, brain_is_had, b, &d), 0);
	assert_int_equal(brain_digest_dir(d, brain_node(b, NODE_ROOT), 0), 0);
	assert_int_equal(digest_end(d), 0);
	digest_free(d);
}

static inline void brain_answer_tree(struct brain *b)
{
	struct brain_answer *a = calloc(1, sizeof(*a));

	for (unsigned h = 0; h < BRAIN_HASH; h++)
		for (struct bnode *n = b->nodes[h]; n; n = n->hash_next)
			n->number = 0;
	brain_find_had(b);
	limbwire__tree_part__init(&a->part);
	brain_answer_entry(b, a, brain_node(b, NODE_ROOT), NULL);
	brain_answer_dir(b, a, brain_node(b, NODE_ROOT));
	brain_answer_flush(b, a, true);
	for (size_t i = 0; i < 256; i++)
		wire_attr_scratch_done(&a->scratch[i]);
	free(a);
	b->tree_request = 0;
}

/* ---- running ---- */

static inline void brain_tick(uv_timer_t *t)
{
	(void)t;
}

/* Of the newest content, or that it could not be made. */
static inline void brain_say_done(struct brain *b)
{
	Limbwire__DataDone m = LIMBWIRE__DATA_DONE__INIT;
	struct bstream *s = brain_stream(b, b->done_stream, false);

	m.stream = b->done_stream;
	b->done_stream = 0;
	if (!s)
		return;
	if (s->refused) {
		m.error = ENOENT;
		brain_drop_stream(b, m.stream);
	} else {
		m.size_bytes = s->at;
		m.sha256 = (ProtobufCBinaryData){32, b->known->sha};
	}
	sync_on_data_done(b->sync, &m);
}

/* One turn of the loop, and the brain's answers. */
static inline void brain_turn(struct brain *b)
{
	uv_run(&b->loop, UV_RUN_ONCE);
	if (b->tree_request && b->attached)
		brain_answer_tree(b);
	if (b->done_stream && b->attached)
		brain_say_done(b);
	if (!b->no_ack && b->attached && b->durable != b->number) {
		b->durable = b->number;
		sync_on_durable(b->sync, b->durable);
	}
}

static inline void brain_run_ms(struct brain *b, unsigned ms)
{
	uint64_t end = clock_mono_ms() + ms;

	while (clock_mono_ms() < end)
		brain_turn(b);
}

static inline void brain_attach(struct brain *b)
{
	Limbwire__Hello hello = LIMBWIRE__HELLO__INIT;
	Limbwire__Welcome w = LIMBWIRE__WELCOME__INIT;
	ProtobufCBinaryData ignore;

	assert_int_equal(sync_hello(b->sync, &hello), 0);
	b->attached = true;
	w.incarnation = b->incarnation;
	w.environment_id = (ProtobufCBinaryData){sizeof(b->env), b->env};
	w.durable_number = b->durable = b->number;
	w.node_first = b->node_first;
	w.node_end = 1ull << 40;
	w.mark.data = b->mark;
	w.mark.len = sizeof(b->mark);
	w.set_mark = b->set_mark;
	w.watch_limit = b->watch_limit;
	w.mode = b->hold ? LIMBWIRE__WELCOME__MODE__MODE_HOLD : LIMBWIRE__WELCOME__MODE__MODE_SYNC;
	if (b->restore)
		w.mode = LIMBWIRE__WELCOME__MODE__MODE_RESTORE;
	if (b->ignore) {
		ignore.data = (uint8_t *)b->ignore;
		ignore.len = strlen(b->ignore);
		w.ignore = &ignore;
		w.n_ignore = 1;
	}
	assert_int_equal(sync_welcome(b->sync, &w), 0);
	b->set_mark = false;
}

static inline void brain_detach(struct brain *b)
{
	b->attached = false;
	while (b->streams)
		brain_drop_stream(b, b->streams->id);
	sync_detached(b->sync);
}

static inline void brain_new_syncd(struct brain *b, const char *root, int dir)
{
	assert_int_equal(sync_new(&b->loop, NULL, root, dir, &b->sync), 0);
}

static inline void brain_init(struct brain *b)
{
	static const struct node root = {.type = NODE_TYPE_DIRECTORY, .mode = 0755};

	memset(b, 0, sizeof(*b));
	the_brain = b;
	assert_int_equal(uv_loop_init(&b->loop), 0);
	assert_int_equal(uv_timer_init(&b->loop, &b->timer), 0);
	assert_int_equal(uv_timer_start(&b->timer, brain_tick, 5, 5), 0);
	b->incarnation = 1;
	b->node_first = 16;
	random_bytes(b->mark, sizeof(b->mark));
	b->set_mark = true;
	brain_add_node(b, NODE_ROOT)->n = root;
}

static inline void brain_start(struct brain *b, const char *root, int dir)
{
	brain_init(b);
	brain_new_syncd(b, root, dir);
	brain_attach(b);
}

/* limb-syncd dies and another one begins with the same brain. */
static inline void brain_kill_syncd(struct brain *b)
{
	b->attached = false;
	while (b->streams)
		brain_drop_stream(b, b->streams->id);
	sync_free(b->sync);
	b->sync = NULL;
	for (int i = 0; i < 20; i++)
		uv_run(&b->loop, UV_RUN_NOWAIT);
	/* Ids of CHANGEs that were lost are not known here; the next range is fresh. */
	b->node_first += 1 << 20;
}

static inline void brain_stop(struct brain *b)
{
	if (b->sync)
		brain_kill_syncd(b);
	while (brain_node(b, NODE_ROOT)->children)
		brain_remove(b, brain_node(b, NODE_ROOT)->children);
	brain_drop_node(b, brain_node(b, NODE_ROOT));
	assert_int_equal(b->n_nodes, 0);
	if (b->status)
		limbwire__status__free_unpacked(b->status, NULL);
	for (size_t i = 0; i < b->n_parts; i++)
		limbwire__tree_part__free_unpacked(b->parts[i], NULL);
	brain_forget_all(b);
	free(b->hashes);
	uv_close((uv_handle_t *)&b->timer, NULL);
	uv_run(&b->loop, UV_RUN_DEFAULT);
	assert_int_equal(uv_loop_close(&b->loop), 0);
	the_brain = NULL;
}

static inline void brain_barrier_done(const struct sync_result *res, void *userdata)
{
	struct brain *b = userdata;

	b->done = true;
	b->result = *res;
	b->result.unsettled = NULL;
	b->unsettled[0] = '\0';
	for (size_t i = 0; i < res->n_unsettled; i++) {
		strncat(b->unsettled, (char *)res->unsettled[i].path.data,
			sizeof(b->unsettled) - strlen(b->unsettled) - 2);
		strncat(b->unsettled, " ", 2);
	}
}

static inline void brain_barrier(struct brain *b, uint64_t since, uint32_t settle_ms,
				 uint32_t deadline_ms)
{
	b->done = false;
	assert_int_equal(
		sync_barrier(b->sync, since, settle_ms, deadline_ms, brain_barrier_done, b), 0);
	while (!b->done)
		brain_turn(b);
	if (b->result.error == 0)
		assert_true(b->number >= b->result.number);
}

/* Until the tree has been asked for and answered: a barrier before fails at once. */
static inline void brain_wait_running(struct brain *b)
{
	for (int i = 0; i < 100; i++)
		brain_turn(b);
}

static inline void brain_sync(struct brain *b)
{
	for (int i = 0; i < 500; i++) {
		brain_barrier(b, 0, 0, 60 * 1000);
		if (b->result.error != ENOTCONN)
			break;
		brain_turn(b);
	}
	assert_int_equal(b->result.error, 0);
	assert_string_equal(b->unsettled, "");
}

static inline void brain_wait_reason(struct brain *b, const char *code)
{
	for (int i = 0; i < 2000 && !brain_has_reason(b, code); i++)
		brain_turn(b);
	assert_true(brain_has_reason(b, code));
}

#endif
