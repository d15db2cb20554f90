#include "syncd/restore.h"

#include <fcntl.h>
#include <stdio.h>

#include "base/clock.h"
#include "base/io.h"
#include "base/log.h"
#include "base/util.h"
#include "syncd/restore-write.h"

enum {
	PULLS = 4,
	PULL_FILES = 16, /* 4 times 16: what PROTOCOL allows outstanding */
	BATCH_FILES = 64,
	BATCH_BYTES = 1 << 20,
	BATCHES = 4, /* with workers at a time: more only wait for each other */
	CHECK_ENTRIES = 512,
	SMALL_BYTES = 256 << 10,
	ADOPT_AT_ONCE = 2000,
};

enum phase { CLEAN, TREE, DIRS, CHECK, FILES, LINKS, ATTRS, ADOPT, OVER };

/* A file whose content was asked for. */
struct slot {
	struct rentry *e; /* NULL: done */
	uint64_t got;
	int fd; /* -1: nothing has come yet */
};

struct pull {
	uint64_t request; /* 0: free */
	unsigned n;
	struct slot slots[PULL_FILES];
};

/* Work for a thread: some files, or a phase. */
struct batch {
	uv_work_t work;
	struct restore *restore;
	enum phase phase;
	struct {
		struct rentry *e;
		size_t offset, len; /* in data */
	} files[BATCH_FILES];
	unsigned n;
	size_t from, to; /* CHECK: of the tree's entries */
	struct buf data;
	struct rreport report;
};

struct restore {
	uv_loop_t *loop;
	struct session *session;
	struct sync *sync;
	restore_done_fn done;
	void *userdata;

	enum phase phase;
	uint64_t request; /* of the RESTORE */
	uint64_t tree_request, next_request;
	bool empty_root, hold, durable;
	int root;
	struct rtree tree;
	struct rwriter writer; /* of the loop: large files */
	struct rreport report;
	bool cancelled; /* nobody is to be answered */

	size_t cursor; /* next entry to look at, in CHECK, FILES and ADOPT */
	struct pull pulls[PULLS];
	struct batch *batch; /* being filled */
	unsigned n_batches;
	struct rentry *links, **links_last;

	uv_idle_t step;
	uv_timer_t deadline;
	unsigned open_handles;
};

static void advance(struct restore *r);
static void files_pump(struct restore *r);
static void check_pump(struct restore *r);

/* ---- workers ---- */

static void batch_free(struct batch *b)
{
	buf_done(&b->data);
	rreport_done(&b->report);
	free(b);
}

static void work_files(struct batch *b, struct rwriter *w)
{
	for (unsigned i = 0; i < b->n && b->report.error == 0; i++) {
		struct rentry *e = b->files[i].e;

		if (e->type == NODE_TYPE_FILE)
			rwrite_file(w, e, buf_data(&b->data) + b->files[i].offset, b->files[i].len,
				    &b->report);
		else
			rwrite_special(w, e, &b->report);
	}
}

/* In a worker thread: reads what the loop leaves alone meanwhile. */
static void on_work(uv_work_t *work)
{
	struct batch *b = work->data;
	struct restore *r = b->restore;
	struct rwriter w = RWRITER_INIT(r->root);
	int e;

	switch (b->phase) {
	case CLEAN:
		e = rwrite_clean(r->root);
		if (e < 0) {
			b->report.error = e;
			(void)snprintf(b->report.detail, sizeof(b->report.detail),
				       e == -EXDEV ? "a mount point is in the way" : "emptying");
		}
		break;
	case DIRS: rwrite_dirs(&w, &r->tree, !r->empty_root, &b->report); break;
	case CHECK:
		for (size_t i = b->from; i < b->to && b->report.error == 0; i++) {
			struct rentry *x = r->tree.entries[i];

			if (x->type != NODE_TYPE_DIRECTORY && !x->first)
				rwrite_check(&w, &r->tree, x, &b->report);
		}
		break;
	case FILES: work_files(b, &w); break;
	case LINKS:
		for (struct rentry *l = r->links; l && b->report.error == 0; l = l->next)
			rwrite_link(&w, l, &b->report);
		break;
	case ATTRS:
		rwrite_dir_attrs(&w, &r->tree, &b->report);
		if (r->durable && b->report.error == 0)
			b->report.error = io_syncfs(r->root, "restore.sync");
		break;
	case TREE:
	case ADOPT:
	case OVER: break;
	}
	rwriter_done(&w);
}

static void on_worked(uv_work_t *work, int status)
{
	struct batch *b = work->data;
	struct restore *r = b->restore;

	rreport_merge(&r->report, &b->report);
	batch_free(b);
	r->n_batches--;
	advance(r);
}

static struct batch *batch_new(struct restore *r, enum phase phase)
{
	struct batch *b = calloc(1, sizeof(*b));

	if (b) {
		b->restore = r;
		b->phase = phase;
		b->work.data = b;
	}
	return b;
}

static void batch_submit(struct restore *r, struct batch *b)
{
	r->n_batches++;
	(void)uv_queue_work(r->loop, &b->work, on_work, on_worked);
}

/* The whole of a phase by one thread. */
static void phase_submit(struct restore *r, enum phase phase)
{
	struct batch *b = batch_new(r, phase);

	r->phase = phase;
	if (!b) {
		restore_cancel(r, -ENOMEM);
		return;
	}
	batch_submit(r, b);
}

/* ---- what is there already ---- */

static void check_pump(struct restore *r)
{
	while (r->cursor < r->tree.n && r->n_batches < BATCHES) {
		struct batch *b = batch_new(r, CHECK);

		if (!b) {
			restore_cancel(r, -ENOMEM);
			return;
		}
		b->from = r->cursor;
		r->cursor = b->to = MIN(r->cursor + CHECK_ENTRIES, r->tree.n);
		batch_submit(r, b);
	}
}

/* ---- files ---- */

static void files_flush(struct restore *r)
{
	if (r->batch)
		batch_submit(r, take_ptr(&r->batch));
}

static void files_add(struct restore *r, struct rentry *e, const void *data, size_t n)
{
	struct batch *b = r->batch;

	if (!b)
		b = r->batch = batch_new(r, FILES);
	if (!b || buf_add(&b->data, data, n) < 0) {
		rreport_fail(&r->report, e, -ENOMEM);
		return;
	}
	b->files[b->n].e = e;
	b->files[b->n].offset = buf_len(&b->data) - n;
	b->files[b->n++].len = n;
	if (b->n == BATCH_FILES || buf_len(&b->data) >= BATCH_BYTES)
		files_flush(r);
}

static void slot_end(struct restore *r, struct slot *s, const char *failed)
{
	if (failed) {
		s->e->failed = true;
		rreport_add(&r->report, s->e, failed);
		rreport_fail(&r->report, s->e, -EIO);
		if (s->fd >= 0)
			(void)close(s->fd);
	} else {
		if (io_ftruncate(s->fd, s->e->size_bytes, "restore.size") < 0)
			rreport_fail(&r->report, s->e, -errno);
		rwrite_finish(&r->writer, s->e, s->fd, &r->report);
	}
	s->e = NULL;
	s->fd = -1;
}

static void slot_data(struct restore *r, struct slot *s, const Limbwire__PullData *m,
		      const void *bulk, size_t n)
{
	struct rentry *e = s->e;
	int w;

	if (m->error != 0 || m->offset != s->got || m->hole_bytes > e->size_bytes - s->got ||
	    n > e->size_bytes - s->got - m->hole_bytes) {
		slot_end(r, s, "content");
		return;
	}
	if (s->fd < 0 && n == e->size_bytes && n <= SMALL_BYTES && m->last_of_node) {
		s->e = NULL;
		files_add(r, e, bulk, n);
		return;
	}
	if (s->fd < 0) {
		s->fd = rwrite_open(&r->writer, e, &r->report);
		if (s->fd < 0) {
			s->e = NULL;
			return;
		}
	}
	s->got += m->hole_bytes;
	w = n > 0 ? io_pwrite_full(s->fd, bulk, n, s->got, "restore.write") : 0;
	if (w < 0) {
		rreport_fail(&r->report, e, w);
		slot_end(r, s, "content");
		return;
	}
	s->got += n;
	if (m->last_of_node)
		slot_end(r, s, s->got == e->size_bytes ? NULL : "content");
}

void restore_on_pull_data(struct restore *r, const Limbwire__PullData *m, const void *bulk,
			  size_t n)
{
	struct pull *p = NULL;

	for (unsigned i = 0; i < PULLS && !p; i++) {
		if (r->pulls[i].request != 0 && r->pulls[i].request == m->request)
			p = &r->pulls[i];
	}
	if (!p || r->phase != FILES)
		return;
	for (unsigned i = 0; i < p->n; i++) {
		if (p->slots[i].e && p->slots[i].e->node == m->node) {
			slot_data(r, &p->slots[i], m, bulk, n);
			break;
		}
	}
	if (!m->last)
		return;
	for (unsigned i = 0; i < p->n; i++) {
		if (p->slots[i].e)
			slot_end(r, &p->slots[i], "content");
	}
	p->request = 0;
	files_flush(r);
	advance(r);
}

static void pull_send(struct restore *r, struct pull *p)
{
	Limbwire__Pull m = LIMBWIRE__PULL__INIT;
	uint64_t nodes[PULL_FILES];

	for (unsigned i = 0; i < p->n; i++)
		nodes[i] = p->slots[i].e->node;
	p->request = r->next_request++;
	m.request = p->request;
	m.nodes = nodes;
	m.n_nodes = p->n;
	if (session_send(r->session, SESSION_CONTROL, WIRE_PULL, &m.base, NULL, 0) < 0)
		restore_cancel(r, -ENOTCONN);
}

/* Goes on through the entries until a request is full. */
static void pull_fill(struct restore *r, struct pull *p)
{
	p->n = 0;
	for (; r->cursor < r->tree.n && r->n_batches < BATCHES; r->cursor++) {
		struct rentry *e = r->tree.entries[r->cursor];

		if (p->n == PULL_FILES)
			break;
		if (e->type == NODE_TYPE_DIRECTORY || e->kept)
			continue;
		if (e->first) {
			*r->links_last = e;
			r->links_last = &e->next;
		} else if (e->type == NODE_TYPE_FILE && e->size_bytes > 0) {
			p->slots[p->n++] = (struct slot){.e = e, .fd = -1};
		} else {
			files_add(r, e, NULL, 0);
		}
	}
}

static void files_pump(struct restore *r)
{
	bool pulling = false;

	for (unsigned i = 0; i < PULLS && r->phase == FILES; i++) {
		struct pull *p = &r->pulls[i];

		if (p->request == 0 && r->n_batches < BATCHES && r->cursor < r->tree.n) {
			pull_fill(r, p);
			if (p->n > 0)
				pull_send(r, p);
		}
		pulling = pulling || p->request != 0;
	}
	if (!pulling)
		files_flush(r);
}

static bool files_over(const struct restore *r)
{
	if (r->cursor < r->tree.n || r->batch || r->n_batches > 0)
		return false;
	for (unsigned i = 0; i < PULLS; i++) {
		if (r->pulls[i].request != 0)
			return false;
	}
	return true;
}

/* ---- adoption ---- */

static void adopt(struct restore *r, struct rentry *e)
{
	Limbwire__TreeEntry *m;
	struct node n;
	struct stat st;

	if (e->failed || rwrite_stat(&r->writer, e, &st) < 0)
		return; /* the scan that follows finds out why */
	e->inode = st.st_ino;
	e->ctime_ns = clock_from_timespec(st.st_ctim);
	if (rentry_read(e, &r->writer.xattrs, &m, &n) < 0)
		return;
	(void)sync_adopt(r->sync, e->parent ? e->parent->node : 0, e->bytes, e->name_len, e->node,
			 &n, &st);
	limbwire__tree_entry__free_unpacked(m, NULL);
}

static void answer(struct restore *r);

static void on_step(uv_idle_t *h)
{
	struct restore *r = h->data;

	for (unsigned i = 0; i < ADOPT_AT_ONCE && r->cursor < r->tree.n; i++)
		adopt(r, r->tree.entries[r->cursor++]);
	if (r->cursor < r->tree.n)
		return;
	(void)uv_idle_stop(h);
	answer(r);
}

/* ---- from phase to phase ---- */

static void on_closed(uv_handle_t *h)
{
	struct restore *r = h->data;

	if (--r->open_handles > 0)
		return;
	for (unsigned i = 0; i < PULLS; i++) {
		for (unsigned k = 0; r->pulls[i].request != 0 && k < r->pulls[i].n; k++) {
			if (r->pulls[i].slots[k].fd >= 0)
				(void)close(r->pulls[i].slots[k].fd);
		}
	}
	if (r->batch)
		batch_free(r->batch);
	rtree_done(&r->tree);
	rwriter_done(&r->writer);
	rreport_done(&r->report);
	(void)close(r->root);
	free(r);
}

/* Answers, says so, and lets go of everything. */
static void answer(struct restore *r)
{
	Limbwire__Restored m = LIMBWIRE__RESTORED__INIT;
	bool ok = r->report.error == 0;

	r->phase = OVER;
	m.request = r->request;
	m.files = r->report.files;
	m.bytes = r->report.file_bytes;
	m.error = -r->report.error;
	m.detail = r->report.detail;
	m.unsupported = r->report.list;
	m.n_unsupported = r->report.n;
	if (!r->cancelled)
		(void)session_send(r->session, SESSION_CONTROL, WIRE_RESTORED, &m.base, NULL, 0);
	if (r->done)
		r->done(ok && !r->cancelled, r->hold ? &r->tree : NULL, r->userdata);
	r->open_handles = 2;
	uv_close((uv_handle_t *)&r->step, on_closed);
	uv_close((uv_handle_t *)&r->deadline, on_closed);
}

static void tree_ask(struct restore *r)
{
	Limbwire__TreeGet m = LIMBWIRE__TREE_GET__INIT;

	r->phase = TREE;
	r->tree_request = r->next_request++;
	m.request = r->tree_request;
	if (session_send(r->session, SESSION_CONTROL, WIRE_TREE_GET, &m.base, NULL, 0) < 0)
		restore_cancel(r, -ENOTCONN);
}

static void files_begin(struct restore *r)
{
	r->phase = FILES;
	r->cursor = 0;
	files_pump(r);
	if (files_over(r))
		phase_submit(r, LINKS);
}

static void phase_next(struct restore *r)
{
	switch (r->phase) {
	case CLEAN: tree_ask(r); break;
	case TREE: phase_submit(r, DIRS); break;
	case DIRS:
		if (!r->report.found) {
			files_begin(r);
			break;
		}
		r->phase = CHECK;
		r->cursor = 1; /* not the root */
		check_pump(r);
		if (r->n_batches == 0)
			files_begin(r);
		break;
	case CHECK: files_begin(r); break;
	case FILES: phase_submit(r, LINKS); break;
	case LINKS: phase_submit(r, ATTRS); break;
	case ATTRS:
		r->phase = ADOPT;
		r->cursor = 0;
		(void)uv_idle_start(&r->step, on_step);
		break;
	case ADOPT:
	case OVER: break;
	}
}

/* Something has ended: a batch, a request. */
static void advance(struct restore *r)
{
	if (r->phase == OVER)
		return;
	if (r->report.error != 0) {
		if (r->n_batches == 0)
			answer(r);
		return;
	}
	if (r->phase == CHECK)
		check_pump(r);
	if (r->phase == FILES) {
		files_pump(r);
		if (!files_over(r))
			return;
	}
	if (r->n_batches == 0)
		phase_next(r);
}

void restore_cancel(struct restore *r, int error)
{
	if (r->phase == OVER)
		return;
	if (error == -ENOTCONN)
		r->cancelled = true;
	if (r->report.error == 0)
		r->report.error = error;
	(void)uv_idle_stop(&r->step);
	if (r->n_batches == 0)
		answer(r);
}

void restore_disown(struct restore *r)
{
	r->done = NULL;
	restore_cancel(r, -ENOTCONN);
}

bool restore_on_tree_part(struct restore *r, const Limbwire__TreePart *part)
{
	const char *why = "memory";
	int e = 0;

	if (part->request != r->tree_request)
		return false;
	if (r->phase != TREE)
		return true;
	for (size_t i = 0; i < part->n_entries && e == 0; i++)
		e = rtree_add(&r->tree, part->entries[i], &why);
	if (e == 0 && part->last && r->tree.n == 0) {
		e = -EBADMSG;
		why = "an empty tree";
	}
	if (e < 0) {
		(void)snprintf(r->report.detail, sizeof(r->report.detail), "tree: %s", why);
		restore_cancel(r, e);
	} else if (part->last) {
		phase_next(r);
	}
	return true;
}

bool restore_on_error(struct restore *r, const Limbwire__Error *m)
{
	bool ours = m->request == r->tree_request;

	for (unsigned i = 0; i < PULLS; i++)
		ours = ours || m->request == r->pulls[i].request;
	if (ours && r->phase != OVER) {
		(void)snprintf(r->report.detail, sizeof(r->report.detail), "the brain: %.200s",
			       m->detail);
		restore_cancel(r, m->error > 0 ? -m->error : -EIO);
	}
	return ours;
}

static void on_deadline(uv_timer_t *h)
{
	restore_cancel(h->data, -ETIMEDOUT);
}

int restore_new(uv_loop_t *loop, struct session *session, struct sync *sync,
		const Limbwire__Restore *m, const struct rtree *base, uint64_t request_first,
		restore_done_fn done, void *userdata, struct restore **ret)
{
	cleanup_close int root = -1;
	int lent = sync_root_fd(sync), e;
	struct restore *r;

	if (lent < 0)
		return lent;
	e = sync_restore_begins(sync);
	if (e < 0)
		return e;
	root = openat(lent, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (root < 0)
		return -errno;
	r = calloc(1, sizeof(*r));
	if (!r)
		return -ENOMEM;
	*r = (struct restore){
		.loop = loop,
		.session = session,
		.sync = sync,
		.done = done,
		.userdata = userdata,
		.request = m->request,
		.next_request = request_first,
		.empty_root = m->empty_root,
		.hold = m->hold,
		.durable = m->durable,
		.tree = {.base = base},
		.root = take_fd(&root),
	};
	r->writer = (struct rwriter)RWRITER_INIT(r->root);
	r->links_last = &r->links;
	(void)uv_idle_init(loop, &r->step);
	(void)uv_timer_init(loop, &r->deadline);
	r->step.data = r->deadline.data = r;
	if (m->deadline_ms > 0)
		(void)uv_timer_start(&r->deadline, on_deadline, m->deadline_ms, 0);
	*ret = r;
	if (m->empty_root)
		phase_submit(r, CLEAN);
	else
		tree_ask(r);
	return 0;
}
