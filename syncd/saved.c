#include "syncd/saved.h"

#include <sys/stat.h>

#include "base/beneath.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "syncd/fill.h"

#define SHADOW_FILE "shadow"
#define SHADOW_FILE_START "\0LIMB-SHADOW-01\n"
#define FILE_MAX (1ull << 30)

enum {
	START_BYTES = 16,
	HEAD_BYTES = START_BYTES + 16 + 8,
	DEPTH_MAX = 4096,
	REST_MIN_MS = 30000,
	REST_FACTOR = 500, /* the loop stands still while it is put together */
};

struct saved_entry {
	uint64_t id, inode, device, size;
	int64_t mtime_ns, ctime_ns;
	uint8_t sha[SHADOW_SHA_BYTES];
	uint32_t uid, gid, generation, depth;
	uint16_t mode;
	uint8_t flags; /* of enum shadow_flag: SHADOW_RACY, SHADOW_TORN */
	uint8_t name_len;
	uint8_t reserved[4];
};

/* ---- writing ---- */

struct child {
	const char *name;
	uint32_t node;
	uint8_t len;
};

struct writer {
	uv_work_t req;
	struct sync *sy;
	struct buf out;
	uint64_t n;
	int error;
	uint64_t number, incarnation;
};

static int by_name(const void *a, const void *b)
{
	const struct child *x = a, *y = b;
	int r = memcmp(x->name, y->name, MIN(x->len, y->len));

	return r ? r : x->len - y->len;
}

static int children_of(const struct shadow *sh, uint32_t dir, struct child **ret, size_t *ret_n)
{
	const struct shadow_dir *d = shadow_dir(sh, dir);
	struct child *list = malloc((d->children + 1) * sizeof(*list));
	size_t n = 0;

	if (!list)
		return -ENOMEM;
	for (uint32_t e = d->first; e && n < d->children; e = shadow_entry(sh, e)->next, n++) {
		list[n].name = shadow_name(sh, e, &list[n].len);
		list[n].node = shadow_entry(sh, e)->node;
	}
	qsort(list, n, sizeof(*list), by_name);
	*ret = list;
	*ret_n = n;
	return 0;
}

static int put_entry(struct writer *w, const struct child *c, uint32_t depth)
{
	const struct shadow *sh = &w->sy->shadow;
	const struct shadow_node *n = shadow_node(sh, c->node);
	struct saved_entry e;
	int r;

	memset(&e, 0, sizeof(e));
	e.id = n->id;
	e.inode = n->inode;
	e.device = n->device ? sh->devices[n->device - 1] : 0;
	e.size = n->size;
	e.mtime_ns = n->mtime_ns;
	e.ctime_ns = n->ctime_ns;
	memcpy(e.sha, n->sha, sizeof(e.sha));
	e.uid = n->uid;
	e.gid = n->gid;
	e.generation = n->generation;
	e.depth = depth;
	e.mode = n->mode;
	e.flags = (uint8_t)(n->flags & (SHADOW_RACY | SHADOW_TORN));
	e.name_len = c->len;
	w->n++;
	r = buf_add(&w->out, &e, sizeof(e));
	return r < 0 ? r : buf_add(&w->out, c->name, c->len);
}

static int put_dir(struct writer *w, uint32_t dir, uint32_t depth)
{
	cleanup_free struct child *list = NULL;
	size_t n = 0;
	int r;

	if (depth > DEPTH_MAX)
		return -ELOOP;
	r = children_of(&w->sy->shadow, dir, &list, &n);
	for (size_t i = 0; i < n && r == 0; i++) {
		r = put_entry(w, &list[i], depth);
		if (r == 0 && shadow_dir(&w->sy->shadow, list[i].node))
			r = put_dir(w, list[i].node, depth + 1);
	}
	return r;
}

static void writer_free(struct writer *w)
{
	buf_done(&w->out);
	free(w);
}

/* All but the check, which a thread makes. */
static int writer_new(struct sync *sy, struct writer **ret)
{
	struct writer *w = calloc(1, sizeof(*w));
	int r;

	if (!w)
		return -ENOMEM;
	w->sy = sy;
	w->req.data = w;
	w->number = sy->emit.made;
	w->incarnation = sy->incarnation;
	buf_init(&w->out, FILE_MAX);
	r = buf_add(&w->out, SHADOW_FILE_START, START_BYTES);
	if (r == 0)
		r = buf_add(&w->out, sy->env, sizeof(sy->env));
	if (r == 0)
		r = buf_add(&w->out, &w->n, sizeof(w->n));
	if (r == 0)
		r = put_dir(w, SHADOW_ROOT, 0);
	if (r < 0) {
		writer_free(w);
		return r;
	}
	memcpy((uint8_t *)buf_data(&w->out) + START_BYTES + sizeof(sy->env), &w->n, sizeof(w->n));
	*ret = w;
	return 0;
}

static void write_it(uv_work_t *req)
{
	struct writer *w = req->data;
	uint8_t check[SHA256_BYTES];

	sha256(buf_data(&w->out), buf_len(&w->out), check);
	w->error = buf_add(&w->out, check, sizeof(check));
	if (w->error == 0)
		w->error = file_replace(w->sy->root.dir_fd, SHADOW_FILE, buf_data(&w->out),
					buf_len(&w->out));
}

static void written(uv_work_t *req, int status)
{
	struct writer *w = req->data;
	struct sync *sy = w->sy;

	sy->in_flight--;
	sy->saving = false;
	if (status == 0 && w->error == 0) {
		sy->saved_incarnation = w->incarnation;
		sy->saved_number = w->number;
	} else {
		/* Without it the next start costs more, that is all. */
		log_debug("the shadow cannot be written: %s", strerror(-w->error));
	}
	writer_free(w);
	sync_pump(sy);
}

static bool is_new(const struct sync *sy)
{
	return sy->saved_incarnation != sy->incarnation || sy->saved_number != sy->emit.made;
}

/* Nothing is under way, and the brain has all of it. */
static bool is_quiet(const struct sync *sy)
{
	return sy->remember && sy->filled && !sy->scanning && !sy->halted && !sy->restart &&
	       !sy->in_flight && !sy->dirty.total && !sy->emit.n_ops &&
	       sy->emit.made == sy->emit.durable &&
	       !(shadow_node(&sy->shadow, SHADOW_ROOT)->flags & SHADOW_FOREIGN);
}

void saved_consider(struct sync *sy)
{
	uint64_t begun_ms = clock_mono_ms(), took_ms;
	struct writer *w;

	if (sy->phase != PHASE_RUNNING || sy->saving || begun_ms < sy->save_due_ms || !is_new(sy) ||
	    !is_quiet(sy))
		return;
	if (writer_new(sy, &w) < 0)
		return;
	took_ms = clock_mono_ms() - begun_ms;
	sy->save_due_ms = begun_ms + MAX(took_ms * REST_FACTOR, (uint64_t)REST_MIN_MS);
	if (uv_queue_work(sy->loop, &w->req, write_it, written) < 0) {
		writer_free(w);
		return;
	}
	sy->saving = true;
	sy->in_flight++;
}

void saved_last(struct sync *sy)
{
	struct writer *w;

	if (!is_new(sy) || !is_quiet(sy) || writer_new(sy, &w) < 0)
		return;
	write_it(&w->req);
	writer_free(w);
}

/* ---- reading ---- */

struct saved_dir {
	uint64_t id;
	size_t at;	/* of what follows its own entry */
	uint32_t depth; /* of its entries */
	uint8_t hash[DIGEST_BYTES];
	bool sent;
};

struct saved {
	struct buf file;
	size_t end; /* of the entries */
	struct saved_dir *dirs;
	size_t n_dirs, cap;
	uint8_t *hashes;
	size_t hashes_bytes;
};

void saved_free(struct saved *s)
{
	if (!s)
		return;
	buf_done(&s->file);
	free(s->dirs);
	free(s->hashes);
	free(s);
}

const uint8_t *saved_hashes(const struct saved *s, size_t *ret_bytes)
{
	*ret_bytes = s->hashes_bytes;
	return s->hashes;
}

/* The entry at *at, and behind it. 0: there is no more. */
static int next_entry(const struct saved *s, size_t *at, struct saved_entry *ret,
		      const char **ret_name)
{
	const uint8_t *p = buf_data(&s->file);

	if (*at == s->end)
		return 0;
	if (s->end - *at < sizeof(*ret))
		return -EBADMSG;
	memcpy(ret, p + *at, sizeof(*ret));
	*at += sizeof(*ret);
	if (s->end - *at < ret->name_len ||
	    !beneath_name_ok((const char *)p + *at, ret->name_len) ||
	    node_type_of_mode(ret->mode) == NODE_TYPE_NONE)
		return -EBADMSG;
	*ret_name = (const char *)p + *at;
	*at += ret->name_len;
	return 1;
}

static int add_dir(struct saved *s, uint64_t id, size_t at, uint32_t depth)
{
	if (s->n_dirs == s->cap) {
		size_t cap = s->cap ? s->cap * 2 : 256;
		struct saved_dir *dirs = reallocarray(s->dirs, cap, sizeof(*dirs));

		if (!dirs)
			return -ENOMEM;
		s->dirs = dirs;
		s->cap = cap;
	}
	s->dirs[s->n_dirs++] = (struct saved_dir){.id = id, .at = at, .depth = depth};
	return 0;
}

static int by_id(const void *a, const void *b)
{
	const struct saved_dir *x = a, *y = b;

	return (x->id > y->id) - (x->id < y->id);
}

static int by_depth(const void *a, const void *b)
{
	const struct saved_dir *const *x = a, *const *y = b;

	return ((*x)->depth > (*y)->depth) - ((*x)->depth < (*y)->depth);
}

static struct saved_dir *find_dir(const struct saved *s, uint64_t id)
{
	struct saved_dir key = {.id = id};

	return s->n_dirs ? bsearch(&key, s->dirs, s->n_dirs, sizeof(key), by_id) : NULL;
}

/* Finds the directories, by id. */
static int find_dirs(struct saved *s)
{
	struct saved_entry e;
	const char *name;
	size_t at = HEAD_BYTES;
	int r;

	r = add_dir(s, NODE_ROOT, at, 0);
	while (r >= 0 && (r = next_entry(s, &at, &e, &name)) > 0)
		if (S_ISDIR(e.mode))
			r = add_dir(s, e.id, at, e.depth + 1);
	if (r < 0)
		return r;
	qsort(s->dirs, s->n_dirs, sizeof(*s->dirs), by_id);
	for (size_t i = 1; i < s->n_dirs; i++)
		if (s->dirs[i].id == s->dirs[i - 1].id)
			return -EBADMSG;
	return 0;
}

static int on_dir(uint64_t dir, const uint8_t hash[DIGEST_BYTES], void *userdata)
{
	memcpy(find_dir(userdata, dir)->hash, hash, DIGEST_BYTES);
	return 0;
}

static int hash_dirs(struct saved *s)
{
	_cleanup_(digest_freep) struct digest *d = NULL;
	struct saved_entry e;
	const char *name;
	size_t at = HEAD_BYTES;
	int r;

	r = digest_new(NODE_ROOT, on_dir, s, &d);
	while (r >= 0 && (r = next_entry(s, &at, &e, &name)) > 0) {
		struct digest_entry x = {
			.node = e.id,
			.inode = e.inode,
			.device = e.device,
			.size = S_ISDIR(e.mode) ? 0 : e.size,
			.ctime_ns = e.ctime_ns,
			.generation = e.generation,
			.type = node_type_of_mode(e.mode),
			.torn = e.flags & SHADOW_TORN,
			.name = name,
			.name_len = e.name_len,
			.sha = S_ISREG(e.mode) || S_ISLNK(e.mode) ? e.sha : NULL,
		};

		r = digest_add(d, e.depth, &x);
	}
	return r < 0 ? r : digest_end(d);
}

static int choose_hashes(struct saved *s)
{
	size_t n = MIN(s->n_dirs, (size_t)DIGESTS_MAX);
	cleanup_free struct saved_dir **order = malloc((s->n_dirs + 1) * sizeof(*order));

	s->hashes = malloc(n * DIGEST_BYTES);
	if (!order || !s->hashes)
		return -ENOMEM;
	for (size_t i = 0; i < s->n_dirs; i++)
		order[i] = &s->dirs[i];
	if (n < s->n_dirs)
		qsort(order, s->n_dirs, sizeof(struct saved_dir *), by_depth);
	for (size_t i = 0; i < n; i++) {
		order[i]->sent = true;
		memcpy(s->hashes + i * DIGEST_BYTES, order[i]->hash, DIGEST_BYTES);
	}
	s->hashes_bytes = n * DIGEST_BYTES;
	return 0;
}

static int judge(const struct sync *sy, struct saved *s)
{
	const uint8_t *p = buf_data(&s->file);
	size_t n = buf_len(&s->file);
	uint8_t check[SHA256_BYTES];

	if (n < HEAD_BYTES + sizeof(check) || memcmp(p, SHADOW_FILE_START, START_BYTES) != 0 ||
	    memcmp(p + START_BYTES, sy->env, sizeof(sy->env)) != 0)
		return -EBADMSG;
	s->end = n - sizeof(check);
	sha256(p, s->end, check);
	return memcmp(check, p + s->end, sizeof(check)) == 0 ? 0 : -EBADMSG;
}

int saved_read(struct sync *sy, struct saved **ret)
{
	struct saved *s = calloc(1, sizeof(*s));
	int r;

	if (!s)
		return -ENOMEM;
	buf_init(&s->file, FILE_MAX);
	r = file_read(sy->root.dir_fd, SHADOW_FILE, &s->file);
	if (r == 0)
		r = judge(sy, s);
	if (r == 0)
		r = find_dirs(s);
	if (r == 0)
		r = hash_dirs(s);
	if (r == 0)
		r = choose_hashes(s);
	if (r < 0) {
		saved_free(s);
		return r == -ENOENT || r == -ENOMEM ? r : -EBADMSG;
	}
	*ret = s;
	return 0;
}

static void to_shadow(struct sync *sy, const struct saved_entry *e, struct shadow_node *ret)
{
	*ret = (struct shadow_node){
		.id = e->id,
		.inode = e->inode,
		.size = e->size,
		.mtime_ns = e->mtime_ns,
		.ctime_ns = e->ctime_ns,
		.uid = e->uid,
		.gid = e->gid,
		.generation = e->generation,
		.mode = e->mode,
		.device = shadow_device(&sy->shadow, e->device),
		.flags = e->flags & (SHADOW_RACY | SHADOW_TORN),
	};
	memcpy(ret->sha, e->sha, sizeof(ret->sha));
	if (S_ISREG(e->mode) && fill_is_doubtful(sy, e->ctime_ns))
		ret->flags |= SHADOW_RACY;
	if (S_ISDIR(e->mode) && e->device)
		ret->flags |= SHADOW_BOUNDARY;
}

int saved_fill(struct sync *sy, const struct saved *s, uint32_t dir)
{
	const struct saved_dir *d = find_dir(s, shadow_node(&sy->shadow, dir)->id);
	cleanup_free uint32_t *above = NULL; /* by depth */
	size_t cap = 64, at;
	struct saved_entry e;
	const char *name;
	int r;

	if (!d || !d->sent)
		return -EBADMSG;
	above = malloc(cap * sizeof(*above));
	if (!above)
		return -ENOMEM;
	above[0] = dir;
	for (at = d->at; (r = next_entry(s, &at, &e, &name)) > 0;) {
		struct shadow_node sig;
		uint32_t n;

		if (e.depth < d->depth)
			return 0;
		to_shadow(sy, &e, &sig);
		r = fill_add(sy, above[e.depth - d->depth], name, e.name_len, &sig, true, &n);
		if (r < 0)
			return r;
		if (!S_ISDIR(e.mode))
			continue;
		if (e.depth - d->depth + 1 == cap) {
			uint32_t *more = reallocarray(above, cap * 2, sizeof(*more));

			if (!more)
				return -ENOMEM;
			above = more;
			cap *= 2;
		}
		above[e.depth - d->depth + 1] = n;
	}
	return r;
}
