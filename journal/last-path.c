#include "journal/last-path.h"

#include <string.h>

struct search {
	struct index_txn *t;
	struct last_path *ret;
	unsigned steps, depth;
};

/* `node` is what the whole path led to, at `at`. */
static int found(struct search *s, uint64_t node, uint64_t at, uint64_t gone_seq)
{
	struct index_node now;
	int r;

	r = index_get_node(s->t, node, at, &s->ret->n);
	if (r < 0)
		return r;
	s->ret->gone_seq = gone_seq;
	s->ret->is_renamed = gone_seq && index_get_node(s->t, node, INDEX_NOW, &now) == 0;
	return 0;
}

static int seek(struct search *s, uint64_t dir, uint64_t at, uint64_t gone_seq, const char *path)
{
	size_t len = strcspn(path, "/");
	const char *rest = path[len] ? path + len + 1 : NULL;
	uint64_t child, died;
	int r;

	if (++s->depth > LAST_PATH_DEPTH_MAX)
		return -ENAMETOOLONG;
	r = index_lookup(s->t, dir, path, len, at, &child);
	if (r == 0)
		r = rest ? seek(s, child, at, gone_seq, rest) : found(s, child, at, gone_seq);
	while (r == -ENOENT && ++s->steps < LAST_PATH_STEPS_MAX) {
		r = index_last_entry(s->t, dir, path, len, at, &child, &died);
		if (r < 0)
			break;
		at = died - 1;
		r = rest ? seek(s, child, at, died, rest) : found(s, child, at, died);
	}
	s->depth--;
	return r;
}

int last_path_find(struct index_txn *t, const char *path, struct last_path *ret)
{
	struct search s = {.t = t, .ret = ret};

	return *path ? seek(&s, NODE_ROOT, INDEX_NOW, 0, path) : found(&s, NODE_ROOT, INDEX_NOW, 0);
}
