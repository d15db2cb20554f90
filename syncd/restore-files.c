/* RESTORE's files: asked for by PULL, and what comes of it. */
#include "syncd/restore-private.h"

#include <stdio.h>
#include <unistd.h>

#include "base/io.h"
#include "base/util.h"

static void files_flush(struct restore *r)
{
	if (r->batch)
		restore_batch_submit(r, take_ptr(&r->batch));
}

static void files_add(struct restore *r, struct rentry *e, const void *data, size_t n)
{
	struct batch *b = r->batch;

	if (!b)
		b = r->batch = restore_batch_new(r, FILES);
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

static void slot_forget_base(struct slot *s)
{
	if (s->base >= 0)
		(void)close(s->base);
	s->base = -1;
	sha256_free(take_ptr(&s->sha));
}

/* Of one with a base: what came is what the journal says. */
static bool slot_is_right(struct restore *r, struct slot *s)
{
	Limbwire__TreeEntry *m;
	uint8_t hash[SHA256_BYTES];
	struct node n;
	bool right;

	if (!s->sha)
		return true;
	sha256_final(s->sha, hash);
	if (rentry_read(s->e, &r->writer.xattrs, &m, &n) < 0)
		return false;
	right = memcmp(hash, n.content.sha256, sizeof(hash)) == 0;
	limbwire__tree_entry__free_unpacked(m, NULL);
	return right;
}

/* Any doubt: it is asked for whole. */
static void slot_again(struct restore *r, struct slot *s)
{
	rwrite_undo(&r->writer, s->e, s->fd);
	free(take_ptr(&s->e->base));
	s->e->next = r->again;
	r->again = s->e;
	s->e = NULL;
	s->fd = -1;
	slot_forget_base(s);
}

static void slot_end(struct restore *r, struct slot *s, const char *failed)
{
	if (s->e->base && (failed || !slot_is_right(r, s))) {
		slot_again(r, s);
		return;
	}
	slot_forget_base(s);
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
	    n > e->size_bytes - s->got - m->hole_bytes ||
	    (m->copy_bytes && (n > 0 || m->hole_bytes > 0 || !e->base ||
			       m->copy_bytes > MIN(e->size_bytes - s->got, (uint64_t)COPY_MAX)))) {
		slot_end(r, s, "content");
		return;
	}
	if (s->fd < 0 && e->base) {
		s->base = rwrite_take_base(&r->writer, e);
		s->sha = sha256_new();
	}
	if (s->fd < 0 && n == e->size_bytes && n <= SMALL_BYTES && m->last_of_node) {
		s->e = NULL;
		files_add(r, e, bulk, n);
		return;
	}
	if (s->fd < 0) {
		s->fd = rwrite_open(&r->writer, e, &r->report);
		if (s->fd < 0) {
			slot_forget_base(s);
			s->e = NULL;
			return;
		}
	}
	if (m->copy_bytes) {
		w = s->base < 0 ? s->base
				: rwrite_copy(s->base, m->copy_from, s->fd, s->got, m->copy_bytes,
					      s->sha);
		if (w < 0) {
			slot_end(r, s, "content");
			return;
		}
		s->got += m->copy_bytes;
	}
	if (s->sha) {
		sha256_update_zeros(s->sha, m->hole_bytes);
		sha256_update(s->sha, bulk, n);
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
	restore_advance(r);
}

static void pull_send(struct restore *r, struct pull *p)
{
	Limbwire__Pull m = LIMBWIRE__PULL__INIT;
	Limbwire__Pull__Base bases[PULL_FILES], *ptrs[PULL_FILES];
	uint64_t nodes[PULL_FILES];

	for (unsigned i = 0; i < p->n; i++) {
		const struct rentry *e = p->slots[i].e;
		size_t k = m.n_bases;

		nodes[i] = e->node;
		if (!e->base)
			continue;
		limbwire__pull__base__init(&bases[k]);
		bases[k].node = e->node;
		bases[k].sha256 = (ProtobufCBinaryData){SHA256_BYTES, e->base->sha};
		ptrs[m.n_bases++] = &bases[k];
	}
	m.bases = ptrs;
	p->request = r->next_request++;
	m.request = p->request;
	m.nodes = nodes;
	m.n_nodes = p->n;
	if (session_send(r->session, SESSION_CONTROL, WIRE_PULL, &m.base, NULL, 0) < 0)
		restore_cancel(r, -ENOTCONN);
}

static int by_node(const void *a, const void *b)
{
	const struct rentry *x = *(struct rentry *const *)a, *y = *(struct rentry *const *)b;

	return x->node != y->node ? (x->node > y->node) - (x->node < y->node)
				  : (x->number > y->number) - (x->number < y->number);
}

/* Nodes have their numbers in the order in which their contents came to the brain, and so lie
 * in its packs: each frame of them is decompressed once.  Those of a directory mostly came
 * together, too. */
int restore_files_begin(struct restore *r)
{
	r->files = calloc(r->tree.n + 1, sizeof(*r->files));
	if (!r->files)
		return -ENOMEM;
	for (size_t i = 0; i < r->tree.n; i++) {
		struct rentry *e = r->tree.entries[i];

		if (e->type != NODE_TYPE_DIRECTORY && !e->kept)
			r->files[r->n_files++] = e;
	}
	qsort(r->files, r->n_files, sizeof(*r->files), by_node);
	r->cursor = 0;
	return 0;
}

/* Goes on through the files until a request is full. */
static void pull_fill(struct restore *r, struct pull *p)
{
	p->n = 0;
	while (r->again && p->n < PULL_FILES) {
		p->slots[p->n++] = (struct slot){.e = r->again, .fd = -1, .base = -1};
		r->again = r->again->next;
	}
	for (; r->cursor < r->n_files && r->n_batches < BATCHES; r->cursor++) {
		struct rentry *e = r->files[r->cursor];

		if (p->n == PULL_FILES)
			break;
		if (e->first) {
			*r->links_last = e;
			r->links_last = &e->next;
		} else if (e->type == NODE_TYPE_FILE && e->size_bytes > 0) {
			p->slots[p->n++] = (struct slot){.e = e, .fd = -1, .base = -1};
		} else {
			files_add(r, e, NULL, 0);
		}
	}
}

void restore_files_pump(struct restore *r)
{
	bool pulling = false;

	for (unsigned i = 0; i < PULLS && r->phase == FILES; i++) {
		struct pull *p = &r->pulls[i];

		if (p->request == 0 && r->n_batches < BATCHES &&
		    (r->cursor < r->n_files || r->again)) {
			pull_fill(r, p);
			if (p->n > 0)
				pull_send(r, p);
		}
		pulling = pulling || p->request != 0;
	}
	if (!pulling)
		files_flush(r);
}

bool restore_files_over(const struct restore *r)
{
	if (r->cursor < r->n_files || r->again || r->batch || r->n_batches > 0)
		return false;
	for (unsigned i = 0; i < PULLS; i++) {
		if (r->pulls[i].request != 0)
			return false;
	}
	return true;
}

void restore_pull_done(struct pull *p)
{
	for (unsigned i = 0; p->request != 0 && i < p->n; i++) {
		if (p->slots[i].fd >= 0)
			(void)close(p->slots[i].fd);
		slot_forget_base(&p->slots[i]);
	}
}
