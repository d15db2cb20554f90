#include "brain/proof.h"

#include <pthread.h>

#include "brain/commit.h"
#include "brain/link.h"
#include "journal/content.h"
#include "journal/pack.h"
#include "wire/wire.pb-c.h"

/* 8 bytes of each hash, changed by a secret of this line: to make two agree takes 2^64
 * contents.  0 is a free slot. */
struct set {
	uint64_t *slots;
	size_t n, size; /* size: a power of 2, or 0 */
};

struct proof {
	uint8_t secret[SHA256_BYTES];
	pthread_mutex_t lock; /* of the set: a thread looks into it, too */
	struct set set;
	struct check *check; /* under way, or over and not yet taken */
	bool gone;	     /* freed when the check that is under way is over */
};

/* Lent to a thread until `done`. */
struct check {
	uv_work_t work;
	struct proof *proof;
	struct env *env;
	struct store *store;
	uint8_t pack_id[16];
	struct entry_place *places;
	size_t n;
	struct set set; /* the places, as they are proven */
	int result;
	bool done;
};

/* ---- the set ---- */

static uint64_t key_of(const uint8_t secret[SHA256_BYTES], const uint8_t hash[SHA256_BYTES])
{
	uint8_t both[2 * SHA256_BYTES], out[SHA256_BYTES];
	uint64_t key;

	memcpy(both, secret, SHA256_BYTES);
	memcpy(both + SHA256_BYTES, hash, SHA256_BYTES);
	sha256(both, sizeof(both), out);
	key = get_le64(out);
	return key ? key : 1;
}

static bool set_has(const struct set *s, uint64_t key)
{
	if (!s->size)
		return false;
	for (size_t i = key & (s->size - 1);; i = (i + 1) & (s->size - 1)) {
		if (s->slots[i] == key)
			return true;
		if (s->slots[i] == 0)
			return false;
	}
}

static void set_put(struct set *s, uint64_t key)
{
	size_t i = key & (s->size - 1);

	while (s->slots[i] && s->slots[i] != key)
		i = (i + 1) & (s->size - 1);
	s->n += s->slots[i] == 0;
	s->slots[i] = key;
}

static int set_add(struct set *s, uint64_t key)
{
	struct set more = {.size = s->size ? s->size * 2 : 256};

	if (s->n * 4 >= s->size * 3) {
		more.slots = calloc(more.size, sizeof(*more.slots));
		if (!more.slots)
			return -ENOMEM;
		for (size_t i = 0; i < s->size; i++)
			if (s->slots[i])
				set_put(&more, s->slots[i]);
		free(s->slots);
		*s = more;
	}
	set_put(s, key);
	return 0;
}

static bool proven(struct proof *p, uint64_t key)
{
	bool has;

	(void)pthread_mutex_lock(&p->lock);
	has = set_has(&p->set, key);
	(void)pthread_mutex_unlock(&p->lock);
	return has;
}

/* n of them, and 0 is none. */
static int prove(struct proof *p, const uint64_t *keys, size_t n)
{
	int r = 0;

	(void)pthread_mutex_lock(&p->lock);
	for (size_t i = 0; i < n && r == 0; i++)
		if (keys[i])
			r = set_add(&p->set, keys[i]);
	(void)pthread_mutex_unlock(&p->lock);
	return r;
}

/* ---- the thread ---- */

static bool is_proven(const struct check *c, const uint8_t hash[SHA256_BYTES])
{
	uint64_t key = key_of(c->proof->secret, hash);

	return set_has(&c->set, key) || proven(c->proof, key);
}

/* A list names contents, or holes, of which the hash is zeros. */
static bool list_ok(const struct check *c, const uint8_t *p, size_t n)
{
	static const uint8_t hole[SHA256_BYTES];

	if (n % CONTENT_LIST_ENTRY_BYTES)
		return false;
	for (; n > 0; p += CONTENT_LIST_ENTRY_BYTES, n -= CONTENT_LIST_ENTRY_BYTES)
		if (memcmp(p, hole, SHA256_BYTES) != 0 && !is_proven(c, p))
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
	return set_add(&c->set, key_of(c->proof->secret, hash));
}

/* The places from *at on that are in one frame: its members, in their order. */
static int check_frame(struct check *c, int fd, size_t *at)
{
	_cleanup_(buf_done) struct buf raw = BUF_INIT(FRAME_RAW_MAX);
	cleanup_free struct frame_member *members = NULL;
	uint64_t offset = c->places[*at].offset;
	size_t n, used = 0;
	int r;

	r = frame_read(fd, offset, &raw, &members, &n);
	if (r < 0)
		return r;
	for (size_t i = 0; i < n && r == 0; i++, (*at)++) {
		const struct entry_place *place = &c->places[*at];

		if (*at == c->n || place->offset != offset ||
		    memcmp(place->hash, members[i].hash, SHA256_BYTES) != 0)
			return -EBADMSG;
		r = check_member(c, place, &members[i], buf_data(&raw) + used);
		used += members[i].len;
	}
	return r;
}

static void check_work(uv_work_t *w)
{
	struct check *c = container_of(w, struct check, work);
	cleanup_close int fd = -1;
	int r;

	fd = store_pack_read(c->store, c->pack_id);
	r = fd < 0 ? fd : 0;
	for (size_t at = 0; r == 0 && at < c->n;)
		r = check_frame(c, fd, &at);
	c->result = r;
}

/* ---- the loop ---- */

static void check_free(struct check *c)
{
	if (!c)
		return;
	free(c->places);
	free(c->set.slots);
	free(c);
}

static void proof_free_now(struct proof *p)
{
	check_free(p->check);
	free(p->set.slots);
	(void)pthread_mutex_destroy(&p->lock);
	free(p);
}

static void check_done(uv_work_t *w, int status)
{
	struct check *c = container_of(w, struct check, work);
	struct env *env = c->env;

	(void)status;
	env->brain->pack_works--;
	env->threads--;
	c->done = true;
	if (c->proof->gone)
		proof_free_now(c->proof);
	else
		link_resume(env);
}

static int check_start(struct proof *p, struct env *env, const struct entry_places *e)
{
	struct check *c = calloc(1, sizeof(*c));
	int r = -ENOMEM;

	if (!c)
		return r;
	c->proof = p;
	c->env = env;
	c->store = env->brain->store;
	c->n = e->n;
	c->places = malloc(e->n * sizeof(*c->places) + 1);
	if (c->places)
		r = commit_pack_id(env, c->pack_id);
	if (r == 0) {
		memcpy(c->places, entry_tail(e), e->n * sizeof(*c->places));
		r = uv_queue_work(env->brain->loop, &c->work, check_work, check_done);
	}
	if (r < 0) {
		check_free(c);
		return r;
	}
	env->brain->pack_works++;
	env->threads++;
	p->check = c;
	return 0;
}

int proof_places(struct proof *p, struct env *env, const struct entry_places *e)
{
	struct check *c = p->check;
	int r;

	if (!c)
		return check_start(p, env, e);
	if (!c->done)
		return 0;
	r = c->result;
	if (r == 0)
		r = prove(p, c->set.slots, c->set.size);
	check_free(c);
	p->check = NULL;
	return r < 0 ? r : 1;
}

int proof_add(struct proof *p, const uint8_t hash[SHA256_BYTES])
{
	uint64_t key = key_of(p->secret, hash);

	return prove(p, &key, 1);
}

bool proof_has(struct proof *p, const uint8_t hash[SHA256_BYTES])
{
	return proven(p, key_of(p->secret, hash));
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
	if (p && p->check && !p->check->done)
		p->gone = true;
	else if (p)
		proof_free_now(p);
}
