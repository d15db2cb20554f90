#include "syncd/dirty.h"

#include <assert.h>
#include <sys/stat.h>

#include "base/clock.h"

enum {
	SLOTS_MIN = 256,
	STALE_MAX = 200, /* a batch of the brain's touches a name as often, and then it rests */
};

static void list_init(struct item *head)
{
	head->prev = head->next = head;
}

static void list_remove(struct item *it)
{
	it->prev->next = it->next;
	it->next->prev = it->prev;
}

static void list_append(struct item *head, struct item *it)
{
	it->prev = head->prev;
	it->next = head;
	head->prev->next = it;
	head->prev = it;
}

int dirty_init(struct dirty *d, struct shadow *shadow)
{
	*d = (struct dirty){.shadow = shadow, .mask = SLOTS_MIN - 1, .epoch = 1};
	for (int i = 0; i < ITEM_STATES; i++)
		list_init(&d->heads[i]);
	d->slots = calloc(SLOTS_MIN, sizeof(*d->slots));
	return d->slots ? 0 : -ENOMEM;
}

static uint32_t hash_of(enum item_kind kind, uint32_t dir, const char *name, size_t len)
{
	uint64_t h = ((uint64_t)dir << 1 | (unsigned)kind) * 0x9e3779b97f4a7c15ull;

	for (size_t i = 0; i < len; i++)
		h = (h ^ (uint8_t)name[i]) * 0x100000001b3ull;
	return (uint32_t)(h ^ (h >> 32));
}

static bool is(const struct item *it, uint32_t hash, enum item_kind kind, uint32_t dir,
	       const char *name, size_t len)
{
	return it->hash == hash && it->kind == kind && it->dir == dir && it->len == len &&
	       memcmp(it->name, name, len) == 0;
}

struct item *dirty_find(const struct dirty *d, enum item_kind kind, uint32_t dir, const char *name,
			size_t len)
{
	uint32_t hash = hash_of(kind, dir, name, len);
	struct item *it;

	for (it = d->slots[hash & d->mask]; it; it = it->chain)
		if (is(it, hash, kind, dir, name, len))
			return it;
	return NULL;
}

static void grow(struct dirty *d)
{
	uint32_t n = (d->mask + 1) * 2;
	struct item **slots = calloc(n, sizeof(*slots));

	if (!slots)
		return; /* chains get longer */
	for (uint32_t i = 0; i <= d->mask; i++) {
		struct item *it = d->slots[i], *next;

		for (; it; it = next) {
			next = it->chain;
			it->chain = slots[it->hash & (n - 1)];
			slots[it->hash & (n - 1)] = it;
		}
	}
	free(d->slots);
	d->slots = slots;
	d->mask = n - 1;
}

static void add_bits(struct dirty *d, uint32_t *bits, uint32_t more, uint32_t other)
{
	for (unsigned i = 0; i < DIRTY_BARRIERS; i++)
		if ((more & ~(*bits | other)) & (1u << i))
			d->waiting[i]++;
	*bits |= more;
}

static void drop_bits(struct dirty *d, uint32_t *bits, uint32_t less, uint32_t other)
{
	for (unsigned i = 0; i < DIRTY_BARRIERS; i++)
		if ((*bits & less & ~other) & (1u << i))
			d->waiting[i]--;
	*bits &= ~less;
}

static enum item_state ready_state(const struct item *it)
{
	return it->kind == ITEM_LIST ? ITEM_LISTABLE : ITEM_READY;
}

static bool waits_for_round(const struct item *it)
{
	return it->state == ITEM_LATE || it->state == ITEM_ABSENT;
}

static bool is_worked_on(const struct item *it)
{
	if (waits_for_round(it) && it->stale < STALE_MAX)
		return false;
	return it->state != ITEM_READY && it->state != ITEM_LISTABLE && it->state != ITEM_RESTING &&
	       it->state != ITEM_WANTED;
}

static struct item *item_new(struct dirty *d, enum item_kind kind, uint32_t dir, const char *name,
			     size_t len)
{
	struct item *it = calloc(1, sizeof(*it) + len + 1);

	if (!it)
		return NULL;
	it->kind = kind;
	it->dir = dir;
	it->len = (uint8_t)len;
	memcpy(it->name, name, len);
	it->hash = hash_of(kind, dir, name, len);
	it->since_ms = clock_mono_ms();
	if (d->total > d->mask)
		grow(d);
	it->chain = d->slots[it->hash & d->mask];
	d->slots[it->hash & d->mask] = it;
	it->state = (uint8_t)ready_state(it);
	list_append(&d->heads[it->state], it);
	d->counts[it->state]++;
	d->total++;
	if (kind == ITEM_LIST)
		d->lists++;
	if (dir)
		shadow_pin(d->shadow, dir);
	return it;
}

/* Of one that an event has announced, too, the sweep says nothing new. */
static uint8_t both_flags(uint8_t a, uint8_t b)
{
	return (a & b & ITEM_SWEEP) | ((a | b) & (uint8_t)~ITEM_SWEEP);
}

struct item *dirty_mark(struct dirty *d, enum item_kind kind, uint32_t dir, const char *name,
			size_t len, uint8_t flags, const struct item *from)
{
	struct item *it = dirty_find(d, kind, dir, name, len);
	uint64_t epoch = from ? from->epoch : d->epoch;
	/* The second pass of `from` will find done what the first one began. */
	uint32_t bits = from ? from->bits | from->again_bits : 0;

	if (!it) {
		it = item_new(d, kind, dir, name, len);
		if (!it)
			return NULL;
		it->flags = flags;
	} else if (is_worked_on(it)) {
		it->again_flags = it->again ? both_flags(it->again_flags, flags) : flags;
		it->again = true;
	} else {
		uint8_t sweep = it->flags & flags & (ITEM_SWEEP | ITEM_SCAN);

		it->flags = sweep | ((it->flags | flags) &
				     (uint8_t) ~(ITEM_SWEEP | ITEM_SCAN | ITEM_LOOKED));
	}
	if (waits_for_round(it) && !it->again) {
		it->stale++;
		dirty_move(d, it, ready_state(it));
	}
	it->epoch = MAX(it->epoch, epoch);
	if (it->again)
		add_bits(d, &it->again_bits, bits, it->bits);
	else
		add_bits(d, &it->bits, bits, it->again_bits);
	return it;
}

static const enum item_state taking[] = {ITEM_WANTED, ITEM_CAPTURING, ITEM_STREAM};

static size_t taking_at(enum item_state state)
{
	size_t i = 0;

	while (i < ARRAY_SIZE(taking) && taking[i] != state)
		i++;
	return i;
}

struct item *dirty_taking(const struct dirty *d, const struct item *it)
{
	size_t i = it ? taking_at(it->state) : 0;
	struct item *next;

	if (!d->taking)
		return NULL;
	next = it ? dirty_after(d, it) : dirty_first(d, taking[0]);
	for (;;) {
		for (; next; next = dirty_after(d, next))
			if (next->taking)
				return next;
		if (++i >= ARRAY_SIZE(taking))
			return NULL;
		next = dirty_first(d, taking[i]);
	}
}

void dirty_set_taking(struct dirty *d, struct item *it, bool is)
{
	d->taking += is;
	d->taking -= it->taking;
	it->taking = is;
}

static bool is_late_dir(const struct item *it)
{
	return it->state == ITEM_LATE && S_ISDIR(it->st.mode);
}

/* it->st is not changed while it is late. */
void dirty_move(struct dirty *d, struct item *it, enum item_state state)
{
	list_remove(it);
	d->counts[it->state]--;
	d->late_dirs -= is_late_dir(it);
	it->state = state;
	d->late_dirs += is_late_dir(it);
	if (it->taking && taking_at(state) == ARRAY_SIZE(taking))
		dirty_set_taking(d, it, false);
	list_append(&d->heads[state], it);
	d->counts[state]++;
}

void dirty_rest(struct dirty *d, struct item *it, uint64_t until_ms)
{
	it->ripe_ms = until_ms;
	dirty_move(d, it, ITEM_RESTING);
}

uint64_t dirty_ripen(struct dirty *d, uint64_t now_ms)
{
	uint64_t next_ms = 0;
	struct item *it, *next;

	for (it = dirty_first(d, ITEM_RESTING); it; it = next) {
		next = dirty_after(d, it);
		if (it->ripe_ms <= now_ms)
			dirty_move(d, it, ready_state(it));
		else if (!next_ms || it->ripe_ms < next_ms)
			next_ms = it->ripe_ms;
	}
	return next_ms;
}

static void item_free(struct dirty *d, struct item *it)
{
	struct item **at = &d->slots[it->hash & d->mask];

	while (*at != it)
		at = &(*at)->chain;
	*at = it->chain;
	list_remove(it);
	d->counts[it->state]--;
	d->late_dirs -= is_late_dir(it);
	d->total--;
	d->lost -= it->lost;
	d->taking -= it->taking;
	if (it->kind == ITEM_LIST)
		d->lists--;
	drop_bits(d, &it->bits, UINT32_MAX, it->again_bits);
	drop_bits(d, &it->again_bits, UINT32_MAX, 0);
	if (it->dir)
		shadow_unpin(d->shadow, it->dir);
	free(it);
}

void dirty_done(struct dirty *d, struct item *it)
{
	if (!it->again) {
		item_free(d, it);
		return;
	}
	drop_bits(d, &it->bits, UINT32_MAX, it->again_bits);
	it->bits = it->again_bits;
	it->again_bits = 0;
	it->again = false;
	it->flags = it->again_flags;
	it->again_flags = 0;
	it->tries = it->stale = 0;
	dirty_set_lost(d, it, false);
	it->since_ms = clock_mono_ms();
	dirty_move(d, it, ready_state(it));
}

void dirty_retry(struct dirty *d, struct item *it)
{
	if (it->again)
		it->flags = both_flags(it->flags, it->again_flags);
	it->flags &= (uint8_t)~ITEM_LOOKED;
	it->bits |= it->again_bits;
	it->again_bits = 0;
	it->again_flags = 0;
	it->again = false;
	if (it->tries < UINT8_MAX)
		it->tries++;
	dirty_move(d, it, ready_state(it));
}

bool dirty_is_stale(struct dirty *d, struct item *it)
{
	unsigned tries = it->tries;

	if (!it->again || it->stale >= STALE_MAX)
		return false;
	it->stale++;
	dirty_retry(d, it);
	it->tries = (uint8_t)tries;
	return true;
}

void dirty_set_lost(struct dirty *d, struct item *it, bool lost)
{
	d->lost += lost;
	d->lost -= it->lost;
	it->lost = lost;
}

void dirty_look_for_lost(struct dirty *d)
{
	struct item *it, *next;

	for (it = d->lost ? dirty_first(d, ITEM_RESTING) : NULL; it; it = next) {
		next = dirty_after(d, it);
		if (!it->lost)
			continue;
		it->tries = 0; /* they were in vain, and do not make the next rest longer */
		dirty_move(d, it, ready_state(it));
	}
}

struct item *dirty_first(const struct dirty *d, enum item_state state)
{
	struct item *it = d->heads[state].next;

	return it == &d->heads[state] ? NULL : it;
}

struct item *dirty_after(const struct dirty *d, const struct item *it)
{
	return it->next == &d->heads[it->state] ? NULL : it->next;
}

void dirty_give(struct dirty *d, struct item *it, unsigned bit)
{
	if (it->again)
		add_bits(d, &it->again_bits, 1u << bit, it->bits);
	else
		add_bits(d, &it->bits, 1u << bit, it->again_bits);
}

/* It is, or may be, a directory that is not watched: what is made in it raises no event. */
static bool is_unwatched(const struct dirty *d, const struct item *it)
{
	const struct shadow_dir *dir;

	if (it->kind == ITEM_LIST) {
		dir = shadow_dir(d->shadow, it->dir);
		return !dir || !dir->wd;
	}
	switch (it->state) {
	case ITEM_ABSENT:
	case ITEM_VERIFYING: return false; /* its name would raise one */
	case ITEM_LOOKING: return true;
	case ITEM_READY: return !(it->flags & ITEM_LOOKED) || S_ISDIR(it->st.mode);
	default: return !it->st.mode || S_ISDIR(it->st.mode);
	}
}

void dirty_assign(struct dirty *d, unsigned bit, uint64_t since, bool scans)
{
	for (int s = 0; s < ITEM_STATES; s++) {
		for (struct item *it = dirty_first(d, s); it; it = dirty_after(d, it)) {
			bool scan = scans && (it->kind == ITEM_LIST || (it->flags & ITEM_SCAN));

			if (it->epoch > since || scan || is_unwatched(d, it))
				dirty_give(d, it, bit);
		}
	}
}

void dirty_release(struct dirty *d, struct item *it, unsigned bit)
{
	drop_bits(d, &it->bits, 1u << bit, it->again_bits);
	drop_bits(d, &it->again_bits, 1u << bit, 0);
}

void dirty_release_all(struct dirty *d, unsigned bit)
{
	for (int s = 0; s < ITEM_STATES; s++)
		for (struct item *it = dirty_first(d, s); it; it = dirty_after(d, it))
			dirty_release(d, it, bit);
	assert(d->waiting[bit] == 0);
}

void dirty_done_all(struct dirty *d)
{
	for (int s = 0; s < ITEM_STATES; s++) {
		struct item *it;

		while ((it = dirty_first(d, s)))
			item_free(d, it);
	}
}

void dirty_free(struct dirty *d)
{
	if (!d->slots)
		return;
	dirty_done_all(d);
	free(d->slots);
	d->slots = NULL;
}
