/* One entry of the view's log as an intent over the tree that the brain sees. */
#include "brain/accept.h"
#include "brain/queue.h"
#include "brain/want.h"
#include "journal/index-view.h"

struct wanting {
	struct env *env;
	const struct accepted *e;
	struct intent in;
	struct queue_entry at, to;
	queue_durable_fn fn;
	void *userdata;
};

static struct intent_name name_of(const struct queue_entry *e)
{
	return (struct intent_name){e->parent, e->name, e->len};
}

static int add(struct wanting *w)
{
	int r = queue_add(w->env, &w->in, w->fn, w->userdata);

	return r < 0 ? r : 1;
}

/* A directory on the way that is gone is made again, so that nothing is lost. */
static int look(struct wanting *w, const char *path, bool parents, struct queue_entry *ret)
{
	return want_look(w->env, path, parents, ret);
}

static int entry_create(struct wanting *w)
{
	int r = look(w, w->e->path, true, &w->at);

	if (r < 0)
		return r;
	if (w->at.node && w->at.n.type == NODE_TYPE_DIRECTORY &&
	    w->e->n.type == NODE_TYPE_DIRECTORY)
		return 0;
	w->in.kind = INTENT_CREATE;
	w->in.at = name_of(&w->at);
	w->in.wanted = w->e->n;
	return add(w);
}

/* What the view wrote was there, and is removed: that counts as written over, and removed as well. */
static int write_over_gone(struct wanting *w)
{
	struct index_node n;
	struct index_txn *t;
	int r = env_read_begin(w->env, &t);

	if (r < 0)
		return r;
	r = index_last_node(t, w->e->journal, &n);
	if (r == 0 && n.links == 0 && n.n.type == NODE_TYPE_FILE) {
		w->in.kind = INTENT_WRITE;
		w->in.node = w->e->journal;
		w->in.base = n.n;
		/* What the view had seen. */
		if (w->e->has_base &&
		    memcmp(w->e->base.sha256, n.n.content.sha256, SHA256_BYTES) != 0)
			w->in.base.content = w->e->base;
		w->in.wanted = w->in.base;
		w->in.wanted.content = w->e->n.content;
		r = add(w);
	} else {
		r = 0;
	}
	index_read_end(t);
	return r;
}

static int entry_version(struct wanting *w)
{
	int r = look(w, w->e->path, true, &w->at);

	if (r < 0)
		return r;
	w->in.at = name_of(&w->at);
	if (!w->at.node && w->e->journal) {
		r = write_over_gone(w);
		if (r != 0)
			return r;
	}
	if (!w->at.node || w->at.n.type != NODE_TYPE_FILE) {
		w->in.kind = INTENT_CREATE;
		w->in.wanted = w->e->n;
		return add(w);
	}
	w->in.node = w->at.node;
	w->in.base = w->in.wanted = w->at.n;
	/* What was written is what was there: it is newer all the same. */
	if (memcmp(w->at.n.content.sha256, w->e->n.content.sha256, SHA256_BYTES) == 0) {
		w->in.kind = INTENT_ATTR;
		w->in.fields = NODE_FIELD_MTIME;
		w->in.wanted.mtime_ns = w->e->n.mtime_ns;
		return add(w);
	}
	w->in.kind = INTENT_WRITE;
	w->in.wanted.content = w->e->n.content;
	/* What the view had seen, not what has become of it since. */
	if (w->e->has_base && memcmp(w->e->base.sha256, w->at.n.content.sha256, SHA256_BYTES) != 0)
		w->in.base.content = w->e->base;
	return add(w);
}

static int entry_remove(struct wanting *w)
{
	int r = look(w, w->e->path, false, &w->at);

	if (r < 0 || !w->at.node)
		return r;
	w->in.kind = INTENT_REMOVE;
	w->in.node = w->at.node;
	w->in.at = name_of(&w->at);
	w->in.base = w->at.n;
	/* A rename that is half shown counts twice here; the view knows. */
	w->in.shared = w->e->fields & NODE_FIELD_LINKS;
	return add(w);
}

static int entry_move(struct wanting *w)
{
	int r = look(w, w->e->path, false, &w->at);

	if (r == 0 && w->at.node)
		r = look(w, w->e->to_path, true, &w->to);
	/* Its directories were made: what is where is to be asked again, and lent anew. */
	if (r == 0 && w->at.node)
		r = look(w, w->e->path, false, &w->at);
	if (r < 0 || !w->at.node || w->at.node == w->to.node)
		return r;
	w->in.kind = INTENT_MOVE;
	w->in.node = w->at.node;
	w->in.base = w->at.n;
	w->in.at = name_of(&w->at);
	w->in.to = name_of(&w->to);
	w->in.replaces = w->to.node;
	return add(w);
}

static int entry_link(struct wanting *w)
{
	int r = look(w, w->e->path, false, &w->at);

	if (r == 0 && w->at.node)
		r = look(w, w->e->to_path, true, &w->to);
	if (r == 0 && w->at.node)
		r = look(w, w->e->path, false, &w->at);
	if (r < 0 || !w->at.node || w->to.node)
		return r;
	w->in.kind = INTENT_LINK;
	w->in.node = w->at.node;
	w->in.base = w->at.n;
	w->in.at = name_of(&w->at);
	w->in.to = name_of(&w->to);
	return add(w);
}

static int entry_attr(struct wanting *w)
{
	int r;

	/* Of what is unlinked, and open, nobody else knows. */
	if (!*w->e->path && w->e->node != NODE_ROOT)
		return 0;
	r = want_look_any(w->env, w->e->path, &w->at);
	if (r < 0 || !w->at.node)
		return r;
	w->in.wanted = w->at.n;
	node_set_fields(&w->in.wanted, &w->e->n, w->e->fields);
	w->in.kind = INTENT_ATTR;
	w->in.node = w->at.node;
	w->in.at = name_of(&w->at);
	w->in.base = w->at.n;
	w->in.fields = w->e->fields;
	return add(w);
}

int accept_want(struct env *env, const struct accepted *e, uint64_t epoch, uint64_t min_base,
		queue_durable_fn fn, void *userdata)
{
	static int (*const wants[ACCEPTED_KINDS])(struct wanting * w) = {
		[ACCEPTED_CREATE] = entry_create, [ACCEPTED_VERSION] = entry_version,
		[ACCEPTED_REMOVE] = entry_remove, [ACCEPTED_MOVE] = entry_move,
		[ACCEPTED_LINK] = entry_link,	  [ACCEPTED_ATTR] = entry_attr,
	};
	struct wanting w = {.env = env, .e = e, .fn = fn, .userdata = userdata};
	int r;

	if (!wants[e->kind])
		return 0;
	w.in.path = e->path;
	w.in.to_path = e->to_path;
	w.in.base_seq = MAX(e->base_seq, min_base);
	w.in.view_epoch = epoch;
	w.in.view_number = e->number;
	r = wants[e->kind](&w);
	/* What it was about is gone, and it has no bytes that could be lost. */
	if ((r == -ENOENT || r == -ENOTDIR) && e->kind != ACCEPTED_CREATE &&
	    e->kind != ACCEPTED_VERSION)
		return 0;
	return r;
}
