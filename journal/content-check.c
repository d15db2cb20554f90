#include "journal/content-check.h"

#include <inttypes.h>
#include <stdio.h>

#include "base/file.h"
#include "base/text.h"
#include "journal/body.h"
#include "journal/content.h"
#include "journal/log-report.h"
#include "journal/segment.h"
#include "journal/store.h"

enum {
	OWNERS_MAX = 1 << 16,
	SLOTS_FIRST = 1024, /* a power of two */
};

struct item {
	struct content_ref ref;
	uint64_t seq; /* the first record that names it */
};

struct content_check {
	struct item *items;
	size_t n, cap;
	size_t *slots; /* index + 1, 0 = free */
	size_t n_slots;
	struct store **stores;
	size_t n_stores;
	struct log_notes notes;
	struct log_place place; /* of the pack that is looked at */
};

int content_check_new(struct content_check **ret)
{
	struct content_check *c = calloc(1, sizeof(*c));

	if (!c)
		return -ENOMEM;
	*ret = c;
	return 0;
}

void content_check_free(struct content_check *c)
{
	if (!c)
		return;
	for (size_t i = 0; i < c->n_stores; i++)
		store_close(c->stores[i]);
	free(c->stores);
	free(c->items);
	free(c->slots);
	free(c);
}

/* ---- the set of contents ---- */

static bool same(const struct content_ref *a, const struct content_ref *b)
{
	return a->size_bytes == b->size_bytes && a->depth == b->depth &&
	       memcmp(a->sha256, b->sha256, SHA256_BYTES) == 0 &&
	       memcmp(a->root, b->root, SHA256_BYTES) == 0;
}

static size_t *find_slot(struct content_check *c, const struct content_ref *ref)
{
	size_t i = (size_t)get_le64(ref->sha256);

	for (;; i++) {
		size_t *slot = &c->slots[i & (c->n_slots - 1)];

		if (*slot == 0 || same(&c->items[*slot - 1].ref, ref))
			return slot;
	}
}

/* Half of the slots stay free. */
static int grow(struct content_check *c)
{
	struct item *items;
	size_t *slots;

	if (c->n < c->cap)
		return 0;
	c->cap = c->cap ? c->cap * 2 : SLOTS_FIRST / 2;
	items = reallocarray(c->items, c->cap, sizeof(*items));
	if (!items)
		return -ENOMEM;
	c->items = items;
	slots = calloc(c->cap * 2, sizeof(*slots));
	if (!slots)
		return -ENOMEM;
	free(c->slots);
	c->slots = slots;
	c->n_slots = c->cap * 2;
	for (size_t i = 0; i < c->n; i++)
		*find_slot(c, &c->items[i].ref) = i + 1;
	return 0;
}

static int add(struct content_check *c, const struct content_ref *ref, uint64_t seq)
{
	size_t *slot;
	int r;

	r = grow(c);
	if (r < 0)
		return r;
	slot = find_slot(c, ref);
	if (*slot != 0)
		return 0;
	c->items[c->n++] = (struct item){.ref = *ref, .seq = seq};
	*slot = c->n;
	return 0;
}

int content_check_record(const struct log_record *rec, void *check)
{
	struct content_check *c = check;
	_cleanup_(arena_done) struct arena arena = ARENA_INIT(0);
	struct change change;
	Limb__Record *m;
	int r;

	if (rec->type != RECORD_CHANGE || !rec->body)
		return 0;
	r = body_unpack(&arena, rec->body, rec->n, &m);
	if (r >= 0)
		r = body_to_change(&arena, m, &change);
	if (r == -EBADMSG)
		return 0; /* the chain says that it was written so */
	if (r < 0)
		return r;
	for (size_t i = 0; i < change.n_ops; i++) {
		const struct change_op *op = &change.ops[i];

		if (op->kind != CHANGE_PUT || !op->has_content || op->attr.content.size_bytes == 0)
			continue;
		r = add(c, &op->attr.content, rec->seq);
		if (r < 0)
			return r;
	}
	return 0;
}

/* ---- against the stores ---- */

static int fetch(const uint8_t hash[SHA256_BYTES], struct buf *out, void *userdata)
{
	struct content_check *c = userdata;
	int r = -ENOENT;

	for (size_t i = 0; i < c->n_stores && r == -ENOENT; i++)
		r = store_fetch(c->stores[i], hash, out);
	return r;
}

/* That the bytes fit the hash is seen when the packs are read. */
static int look_up(const uint8_t *hash, uint64_t offset, uint64_t len, void *userdata)
{
	struct content_check *c = userdata;
	struct store_place place;
	int r = -ENOENT;

	(void)offset;
	if (!hash)
		return 0;
	for (size_t i = 0; i < c->n_stores && r == -ENOENT; i++)
		r = store_lookup(c->stores[i], hash, &place);
	if (r < 0)
		return r;
	return place.len == len ? 0 : -EBADMSG;
}

static int look_at(struct content_check *c, const struct content_ref *ref)
{
	if (ref->depth == 0)
		return look_up(ref->sha256, 0, ref->size_bytes, c);
	return content_walk(ref, fetch, c, look_up, c);
}

/* The name of the segment that holds the record. */
static void place_of(const uint64_t *firsts, size_t n, uint64_t seq, struct log_place *ret)
{
	size_t i = 0;

	*ret = (struct log_place){.segment = ""};
	while (i + 1 < n && firsts[i + 1] <= seq)
		i++;
	if (n > 0)
		segment_name(ret->segment, firsts[i]);
}

static int check_items(struct content_check *c, int log_fd)
{
	cleanup_free uint64_t *firsts = NULL;
	char hex[2 * SHA256_BYTES + 1];
	size_t n = 0;
	int r;

	r = segment_list(log_fd, &firsts, &n);
	if (r < 0)
		return r;
	for (size_t i = 0; i < c->n; i++) {
		const struct item *item = &c->items[i];
		struct log_place place;

		r = look_at(c, &item->ref);
		if (r == -ENOMEM)
			return r;
		if (r >= 0)
			continue;
		place_of(firsts, n, item->seq, &place);
		text_hex(hex, item->ref.sha256, SHA256_BYTES);
		r = log_notes_problem(&c->notes, LOG_PROBLEM_CONTENT, &place, item->seq,
				      "content sha256:%s of record %" PRIu64 " is %s", hex,
				      item->seq, r == -ENOENT ? "not there" : "damaged");
		if (r < 0)
			return r;
	}
	return 0;
}

static void bad_frame(const char *pack, uint64_t offset, const uint8_t *hash, int error,
		      void *userdata)
{
	struct content_check *c = userdata;
	struct log_place place = {.offset = offset};
	char hex[2 * SHA256_BYTES + 1] = "";

	(void)snprintf(place.segment, sizeof(place.segment), "%s", pack);
	if (hash)
		text_hex(hex, hash, SHA256_BYTES);
	(void)log_notes_problem(&c->notes, LOG_PROBLEM_CONTENT, &place, 0,
				hash		   ? "content sha256:%s in this pack is damaged"
				: error == -ENOENT ? "the pack is not there%s"
						   : "the pack is damaged here%s",
				hex);
}

static int open_store(struct content_check *c, int store_fd, const char *owner)
{
	cleanup_close int fd = -1;
	int r;

	fd = file_open_dir(store_fd, owner);
	if (fd == -ENOTDIR || fd == -ELOOP)
		return 0;
	if (fd < 0)
		return fd;
	r = store_open(fd, STORE_COPY, &c->stores[c->n_stores]);
	if (r < 0)
		return r;
	c->n_stores++;
	return store_check(c->stores[c->n_stores - 1], bad_frame, c);
}

int content_check_run(struct content_check *c, int store_fd, int log_fd, struct log_report *report)
{
	char **owners;
	size_t n;
	int r;

	c->notes = (struct log_notes){.report = report};
	r = file_list(store_fd, ".", OWNERS_MAX, &owners, &n);
	if (r < 0)
		return r;
	c->stores = calloc(n + 1, sizeof(*c->stores));
	if (!c->stores)
		r = -ENOMEM;
	for (size_t i = 0; r >= 0 && i < n; i++)
		r = open_store(c, store_fd, owners[i]);
	file_names_free(owners, n);
	return r < 0 ? r : check_items(c, log_fd);
}
