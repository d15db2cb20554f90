#include "syncd/work.h"

#include <fcntl.h>
#include <unistd.h>

#include "base/clock.h"
#include "syncd/plan.h"

enum kind { LOOK, LIST, CAPTURE, VERIFY };

struct piece {
	struct item *item; /* the loop's; a worker reads only its name */
	uint32_t dir;	   /* index into dirs */
	union {
		struct {
			struct stamp st;
			int error;
		} look;
		struct capture capture;
		struct scan_absent absent;
	};
};

struct work {
	uv_work_t req;
	struct sync *sy;
	enum kind kind;
	int root_fd;
	struct watch *watch;
	struct scan_dir *dirs;
	size_t n_dirs, dirs_cap;
	struct piece *pieces;
	size_t n, cap;
	struct scan_listing *listings; /* LIST: one a directory */
	struct buf bulk, text;
};

/* ---- in threads ---- */

static void do_look(struct work *w, struct scan_dir *d, struct piece *first, size_t n)
{
	cleanup_close int fd = -1;

	d->error = scan_open(w->root_fd, d, false, &fd);
	for (size_t i = 0; d->error == 0 && i < n; i++)
		first[i].look.error = stamp_at(fd, first[i].item->name, &first[i].look.st);
}

static void do_capture(struct work *w, struct scan_dir *d, struct piece *first, size_t n)
{
	cleanup_close int fd = -1;

	d->error = scan_open(w->root_fd, d, false, &fd);
	for (size_t i = 0; d->error == 0 && i < n; i++)
		capture_entry(fd, &first[i].capture, &w->bulk, &w->text);
}

static void do_verify(struct work *w, struct scan_dir *d, struct piece *first, size_t n)
{
	cleanup_free struct scan_absent *names = calloc(n, sizeof(*names));

	if (!names) {
		d->error = -ENOMEM;
		return;
	}
	for (size_t i = 0; i < n; i++)
		names[i] = first[i].absent;
	scan_verify(w->root_fd, d, names, n);
	for (size_t i = 0; i < n; i++)
		first[i].absent = names[i];
}

/* Pieces of one directory follow each other. */
static void do_work(uv_work_t *req)
{
	struct work *w = req->data;

	for (size_t i = 0, n; i < w->n; i += n) {
		struct scan_dir *d = &w->dirs[w->pieces[i].dir];

		for (n = 1; i + n < w->n && w->pieces[i + n].dir == w->pieces[i].dir; n++)
			;
		switch (w->kind) {
		case LOOK: do_look(w, d, &w->pieces[i], n); break;
		case CAPTURE: do_capture(w, d, &w->pieces[i], n); break;
		case VERIFY: do_verify(w, d, &w->pieces[i], n); break;
		case LIST:
			scan_list(w->root_fd, d, w->watch, &w->listings[w->pieces[i].dir]);
			break;
		}
	}
}

/* ---- back on the loop ---- */

static void work_free(struct work *w)
{
	for (size_t i = 0; i < w->n_dirs; i++) {
		free(w->dirs[i].path);
		if (w->listings)
			scan_listing_done(&w->listings[i]);
	}
	free(w->dirs);
	free(w->pieces);
	free(w->listings);
	buf_done(&w->bulk);
	buf_done(&w->text);
	free(w);
}

static void piece_result(struct work *w, struct piece *p)
{
	struct scan_dir *d = &w->dirs[p->dir];
	struct sync *sy = w->sy;

	if (w->kind == LIST) {
		plan_listed(sy, p->item, d, &w->listings[p->dir]);
		return;
	}
	if (d->error < 0) {
		plan_dir_failed(sy, p->item, d);
		return;
	}
	switch (w->kind) {
	case LOOK:
		if (p->look.error == -ENOENT)
			plan_missing(sy, p->item);
		else if (p->look.error < 0)
			plan_failed(sy, p->item, p->look.error);
		else
			plan_seen(sy, p->item, &p->look.st);
		break;
	case CAPTURE:
		plan_captured(sy, p->item, &p->capture,
			      p->capture.unread ? NULL : buf_data(&w->bulk) + p->capture.content,
			      buf_data(&w->text), 0);
		break;
	case VERIFY: plan_absent(sy, p->item, p->absent.confirmed, p->absent.error); break;
	case LIST: break;
	}
}

/* How many nodes the confirmed removals take, so that it is said before. */
static void announce_removals(struct work *w)
{
	struct sync *sy = w->sy;
	uint64_t nodes = 0;

	for (size_t i = 0; i < w->n; i++) {
		struct item *it = w->pieces[i].item;
		uint32_t e;

		if (w->dirs[w->pieces[i].dir].error < 0 || !w->pieces[i].absent.confirmed ||
		    !shadow_attached(&sy->shadow, it->dir))
			continue;
		e = shadow_find(&sy->shadow, it->dir, it->name, it->len);
		if (e)
			nodes += shadow_count(&sy->shadow, e);
	}
	plan_removing(sy, nodes);
}

static void work_done(uv_work_t *req, int status)
{
	struct work *w = req->data;
	struct sync *sy = w->sy;

	sy->in_flight--;
	sy->works--;
	if (w->kind == LIST)
		sy->lists_in_flight--;
	/* What was found in a root that is not ours any more is worth nothing. */
	if (status == 0 && !sync_root_ok(sy))
		status = UV_ECANCELED;
	if (w->kind == VERIFY && status == 0)
		announce_removals(w);
	for (size_t i = 0; i < w->n; i++) {
		if (status < 0)
			dirty_retry(&sy->dirty, w->pieces[i].item);
		else
			piece_result(w, &w->pieces[i]);
	}
	/* What is lost in a directory that is gone now is over, too. */
	if (w->kind == VERIFY)
		dirty_look_for_lost(&sy->dirty);
	work_free(w);
	sync_pump(sy);
}

/* ---- bundles ---- */

static struct work *work_new(struct sync *sy, enum kind kind)
{
	struct work *w = calloc(1, sizeof(*w));

	if (!w)
		return NULL;
	w->req.data = w;
	w->sy = sy;
	w->kind = kind;
	w->root_fd = sy->root.fd;
	w->watch = sy->watch;
	buf_init(&w->bulk, 0);
	buf_init(&w->text, 0);
	return w;
}

static int add_dir(struct work *w, uint32_t dir)
{
	if (w->n_dirs == w->dirs_cap) {
		size_t cap = w->dirs_cap ? w->dirs_cap * 2 : 8;
		struct scan_dir *dirs = reallocarray(w->dirs, cap, sizeof(*dirs));

		if (!dirs)
			return -ENOMEM;
		w->dirs = dirs;
		w->dirs_cap = cap;
	}
	sync_scan_dir(w->sy, dir, &w->dirs[w->n_dirs]);
	if (!w->dirs[w->n_dirs].path)
		return -ENOMEM;
	w->n_dirs++;
	return 0;
}

/* NULL: no memory, the item stays where it is. */
static struct piece *add_piece(struct work *w, struct item *it)
{
	uint32_t dir = it->dir ? it->dir : SHADOW_ROOT;

	if (w->n == w->cap) {
		size_t cap = w->cap ? w->cap * 2 : 32;
		struct piece *pieces = reallocarray(w->pieces, cap, sizeof(*pieces));

		if (!pieces)
			return NULL;
		w->pieces = pieces;
		w->cap = cap;
	}
	if ((w->n_dirs == 0 || w->dirs[w->n_dirs - 1].dir != dir) && add_dir(w, dir) < 0)
		return NULL;
	w->pieces[w->n] = (struct piece){.item = it, .dir = (uint32_t)w->n_dirs - 1};
	return &w->pieces[w->n++];
}

static bool work_start(struct work *w, enum item_state state)
{
	struct sync *sy = w->sy;

	if (w->n && w->kind == LIST) {
		w->listings = calloc(w->n_dirs, sizeof(*w->listings));
		if (!w->listings) {
			work_free(w);
			return false;
		}
	}
	if (!w->n || uv_queue_work(sy->loop, &w->req, do_work, work_done) < 0) {
		work_free(w);
		return false;
	}
	for (size_t i = 0; i < w->n; i++)
		dirty_move(&sy->dirty, w->pieces[i].item, state);
	sy->in_flight++;
	sy->works++;
	if (w->kind == LIST)
		sy->lists_in_flight++;
	return true;
}

/* What lies in a directory that has left the tree is of no interest any more. */
static bool is_gone(struct sync *sy, struct item *it)
{
	if (!it->dir || shadow_attached(&sy->shadow, it->dir))
		return false;
	dirty_done(&sy->dirty, it);
	return true;
}

bool work_look(struct sync *sy)
{
	struct work *w = work_new(sy, LOOK);
	struct item *it, *next;

	if (!w)
		return false;
	for (it = dirty_first(&sy->dirty, ITEM_READY); it && w->n < WORK_LOOK_MAX; it = next) {
		next = dirty_after(&sy->dirty, it);
		if (is_gone(sy, it))
			continue;
		/* A listing has looked at it just now. */
		if (it->flags & ITEM_LOOKED)
			plan_seen(sy, it, &it->st);
		else if (!add_piece(w, it))
			break;
	}
	return work_start(w, ITEM_LOOKING);
}

bool work_list(struct sync *sy)
{
	struct work *w = work_new(sy, LIST);
	struct item *it, *next;

	if (!w)
		return false;
	for (it = dirty_first(&sy->dirty, ITEM_LISTABLE); it && w->n < WORK_LIST_MAX; it = next) {
		next = dirty_after(&sy->dirty, it);
		if (!is_gone(sy, it) && !add_piece(w, it))
			break;
	}
	return work_start(w, ITEM_LOOKING);
}

static bool is_known(const struct sync *sy, const struct item *it)
{
	uint32_t e = 0;

	if (it->dir && !(it->flags & (ITEM_CONTENT | ITEM_MAPPED)))
		e = shadow_find(&sy->shadow, it->dir, it->name, it->len);
	return e && plan_is_ours(sy, shadow_entry(&sy->shadow, e)->node, &it->st);
}

bool work_capture(struct sync *sy)
{
	struct work *w = work_new(sy, CAPTURE);
	struct item *it, *next;
	uint64_t bytes = 0;

	if (!w)
		return false;
	for (it = dirty_first(&sy->dirty, ITEM_WANTED);
	     it && w->n < WORK_CAPTURE_MAX && bytes < EMIT_BULK_MAX; it = next) {
		struct piece *p;

		next = dirty_after(&sy->dirty, it);
		if (is_gone(sy, it))
			continue;
		p = add_piece(w, it);
		if (!p)
			break;
		p->capture = (struct capture){.name = it->name,
					      .expect = it->st,
					      .mapped = it->flags & ITEM_MAPPED,
					      .unread = is_known(sy, it),
					      .unheld = sy->root.unheld};
		bytes += MIN(it->st.size, (uint64_t)CAPTURE_INLINE_MAX);
	}
	return work_start(w, ITEM_CAPTURING);
}

bool work_verify(struct sync *sy)
{
	struct work *w = work_new(sy, VERIFY);
	cleanup_free uint32_t *awaited = NULL;
	struct item *it, *next;
	size_t n = 0;
	uint32_t e;

	if (!w)
		return false;
	if (plan_awaited(sy, &awaited, &n) < 0) {
		work_free(w);
		return false;
	}
	for (it = dirty_first(&sy->dirty, ITEM_ABSENT); it; it = next) {
		struct piece *p;

		next = dirty_after(&sy->dirty, it);
		if (is_gone(sy, it))
			continue;
		e = shadow_find(&sy->shadow, it->dir, it->name, it->len);
		/* A move has explained it, or it never was. */
		if (!e) {
			dirty_done(&sy->dirty, it);
			continue;
		}
		/* A move will explain it. */
		if (plan_is_awaited(awaited, n, shadow_entry(&sy->shadow, e)->node))
			continue;
		p = add_piece(w, it);
		if (!p)
			break;
		p->absent = (struct scan_absent){.name = it->name, .len = it->len};
	}
	return work_start(w, ITEM_VERIFYING);
}
