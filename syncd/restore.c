#include <fcntl.h>
#include <stdio.h>

#include "base/clock.h"
#include "base/io.h"
#include "base/log.h"
#include "base/util.h"
#include "syncd/restore-private.h"

static void check_pump(struct restore *r);

/* ---- workers ---- */

void restore_batch_free(struct batch *b)
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

	w.deltas = r->writer.deltas;

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

			if (x->type != NODE_TYPE_DIRECTORY && !x->first && !x->kept)
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
	case LOOK:
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
	restore_batch_free(b);
	r->n_batches--;
	restore_advance(r);
}

struct batch *restore_batch_new(struct restore *r, enum phase phase)
{
	struct batch *b = calloc(1, sizeof(*b));

	if (b) {
		b->restore = r;
		b->phase = phase;
		b->work.data = b;
	}
	return b;
}

void restore_batch_submit(struct restore *r, struct batch *b)
{
	r->n_batches++;
	(void)uv_queue_work(r->loop, &b->work, on_work, on_worked);
}

/* The whole of a phase by one thread. */
static void phase_submit(struct restore *r, enum phase phase)
{
	struct batch *b = restore_batch_new(r, phase);

	r->phase = phase;
	if (!b) {
		restore_cancel(r, -ENOMEM);
		return;
	}
	restore_batch_submit(r, b);
}

/* ---- what is there already ---- */

static void check_pump(struct restore *r)
{
	while (r->cursor < r->tree.n && r->n_batches < BATCHES) {
		struct batch *b = restore_batch_new(r, CHECK);

		if (!b) {
			restore_cancel(r, -ENOMEM);
			return;
		}
		b->from = r->cursor;
		r->cursor = b->to = MIN(r->cursor + CHECK_ENTRIES, r->tree.n);
		restore_batch_submit(r, b);
	}
}

/* ---- adoption ---- */

static void adopt(struct restore *r, struct rentry *e)
{
	Limbwire__TreeEntry *m;
	struct node n;
	struct stat st;
	bool ours;

	if (e->failed || rwrite_stat(&r->writer, e, &st) < 0)
		return; /* the scan that follows finds out why */
	/* A copy that is held is written over once more, and the lease waits for its bytes. */
	ours = e->ours && !r->hold && e->inode == st.st_ino &&
	       e->ctime_ns == clock_from_timespec(st.st_ctim);
	e->inode = st.st_ino;
	e->ctime_ns = clock_from_timespec(st.st_ctim);
	if (rentry_read(e, &r->writer.xattrs, &m, &n) < 0)
		return;
	(void)sync_adopt(r->sync, e->parent ? e->parent->node : 0, e->bytes, e->name_len, e->node,
			 &n, &st, ours);
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
	for (unsigned i = 0; i < PULLS; i++)
		restore_pull_done(&r->pulls[i]);
	if (r->batch)
		restore_batch_free(r->batch);
	look_free(r->look);
	free(r->files);
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

	if (r->phase == LOOK)
		sync_look_end(r->sync, r);
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
	const uint8_t *hashes = NULL;
	size_t n = 0;

	r->phase = TREE;
	r->tree_request = r->next_request++;
	m.request = r->tree_request;
	if (r->look)
		hashes = look_hashes(r->look, &n);
	m.by_content = n > 0;
	if (session_send(r->session, SESSION_CONTROL, WIRE_TREE_GET, &m.base, hashes, n) < 0)
		restore_cancel(r, -ENOTCONN);
}

/* Without it more is sent, that is all. */
static void forget_look(struct restore *r)
{
	look_free(r->look);
	r->look = NULL;
}

static void on_looked(const Limbwire__TreeEntry *m, const char *path, const struct node *n,
		      uint64_t odd, int error, void *userdata)
{
	struct restore *r = userdata;

	if (r->phase != LOOK)
		return;
	if (m) {
		if (r->look && look_add(r->look, path, m, n, odd) < 0)
			forget_look(r);
		return;
	}
	if (error < 0 || (r->look && look_finish(r->look) < 0))
		forget_look(r);
	tree_ask(r);
}

/* What is there already is read first, where a line is slow. */
static void look_begin(struct restore *r)
{
	r->phase = LOOK;
	if (!session_has_trees(r->session) || r->tree.base || look_new(&r->look) < 0 ||
	    sync_look(r->sync, on_looked, r) < 0) {
		forget_look(r);
		tree_ask(r);
	}
}

static void files_begin(struct restore *r)
{
	if (restore_files_begin(r) < 0) {
		restore_cancel(r, -ENOMEM);
		return;
	}
	r->phase = FILES;
	restore_files_pump(r);
	if (restore_files_over(r))
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
	case LOOK:
	case ADOPT:
	case OVER: break;
	}
}

/* Something has ended: a batch, a request. */
void restore_advance(struct restore *r)
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
		restore_files_pump(r);
		if (!restore_files_over(r))
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

/* The next one beneath a directory that is as it should be. */
static int add_inside(struct restore *r, uint64_t node, const char **ret_why)
{
	Limbwire__TreeEntry *m;
	struct rentry *x;
	int e;

	*ret_why = "an entry that is not there";
	e = r->look ? look_next(r->look, node, &m) : -EBADMSG;
	if (e < 0)
		return e;
	e = rtree_add(&r->tree, m, ret_why);
	limbwire__tree_entry__free_unpacked(m, NULL);
	if (e < 0)
		return e;
	x = r->tree.entries[r->tree.n - 1];
	x->kept = x->type != NODE_TYPE_DIRECTORY;
	return 0;
}

static int add_entry(struct restore *r, const Limbwire__TreeEntry *m, const char **ret_why)
{
	cleanup_free char *path = NULL;
	int e;

	if (m->had && !m->root && m->name.len == 0)
		return add_inside(r, m->node, ret_why);
	if (r->look && look_left(r->look)) {
		*ret_why = "not all of what is there";
		return -EBADMSG;
	}
	e = rtree_add(&r->tree, m, ret_why);
	if (e < 0 || !m->had)
		return e;
	*ret_why = "a directory that is not there";
	e = rentry_path(r->tree.entries[r->tree.n - 1], &path);
	if (e == 0)
		e = r->look ? look_enter(r->look, path, m->node) : -EBADMSG;
	return e;
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
		e = add_entry(r, part->entries[i], &why);
	if (e == 0 && part->last && (r->tree.n == 0 || (r->look && look_left(r->look)))) {
		e = -EBADMSG;
		why = r->tree.n ? "not all of what is there" : "an empty tree";
	}
	if (part->last)
		forget_look(r);
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
	r->writer.deltas = session_takes_deltas(session);
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
		look_begin(r);
	return 0;
}
