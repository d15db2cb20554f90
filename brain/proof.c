#include "brain/proof.h"

#include <pthread.h>

#include "brain/commit.h"
#include "brain/link.h"
#include "journal/content.h"
#include "journal/pack.h"
#include "wire/wire.pb-c.h"

enum {
	AHEAD_MAX = 4096, /* places that one check takes */
	ENTRIES_MAX = 256,
};

/* A key is 8 bytes of a hash, changed by a secret of this line: to make two agree takes 2^63
 * contents.  Its lowest bit says whether the entry was taken. 0 is a free slot. */
#define TAKEN 1u

struct set {
	uint64_t *slots;
	size_t n, size; /* size: a power of 2, or 0 */
};

struct proof {
	uint8_t secret[SHA256_BYTES];
	pthread_mutex_t lock; /* of the set: a thread looks into it, too */
	struct set set;
	struct check *check; /* under way */
	size_t ahead;	     /* entries that hold, not yet taken */
	int result;	     /* of the one behind them */
	bool gone;	     /* freed when the check that is under way is over */
};

/* Lent to a thread. */
struct check {
	uv_work_t work;
	struct proof *proof;
	struct env *env;
	struct store *store;
	uint8_t pack_id[16];
	struct entry_place *places;
	size_t n;
	size_t ends[ENTRIES_MAX]; /* of the entries, in places */
	size_t n_ends, n_good;
	int result;
};

/* ---- the set ---- */

static uint64_t key_of(const uint8_t secret[SHA256_BYTES], const uint8_t hash[SHA256_BYTES])
{
	uint8_t both[2 * SHA256_BYTES], out[SHA256_BYTES];
	uint64_t key;

	memcpy(both, secret, SHA256_BYTES);
	memcpy(both + SHA256_BYTES, hash, SHA256_BYTES);
	sha256(both, sizeof(both), out);
	key = get_le64(out) & ~(uint64_t)TAKEN;
	return key ? key : 2;
}

/* Its slot, or the free one where it would be. */
static uint64_t *set_slot(const struct set *s, uint64_t key)
{
	size_t i = key / 2 & (s->size - 1);

	while (s->slots[i] && (s->slots[i] | TAKEN) != (key | TAKEN))
		i = (i + 1) & (s->size - 1);
	return &s->slots[i];
}

static int set_grow(struct set *s)
{
	struct set more = {.size = s->size ? s->size * 2 : 256, .n = s->n};

	more.slots = calloc(more.size, sizeof(*more.slots));
	if (!more.slots)
		return -ENOMEM;
	for (size_t i = 0; i < s->size; i++)
		if (s->slots[i])
			*set_slot(&more, s->slots[i]) = s->slots[i];
	free(s->slots);
	*s = more;
	return 0;
}

/* A key that was taken stays so. */
static int set_add(struct set *s, uint64_t key)
{
	uint64_t *slot;
	int r;

	if (s->n * 4 >= s->size * 3) {
		r = set_grow(s);
		if (r < 0)
			return r;
	}
	slot = set_slot(s, key);
	s->n += *slot == 0;
	*slot |= key;
	return 0;
}

static uint64_t proven(struct proof *p, uint64_t key)
{
	uint64_t has;

	(void)pthread_mutex_lock(&p->lock);
	has = p->set.size ? *set_slot(&p->set, key) : 0;
	(void)pthread_mutex_unlock(&p->lock);
	return has;
}

static int prove(struct proof *p, uint64_t key)
{
	int r;

	(void)pthread_mutex_lock(&p->lock);
	r = set_add(&p->set, key);
	(void)pthread_mutex_unlock(&p->lock);
	return r;
}

/* ---- the thread ---- */

/* A list names contents, or holes, of which the hash is zeros. */
static bool list_ok(const struct check *c, const uint8_t *p, size_t n)
{
	static const uint8_t hole[SHA256_BYTES];

	if (n % CONTENT_LIST_ENTRY_BYTES)
		return false;
	for (; n > 0; p += CONTENT_LIST_ENTRY_BYTES, n -= CONTENT_LIST_ENTRY_BYTES)
		if (memcmp(p, hole, SHA256_BYTES) != 0 &&
		    !proven(c->proof, key_of(c->proof->secret, p)))
			return false;
	return true;
}

static int check_member(struct check *c, const struct entry_place *place,
			const struct frame_member *m, const uint8_t *bytes)
{
	uint8_t hash[SHA256_BYTES];

	if (m->len != place->len || m->kind != place->kind)
		return -EBADMSG;
	sha256(bytes, m->len, hash);
	if (memcmp(hash, place->hash, SHA256_BYTES) != 0)
		return -EBADMSG;
	if (m->kind == FRAME_LIST && !list_ok(c, bytes, m->len))
		return -EBADMSG;
	return prove(c->proof, key_of(c->proof->secret, hash));
}

/* The places from *at on, of an entry that ends at `end`, that are in one frame: its members,
 * in their order. */
static int check_frame(struct check *c, int fd, struct buf *raw, size_t *at, size_t end)
{
	cleanup_free struct frame_member *members = NULL;
	uint64_t offset = c->places[*at].offset;
	size_t n, used = 0;
	int r;

	buf_clear(raw);
	r = frame_read(fd, offset, raw, &members, &n);
	if (r < 0)
		return r;
	for (size_t i = 0; i < n && r == 0; i++, (*at)++) {
		const struct entry_place *place = &c->places[*at];

		if (*at == end || place->offset != offset ||
		    memcmp(place->hash, members[i].hash, SHA256_BYTES) != 0)
			return -EBADMSG;
		r = check_member(c, place, &members[i], buf_data(raw) + used);
		used += members[i].len;
	}
	return r;
}

static int check_entries(struct check *c)
{
	_cleanup_(buf_done) struct buf raw = BUF_INIT(FRAME_RAW_MAX);
	cleanup_close int fd = -1;
	size_t at = 0;
	int r = 0;

	fd = store_pack_read(c->store, c->pack_id);
	if (fd < 0)
		return fd;
	for (; c->n_good < c->n_ends; c->n_good++) {
		while (r == 0 && at < c->ends[c->n_good])
			r = check_frame(c, fd, &raw, &at, c->ends[c->n_good]);
		if (r < 0)
			break;
	}
	return r;
}

static void check_work(uv_work_t *w)
{
	struct check *c = container_of(w, struct check, work);

	c->result = check_entries(c);
}

/* ---- the loop ---- */

static void check_free(struct check *c)
{
	if (!c)
		return;
	free(c->places);
	free(c);
}

static void proof_free_now(struct proof *p)
{
	free(p->set.slots);
	(void)pthread_mutex_destroy(&p->lock);
	free(p);
}

static void check_done(uv_work_t *w, int status)
{
	struct check *c = container_of(w, struct check, work);
	struct proof *p = c->proof;
	struct env *env = c->env;

	(void)status;
	env->brain->pack_works--;
	env->threads--;
	p->check = NULL;
	p->ahead += c->n_good;
	p->result = c->result;
	check_free(c);
	if (p->gone)
		proof_free_now(p);
	else
		link_resume(env);
}

static int check_add(struct check *c, const struct entry_places *e)
{
	struct entry_place *places = reallocarray(c->places, c->n + e->n + 1, sizeof(*places));

	if (!places)
		return -ENOMEM;
	c->places = places;
	memcpy(places + c->n, entry_tail(e), e->n * sizeof(*places));
	c->n += e->n;
	c->ends[c->n_ends++] = c->n;
	return 0;
}

/* Its entries are gathered: those in one pack. Returns the bytes that were looked at. */
static size_t check_gather(struct check *c, const uint8_t *bytes, size_t n)
{
	size_t at = 0;
	const char *why;
	ssize_t whole;

	while (c->n < AHEAD_MAX && c->n_ends < ENTRIES_MAX &&
	       (whole = entry_whole(bytes + at, n - at)) > 0) {
		const struct entry_head *e = (const void *)(bytes + at);

		if (e->type == ENTRY_PACK_FULL)
			break;
		if (e->type == ENTRY_PLACES &&
		    (entry_check(e, &why) < 0 || check_add(c, (const struct entry_places *)e) < 0))
			break;
		at += (size_t)whole;
	}
	return at;
}

static int check_start(struct check *c, struct proof *p, struct env *env)
{
	int r;

	c->proof = p;
	c->env = env;
	c->store = env->brain->store;
	r = commit_pack_id(env, c->pack_id);
	if (r == 0)
		r = uv_queue_work(env->brain->loop, &c->work, check_work, check_done);
	if (r < 0)
		return r;
	env->brain->pack_works++;
	env->threads++;
	p->check = c;
	return 0;
}

size_t proof_ahead(struct proof *p, struct env *env, const uint8_t *bytes, size_t n)
{
	struct check *c;
	size_t looked;

	if (p->check || p->result < 0 || n == 0)
		return 0;
	c = calloc(1, sizeof(*c));
	if (!c) {
		p->result = -ENOMEM;
		return 0;
	}
	looked = check_gather(c, bytes, n);
	if (c->n_ends)
		p->result = check_start(c, p, env);
	if (!p->check)
		check_free(c);
	return looked;
}

int proof_places(struct proof *p, const struct entry_places *e)
{
	const struct entry_place *places = entry_tail(e);
	int r = 0;

	if (!p->ahead)
		return p->result;
	p->ahead--;
	for (size_t i = 0; i < e->n && r == 0; i++)
		r = prove(p, key_of(p->secret, places[i].hash) | TAKEN);
	return r < 0 ? r : 1;
}

int proof_add(struct proof *p, const uint8_t hash[SHA256_BYTES])
{
	return prove(p, key_of(p->secret, hash) | TAKEN);
}

bool proof_has(struct proof *p, const uint8_t hash[SHA256_BYTES])
{
	return proven(p, key_of(p->secret, hash)) & TAKEN;
}

int proof_new(struct proof **ret)
{
	struct proof *p = calloc(1, sizeof(*p));

	if (!p)
		return -ENOMEM;
	random_bytes(p->secret, sizeof(p->secret));
	(void)pthread_mutex_init(&p->lock, NULL);
	*ret = p;
	return 0;
}

void proof_free(struct proof *p)
{
	if (p && p->check)
		p->gone = true;
	else if (p)
		proof_free_now(p);
}
