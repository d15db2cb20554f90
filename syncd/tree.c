#include "syncd/tree.h"

#include <sys/stat.h>

#include "base/clock.h"
#include "base/io.h"
#include "syncd/plan.h"
#include "syncd/tree-walk.h"

enum { PART_ENTRIES = 512, TREES_MAX = 4 };

struct tree {
	struct sync *sy;
	struct tree *next;
	uv_work_t req;
	bool busy, lost, ended;
	bool durable; /* the file system is to be synced first */
	int root_fd;
	uint64_t request, deadline_ms;
	sync_look_fn look; /* it is not B that asks */
	void *userdata;
	struct ignore ignore;
	char **paths;
	size_t n_paths;
	struct tree_walk *walk;
	int error;
	struct tree_item *items; /* the walk's */
	size_t n;
	const uint8_t *text;
};

static void tree_free(struct tree *t)
{
	for (struct tree **p = &t->sy->trees; *p; p = &(*p)->next) {
		if (*p == t) {
			*p = t->next;
			break;
		}
	}
	tree_walk_free(t->walk);
	ignore_done(&t->ignore);
	for (size_t i = 0; i < t->n_paths; i++)
		free(t->paths[i]);
	free(t->paths);
	free(t);
}

static void step(uv_work_t *req)
{
	struct tree *t = req->data;

	t->n = 0;
	if (t->durable && io_syncfs(t->root_fd, "tree.sync") < 0) {
		t->error = -EIO;
		return;
	}
	t->durable = false;
	t->error = tree_walk_next(t->walk, PART_ENTRIES, &t->items, &t->n, &t->text);
}

struct entry_parts {
	Limbwire__TreeEntry m;
	struct wire_attr_scratch scratch;
	struct node node;
};

static void fill(struct tree *t, struct tree_item *it, struct entry_parts *e)
{
	Limbwire__TreeEntry *m = &e->m;

	limbwire__tree_entry__init(m);
	m->parent = it->parent;
	m->name.data = (uint8_t *)it->name;
	m->name.len = strlen(it->name);
	m->same_as = it->same_as;
	m->error = (uint32_t)-it->error;
	if (!it->c.st.mode)
		return;
	plan_fill_node(t->sy, &it->c.st, &e->node);
	e->node.torn = it->c.torn;
	e->node.unheld |= it->c.kept;
	e->node.target = t->text + it->c.target;
	e->node.target_len = (uint32_t)it->c.target_len;
	e->node.xattrs = t->text + it->c.xattrs;
	e->node.xattrs_len = (uint32_t)it->c.xattrs_len;
	memcpy(e->node.content.sha256, it->c.sha, SHA256_BYTES);
	if (wire_attr_fill(&e->scratch, &e->node) < 0) {
		m->error = ENOMEM;
		return;
	}
	m->attr = &e->scratch.attr;
	if (it->hashed)
		m->content = &e->scratch.content;
}

static int send_part(struct tree *t)
{
	Limbwire__TreePart part = LIMBWIRE__TREE_PART__INIT;
	cleanup_free struct entry_parts *entries = calloc(t->n + 1, sizeof(*entries));
	cleanup_free Limbwire__TreeEntry **ptrs = calloc(t->n + 1, sizeof(*ptrs));
	int r = -ENOMEM;

	if (entries && ptrs) {
		for (size_t i = 0; i < t->n; i++) {
			fill(t, &t->items[i], &entries[i]);
			ptrs[i] = &entries[i].m;
		}
		part.request = t->request;
		part.entries = ptrs;
		part.n_entries = t->n;
		part.last = t->ended;
		r = session_send(t->sy->session, SESSION_BULK, WIRE_TREE_PART, &part.base, NULL, 0);
	}
	for (size_t i = 0; entries && i < t->n; i++)
		wire_attr_scratch_done(&entries[i].scratch);
	return r;
}

static void show_part(struct tree *t)
{
	for (size_t i = 0; i < t->n; i++) {
		struct tree_item *it = &t->items[i];
		struct entry_parts e = {0};
		bool odd = it->error || it->c.torn ||
			   (!S_ISDIR(it->c.st.mode) && it->c.st.nlink > 1);

		fill(t, it, &e);
		t->look(&e.m, it->path, &e.node, odd ? it->c.st.inode | 1ull << 63 : 0, 0,
			t->userdata);
		wire_attr_scratch_done(&e.scratch);
	}
	if (t->ended)
		t->look(NULL, NULL, NULL, 0, 0, t->userdata);
}

static void next_step(struct tree *t);

static void step_failed(struct tree *t, int error)
{
	t->lost = true;
	if (t->look)
		t->look(NULL, NULL, NULL, 0, error, t->userdata);
	else
		(void)session_send_error(t->sy->session, t->request, -error, "walk");
}

static void step_done(uv_work_t *req, int status)
{
	struct tree *t = req->data;
	struct sync *sy = t->sy;

	t->busy = false;
	sy->in_flight--;
	if (!t->lost) {
		if (status < 0 || t->error < 0) {
			step_failed(t, status < 0 ? status : t->error);
		} else {
			t->ended = t->n == 0;
			if (t->look)
				show_part(t);
			else if (send_part(t) < 0)
				t->lost = true;
		}
	}
	if (t->lost || t->ended)
		tree_free(t);
	else
		next_step(t);
	sync_pump(sy);
}

static void next_step(struct tree *t)
{
	struct sync *sy = t->sy;

	if (clock_mono_ms() >= t->deadline_ms) {
		(void)session_send_error(sy->session, t->request, ETIMEDOUT, "deadline");
		tree_free(t);
		return;
	}
	if (!t->look && session_queued(sy->session, SESSION_BULK) >= SESSION_BULK_HIGH)
		return;
	if (uv_queue_work(sy->loop, &t->req, step, step_done) < 0)
		return;
	t->busy = true;
	sy->in_flight++;
}

void tree_drained(struct sync *sy)
{
	for (struct tree *t = sy->trees, *next; t; t = next) {
		next = t->next;
		if (!t->busy)
			next_step(t);
	}
}

void tree_detached(struct sync *sy)
{
	for (struct tree *t = sy->trees, *next; t; t = next) {
		next = t->next;
		t->lost = true;
		if (!t->busy)
			tree_free(t);
	}
}

void tree_free_all(struct sync *sy)
{
	while (sy->trees)
		tree_free(sy->trees);
}

static int copy_paths(struct tree *t, const Limbwire__TreeGet *get)
{
	t->paths = calloc(get->n_paths + 1, sizeof(*t->paths));
	if (!t->paths)
		return -ENOMEM;
	for (size_t i = 0; i < get->n_paths; i++) {
		t->paths[i] = strndup((const char *)get->paths[i].data, get->paths[i].len);
		if (!t->paths[i])
			return -ENOMEM;
		t->n_paths++;
	}
	return 0;
}

static int tree_new(struct sync *sy, const Limbwire__TreeGet *get, sync_look_fn look,
		    void *userdata)
{
	struct tree *t = calloc(1, sizeof(*t));
	struct tree_walk_args args = {
		.root_fd = sy->root.fd,
		.device = sy->root.st.device,
		.mount = sy->root.st.mount,
		.private_inode =
			sy->root.dir_st.device == sy->root.st.device ? sy->root.dir_st.inode : 0,
		.unheld = sy->root.unheld,
		.hash = get->hash,
		.flat = get->flat,
	};
	int r;

	if (!t)
		return -ENOMEM;
	t->sy = sy;
	t->req.data = t;
	t->request = get->request;
	t->look = look;
	t->userdata = userdata;
	t->durable = get->durable;
	t->root_fd = sy->root.fd;
	t->deadline_ms = get->deadline_ms ? clock_mono_ms() + get->deadline_ms : UINT64_MAX;
	r = copy_paths(t, get);
	if (r == 0)
		r = ignore_copy(&t->ignore, &sy->rules.said);
	args.ignore = &t->ignore;
	args.paths = t->paths;
	args.n_paths = t->n_paths;
	if (r == 0)
		r = tree_walk_new(&args, &t->walk);
	if (r < 0) {
		tree_free(t);
		return r;
	}
	t->next = sy->trees;
	sy->trees = t;
	next_step(t);
	return 0;
}

void sync_on_tree_get(struct sync *sy, const Limbwire__TreeGet *get)
{
	unsigned n = 0;
	int r = -EBUSY;

	for (const struct tree *t = sy->trees; t; t = t->next)
		n++;
	if (n < TREES_MAX)
		r = root_check(&sy->root);
	if (r == 0)
		r = tree_new(sy, get, NULL, NULL);
	if (r < 0)
		(void)session_send_error(sy->session, get->request, -r, "");
}

int sync_look(struct sync *sy, sync_look_fn fn, void *userdata)
{
	Limbwire__TreeGet get = LIMBWIRE__TREE_GET__INIT;

	get.hash = true;
	return tree_new(sy, &get, fn, userdata);
}

void sync_look_end(struct sync *sy, void *userdata)
{
	for (struct tree *t = sy->trees, *next; t; t = next) {
		next = t->next;
		if (!t->look || t->userdata != userdata)
			continue;
		t->lost = true;
		if (!t->busy)
			tree_free(t);
	}
}
