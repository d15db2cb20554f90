#include "syncd/undo.h"

#include "base/util.h"

static struct undo_record *record_add(struct undo *u, uint64_t number, enum undo_kind kind)
{
	struct undo_record *rec;

	if (u->lost)
		return NULL;
	if (u->end == u->cap && u->start > u->cap / 2) {
		memmove(u->records, u->records + u->start,
			(u->end - u->start) * sizeof(*u->records));
		u->end -= u->start;
		u->start = 0;
	}
	if (u->end == u->cap) {
		size_t cap = u->cap ? u->cap * 2 : 64;
		struct undo_record *records = reallocarray(u->records, cap, sizeof(*records));

		if (!records)
			return NULL;
		u->records = records;
		u->cap = cap;
	}
	rec = &u->records[u->end++];
	*rec = (struct undo_record){.number = number, .kind = (uint8_t)kind};
	return rec;
}

static void record_commit(struct shadow *sh, struct undo_record *rec)
{
	switch ((enum undo_kind)rec->kind) {
	case UNDO_UNLINK: shadow_free_detached(sh, rec->entry); break;
	case UNDO_MOVE: shadow_free_name(sh, rec->name); break;
	case UNDO_PUT: free(rec->old); break;
	case UNDO_LINK: break;
	}
}

/* Without its records the shadow cannot go back, but it stays right as it is. */
static void lose(struct undo *u, struct shadow *sh)
{
	for (size_t i = u->start; i < u->end; i++)
		record_commit(sh, &u->records[i]);
	u->start = u->end = 0;
	u->lost = true;
}

static struct undo_record *record_new(struct undo *u, struct shadow *sh, uint64_t number,
				      enum undo_kind kind)
{
	struct undo_record *rec;

	if (u->end - u->start >= UNDO_MAX)
		lose(u, sh);
	rec = record_add(u, number, kind);
	if (!rec && !u->lost)
		lose(u, sh);
	return rec;
}

void undo_link(struct undo *u, uint64_t number, uint32_t entry)
{
	struct undo_record *rec = record_add(u, number, UNDO_LINK);

	if (rec)
		rec->entry = entry;
	else
		u->lost = true;
}

void undo_unlink(struct undo *u, struct shadow *sh, uint64_t number, uint32_t entry)
{
	struct undo_record *rec = record_new(u, sh, number, UNDO_UNLINK);

	if (rec)
		rec->entry = entry;
	else
		shadow_free_detached(sh, entry);
}

void undo_move(struct undo *u, struct shadow *sh, uint64_t number, uint32_t entry, uint32_t parent,
	       uint32_t old_name)
{
	struct undo_record *rec = record_new(u, sh, number, UNDO_MOVE);

	if (!rec) {
		shadow_free_name(sh, old_name);
		return;
	}
	rec->entry = entry;
	rec->parent = parent;
	rec->name = old_name;
}

void undo_put(struct undo *u, const struct shadow *sh, uint64_t number, uint32_t node)
{
	struct shadow_node *old = malloc(sizeof(*old));
	struct undo_record *rec = old ? record_add(u, number, UNDO_PUT) : NULL;

	if (!rec) {
		free(old);
		u->lost = true;
		return;
	}
	*old = *shadow_node(sh, node);
	rec->entry = node;
	rec->old = old;
}

void undo_commit(struct undo *u, struct shadow *sh, uint64_t number)
{
	while (u->start < u->end && u->records[u->start].number <= number)
		record_commit(sh, &u->records[u->start++]);
	if (u->start < u->end)
		return;
	u->start = u->end = 0;
	if (u->cap > 4096) {
		free(u->records);
		u->records = NULL;
		u->cap = 0;
	}
}

static void touch_entry(const struct shadow *sh, uint32_t e, const struct undo_fns *fns)
{
	uint8_t len;
	const char *name = shadow_name(sh, e, &len);

	fns->touched(shadow_entry(sh, e)->parent, name, len, fns->userdata);
}

static void record_rollback(struct shadow *sh, struct undo_record *rec, const struct undo_fns *fns)
{
	struct shadow_node *node;

	switch ((enum undo_kind)rec->kind) {
	case UNDO_LINK:
		touch_entry(sh, rec->entry, fns);
		shadow_detach(sh, rec->entry, fns->left, fns->userdata);
		shadow_free_detached(sh, rec->entry);
		break;
	case UNDO_UNLINK:
		shadow_attach(sh, rec->entry, fns->came, fns->userdata);
		touch_entry(sh, rec->entry, fns);
		break;
	case UNDO_MOVE:
		touch_entry(sh, rec->entry, fns);
		shadow_move_back(sh, rec->entry, rec->parent, rec->name);
		touch_entry(sh, rec->entry, fns);
		break;
	case UNDO_PUT:
		node = shadow_node(sh, rec->entry);
		/* What we know to be doubtful stays so. */
		rec->old->flags |= node->flags & (SHADOW_MOUNTED | SHADOW_RACY);
		shadow_set_node(sh, rec->entry, rec->old);
		free(rec->old);
		if (rec->entry == SHADOW_ROOT)
			fns->touched(0, "", 0, fns->userdata);
		for (uint32_t e = node->entries; e; e = shadow_entry(sh, e)->same)
			touch_entry(sh, e, fns);
		break;
	}
}

int undo_rollback(struct undo *u, struct shadow *sh, uint64_t number, const struct undo_fns *fns)
{
	if (u->lost)
		return -ENODATA;
	undo_commit(u, sh, number);
	while (u->end > u->start)
		record_rollback(sh, &u->records[--u->end], fns);
	return 0;
}

void undo_done(struct undo *u, struct shadow *sh)
{
	for (size_t i = u->start; i < u->end; i++)
		record_commit(sh, &u->records[i]);
	free(u->records);
	*u = (struct undo){0};
}
