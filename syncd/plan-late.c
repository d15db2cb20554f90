#include "syncd/plan.h"

#include <stdio.h>
#include <sys/stat.h>

#include "base/clock.h"

/*
 * plan.h's plan_late(): names that hold another node than the shadow has there.
 *
 * Each such name has an occupant (the shadow's node) and wants a node (what was
 * seen).  An occupant that another late name wants must move there first, or it
 * would be lost: log -> log.1 -> log.2 is done from the end.  What is left
 * then are cycles (exchanges): one occupant steps aside under a name that exists
 * only within the CHANGE.  An occupant whose last name would go waits while it may
 * yet be found: in a directory that is new, or is lost (sync.c's end_round()).  A
 * file whose content is not told yet is read before it gets the name ("taking"):
 * what wants the place where it was waits so long.
 */

enum { CYCLE_MAX = 16, SIDE_STEP_BYTES = 40 };

struct late {
	struct item *item;
	uint32_t occupant, wants; /* nodes; wants 0 = a new one */
	uint32_t wanted_by;	  /* index + 1 of the item that wants the occupant */
	uint32_t waits_for_me;	  /* index + 1 of the item whose occupant I want */
	bool done;
	bool taking; /* done, once its file is read */
};

static uint32_t entry_of(const struct sync *sy, const struct item *it)
{
	return shadow_find(&sy->shadow, it->dir, it->name, it->len);
}

static uint32_t occupant_of(const struct sync *sy, const struct item *it)
{
	uint32_t e = entry_of(sy, it);

	return e ? shadow_entry(&sy->shadow, e)->node : 0;
}

/* The last name of a node would go that may yet be found elsewhere. */
static bool would_lose(const struct sync *sy, const struct late *l)
{
	uint32_t n = occupant_of(sy, l->item);

	return n && !plan_is_node(sy, n, &l->item->st) && shadow_names(&sy->shadow, n) == 1;
}

/* A directory that nobody knows, in the place of nothing that is wanted elsewhere. What is missed may
 * be in it, so it comes first, and is listed. */
static bool is_new_dir(const struct late *l)
{
	return !l->wants && !l->wanted_by && S_ISDIR(l->item->st.mode);
}

static void settle(struct sync *sy, struct late *l)
{
	struct item *it = l->item;
	uint32_t n = occupant_of(sy, it);

	l->done = true;
	if (!n || plan_is_node(sy, n, &it->st)) {
		plan_seen(sy, it, &it->st);
		return;
	}
	it->flags |= ITEM_REPLACES;
	n = plan_find_node(sy, &it->st);
	if (n)
		l->taking = plan_take_name(sy, it, n);
	else
		dirty_move(&sy->dirty, it, ITEM_WANTED);
}

static int by_wants(const void *a, const void *b)
{
	const struct late *x = *(struct late *const *)a, *y = *(struct late *const *)b;

	return x->wants < y->wants ? -1 : x->wants > y->wants;
}

static struct late *find_wanting(struct late **sorted, size_t n, uint32_t node)
{
	size_t low = 0, high = n;

	while (low < high) {
		size_t mid = (low + high) / 2;

		if (sorted[mid]->wants < node)
			low = mid + 1;
		else
			high = mid;
	}
	return low < n && sorted[low]->wants == node ? sorted[low] : NULL;
}

static bool waits(const struct sync *sy, const struct late *l, bool held, bool new_dirs)
{
	return (held || (new_dirs && !is_new_dir(l))) && would_lose(sy, l);
}

/* Until a file is read its name is not given to it, and what stands where it was stays late. */
static bool waits_for_content(const struct late *all, const struct late *l)
{
	for (unsigned i = 0; i < CYCLE_MAX && l->wanted_by; i++) {
		l = &all[l->wanted_by - 1];
		if (l->done)
			return l->taking;
	}
	return false;
}

/* Follows who wants whose place; 0 if it is no cycle. */
static size_t collect_cycle(struct sync *sy, struct late *all, struct late *first,
			    struct late *cycle[CYCLE_MAX])
{
	struct late *l = first;
	size_t n = 0;

	do {
		if (n == CYCLE_MAX || l->done || !l->wants || !l->waits_for_me ||
		    plan_would_cycle(sy, l->item, l->wants))
			return 0;
		cycle[n++] = l;
		l = &all[l->waits_for_me - 1];
	} while (l != first);
	return n;
}

/* cycle[0] wants the occupant of cycle[1], and so on; the last wants that of cycle[0]. Entries go
 * round, so other names of what is in them stay where they are. */
static int exchange(struct sync *sy, struct late **cycle, size_t n)
{
	char aside[SIDE_STEP_BYTES];
	struct item *first = cycle[0]->item;
	uint32_t stepped = entry_of(sy, first);
	int len, r;

	len = snprintf(aside, sizeof(aside), ".limb-%016llx~",
		       (unsigned long long)shadow_node(&sy->shadow, cycle[0]->occupant)->id);
	sy->emit.from = first;
	emit_room(sy, 2 * n + 2, 0, 0);
	r = emit_move(sy, stepped, first->dir, aside, (size_t)len);
	for (size_t i = 0; r == 0 && i < n; i++) {
		struct item *it = cycle[i]->item;

		cycle[i]->done = true;
		r = emit_move(sy, i + 1 < n ? entry_of(sy, cycle[i + 1]->item) : stepped, it->dir,
			      it->name, it->len);
		dirty_move(&sy->dirty, it, ITEM_WANTED);
	}
	return r;
}

/* Those that are taking, too, after the late ones: they are done. */
static struct late *collect(struct sync *sy, size_t *ret_late, size_t *ret_n)
{
	size_t n = 0, cap = sy->dirty.counts[ITEM_LATE] + sy->dirty.taking;
	struct late *all = calloc(cap + 1, sizeof(*all));
	struct item *it, *next;

	for (it = dirty_first(&sy->dirty, ITEM_LATE); it && all && n < cap; it = next) {
		next = dirty_after(&sy->dirty, it);
		if (!shadow_attached(&sy->shadow, it->dir)) {
			dirty_done(&sy->dirty, it);
			continue;
		}
		all[n++] = (struct late){.item = it,
					 .occupant = occupant_of(sy, it),
					 .wants = plan_find_node(sy, &it->st)};
	}
	*ret_late = n;
	for (it = dirty_taking(&sy->dirty, NULL); it && all && n < cap;
	     it = dirty_taking(&sy->dirty, it))
		all[n++] = (struct late){.item = it,
					 .wants = plan_find_node(sy, &it->st),
					 .done = true,
					 .taking = true};
	*ret_n = n;
	return all;
}

static int by_number(const void *a, const void *b)
{
	uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;

	return x < y ? -1 : x > y;
}

int plan_awaited(struct sync *sy, uint32_t **ret, size_t *ret_n)
{
	cleanup_free struct late *all = NULL;
	uint32_t *awaited;
	size_t late, n;

	all = collect(sy, &late, &n);
	awaited = calloc(n + 1, sizeof(*awaited));
	if (!all || !awaited) {
		free(awaited);
		return -ENOMEM;
	}
	for (size_t i = 0; i < n; i++)
		awaited[i] = all[i].wants;
	qsort(awaited, n, sizeof(*awaited), by_number);
	*ret = awaited;
	*ret_n = n;
	return 0;
}

bool plan_is_awaited(const uint32_t *awaited, size_t n, uint32_t node)
{
	return n && bsearch(&node, awaited, n, sizeof(*awaited), by_number);
}

const struct item *plan_late_of(const struct sync *sy, uint32_t n)
{
	const struct item *it = sy->dirty.late_dirs ? dirty_first(&sy->dirty, ITEM_LATE) : NULL;

	for (; it; it = dirty_after(&sy->dirty, it))
		if (S_ISDIR(it->st.mode) && plan_find_node(sy, &it->st) == n)
			return it;
	return NULL;
}

size_t plan_late(struct sync *sy, bool held)
{
	cleanup_free struct late *all = NULL;
	cleanup_free struct late **sorted = NULL;
	size_t n = 0, late = 0, left, settled = 0;
	bool new_dirs = false;

	all = collect(sy, &late, &n);
	sorted = calloc(n + 1, sizeof(*sorted));
	if (!all || !sorted)
		return 0;
	for (size_t i = 0; i < n; i++)
		sorted[i] = &all[i];
	qsort(sorted, n, sizeof(*sorted), by_wants);
	for (size_t i = 0; i < n; i++) {
		struct late *w = all[i].occupant ? find_wanting(sorted, n, all[i].occupant) : NULL;

		if (!w || w == &all[i])
			continue;
		all[i].wanted_by = (uint32_t)(w - all) + 1;
		w->waits_for_me = (uint32_t)i + 1;
	}
	for (size_t i = 0; i < n; i++)
		new_dirs |= is_new_dir(&all[i]);
	/* Each pass from a free end follows its chain of waiters to the other one. */
	left = late;
	for (size_t i = 0; i < late; i++) {
		struct late *l = &all[i];

		while (!l->done && (!l->wanted_by || all[l->wanted_by - 1].done)) {
			if (waits_for_content(all, l) || waits(sy, l, held, new_dirs))
				break;
			settle(sy, l);
			left--;
			if (!l->waits_for_me)
				break;
			l = &all[l->waits_for_me - 1];
		}
	}
	for (size_t i = 0; left && i < late; i++) {
		struct late *cycle[CYCLE_MAX];
		size_t length;

		if (all[i].done || waits_for_content(all, &all[i]))
			continue;
		length = collect_cycle(sy, all, &all[i], cycle);
		if (length && exchange(sy, cycle, length) == 0)
			continue;
		/* What waits, and what waits for that. */
		if (!all[i].done && !held && !new_dirs)
			settle(sy, &all[i]);
	}
	for (size_t i = 0; i < late; i++)
		settled += all[i].done;
	return settled;
}
