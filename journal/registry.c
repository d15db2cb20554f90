#include "journal/registry.h"

#include <stdbool.h>

#include "base/util.h"
#include "journal/body.h"
#include "journal/log.h"

struct search {
	const char *name;
	uint8_t id[16];
	bool found, removed;
};

static void look_at(struct search *s, const Limb__EnvironmentEvent *e)
{
	bool same_id = s->found && memcmp(s->id, e->id.data, 16) == 0;
	bool same_name = strcmp(e->name, s->name) == 0;

	if (strcmp(e->what, "removed") == 0) {
		if (same_id && e->keep_journal)
			s->removed = true;
		else if (same_id)
			s->found = false;
	} else if (same_name && (!s->found || s->removed || same_id)) {
		memcpy(s->id, e->id.data, 16);
		s->found = true;
		s->removed = false;
	} else if (same_id && !same_name) {
		s->found = false; /* renamed */
	}
}

int registry_find(int brain_log_fd, const char *name, uint8_t ret_id[16])
{
	_cleanup_(log_reader_freep) struct log_reader *rd = NULL;
	_cleanup_(arena_done) struct arena arena = ARENA_INIT(0);
	struct search s = {.name = name};
	struct log_record rec;
	Limb__Record *m;
	int r;

	r = log_reader_open(brain_log_fd, 0, &rd);
	if (r < 0)
		return r;
	while ((r = log_reader_next(rd, &rec)) > 0) {
		if (rec.type != RECORD_ENVIRONMENT || !rec.body)
			continue;
		arena_reset(&arena);
		r = body_unpack(&arena, rec.body, rec.n, &m);
		if (r < 0)
			return r;
		if (m->body_case == LIMB__RECORD__BODY_ENVIRONMENT && m->environment->id.len == 16)
			look_at(&s, m->environment);
	}
	if (r < 0)
		return r;
	if (!s.found)
		return -ENOENT;
	memcpy(ret_id, s.id, sizeof(s.id));
	return 0;
}
