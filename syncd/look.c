#include "syncd/look.h"

#include "base/buf.h"

enum { BYTES_MAX = 1 << 30 };

struct entry {
	size_t at; /* in bytes */
	uint32_t len, depth;
	bool is_dir;
};

struct dir {
	uint64_t id;	/* digest_path() */
	uint32_t first; /* of its entries, if there are any */
	uint32_t depth; /* of them */
	uint32_t above; /* the directory that it is in */
	bool sent;
	uint8_t hash[DIGEST_BYTES];
};

struct look {
	struct buf bytes;
	struct entry *entries;
	size_t n, cap;
	struct dir *dirs; /* by id once it is finished */
	size_t n_dirs, cap_dirs;
	uint32_t open; /* the directory that entries are added to */
	struct digest *digest;
	struct sha256_ctx *sha;
	uint8_t *hashes;
	size_t hashes_bytes;

	size_t at, end; /* entries to come */
	uint32_t depth; /* of the first of them */
	uint64_t *above;
	size_t cap_above;
};

static int by_id(const void *a, const void *b)
{
	const struct dir *x = a, *y = b;

	return (x->id > y->id) - (x->id < y->id);
}

static int by_depth(const void *a, const void *b)
{
	const struct dir *const *x = a, *const *y = b;

	return ((*x)->depth > (*y)->depth) - ((*x)->depth < (*y)->depth);
}

static struct dir *find_dir(const struct look *l, uint64_t id)
{
	struct dir key = {.id = id};

	return bsearch(&key, l->dirs, l->n_dirs, sizeof(key), by_id);
}

static int add_dir(struct look *l, uint64_t id, uint32_t depth)
{
	if (l->n_dirs == l->cap_dirs) {
		size_t cap = l->cap_dirs ? l->cap_dirs * 2 : 256;
		struct dir *dirs = reallocarray(l->dirs, cap, sizeof(*dirs));

		if (!dirs)
			return -ENOMEM;
		l->dirs = dirs;
		l->cap_dirs = cap;
	}
	l->dirs[l->n_dirs] =
		(struct dir){.id = id, .first = (uint32_t)l->n, .depth = depth, .above = l->open};
	l->open = (uint32_t)l->n_dirs++;
	return 0;
}

/* The last that was begun and is not at its end. */
static int on_dir(uint64_t id, const uint8_t hash[DIGEST_BYTES], void *userdata)
{
	struct look *l = userdata;
	struct dir *d = &l->dirs[l->open];

	(void)id;
	memcpy(d->hash, hash, DIGEST_BYTES);
	l->open = d->above;
	return 0;
}

int look_new(struct look **ret)
{
	struct look *l = calloc(1, sizeof(*l));
	int r;

	if (!l)
		return -ENOMEM;
	buf_init(&l->bytes, BYTES_MAX);
	l->sha = sha256_new();
	r = l->sha ? digest_new(NODE_ROOT, on_dir, l, &l->digest) : -ENOMEM;
	if (r == 0)
		r = add_dir(l, NODE_ROOT, 0);
	if (r < 0) {
		look_free(l);
		return r;
	}
	*ret = l;
	return 0;
}

void look_free(struct look *l)
{
	if (!l)
		return;
	buf_done(&l->bytes);
	digest_free(l->digest);
	sha256_free(l->sha);
	free(l->entries);
	free(l->dirs);
	free(l->hashes);
	free(l->above);
	free(l);
}

/* As B says it of another place: what is only true here is left out. */
static int keep(struct look *l, const Limbwire__TreeEntry *m, uint32_t depth, bool is_dir)
{
	Limbwire__TreeEntry e = LIMBWIRE__TREE_ENTRY__INIT;
	Limb__Attr attr = *m->attr;
	uint8_t *p;
	size_t n;
	int r;

	attr.ctime_ns = 0;
	attr.inode = attr.generation = attr.device = 0;
	e.name = m->name;
	e.attr = &attr;
	e.content = m->content;
	n = limbwire__tree_entry__get_packed_size(&e);
	if (l->n == l->cap) {
		size_t cap = l->cap ? l->cap * 2 : 1024;
		struct entry *entries = reallocarray(l->entries, cap, sizeof(*entries));

		if (!entries)
			return -ENOMEM;
		l->entries = entries;
		l->cap = cap;
	}
	r = buf_reserve(&l->bytes, n, &p);
	if (r < 0)
		return r;
	(void)limbwire__tree_entry__pack(&e, p);
	l->entries[l->n++] = (struct entry){
		.at = buf_len(&l->bytes), .len = (uint32_t)n, .depth = depth, .is_dir = is_dir};
	buf_commit(&l->bytes, n);
	return 0;
}

int look_add(struct look *l, const char *path, const Limbwire__TreeEntry *m, const struct node *n,
	     uint64_t odd)
{
	bool is_dir = n->type == NODE_TYPE_DIRECTORY;
	uint8_t hash[SHA256_BYTES];
	struct digest_entry e;
	uint32_t depth = 0;
	int r;

	if (l->n == UINT32_MAX || !m->attr)
		return -E2BIG;
	for (const char *p = path; *p; p++)
		depth += *p == '/';
	digest_of_content(path, strlen(path), n, odd, l->sha, hash, &e);
	r = digest_add(l->digest, depth, &e);
	if (r == 0)
		r = keep(l, m, depth, is_dir);
	if (r == 0 && is_dir)
		r = add_dir(l, e.node, depth + 1);
	return r;
}

int look_finish(struct look *l)
{
	size_t n = MIN(l->n_dirs, (size_t)DIGESTS_MAX);
	cleanup_free struct dir **order = malloc((l->n_dirs + 1) * sizeof(*order));
	int r = digest_end(l->digest);

	l->hashes = malloc(n * DIGEST_BYTES);
	if (!order || !l->hashes)
		return -ENOMEM;
	if (r < 0)
		return r;
	qsort(l->dirs, l->n_dirs, sizeof(*l->dirs), by_id);
	for (size_t i = 0; i < l->n_dirs; i++) {
		if (i > 0 && l->dirs[i].id == l->dirs[i - 1].id)
			return -EEXIST;
		order[i] = &l->dirs[i];
	}
	if (n < l->n_dirs)
		qsort(order, l->n_dirs, sizeof(struct dir *), by_depth);
	for (size_t i = 0; i < n; i++) {
		order[i]->sent = true;
		memcpy(l->hashes + i * DIGEST_BYTES, order[i]->hash, DIGEST_BYTES);
	}
	l->hashes_bytes = n * DIGEST_BYTES;
	return 0;
}

const uint8_t *look_hashes(const struct look *l, size_t *ret_bytes)
{
	*ret_bytes = l->hashes_bytes;
	return l->hashes;
}

static int set_above(struct look *l, uint32_t level, uint64_t node)
{
	if (level >= l->cap_above) {
		size_t cap = MAX((size_t)level + 1, l->cap_above * 2);
		uint64_t *above = reallocarray(l->above, cap, sizeof(*above));

		if (!above)
			return -ENOMEM;
		l->above = above;
		l->cap_above = cap;
	}
	l->above[level] = node;
	return 0;
}

int look_enter(struct look *l, const char *path, uint64_t node)
{
	const struct dir *d = find_dir(l, digest_path(path, strlen(path)));

	if (!d || !d->sent || look_left(l))
		return -EBADMSG;
	l->at = l->end = d->first;
	while (l->end < l->n && l->entries[l->end].depth >= d->depth)
		l->end++;
	l->depth = d->depth;
	return set_above(l, 0, node);
}

size_t look_left(const struct look *l)
{
	return l->end - l->at;
}

int look_next(struct look *l, uint64_t node, Limbwire__TreeEntry **ret)
{
	const struct entry *e;
	Limbwire__TreeEntry *m;
	uint32_t level;
	int r;

	if (!look_left(l))
		return -EBADMSG;
	e = &l->entries[l->at++];
	level = e->depth - l->depth;
	r = e->is_dir ? set_above(l, level + 1, node) : 0;
	if (r < 0)
		return r;
	m = limbwire__tree_entry__unpack(NULL, e->len, buf_data(&l->bytes) + e->at);
	if (!m)
		return -ENOMEM;
	m->node = node;
	m->parent = l->above[level];
	*ret = m;
	return 0;
}
