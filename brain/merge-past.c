#include "brain/merge-past.h"

#include <errno.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "base/util.h"
#include "journal/log.h"

enum { PATHS_MAX = 1000, PATH_BYTES_MAX = 64 << 10 };

static void mark_done(struct merge_mark *m)
{
	for (size_t i = 0; i < m->n_paths; i++)
		free(m->paths[i]);
	free(m->paths);
}

void merge_past_done(struct merge_past *p)
{
	for (size_t i = 0; i < p->n_marks; i++)
		mark_done(&p->marks[i]);
	for (size_t i = 0; i < p->n_ends; i++)
		limb__record__free_unpacked(p->ends[i], NULL);
	free(p->marks);
	free(p->made);
	free(p->ends);
	*p = (struct merge_past){0};
}

/* ---- the mark as text ---- */

char *merge_mark_text(const struct merge_mark *m)
{
	json_t *o = json_pack("{s:I, s:I, s:I}", "first", (json_int_t)m->first, "last",
			      (json_int_t)m->last, "to", (json_int_t)m->to);
	json_t *paths = m->n_paths ? json_array() : NULL;
	char *text;

	/* In hex: they are bytes. */
	for (size_t i = 0; paths && i < m->n_paths; i++) {
		size_t n = strlen(m->paths[i]);
		char *hex = malloc(2 * n + 1);

		if (hex)
			text_hex(hex, m->paths[i], n);
		(void)json_array_append_new(paths, json_string(hex ? hex : ""));
		free(hex);
	}
	if (paths)
		(void)json_object_set_new(o, "paths", paths);
	text = json_dumps(o, JSON_COMPACT);
	json_decref(o);
	return text;
}

static int mark_paths(struct merge_mark *m, const json_t *list)
{
	size_t n = json_array_size(list);

	if (n > PATHS_MAX)
		return -EBADMSG;
	m->paths = n ? calloc(n, sizeof(*m->paths)) : NULL;
	if (n && !m->paths)
		return -ENOMEM;
	for (; m->n_paths < n; m->n_paths++) {
		const char *hex = json_string_value(json_array_get(list, m->n_paths));
		size_t len = hex ? strlen(hex) / 2 : 0;
		char *path = len && len <= PATH_BYTES_MAX ? calloc(1, len + 1) : NULL;

		if (!path || text_unhex(path, len, hex) < 0) {
			free(path);
			return -EBADMSG;
		}
		m->paths[m->n_paths] = path;
	}
	return 0;
}

static int take_mark(struct merge_past *p, const char *value)
{
	struct merge_mark *v = reallocarray(p->marks, p->n_marks + 1, sizeof(*v)), *m;
	json_t *o;
	int r;

	if (!v)
		return -ENOMEM;
	p->marks = v;
	m = &v[p->n_marks];
	*m = (struct merge_mark){0};
	o = json_loads(value, 0, NULL);
	m->first = (uint64_t)json_integer_value(json_object_get(o, "first"));
	m->last = (uint64_t)json_integer_value(json_object_get(o, "last"));
	m->to = (uint64_t)json_integer_value(json_object_get(o, "to"));
	r = m->first && m->last >= m->first && m->to ? mark_paths(m, json_object_get(o, "paths"))
						     : -EBADMSG;
	json_decref(o);
	if (r < 0)
		mark_done(m);
	else
		p->n_marks++;
	return r == -ENOMEM ? r : 0; /* no writer of ours wrote it */
}

/* ---- the log ---- */

static int take_intent(struct merge_past *p, const Limb__Intent *in)
{
	struct merge_mark *m = p->n_marks ? &p->marks[p->n_marks - 1] : NULL;

	if (!m || !in->merge_last || in->merge_last != m->last || in->change < m->first)
		return 0;
	m->found++;
	if (in->kind != LIMB__INTENT_KIND__INTENT_CREATE)
		return 0;
	if (p->n_made == p->cap_made) {
		size_t cap = p->cap_made ? p->cap_made * 2 : 64;
		struct merge_made *v = reallocarray(p->made, cap, sizeof(*v));

		if (!v)
			return -ENOMEM;
		p->made = v;
		p->cap_made = cap;
	}
	p->made[p->n_made++] = (struct merge_made){in->merge_node, in->change, false};
	return 0;
}

bool merge_past_is_own(const struct merge_past *p, const Limb__IntentEnd *e)
{
	for (size_t i = 0; e->merged && i < p->n_marks; i++)
		if (e->change >= p->marks[i].first && e->change <= p->marks[i].last)
			return true;
	return false;
}

static int by_change(const void *key, const void *item)
{
	uint64_t a = *(const uint64_t *)key, b = ((const struct merge_made *)item)->change;

	return a < b ? -1 : a > b;
}

/* 1: it is kept. */
static int take_end(struct merge_past *p, Limb__Record *rec)
{
	const Limb__IntentEnd *e = rec->intent_end;
	struct merge_made *made = NULL;

	if (p->n_made)
		made = bsearch(&e->change, p->made, p->n_made, sizeof(*p->made), by_change);
	if (made && e->made && e->made_node)
		made->made = true;
	if (!e->made && !e->gone && !merge_past_is_own(p, e))
		return 0;
	if (p->n_ends == p->cap_ends) {
		size_t cap = p->cap_ends ? p->cap_ends * 2 : 64;
		Limb__Record **v = reallocarray(p->ends, cap, sizeof(*v));

		if (!v)
			return -ENOMEM;
		p->ends = v;
		p->cap_ends = cap;
	}
	p->ends[p->n_ends++] = rec;
	return 1;
}

static int take(struct merge_past *p, const struct log_record *log)
{
	Limb__Record *rec = log->body ? limb__record__unpack(NULL, log->n, log->body) : NULL;
	int r = 0;

	if (!rec)
		return 0; /* purged */
	switch (rec->body_case) {
	case LIMB__RECORD__BODY_DECISION:
		if (strcmp(rec->decision->verb, "merge") == 0 &&
		    strcmp(rec->decision->key, p->fork) == 0)
			r = take_mark(p, rec->decision->value);
		break;
	case LIMB__RECORD__BODY_INTENT: r = take_intent(p, rec->intent); break;
	case LIMB__RECORD__BODY_INTENT_END: r = take_end(p, rec); break;
	default: break;
	}
	if (r != 1)
		limb__record__free_unpacked(rec, NULL);
	return r < 0 ? r : 0;
}

/* Numbers of a merge that never was are given again: the newest one counts. */
static int take_fork(struct merge_past *p, const struct log_record *log, uint64_t last)
{
	Limb__Record *rec = log->body ? limb__record__unpack(NULL, log->n, log->body) : NULL;
	json_t *o;

	if (!rec)
		return 0;
	if (rec->body_case == LIMB__RECORD__BODY_DECISION &&
	    strcmp(rec->decision->verb, "merge") == 0 && strlen(rec->decision->key) == 32) {
		o = json_loads(rec->decision->value, 0, NULL);
		if ((uint64_t)json_integer_value(json_object_get(o, "last")) == last)
			memcpy(p->fork, rec->decision->key, 33);
		json_decref(o);
	}
	limb__record__free_unpacked(rec, NULL);
	return 0;
}

/* last: only whose merge it is. */
static int read_all(int log_fd, uint64_t from_seq, struct merge_past *p, uint64_t last)
{
	_cleanup_(log_reader_freep) struct log_reader *rd = NULL;
	struct log_record rec = {0};
	int r = log_reader_open(log_fd, from_seq, &rd);

	while (r >= 0 && (r = log_reader_next(rd, &rec)) > 0) {
		if (last && rec.type == RECORD_DECISION)
			r = take_fork(p, &rec, last);
		else if (!last && (rec.type == RECORD_DECISION || rec.type == RECORD_INTENT ||
				   rec.type == RECORD_INTENT_END))
			r = take(p, &rec);
	}
	return r;
}

int merge_past_read(int log_fd, uint64_t from_seq, const char *fork, uint64_t last,
		    struct merge_past *ret)
{
	struct merge_past p = {0};
	size_t n = 0;
	int r = 0;

	if (fork)
		(void)snprintf(p.fork, sizeof(p.fork), "%s", fork);
	else
		r = read_all(log_fd, from_seq, &p, last);
	if (r == 0 && p.fork[0])
		r = read_all(log_fd, from_seq, &p, 0);
	for (size_t i = 0; i < p.n_marks; i++) {
		struct merge_mark *m = &p.marks[i];

		if (m->found == m->last - m->first + 1)
			p.marks[n++] = *m;
		else
			mark_done(m);
	}
	p.n_marks = n;
	if (r < 0)
		merge_past_done(&p);
	else
		*ret = p;
	return r;
}
