#include "journal/registry.h"

#include <stdlib.h>

#include "journal/body.h"
#include "journal/log.h"

struct entry {
	uint8_t id[16];
	char *name;
	bool removed; /* its journal was kept */
};

struct registry {
	struct log_reader *rd;
	struct arena arena;
	struct entry *entries; /* in the order of their last names */
	size_t n, room;
};

int registry_open(int brain_log_fd, struct registry **ret)
{
	struct registry *rg = calloc(1, sizeof(*rg));
	int r;

	if (!rg)
		return -ENOMEM;
	rg->arena = (struct arena)ARENA_INIT(0);
	r = log_reader_open(brain_log_fd, 0, &rg->rd);
	if (r < 0) {
		registry_close(rg);
		return r;
	}
	*ret = rg;
	return 0;
}

void registry_close(struct registry *rg)
{
	if (!rg)
		return;
	for (size_t i = 0; i < rg->n; i++)
		free(rg->entries[i].name);
	free(rg->entries);
	arena_done(&rg->arena);
	log_reader_free(rg->rd);
	free(rg);
}

static struct entry *find(struct registry *rg, const uint8_t id[16])
{
	for (size_t i = 0; i < rg->n; i++)
		if (memcmp(rg->entries[i].id, id, 16) == 0)
			return &rg->entries[i];
	return NULL;
}

static void drop(struct registry *rg, struct entry *e)
{
	size_t behind = rg->n - (size_t)(e - rg->entries) - 1;

	free(e->name);
	memmove(e, e + 1, behind * sizeof(*e));
	rg->n--;
}

static int add(struct registry *rg, const uint8_t id[16], const char *name)
{
	char *copy;

	if (rg->n == rg->room) {
		size_t room = rg->room ? rg->room * 2 : 16;
		struct entry *p = reallocarray(rg->entries, room, sizeof(*p));

		if (!p)
			return -ENOMEM;
		rg->entries = p;
		rg->room = room;
	}
	copy = strdup(name);
	if (!copy)
		return -ENOMEM;
	memcpy(rg->entries[rg->n].id, id, 16);
	rg->entries[rg->n].name = copy;
	rg->entries[rg->n++].removed = false;
	return 0;
}

static int apply(struct registry *rg, const Limb__EnvironmentEvent *ev)
{
	const uint8_t *id = ev->id.data;
	struct entry *e = find(rg, id);

	if (strcmp(ev->what, "removed") == 0) {
		if (e && ev->keep_journal)
			e->removed = true;
		else if (e)
			drop(rg, e);
		return 0;
	}
	if (e && strcmp(e->name, ev->name) == 0) {
		e->removed = false;
		return 0;
	}
	if (e) /* renamed */
		drop(rg, e);
	return add(rg, id, ev->name);
}

static int read_on(struct registry *rg)
{
	struct log_record rec;
	Limb__Record *m;
	int r;

	while ((r = log_reader_next(rg->rd, &rec)) > 0) {
		if (rec.type != RECORD_ENVIRONMENT || !rec.body)
			continue;
		arena_reset(&rg->arena);
		r = body_unpack(&rg->arena, rec.body, rec.n, &m);
		if (r >= 0 && m->body_case == LIMB__RECORD__BODY_ENVIRONMENT &&
		    m->environment->id.len == 16)
			r = apply(rg, m->environment);
		if (r < 0)
			return r;
	}
	return r;
}

int registry_lookup(struct registry *rg, const char *name, uint8_t ret_id[16], bool *ret_removed)
{
	const struct entry *found = NULL;
	int r;

	r = read_on(rg);
	if (r < 0)
		return r;
	for (size_t i = 0; i < rg->n; i++) {
		const struct entry *e = &rg->entries[i];

		if (strcmp(e->name, name) == 0 && (!found || found->removed || !e->removed))
			found = e;
	}
	if (!found)
		return -ENOENT;
	memcpy(ret_id, found->id, 16);
	if (ret_removed)
		*ret_removed = found->removed;
	return 0;
}

int registry_find(int brain_log_fd, const char *name, uint8_t ret_id[16])
{
	_cleanup_(registry_closep) struct registry *rg = NULL;
	int r = registry_open(brain_log_fd, &rg);

	return r < 0 ? r : registry_lookup(rg, name, ret_id, NULL);
}
