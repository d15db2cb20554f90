#include "syncd/tree-walk.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/stat.h>

#include "base/beneath.h"
#include "base/file.h"
#include "syncd/apply.h"

enum {
	NAMES_MAX = 50 * 1000 * 1000,
	OPEN_LEVELS = 64, /* descriptors kept; deeper trees are opened again on the way back */
	READ_BYTES = 1 << 20,
	BODY_BYTES = 384 * 1024, /* of one part: paths are not sent, attributes are */
};

struct level {
	char *path;
	char **names;
	size_t n, at;
	uint64_t number;
	int fd;
};

struct link {
	uint64_t device, inode;
	uint32_t number;
};

struct tree_walk {
	struct tree_walk_args args;
	struct level *levels;
	size_t depth, cap;
	uint64_t number;
	struct link *links; /* open addressing; number 0 = free */
	size_t links_mask, n_links;
	struct tree_item *items;
	size_t n_items, items_cap;
	struct buf text;
};

/* ---- hard links ---- */

static struct link *link_slot(struct link *links, size_t mask, uint64_t device, uint64_t inode)
{
	size_t at = (size_t)((inode ^ device << 20) * 0x9e3779b97f4a7c15ull >> 16) & mask;

	while (links[at].number && (links[at].inode != inode || links[at].device != device))
		at = (at + 1) & mask;
	return &links[at];
}

static int links_grow(struct tree_walk *w)
{
	size_t n = w->links ? (w->links_mask + 1) * 2 : 256;
	struct link *links = calloc(n, sizeof(*links));

	if (!links)
		return -ENOMEM;
	for (size_t i = 0; w->links && i <= w->links_mask; i++)
		if (w->links[i].number)
			*link_slot(links, n - 1, w->links[i].device, w->links[i].inode) =
				w->links[i];
	free(w->links);
	w->links = links;
	w->links_mask = n - 1;
	return 0;
}

static int same_as(struct tree_walk *w, const struct stamp *st, uint32_t *ret)
{
	struct link *l;
	int r;

	*ret = 0;
	if (st->nlink < 2 || S_ISDIR(st->mode))
		return 0;
	if (!w->links || w->n_links * 2 > w->links_mask) {
		r = links_grow(w);
		if (r < 0)
			return r;
	}
	l = link_slot(w->links, w->links_mask, st->device, st->inode);
	if (l->number) {
		*ret = l->number;
		return 0;
	}
	*l = (struct link){st->device, st->inode, (uint32_t)w->number};
	w->n_links++;
	return 0;
}

/* ---- hashing, by two threads ---- */

struct hashing {
	struct tree_walk *w;
	atomic_size_t next;
};

static int hash_file(int root_fd, struct tree_item *it, struct sha256_ctx *sha, uint8_t *mem)
{
	cleanup_close int fd = beneath_open(root_fd, it->path, O_RDONLY | O_NONBLOCK | O_NOCTTY, 0);
	struct stamp st;
	uint64_t at = 0;
	int r;

	if (fd < 0)
		return fd;
	r = stamp_of(fd, &st);
	if (r < 0)
		return r;
	if (!S_ISREG(st.mode) || st.inode != it->c.st.inode)
		return -ESTALE;
	sha256_reset(sha);
	for (;;) {
		ssize_t n = pread(fd, mem, READ_BYTES, (off_t)at);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return -errno;
		if (n == 0)
			break;
		sha256_update(sha, mem, (size_t)n);
		at += (size_t)n;
	}
	sha256_final(sha, it->c.sha);
	/* Attributes and bytes belong to one version, as far as can be told. */
	r = stamp_of(fd, &st);
	if (r < 0)
		return r;
	it->c.torn = !stamp_same(&st, &it->c.st);
	it->c.st = st;
	it->c.st.size = at;
	it->hashed = true;
	return 0;
}

static void *hash_some(void *arg)
{
	struct hashing *h = arg;
	struct sha256_ctx *sha = sha256_new();
	uint8_t *mem = malloc(READ_BYTES);
	size_t i;

	while (sha && mem && (i = atomic_fetch_add(&h->next, 1)) < h->w->n_items) {
		struct tree_item *it = &h->w->items[i];

		if (it->error == 0 && S_ISREG(it->c.st.mode))
			it->error = hash_file(h->w->args.root_fd, it, sha, mem);
	}
	sha256_free(sha);
	free(mem);
	return NULL;
}

static void hash_items(struct tree_walk *w)
{
	struct hashing h = {.w = w};
	pthread_t helper;
	bool two = w->n_items > 1 && pthread_create(&helper, NULL, hash_some, &h) == 0;

	(void)hash_some(&h);
	if (two)
		(void)pthread_join(helper, NULL);
}

/* ---- walking ---- */

static void items_clear(struct tree_walk *w)
{
	for (size_t i = 0; i < w->n_items; i++)
		free(w->items[i].path);
	w->n_items = 0;
	buf_clear(&w->text);
}

static void pop(struct tree_walk *w)
{
	struct level *f = &w->levels[--w->depth];

	if (f->fd >= 0)
		(void)close(f->fd);
	file_names_free(f->names, f->n);
	free(f->path);
}

static int open_dir(const struct tree_walk *w, const char *path)
{
	int flags = O_RDONLY | O_DIRECTORY | O_NONBLOCK;
	int fd = beneath_open(w->args.root_fd, path, flags | O_NOATIME, 0);

	return fd == -EPERM ? beneath_open(w->args.root_fd, path, flags, 0) : fd;
}

static int push(struct tree_walk *w, const char *path, uint64_t number)
{
	struct level f = {.fd = -1, .number = number};
	int r;

	if (w->depth == w->cap) {
		size_t cap = w->cap ? w->cap * 2 : 32;
		struct level *levels = reallocarray(w->levels, cap, sizeof(*levels));

		if (!levels)
			return -ENOMEM;
		w->levels = levels;
		w->cap = cap;
	}
	f.fd = open_dir(w, path);
	if (f.fd < 0)
		return f.fd;
	r = file_list(f.fd, ".", NAMES_MAX, &f.names, &f.n);
	f.path = r < 0 ? NULL : strdup(path);
	if (r < 0 || !f.path) {
		(void)close(f.fd);
		if (r == 0)
			file_names_free(f.names, f.n);
		return r < 0 ? r : -ENOMEM;
	}
	if (w->depth >= OPEN_LEVELS && w->levels[w->depth - OPEN_LEVELS].fd >= 0) {
		(void)close(w->levels[w->depth - OPEN_LEVELS].fd);
		w->levels[w->depth - OPEN_LEVELS].fd = -1;
	}
	w->levels[w->depth++] = f;
	return 0;
}

static bool leads(const char *above, const char *path)
{
	size_t n = strlen(above);

	return n == 0 || (strncmp(above, path, n) == 0 && (path[n] == '/' || path[n] == '\0'));
}

static bool is_wanted(const struct tree_walk *w, const char *path)
{
	if (!w->args.n_paths)
		return true;
	for (size_t i = 0; i < w->args.n_paths; i++)
		if (leads(path, w->args.paths[i]) ||
		    (!w->args.flat && leads(w->args.paths[i], path)))
			return true;
	return false;
}

static bool is_entered(const struct tree_walk *w, const char *path)
{
	if (!w->args.flat)
		return true;
	for (size_t i = 0; i < w->args.n_paths; i++)
		if (strcmp(path, w->args.paths[i]) != 0 && leads(path, w->args.paths[i]))
			return true;
	return false;
}

static char *join(const char *dir, const char *name)
{
	size_t a = strlen(dir), b = strlen(name);
	char *path = malloc(a + b + 2);

	if (!path)
		return NULL;
	memcpy(path, dir, a);
	if (a)
		path[a++] = '/';
	memcpy(path + a, name, b + 1);
	return path;
}

static bool is_boundary(const struct tree_walk *w, const struct stamp *st)
{
	return st->device != w->args.device || st->mount != w->args.mount;
}

static bool is_skipped(const struct tree_walk *w, const char *name, const char *path,
		       const struct stamp *st)
{
	bool is_dir = S_ISDIR(st->mode);

	return (is_dir && st->inode == w->args.private_inode && !is_boundary(w, st)) ||
	       apply_is_temp(name, strlen(name)) ||
	       ignore_match(w->args.ignore, path, is_dir, NULL);
}

static struct tree_item *item_new(struct tree_walk *w)
{
	if (w->n_items == w->items_cap) {
		size_t cap = w->items_cap ? w->items_cap * 2 : 128;
		struct tree_item *items = reallocarray(w->items, cap, sizeof(*items));

		if (!items)
			return NULL;
		w->items = items;
		w->items_cap = cap;
	}
	w->items[w->n_items] = (struct tree_item){0};
	return &w->items[w->n_items];
}

static int describe(struct tree_walk *w, struct tree_item *it, int dir_fd)
{
	struct capture *c = &it->c;

	c->name = it->name;
	c->expect = c->st;
	c->unheld = w->args.unheld;
	if (S_ISREG(c->st.mode))
		return capture_xattrs(dir_fd, -1, c, &w->text);
	capture_entry(dir_fd, c, NULL, &w->text);
	return c->error;
}

/* One name of the deepest directory. */
static int visit(struct tree_walk *w)
{
	struct level *f = &w->levels[w->depth - 1];
	const char *name = f->names[f->at++];
	cleanup_free char *path = NULL;
	struct tree_item *it;
	struct stamp st;
	int r;

	path = join(f->path, name);
	if (!path)
		return -ENOMEM;
	if (!is_wanted(w, path))
		return 0;
	if (f->fd < 0)
		f->fd = open_dir(w, f->path);
	if (f->fd < 0)
		return 0; /* it went away: so did the rest of its names */
	r = stamp_at(f->fd, name, &st);
	if (r == -ENOENT || (r == 0 && is_skipped(w, name, path, &st)))
		return 0;
	it = item_new(w);
	if (!it)
		return -ENOMEM;
	w->number++;
	it->path = take_ptr(&path);
	it->name = strrchr(it->path, '/');
	it->name = it->name ? it->name + 1 : it->path;
	it->parent = f->number;
	w->n_items++;
	it->error = r;
	if (r < 0)
		return 0;
	it->c.st = st;
	it->error = describe(w, it, f->fd);
	r = same_as(w, &st, &it->same_as);
	if (r < 0)
		return r;
	if (S_ISDIR(st.mode) && !is_boundary(w, &st) && is_entered(w, it->path)) {
		r = push(w, it->path, w->number);
		if (r == -ENOMEM)
			return r;
		if (r < 0 && r != -ENOENT)
			it->error = r;
	}
	return 0;
}

int tree_walk_next(struct tree_walk *w, size_t max, struct tree_item **ret, size_t *ret_n,
		   const uint8_t **ret_text)
{
	int r;

	items_clear(w);
	while (w->depth && w->n_items < max && buf_len(&w->text) < BODY_BYTES) {
		if (w->levels[w->depth - 1].at == w->levels[w->depth - 1].n) {
			pop(w);
			continue;
		}
		r = visit(w);
		if (r < 0)
			return r;
	}
	if (w->args.hash)
		hash_items(w);
	*ret = w->items;
	*ret_n = w->n_items;
	*ret_text = buf_data(&w->text);
	return 0;
}

int tree_walk_new(const struct tree_walk_args *args, struct tree_walk **ret)
{
	struct tree_walk *w = calloc(1, sizeof(*w));
	int r;

	if (!w)
		return -ENOMEM;
	w->args = *args;
	buf_init(&w->text, 0);
	r = push(w, "", 0);
	if (r < 0) {
		tree_walk_free(w);
		return r;
	}
	*ret = w;
	return 0;
}

void tree_walk_free(struct tree_walk *w)
{
	if (!w)
		return;
	while (w->depth)
		pop(w);
	items_clear(w);
	free(w->levels);
	free(w->links);
	free(w->items);
	buf_done(&w->text);
	free(w);
}
