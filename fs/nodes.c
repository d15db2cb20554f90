#include "fs/nodes.h"

#include <pthread.h>

#include "journal/node.h"

enum { SLOTS_MIN = 1024 };

/* Open addressing with linear probing; count 0 is a free slot. */
struct slot {
	uint64_t id, count;
};

struct nodes {
	pthread_mutex_t lock;
	struct slot *slots;
	size_t n_slots; /* a power of two */
	size_t used;
	uint64_t floor;
};

int nodes_new(struct nodes **ret)
{
	struct nodes *ns = calloc(1, sizeof(*ns));

	if (!ns)
		return -ENOMEM;
	ns->n_slots = SLOTS_MIN;
	ns->slots = calloc(ns->n_slots, sizeof(*ns->slots));
	if (!ns->slots) {
		free(ns);
		return -ENOMEM;
	}
	(void)pthread_mutex_init(&ns->lock, NULL);
	*ret = ns;
	return 0;
}

void nodes_free(struct nodes *ns)
{
	if (!ns)
		return;
	(void)pthread_mutex_destroy(&ns->lock);
	free(ns->slots);
	free(ns);
}

/* Ids come in order, so they are mixed (Fibonacci hashing). */
static size_t home(const struct nodes *ns, uint64_t id)
{
	return (size_t)((id * 0x9e3779b97f4a7c15ull) >> 20) & (ns->n_slots - 1);
}

static struct slot *find(struct nodes *ns, uint64_t id)
{
	size_t i = home(ns, id);

	while (ns->slots[i].count && ns->slots[i].id != id)
		i = (i + 1) & (ns->n_slots - 1);
	return &ns->slots[i];
}

static int resize(struct nodes *ns, size_t n_slots)
{
	struct slot *old = ns->slots, *slots = calloc(n_slots, sizeof(*slots));
	size_t n_old = ns->n_slots;

	if (!slots)
		return -ENOMEM;
	ns->slots = slots;
	ns->n_slots = n_slots;
	for (size_t i = 0; i < n_old; i++)
		if (old[i].count)
			*find(ns, old[i].id) = old[i];
	free(old);
	return 0;
}

static int make_room(struct nodes *ns, size_t n)
{
	size_t n_slots = ns->n_slots;

	while ((ns->used + n) * 2 > n_slots)
		n_slots *= 2;
	return n_slots > ns->n_slots ? resize(ns, n_slots) : 0;
}

/* The slots behind the freed one close up, so that no probe ends early. */
static void free_slot(struct nodes *ns, struct slot *s)
{
	size_t mask = ns->n_slots - 1, hole = (size_t)(s - ns->slots), i = hole;

	for (;;) {
		i = (i + 1) & mask;
		if (!ns->slots[i].count)
			break;
		if (((i - home(ns, ns->slots[i].id)) & mask) >= ((i - hole) & mask)) {
			ns->slots[hole] = ns->slots[i];
			hole = i;
		}
	}
	ns->slots[hole].count = 0;
	ns->used--;
	if (ns->n_slots > SLOTS_MIN && ns->used * 8 < ns->n_slots)
		(void)resize(ns, ns->n_slots / 2);
}

static void forget(struct nodes *ns, uint64_t id, uint64_t count)
{
	struct slot *s = find(ns, id);

	if (!s->count)
		return;
	if (s->count > count)
		s->count -= count;
	else
		free_slot(ns, s);
}

int nodes_hold(struct nodes *ns, uint64_t seq, const uint64_t *ids, size_t n)
{
	int r;

	(void)pthread_mutex_lock(&ns->lock);
	r = seq < ns->floor ? -EAGAIN : make_room(ns, n);
	for (size_t i = 0; r >= 0 && i < n; i++) {
		struct slot *s;

		if (ids[i] == 0 || ids[i] == NODE_ROOT)
			continue;
		s = find(ns, ids[i]);
		if (!s->count)
			ns->used++;
		s->id = ids[i];
		s->count++;
	}
	(void)pthread_mutex_unlock(&ns->lock);
	return r;
}

void nodes_forget(struct nodes *ns, uint64_t id, uint64_t count)
{
	(void)pthread_mutex_lock(&ns->lock);
	forget(ns, id, count);
	(void)pthread_mutex_unlock(&ns->lock);
}

void nodes_set_floor(struct nodes *ns, uint64_t seq)
{
	(void)pthread_mutex_lock(&ns->lock);
	ns->floor = MAX(ns->floor, seq);
	(void)pthread_mutex_unlock(&ns->lock);
}

bool nodes_known(struct nodes *ns, uint64_t id)
{
	bool known;

	(void)pthread_mutex_lock(&ns->lock);
	known = id == NODE_ROOT || find(ns, id)->count > 0;
	(void)pthread_mutex_unlock(&ns->lock);
	return known;
}

int nodes_list(struct nodes *ns, uint64_t **ret_ids, size_t *ret_n)
{
	uint64_t *ids;
	size_t n = 0;

	(void)pthread_mutex_lock(&ns->lock);
	ids = malloc((ns->used + 1) * sizeof(*ids));
	for (size_t i = 0; ids && i < ns->n_slots; i++)
		if (ns->slots[i].count)
			ids[n++] = ns->slots[i].id;
	(void)pthread_mutex_unlock(&ns->lock);
	if (!ids)
		return -ENOMEM;
	*ret_ids = ids;
	*ret_n = n;
	return 0;
}
