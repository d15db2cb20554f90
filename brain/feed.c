#include "brain/feed.h"

#include <fcntl.h>

#include "base/io.h"
#include "base/log.h"
#include "brain/difference.h"
#include "brain/had.h"
#include "brain/link.h"
#include "wire/attr.h"
#include "wire/wire.pb-c.h"

enum {
	LINE_HIGH = 4 << 20,	/* queued bytes above which nothing more is put */
	STEP_BYTES = 512 << 10, /* content read in one step of a pull; two fit an entry */
	PART_ENTRIES = 1024,
	PART_BYTES = 256 << 10,
	FEEDS_MAX = 64,
	BROUGHT_MAX = 1 << 20, /* an environment may ask for the same again and again */
};

struct feed {
	struct feed *next;
	struct env *env;   /* NULL: stopped; freed when its work is over */
	struct env *owner; /* while it works: is not freed before */
	uint64_t request;
	bool is_tree;
	bool trees;	/* WIRE_CAP_TREES */
	bool elsewhere; /* what is only true of where the environment is now is left out */
	enum wire_compress compress;
	uint64_t at, base;
	int result;

	/* tree: ready frames in an unlinked file */
	uint8_t (*hashes)[DIGEST_BYTES]; /* of what the environment has */
	size_t n_hashes;
	bool by_content;
	int fd;
	uint64_t size, sent;

	/* pull */
	struct entry_pull_node *nodes;
	bool deltas;
	struct difference *difference; /* by which nodes[node] is sent; NULL: whole */
	uint8_t (*read)[SHA256_BYTES]; /* content that was read whole and without an error */
	size_t n_nodes, node, n_read;
	uint64_t offset; /* in nodes[node] */
	struct buf frames;

	/* lent to the thread while `working` */
	uv_work_t work;
	bool working, made;
	struct index *index;
	struct store *store;
	const char *tmp_dir;
};

/* ---- helper threads ---- */

struct tree_maker {
	struct feed *f;
	Limbwire__TreePart part;
	Limbwire__TreeEntry entries[PART_ENTRIES];
	Limbwire__TreeEntry *ptrs[PART_ENTRIES];
	struct wire_attr_scratch scratch[PART_ENTRIES];
	struct had had;
	size_t inside; /* depth + 1 of the entries of a directory that is there by content; 0: none */
	struct node nodes[PART_ENTRIES]; /* what the scratch points into: the walk reuses its own */
	struct index_walk_dirs dirs;
	size_t bytes;
	uint32_t before; /* entries sent before the walk's first: the root */
	struct buf out;
	/* The walk reuses the memory of its path: names that wait in the part are kept here. */
	char names[PART_ENTRIES * NODE_NAME_MAX];
	size_t names_used;
};

static int tree_flush(struct tree_maker *m, bool last)
{
	int r;

	if (!m->part.n_entries && !last)
		return 0;
	m->part.last = last;
	buf_clear(&m->out);
	r = m->f->trees ? wframe_pack_tree(&m->out, &m->part)
			: wframe_pack(&m->out, WIRE_TREE_PART, &m->part.base, NULL, 0, WIRE_PLAIN);
	if (r < 0)
		return r;
	r = io_write_full(m->f->fd, buf_data(&m->out), buf_len(&m->out), "feed.spool");
	if (r < 0)
		return r;
	m->f->size += buf_len(&m->out);
	m->part.n_entries = 0;
	m->bytes = 0;
	return 0;
}

static int tree_add(struct tree_maker *m, const char *name, size_t name_len, uint64_t parent,
		    const struct index_node *n, uint32_t same_as, bool root, bool had)
{
	size_t i = m->part.n_entries;
	Limbwire__TreeEntry *e = &m->entries[i];
	int r;

	limbwire__tree_entry__init(e);
	m->nodes[i] = n->n;
	r = wire_attr_fill(&m->scratch[i], &m->nodes[i]);
	if (r < 0)
		return r;
	e->node = n->id;
	e->parent = parent;
	e->name = (ProtobufCBinaryData){name_len, (uint8_t *)name};
	e->same = m->f->base && n->version <= m->f->base;
	if (!e->same) {
		e->attr = &m->scratch[i].attr;
		e->content = n->n.type == NODE_TYPE_FILE ? &m->scratch[i].content : NULL;
		e->version = n->version;
	}
	if (!e->same && m->f->elsewhere) {
		Limb__Attr *a = &m->scratch[i].attr;

		a->ctime_ns = 0;
		a->inode = a->generation = a->device = e->version = 0;
	}
	/* Entries that are not sent are not counted: with them it only says that there are others. */
	e->same_as = m->f->n_hashes && !m->f->by_content
			     ? n->links > 1 && n->n.type != NODE_TYPE_DIRECTORY
			     : same_as;
	e->root = root;
	e->had = had;
	m->part.n_entries++;
	m->bytes += 256 + name_len + n->n.target_len + n->n.xattrs_len;
	return 0;
}

static int tree_full(struct tree_maker *m)
{
	int r;

	if (m->part.n_entries < PART_ENTRIES && m->bytes <= PART_BYTES)
		return 0;
	r = tree_flush(m, false);
	m->names_used = 0;
	return r;
}

/* What is there by content lacks the node's number only. */
static int tree_add_inside(struct tree_maker *m, uint64_t node)
{
	Limbwire__TreeEntry *e = &m->entries[m->part.n_entries++];

	limbwire__tree_entry__init(e);
	e->node = node;
	e->had = true;
	m->bytes += 16;
	return tree_full(m);
}

static size_t depth_of(const char *path, size_t len)
{
	size_t depth = 0;

	for (size_t i = 0; i < len; i++)
		depth += path[i] == '/';
	return depth;
}

static bool tree_had(const struct tree_maker *m, const char *path, size_t len, uint64_t node)
{
	return m->had.n && had_is(&m->had, m->f->by_content ? digest_path(path, len) : node);
}

static int tree_each(const char *path, size_t len, const struct index_node *n, uint32_t same_as,
		     void *userdata)
{
	struct tree_maker *m = userdata;
	bool had = n->n.type == NODE_TYPE_DIRECTORY && tree_had(m, path, len, n->id);
	size_t name, depth = depth_of(path, len);
	uint64_t parent;
	char *copy;
	int r;

	if (depth + 1 < m->inside)
		m->inside = 0;
	if (m->inside)
		return tree_add_inside(m, n->id);
	r = index_walk_parent(&m->dirs, path, len, n->id, &parent, &name);
	if (r < 0)
		return r;
	copy = m->names + m->names_used;
	memcpy(copy, path + name, len - name);
	m->names_used += len - name;
	r = tree_add(m, copy, len - name, parent, n, same_as ? m->before + same_as : 0, false, had);
	if (r == 0)
		r = tree_full(m);
	if (r < 0 || !had)
		return r;
	if (!m->f->by_content)
		return INDEX_WALK_SKIP;
	m->inside = depth + 2;
	return 0;
}

static int tree_walk(struct tree_maker *m, struct index_txn *t)
{
	struct feed *f = m->f;
	struct index_node root;
	bool had;
	int r = 0;

	if (f->n_hashes)
		r = had_find(t, f->at, f->hashes, f->n_hashes, f->by_content, &m->had);
	if (r < 0)
		return r;
	had = tree_had(m, "", 0, NODE_ROOT);
	r = index_get_node(t, NODE_ROOT, f->at, &root);
	if (r == 0)
		r = tree_add(m, "", 0, NODE_ROOT, &root, 0, true, had);
	if (r < 0 && r != -ENOENT)
		return r;
	m->before = r == 0;
	m->inside = had;
	return had && !f->by_content ? 0 : index_walk(t, NODE_ROOT, f->at, tree_each, m);
}

static int tree_make(struct feed *f)
{
	struct tree_maker *m = calloc(1, sizeof(*m));
	struct index_txn *t = NULL;
	int r;

	if (!m)
		return -ENOMEM;
	m->f = f;
	limbwire__tree_part__init(&m->part);
	m->part.request = f->request;
	for (size_t i = 0; i < PART_ENTRIES; i++)
		m->ptrs[i] = &m->entries[i];
	m->part.entries = m->ptrs;
	buf_init(&m->out, WIRE_BODY_MAX + 4096);
	f->fd = open(f->tmp_dir, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
	r = f->fd < 0 ? -errno : index_read_begin(f->index, &t);
	if (r < 0)
		goto out;
	r = tree_walk(m, t);
	if (r == 0 || r == -ENOENT)
		r = tree_flush(m, true);
out:
	if (t)
		index_read_end(t);
	for (size_t i = 0; i < PART_ENTRIES; i++)
		wire_attr_scratch_done(&m->scratch[i]);
	buf_done(&m->out);
	had_done(&m->had);
	free(m->dirs.nodes);
	free(m);
	return r;
}

static int pull_frame(struct feed *f, uint64_t node, uint64_t offset, const void *bulk, size_t n,
		      uint64_t hole, bool last_of_node, bool last, int error)
{
	Limbwire__PullData d = LIMBWIRE__PULL_DATA__INIT;
	uint8_t body[128];
	size_t len;

	d.request = f->request;
	d.node = node;
	d.offset = offset;
	d.hole_bytes = hole;
	d.last_of_node = last_of_node;
	d.last = last;
	d.error = error;
	len = limbwire__pull_data__pack(&d, body);
	return wframe_encode(&f->frames, WIRE_PULL_DATA, body, len, bulk, n, f->compress);
}

/* What stands there is what the node had at some time: then only what differs is sent. */
static bool pull_has_base(struct feed *f, struct index_txn *t, struct content_ref *ret)
{
	const struct entry_pull_node *n = &f->nodes[f->node];

	return f->offset == 0 && !f->difference && f->deltas && n->has_base &&
	       index_find_content(t, n->node, n->base, ret) == 0;
}

/* As pull_step, of a node with a base. */
static int pull_difference(struct feed *f, uint64_t node, const struct content_ref *ref,
			   bool last_node)
{
	_cleanup_(buf_done) struct buf bytes = BUF_INIT(DIFFERENCE_LITERAL_BYTES);
	Limbwire__PullData d = LIMBWIRE__PULL_DATA__INIT;
	uint8_t body[128];
	int r;

	d.request = f->request;
	d.node = node;
	d.offset = f->offset;
	r = difference_next(f->difference, &d.copy_from, &d.copy_bytes, &bytes);
	if (r <= 0)
		return r < 0 ? r : -EIO;
	f->offset += d.copy_bytes + buf_len(&bytes);
	d.last_of_node = f->offset >= ref->size_bytes;
	d.last = d.last_of_node && last_node;
	r = wframe_encode(&f->frames, WIRE_PULL_DATA, body, limbwire__pull_data__pack(&d, body),
			  buf_data(&bytes), buf_len(&bytes), f->compress);
	return r < 0 ? r : d.last_of_node;
}

/* One frame of one node from f->offset on; 1: that node is over. */
static int pull_step(struct feed *f, uint64_t node, const struct content_ref *ref, bool last_node)
{
	_cleanup_(buf_done) struct buf bytes = BUF_INIT(STEP_BYTES + FRAME_RAW_MAX);
	uint64_t n = 0;
	bool hole = false, over;
	int r = 0;

	if (ref->size_bytes)
		r = content_extent(ref, f->offset, STEP_BYTES, store_fetch_fn, f->store, &hole, &n);
	if (r == 0 && n && !hole)
		r = content_read(ref, f->offset, n, store_fetch_fn, f->store, &bytes);
	if (r < 0)
		return r;
	over = f->offset + n >= ref->size_bytes;
	r = pull_frame(f, node, f->offset, buf_data(&bytes), buf_len(&bytes), hole ? n : 0, over,
		       over && last_node, 0);
	if (r < 0)
		return r;
	f->offset += n;
	return over;
}

static int pull_make(struct feed *f)
{
	struct index_txn *t;
	int r = 0;

	while (f->node < f->n_nodes && buf_len(&f->frames) < STEP_BYTES) {
		uint64_t node = f->nodes[f->node].node;
		bool last = f->node + 1 == f->n_nodes, whole, has_base = false;
		struct content_ref ref = {0}, base;
		struct index_node n;

		r = index_read_begin(f->index, &t);
		if (r < 0)
			return r;
		r = index_get_node(t, node, f->at, &n);
		if (r == 0 && n.n.type != NODE_TYPE_FILE)
			r = -EINVAL;
		if (r == 0) {
			ref = n.n.content;
			has_base = pull_has_base(f, t, &base);
		}
		index_read_end(t);
		if (has_base)
			(void)difference_new(&base, &ref, store_fetch_fn, f->store, &f->difference);
		whole = !f->difference;
		if (r == 0)
			r = whole ? pull_step(f, node, &ref, last)
				  : pull_difference(f, node, &ref, last);
		if (r > 0 && whole)
			memcpy(f->read[f->n_read++], ref.sha256, SHA256_BYTES);
		if (r < 0)
			r = pull_frame(f, node, f->offset, NULL, 0, 0, true, last, -r) < 0 ? -ENOMEM
											   : 1;
		if (r < 0)
			return r;
		if (r > 0) {
			f->node++;
			f->offset = 0;
			difference_free(take_ptr(&f->difference));
		}
	}
	return 0;
}

static void feed_work(uv_work_t *w)
{
	struct feed *f = container_of(w, struct feed, work);

	f->result = f->is_tree ? tree_make(f) : pull_make(f);
}

/* ---- the loop ---- */

static void feed_free(struct feed *f)
{
	if (f->fd >= 0)
		(void)close(f->fd);
	buf_done(&f->frames);
	difference_free(f->difference);
	free(f->hashes);
	free(f->nodes);
	free(f->read);
	free(f);
}

static void feed_worked(uv_work_t *w, int status);

static void feed_start_work(struct feed *f)
{
	f->working = true;
	f->owner = f->env;
	f->owner->threads++;
	if (f->owner->guest_of) /* whose index it reads */
		f->owner->guest_of->threads++;
	(void)uv_queue_work(f->env->brain->loop, &f->work, feed_work, feed_worked);
}

static int feed_send_error(struct env *env, uint64_t request, int error)
{
	Limbwire__Error e = LIMBWIRE__ERROR__INIT;

	e.request = request;
	e.error = error;
	e.detail = (char *)"the brain cannot read its journal";
	return link_send(env, WIRE_ERROR, &e.base, NULL, 0);
}

/* One whole frame of a tree's file. */
static int feed_push_frame(struct feed *f)
{
	uint8_t head[WIRE_HEADER_BYTES];
	cleanup_free uint8_t *frame = NULL;
	ssize_t got;
	size_t n;

	got = io_pread_full(f->fd, head, sizeof(head), f->sent, "feed.read");
	if (got != (ssize_t)sizeof(head))
		return got < 0 ? (int)got : -EIO;
	n = sizeof(head) + get_le32(head + 4) + get_le32(head + 8);
	frame = malloc(n);
	if (!frame)
		return -ENOMEM;
	got = io_pread_full(f->fd, frame, n, f->sent, "feed.read");
	if (got != (ssize_t)n)
		return got < 0 ? (int)got : -EIO;
	f->sent += n;
	return link_send_raw(f->env, frame, n);
}

/* Best effort: what is not noted is read again. */
static void note_brought(struct env *env, const struct feed *f)
{
	struct brought *b = &env->brought;

	if (!env->restoring || !f->n_read || b->n + f->n_read > BROUGHT_MAX)
		return;
	if (b->n + f->n_read > b->cap) {
		size_t cap = (b->n + f->n_read) * 2;
		void *v = reallocarray(b->v, cap, sizeof(*b->v));

		if (!v)
			return;
		b->v = v;
		b->cap = cap;
	}
	memcpy(b->v + b->n, f->read, f->n_read * sizeof(*f->read));
	b->n += f->n_read;
}

/* Sends what fits; 1: this one is over. */
static int feed_push(struct feed *f)
{
	struct env *env = f->env;
	int r;

	if (f->is_tree) {
		while (f->sent < f->size && link_queued(env) < LINE_HIGH) {
			r = feed_push_frame(f);
			if (r < 0)
				return r;
		}
		return f->sent == f->size;
	}
	if (buf_len(&f->frames)) {
		r = link_send_raw(env, buf_data(&f->frames), buf_len(&f->frames));
		if (r < 0)
			return r;
		buf_clear(&f->frames);
	}
	return f->node == f->n_nodes;
}

static void feed_go(struct env *env)
{
	struct feed *f;
	int r;

	while ((f = env->feeds) && !f->working) {
		if (!f->made) {
			feed_start_work(f);
			return;
		}
		r = f->result < 0 ? f->result : feed_push(f);
		if (r < 0) {
			log_warning_errno(r, "environment '%s': cannot give it what it asks for",
					  env->name);
			(void)feed_send_error(env, f->request, -r);
			r = 1;
		}
		if (r == 0) {
			if (link_queued(env) >= LINE_HIGH)
				return;	 /* feed_drained() goes on */
			f->made = false; /* a pull's next step */
			if (f->is_tree)
				return;
			continue;
		}
		env->feeds = f->next;
		if (!f->is_tree)
			note_brought(env, f);
		feed_free(f);
	}
}

static void feed_worked(uv_work_t *w, int status)
{
	struct feed *f = container_of(w, struct feed, work);

	(void)status;
	f->owner->threads--;
	if (f->owner->guest_of)
		f->owner->guest_of->threads--;
	f->working = false;
	f->made = true;
	if (!f->env)
		feed_free(f);
	else
		feed_go(f->env);
}

static int feed_queue(struct env *env, struct feed *f)
{
	struct feed **p = &env->feeds;
	size_t n = 0;

	for (; *p; p = &(*p)->next)
		n++;
	if (n >= FEEDS_MAX) {
		feed_free(f);
		return -EPROTO;
	}
	*p = f;
	f->env = env;
	f->index = env->index;
	f->store = env->brain->store;
	f->tmp_dir = env->dir;
	f->deltas = env->deltas;
	f->trees = env->trees;
	f->elsewhere = env->guest_of && !env->guest_is_old;
	f->compress = env->trees ? WIRE_ZSTD : env->compress ? WIRE_LZ4 : WIRE_PLAIN;
	f->at = env->restore_at;
	f->base = env->restore_base;
	feed_go(env);
	return 0;
}

static struct feed *feed_new(uint64_t request)
{
	struct feed *f = calloc(1, sizeof(*f));

	if (!f)
		return NULL;
	f->fd = -1;
	f->request = request;
	buf_init(&f->frames, 8 << 20);
	return f;
}

int feed_on_tree_get(struct env *env, const struct entry_head *e)
{
	const struct entry_tree_get *g = (const struct entry_tree_get *)e;
	struct feed *f = feed_new(g->request);

	if (!f)
		return -ENOMEM;
	f->is_tree = true;
	/* Of a tree that leans on the one before it is known what is there. */
	if (g->n && env->trees && !env->restore_base) {
		f->hashes = malloc(g->n * sizeof(*f->hashes));
		if (!f->hashes) {
			feed_free(f);
			return -ENOMEM;
		}
		memcpy(f->hashes, entry_tail(g), g->n * sizeof(*f->hashes));
		f->n_hashes = g->n;
		f->by_content = g->by_content;
	}
	return feed_queue(env, f);
}

int feed_on_pull(struct env *env, const struct entry_head *e)
{
	const struct entry_pull *p = (const struct entry_pull *)e;
	struct feed *f = feed_new(p->request);

	if (!f)
		return -ENOMEM;
	f->n_nodes = p->n;
	f->nodes = malloc((p->n ? p->n : 1) * sizeof(*f->nodes));
	f->read = malloc((p->n ? p->n : 1) * sizeof(*f->read));
	if (!f->nodes || !f->read) {
		feed_free(f);
		return -ENOMEM;
	}
	memcpy(f->nodes, entry_tail(p), p->n * sizeof(*f->nodes));
	return feed_queue(env, f);
}

void feed_drained(struct env *env)
{
	if (link_queued(env) < LINE_HIGH)
		feed_go(env);
}

void feed_stop(struct env *env)
{
	struct feed *f;

	free(env->brought.v);
	env->brought = (struct brought){0};
	while ((f = env->feeds)) {
		env->feeds = f->next;
		f->env = NULL;
		if (!f->working)
			feed_free(f);
	}
}
