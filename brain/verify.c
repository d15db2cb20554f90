#include "brain/verify.h"

#include <fcntl.h>

#include "base/io.h"
#include "base/text.h"
#include "brain/barrier.h"
#include "brain/link.h"
#include "journal/content.h"
#include "wire/wire.pb-c.h"

enum {
	DEADLINE_MS = 600000,
	BARRIER_MS = 60000,
	TRIES = 3,
	DIFFERENCES_MAX = 1000,
	/* What an environment may say of its tree: so much for each node that the journal has, and
	 * so much more. It lies on our disk meanwhile. */
	NODE_BYTES = 4 << 10,
	SPOOL_BYTES = 64 << 20,
};

struct verify {
	struct env *env;
	verify_fn fn;
	void *userdata;
	bool durable;
	uint64_t seq;
	unsigned tries;
	int spool; /* ENTRY_TREE_PARTs end to end */
	uint64_t spool_bytes;

	/* the thread's */
	uv_work_t work;
	struct index *index;
	struct store *store;
	uint32_t mask;
	int result;
	struct brought brought;
	json_t *paths;						  /* NULL: all */
	bool *met;						  /* by path: a side has it */
	uint8_t journal[2][SHA256_BYTES], other[2][SHA256_BYTES]; /* content, full */
	uint64_t files, directories, bytes, n_differences;
	json_t *differences, *unsupported;
	bool truncated;
	char name[80];
	uint64_t incarnation;
	uint64_t spool_max;
	struct ignore ignore; /* names that the other side leaves out */
	uint64_t ignore_left;
};

/* ---- the thread: the environment's side as a stream of entries ---- */

struct side {
	char *path; /* current entry's; NUL-terminated for convenience, bytes */
	size_t len, cap;
	const struct node *node;
	uint32_t same_as;
	uint32_t error;
};

struct spool {
	int fd;
	uint64_t at, end;
	struct buf part;
	struct entry_cursor cur;
	bool have;
	/* numbers of entries to the lengths of their paths: a stack suffices in pre-order */
	struct level {
		uint64_t number;
		size_t len;
	} * stack;
	size_t depth, cap;
	uint64_t number;
	struct side side;
	struct node node;
};

static int path_set(struct side *s, size_t keep, const char *name, size_t n)
{
	size_t need = keep + 1 + n + 1;

	if (need > s->cap) {
		char *p = realloc(s->path, need * 2);

		if (!p)
			return -ENOMEM;
		s->path = p;
		s->cap = need * 2;
	}
	if (keep)
		s->path[keep++] = '/';
	memcpy(s->path + keep, name, n);
	s->len = keep + n;
	s->path[s->len] = 0;
	return 0;
}

static int spool_part(struct spool *sp)
{
	struct entry_head head;
	uint8_t *p;
	int r;

	if (sp->at + sizeof(head) > sp->end)
		return 0;
	if (io_pread_full(sp->fd, &head, sizeof(head), sp->at, "verify.read") != sizeof(head))
		return -EIO;
	buf_clear(&sp->part);
	r = buf_reserve(&sp->part, head.length, &p);
	if (r < 0)
		return r;
	if (io_pread_full(sp->fd, p, head.length, sp->at, "verify.read") != (ssize_t)head.length)
		return -EIO;
	buf_commit(&sp->part, head.length);
	sp->at += head.length;
	entry_cursor_init(&sp->cur, (const struct entry_head *)buf_data(&sp->part));
	return 1;
}

/* 1: sp->side is the next entry; 0: the end. */
static int spool_next(struct spool *sp)
{
	const struct entry_tree_entry *e;
	const char *name;
	size_t keep = 0;
	int r;

	do {
		while (!entry_next_tree(&sp->cur, &e, &name, &sp->node)) {
			r = spool_part(sp);
			if (r <= 0)
				return r;
		}
	} while (e->name_len == 0); /* the root itself */
	sp->number++;
	while (sp->depth && sp->stack[sp->depth - 1].number != e->parent)
		sp->depth--;
	if (e->parent && !sp->depth)
		return -EPROTO;
	if (sp->depth)
		keep = sp->stack[sp->depth - 1].len;
	if (keep + 1 + e->name_len > INDEX_PATH_MAX)
		return -ENAMETOOLONG;
	r = path_set(&sp->side, keep, name, e->name_len);
	if (r < 0)
		return r;
	if (sp->node.type == NODE_TYPE_DIRECTORY) {
		if (sp->depth == sp->cap) {
			size_t cap = sp->cap ? sp->cap * 2 : 64;
			struct level *l = reallocarray(sp->stack, cap, sizeof(*l));

			if (!l)
				return -ENOMEM;
			sp->stack = l;
			sp->cap = cap;
		}
		sp->stack[sp->depth++] = (struct level){sp->number, sp->side.len};
	}
	sp->side.node = &sp->node;
	sp->side.same_as = e->same_as;
	sp->side.error = e->error;
	return 1;
}

/* ---- the thread: comparing ---- */

struct merge {
	struct verify *v;
	struct spool spool;
	struct node_hasher *ours, *theirs;
	bool theirs_left;
	struct buf chunk;
	struct sha256_ctx *sha;
	/* Where something is left out, the entries' numbers without that. */
	uint32_t *numbers;
	size_t n_numbers, cap_numbers;
	uint32_t number;
};

static void put_path(json_t *o, const char *path, size_t len)
{
	_cleanup_(buf_done) struct buf b = BUF_INIT(0);

	if (text_utf8_ok(path, len)) {
		(void)json_object_set_new(o, "path", json_stringn(path, len));
		return;
	}
	if (text_utf8_replace(&b, path, len) == 0)
		(void)json_object_set_new(o, "path",
					  json_stringn((const char *)buf_data(&b), buf_len(&b)));
	buf_clear(&b);
	if (text_base64(&b, path, len) == 0)
		(void)json_object_set_new(o, "path_base64",
					  json_stringn((const char *)buf_data(&b), buf_len(&b)));
}

static void differ(struct verify *v, const char *path, size_t len, const char *field)
{
	json_t *o;

	v->n_differences++;
	if (json_array_size(v->differences) >= DIFFERENCES_MAX) {
		v->truncated = true;
		return;
	}
	o = json_object();
	put_path(o, path, len);
	(void)json_object_set_new(o, "field", json_string(field));
	(void)json_array_append_new(v->differences, o);
}

/* Paths in the canonical order: '/' sorts before every other byte. */
static int path_compare(const char *a, size_t an, const char *b, size_t bn)
{
	size_t n = MIN(an, bn);

	for (size_t i = 0; i < n; i++) {
		unsigned char x = (unsigned char)a[i], y = (unsigned char)b[i];

		if (x == y)
			continue;
		if (x == '/')
			return -1;
		if (y == '/')
			return 1;
		return x < y ? -1 : 1;
	}
	return an < bn ? -1 : an > bn;
}

static int reread_piece(const uint8_t *hash, uint64_t offset, uint64_t len, void *userdata)
{
	struct merge *m = userdata;
	int r;

	(void)offset;
	if (!hash) {
		sha256_update_zeros(m->sha, len);
		return 0;
	}
	buf_clear(&m->chunk);
	r = store_fetch(m->v->store, hash, &m->chunk);
	if (r < 0)
		return r;
	if (buf_len(&m->chunk) != len)
		return -EBADMSG;
	sha256_update(m->sha, buf_data(&m->chunk), buf_len(&m->chunk));
	return 0;
}

/* The journal's bytes, read from the packs again; false: lost or damaged. */
static bool reread(struct merge *m, const struct content_ref *ref)
{
	uint8_t hash[SHA256_BYTES];

	sha256_reset(m->sha);
	if (content_walk(ref, store_fetch_fn, m->v->store, reread_piece, m) < 0)
		return false;
	sha256_final(m->sha, hash);
	return memcmp(hash, ref->sha256, sizeof(hash)) == 0;
}

static int hash_compare(const void *a, const void *b)
{
	return memcmp(a, b, SHA256_BYTES);
}

static bool was_brought(const struct verify *v, const uint8_t *sha256)
{
	return v->brought.n &&
	       bsearch(sha256, v->brought.v, v->brought.n, SHA256_BYTES, hash_compare) != NULL;
}

static bool is_wanted(struct verify *v, const char *path, size_t len)
{
	const json_t *o;
	bool wanted = false;
	size_t i;

	if (!v->paths)
		return true;
	json_array_foreach(v->paths, i, o)
	{
		size_t n = json_string_length(o);

		if (n <= len && memcmp(path, json_string_value(o), n) == 0 &&
		    (n == 0 || n == len || path[n] == '/'))
			wanted = v->met[i] = true;
	}
	return wanted;
}

static void their_entry(struct merge *m)
{
	struct side *s = &m->spool.side;

	node_hasher_add(m->theirs, s->path, s->len, s->node, s->same_as);
}

static int skip_extra(struct merge *m, const char *path, size_t len)
{
	struct side *s = &m->spool.side;
	int r = 1;

	while (m->theirs_left && (!path || path_compare(s->path, s->len, path, len) < 0)) {
		if (is_wanted(m->v, s->path, s->len)) {
			their_entry(m);
			differ(m->v, s->path, s->len, "extra");
		}
		r = spool_next(&m->spool);
		if (r < 0)
			return r;
		m->theirs_left = r > 0;
	}
	return 0;
}

static void judge_one(struct merge *m, const char *path, size_t len, const struct index_node *n,
		      uint32_t same_as)
{
	struct verify *v = m->v;
	struct side *s = &m->spool.side;
	uint32_t fields;

	if (n->n.type == NODE_TYPE_FILE) {
		v->files++;
		v->bytes += n->n.content.size_bytes;
		if (!was_brought(v, n->n.content.sha256) && !reread(m, &n->n.content))
			differ(v, path, len, "content");
	} else if (n->n.type == NODE_TYPE_DIRECTORY) {
		v->directories++;
	}
	node_hasher_add(m->ours, path, len, &n->n, same_as);
	if (!m->theirs_left || path_compare(s->path, s->len, path, len) != 0) {
		differ(v, path, len, "missing");
		return;
	}
	their_entry(m);
	fields = node_compare(&n->n, s->node, v->mask);
	if (s->error)
		fields |= NODE_FIELD_CONTENT;
	if (s->same_as != same_as)
		fields |= NODE_FIELD_LINKS;
	for (uint32_t bit = 1; bit && bit <= NODE_FIELD_HOLES; bit <<= 1)
		if (fields & bit && bit != NODE_FIELD_HOLES)
			differ(v, path, len, node_field_name((enum node_field)bit));
}

static bool is_left_out(const struct verify *v, const char *path, size_t len, bool is_dir)
{
	cleanup_free char *text = v->ignore.n_rules ? strndup(path, len) : NULL;

	return text && ignore_covers(&v->ignore, text, is_dir, NULL);
}

/* As it is counted on the other side; 0: the first of its node is left out, and so this is the
 * first. Numbers begin at 1. */
static int renumber(struct merge *m, bool left_out, uint32_t *same_as)
{
	if (!m->v->ignore.n_rules)
		return 0;
	if (m->n_numbers == m->cap_numbers) {
		size_t cap = m->cap_numbers ? m->cap_numbers * 2 : 1024;
		uint32_t *p = reallocarray(m->numbers, cap, sizeof(*p));

		if (!p)
			return -ENOMEM;
		m->numbers = p;
		m->cap_numbers = cap;
	}
	if (*same_as && *same_as <= m->n_numbers) {
		uint32_t first = *same_as - 1;

		*same_as = m->numbers[first];
		if (!*same_as && !left_out) /* for those that come */
			m->numbers[first] = m->number + 1;
	}
	m->numbers[m->n_numbers++] = left_out ? 0 : ++m->number;
	return 0;
}

static int merge_one(const char *path, size_t len, const struct index_node *n, uint32_t same_as,
		     void *userdata)
{
	struct merge *m = userdata;
	struct verify *v = m->v;
	struct side *s = &m->spool.side;
	bool wanted = is_wanted(v, path, len);
	bool left_out = is_left_out(v, path, len, n->n.type == NODE_TYPE_DIRECTORY);
	int r;

	if (v->ignore_left == 0)
		return -EOVERFLOW;
	r = renumber(m, left_out, &same_as);
	if (r == 0 && !left_out)
		r = skip_extra(m, path, len);
	if (r < 0 || left_out)
		return r;
	if (wanted)
		judge_one(m, path, len, n, same_as);
	if (!m->theirs_left || path_compare(s->path, s->len, path, len) != 0)
		return 0;
	r = spool_next(&m->spool);
	if (r < 0)
		return r;
	m->theirs_left = r > 0;
	return 0;
}
static int merge_run(struct verify *v)
{
	struct merge m = {.v = v, .spool = {.fd = v->spool, .end = v->spool_bytes}};
	struct index_txn *t = NULL;
	int r;

	buf_init(&m.chunk, 2 << 20);
	buf_init(&m.spool.part, ENTRY_MAX);
	m.ours = node_hasher_new(v->mask);
	m.theirs = node_hasher_new(v->mask);
	m.sha = sha256_new();
	r = m.ours && m.theirs ? spool_next(&m.spool) : -ENOMEM;
	if (r < 0)
		goto out;
	m.theirs_left = r > 0;
	r = index_read_begin(v->index, &t);
	if (r < 0)
		goto out;
	r = index_walk(t, NODE_ROOT, v->seq, merge_one, &m);
	index_read_end(t);
	if (r == 0 || r == -ENOENT)
		r = skip_extra(&m, NULL, 0);
	if (r < 0)
		goto out;
	node_hasher_final(m.ours, v->journal[0], v->journal[1]);
	node_hasher_final(m.theirs, v->other[0], v->other[1]);
out:
	node_hasher_free(m.ours);
	node_hasher_free(m.theirs);
	free(m.numbers);
	sha256_free(m.sha);
	buf_done(&m.chunk);
	buf_done(&m.spool.part);
	free(m.spool.stack);
	free(m.spool.side.path);
	return r;
}

static void verify_work(uv_work_t *w)
{
	struct verify *v = container_of(w, struct verify, work);

	if (v->brought.n)
		qsort(v->brought.v, v->brought.n, SHA256_BYTES, hash_compare);
	v->result = merge_run(v);
}

/* ---- the loop ---- */

static int verify_begin(struct verify *v);

static void verify_free(struct verify *v)
{
	if (v->spool >= 0)
		(void)close(v->spool);
	json_decref(v->differences);
	json_decref(v->unsupported);
	json_decref(v->paths);
	free(v->met);
	free(v->brought.v);
	ignore_done(&v->ignore);
	free(v);
}

static void verify_end(struct verify *v, int r, json_t *result)
{
	v->fn(v->env, r, result, v->userdata);
	json_decref(result);
	verify_free(v);
}

static json_t *hash_text(const uint8_t *hash)
{
	char text[8 + 2 * SHA256_BYTES];

	memcpy(text, "sha256:", 7);
	text_hex(text + 7, hash, SHA256_BYTES);
	return json_string(text);
}

static json_t *mask_json(uint32_t mask)
{
	static const struct {
		uint32_t bit;
		const char *text;
	} bits[] = {
		{NODE_MASK_OWNER, "owner"},
		{NODE_MASK_SETID, "setuid, setgid and sticky bits"},
		{NODE_MASK_XATTR_USER, "xattr user.*"},
		{NODE_MASK_XATTR_TRUSTED, "xattr trusted.* and security.*"},
		{NODE_MASK_XATTR_ACL, "xattr system.posix_acl_*"},
		{NODE_MASK_NS, "nanoseconds of mtime"},
		{NODE_MASK_DEVICE, "device nodes"},
		{NODE_MASK_YEARS, "mtimes before 1970 or after 2106"},
	};
	json_t *a = json_array();

	for (size_t i = 0; i < ARRAY_SIZE(bits); i++)
		if (mask & bits[i].bit)
			(void)json_array_append_new(a, json_string(bits[i].text));
	return a;
}

static json_t *verify_json(struct verify *v)
{
	return json_pack("{s:s, s:I, s:I, s:b, s:{s:o, s:o}, s:{s:o, s:o}, s:o, s:I, s:I, s:I, "
			 "s:O, s:O, s:b}",
			 "environment", v->env->name, "incarnation",
			 (json_int_t)v->env->incarnation, "seq", (json_int_t)v->seq, "equal",
			 v->n_differences == 0, "journal", "content", hash_text(v->journal[0]),
			 "full", hash_text(v->journal[1]), "environment_side", "content",
			 hash_text(v->other[0]), "full", hash_text(v->other[1]), "mask",
			 mask_json(v->mask), "files", (json_int_t)v->files, "directories",
			 (json_int_t)v->directories, "bytes", (json_int_t)v->bytes, "unsupported",
			 v->env->unsupported ? v->env->unsupported : v->unsupported, "differences",
			 v->differences, "truncated", v->truncated);
}

static void verify_worked(uv_work_t *w, int status)
{
	struct verify *v = container_of(w, struct verify, work);
	json_t *path;
	size_t i;

	(void)status;
	v->env->threads--;
	if (v->result < 0) {
		verify_end(v, v->result, NULL);
		return;
	}
	json_array_foreach(v->paths, i, path) if (!v->met[i] && json_string_length(path))
	{
		verify_end(v, -ENOENT, json_incref(path));
		return;
	}
	/* A moving tree differs from any moment of the journal: look again. */
	if (v->n_differences && env_seq(v->env) != v->seq && v->tries < TRIES) {
		int r = verify_begin(v);

		if (r < 0)
			verify_end(v, r, NULL);
		return;
	}
	verify_end(v, 0, verify_json(v));
}

static void verify_part(struct env *env, int r, const struct entry_head *e, void *userdata)
{
	struct verify *v = userdata;
	const struct entry_tree_part *p = (const struct entry_tree_part *)e;

	if (r == 0 && v->spool_bytes + e->length > v->spool_max) {
		if (!p->last)
			link_forget(env, p->request);
		env_lied(env, "a tree that is far larger than what it told of");
		link_lost(env, "it lied");
		r = -EPROTO;
	} else if (r == 0) {
		r = io_pwrite_full(v->spool, e, e->length, v->spool_bytes, "verify.spool");
		v->spool_bytes += e->length;
		if (r < 0 && !p->last)
			link_forget(env, p->request);
	}
	if (r < 0) {
		verify_end(v, r, NULL);
		return;
	}
	if (!p->last)
		return;
	v->index = env->index;
	v->store = env->brain->store;
	v->mask = env->unheld;
	ignore_done(&v->ignore);
	(void)ignore_copy(&v->ignore, &env->ignore);
	ignore_bound(&v->ignore, env_nodes(env), &v->ignore_left);
	env->threads++;
	(void)uv_queue_work(env->brain->loop, &v->work, verify_work, verify_worked);
}

static void verify_synced(struct env *env, const struct barrier_result *res, void *userdata)
{
	struct verify *v = userdata;
	Limbwire__TreeGet m = LIMBWIRE__TREE_GET__INIT;
	int r = res->r;

	if (r == 0) {
		v->seq = res->seq;
		r = link_expect(env, ENTRY_TREE_PART, DEADLINE_MS, verify_part, v, &m.request);
	}
	if (r == 0) {
		m.hash = true;
		m.durable = v->durable;
		m.deadline_ms = DEADLINE_MS - 1000;
		r = link_send(env, WIRE_TREE_GET, &m.base, NULL, 0);
		if (r < 0)
			link_forget(env, m.request);
	}
	if (r < 0)
		verify_end(v, r, NULL);
}

static uint64_t spool_max(struct env *env)
{
	return SPOOL_BYTES + env_nodes(env) * NODE_BYTES;
}

static int verify_begin(struct verify *v)
{
	v->tries++;
	v->files = v->directories = v->bytes = v->n_differences = 0;
	v->truncated = false;
	(void)json_array_clear(v->differences);
	v->spool_bytes = 0;
	v->spool_max = spool_max(v->env);
	if (ftruncate(v->spool, 0) < 0)
		return -errno;
	return barrier_run(v->env, BARRIER_MS, verify_synced, v);
}

int verify_run(struct env *env, bool durable, json_t *paths, verify_fn fn, void *userdata)
{
	struct verify *v = calloc(1, sizeof(*v));
	int r;

	if (!v)
		return -ENOMEM;
	v->env = env;
	v->fn = fn;
	v->userdata = userdata;
	v->durable = durable;
	v->paths = json_incref(paths);
	v->met = paths ? calloc(json_array_size(paths) + 1, sizeof(*v->met)) : NULL;
	v->brought = env->brought;
	env->brought = (struct brought){0};
	v->differences = json_array();
	v->unsupported = json_array();
	v->spool = openat(env->dir_fd, ".", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
	r = v->spool < 0 ? -errno : paths && !v->met ? -ENOMEM : verify_begin(v);
	if (r < 0)
		verify_free(v);
	return r;
}
