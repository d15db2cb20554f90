#include "brain/reconcile.h"

#include <string.h>

enum { DEEP = 8192 }; /* as the index */

static bool same_content(const struct content_ref *a, const struct content_ref *b)
{
	return a->size_bytes == b->size_bytes &&
	       (a->size_bytes == 0 || memcmp(a->sha256, b->sha256, SHA256_BYTES) == 0);
}

static bool same_name(const struct intent_name *a, const struct intent_name *b)
{
	return a->parent == b->parent && a->len == b->len && memcmp(a->name, b->name, a->len) == 0;
}

static bool same_target(const struct node *a, const struct node *b)
{
	return a->target_len == b->target_len && memcmp(a->target, b->target, a->target_len) == 0;
}

/* Is it the same thing, as far as somebody's work is in it? */
static bool same_thing(const struct node *a, const struct node *b)
{
	if (a->type != b->type)
		return false;
	if (a->type == NODE_TYPE_FILE)
		return same_content(&a->content, &b->content);
	return a->type != NODE_TYPE_SYMLINK || same_target(a, b);
}

/* A name in ids of the environment's tree; parent 0: that directory is not there. */
static struct intent_name here(const struct rec_tree *t, const struct intent_name *n)
{
	struct intent_name h = *n;
	struct node dir;

	h.parent = t->alias(t->userdata, n->parent);
	if (h.parent &&
	    (!t->node(t->userdata, false, h.parent, &dir) || dir.type != NODE_TYPE_DIRECTORY))
		h.parent = 0;
	return h;
}

static bool alive(const struct rec_tree *t, uint64_t node, struct node *ret)
{
	return node && t->node(t->userdata, false, node, ret);
}

/* ---- what the environment has touched ---- */

struct touched {
	const struct rec_tree *t;
	unsigned deep;
};

/* Did the brain know it under this name? */
static bool is_placed(const struct touched *c, const struct intent_own *own,
		      const struct intent_name *n, uint64_t node)
{
	struct node was;

	if (own && own->astray)
		return false;
	if (own && own->at.len && same_name(&own->at, n))
		return true;
	for (const struct intent_names *b = own ? own->before : NULL; b; b = b->next)
		if (same_name(&b->name, n))
			return true;
	/* The brain made it later than that tree was, with all its names: of links only the last
	 * is remembered. */
	if (own && own->content && own->dropped && !c->t->node(c->t->userdata, true, node, &was))
		return true;
	return c->t->lookup(c->t->userdata, true, n) == node;
}

/* ... and with this content? */
static bool is_as_left(const struct touched *c, const struct intent_own *own, uint64_t node,
		       const struct node *now)
{
	struct node was;

	/* What was joined has something in it that the brain did not see. */
	if (own && own->content)
		return now->type != NODE_TYPE_FILE || (same_content(&own->got, &now->content) &&
						       same_content(&own->got, &own->wanted));
	return c->t->node(c->t->userdata, true, node, &was) && same_thing(&was, now);
}

/* In a directory that goes: the environment took all other names, which the brain left, and
 * this one would be the last. */
static bool is_last(const struct touched *c, const struct intent_own *own, uint64_t node,
		    const struct node *now)
{
	const struct rec_tree *t = c->t;

	return c->deep && now->type != NODE_TYPE_DIRECTORY && !(own && own->dropped) &&
	       t->links(t->userdata, true, node) > 1 && t->links(t->userdata, false, node) == 1;
}

static bool entry_touched(const struct intent_name *n, uint64_t node, void *arg)
{
	struct touched *c = arg;
	const struct rec_tree *t = c->t;
	const struct intent_own *own = t->own(t->userdata, node);
	struct node now;
	bool r = false;

	if (!t->node(t->userdata, false, node, &now) || !is_placed(c, own, n, node) ||
	    !is_as_left(c, own, node, &now) || is_last(c, own, node, &now))
		return true;
	if (now.type == NODE_TYPE_DIRECTORY) {
		if (++c->deep > DEEP)
			return true;
		r = t->list(t->userdata, node, entry_touched, c);
		c->deep--;
	}
	return r;
}

static bool is_touched(const struct rec_tree *t, const struct intent_name *at, uint64_t node)
{
	struct touched c = {.t = t};

	return entry_touched(at, node, &c);
}

static bool has_other_name(const struct rec_tree *t, uint64_t node)
{
	return t->links(t->userdata, false, node) > 1;
}

static bool is_at(const struct rec_tree *t, const struct intent_name *n, uint64_t node)
{
	return n->parent && t->lookup(t->userdata, false, n) == node;
}

/* ---- where it goes ---- */

/* How far does a path lead, and is a directory all that is on its way? *ret: what it leads to. */
static bool path_is_free(const struct rec_tree *t, const char *path, uint64_t *ret)
{
	struct intent_name n = {.parent = NODE_ROOT};
	struct node dir;

	for (;;) {
		const char *slash = strchr(path, '/');

		n.name = path;
		n.len = (uint16_t)(slash ? (size_t)(slash - path) : strlen(path));
		*ret = t->lookup(t->userdata, false, &n);
		if (!*ret)
			return true;
		if (!slash)
			return false;
		if (!t->node(t->userdata, false, *ret, &dir) || dir.type != NODE_TYPE_DIRECTORY)
			return false;
		n.parent = *ret;
		path = slash + 1;
	}
}

static void lost(struct rec_plan *p, enum rec_conflict kind, uint64_t other)
{
	p->verdict = REC_CONFLICT;
	p->step = STEP_NONE;
	p->conflict = kind;
	p->other = other;
}

static void step(struct rec_plan *p, enum rec_step s)
{
	p->verdict = REC_APPLY;
	p->step = s;
}

/* The name `n`, at `path` in the brain's eyes, is to be given. Fills *ret_name; *ret_held is what
 * has it now. False: nothing can come there, and the plan says so. */
static bool goal(const struct rec_tree *t, const struct intent_name *n, const char *path,
		 struct rec_plan *p, struct intent_name *ret_name, uint64_t *ret_held)
{
	*ret_name = here(t, n);
	*ret_held = 0;
	if (ret_name->parent) {
		*ret_held = t->lookup(t->userdata, false, ret_name);
		return true;
	}
	/* Made by an earlier change that is not in the tree. */
	if (n->parent & INTENT_MADE && !t->alias(t->userdata, n->parent)) {
		p->verdict = REC_WAIT;
		return false;
	}
	p->by_path = true;
	p->gone = n->parent;
	if (path_is_free(t, path, ret_held))
		return true;
	lost(p, CONFLICT_TYPE, *ret_held);
	return false;
}

static enum rec_conflict kind_of(const struct rec_tree *t, uint64_t held, uint8_t type)
{
	struct node n;

	return t->node(t->userdata, false, held, &n) && n.type != type ? CONFLICT_TYPE
								       : CONFLICT_EDIT_EDIT;
}

/* `thing` comes to a name that should be free. */
static void put_new(const struct rec_tree *t, const struct intent_name *n, const char *path,
		    const struct node *thing, struct rec_plan *p)
{
	struct node there;
	uint64_t held;

	if (!goal(t, n, path, p, &p->at, &held))
		return;
	if (!held) {
		step(p, STEP_PUT_NEW);
		return;
	}
	if (t->node(t->userdata, false, held, &there) && same_thing(&there, thing)) {
		p->verdict = REC_DONE;
		p->node = held;
		return;
	}
	lost(p, kind_of(t, held, thing->type), held);
}

/* ---- one for each kind ---- */

static void create(const struct rec_tree *t, const struct intent *in, struct rec_plan *p)
{
	put_new(t, &in->at, in->path, &in->wanted, p);
}

/* What was removed there comes again with the brain's content. */
static void revive(const struct rec_tree *t, const struct intent *in, struct rec_plan *p)
{
	struct node thing = in->base;

	thing.content = in->wanted.content;
	put_new(t, &in->at, in->path, &thing, p);
	if (p->verdict == REC_APPLY)
		p->conflict = CONFLICT_EDIT_DELETE;
}

static void rewrite(const struct rec_tree *t, const struct intent *in, struct rec_plan *p)
{
	const struct content_ref *want = &in->wanted.content, *base = &in->base.content;
	const struct intent_own *own;
	struct node now;
	bool grown;

	if (!alive(t, p->node, &now)) {
		revive(t, in, p);
		return;
	}
	p->at = here(t, &in->at);
	own = t->own(t->userdata, p->node);
	p->placed = is_at(t, &p->at, p->node);
	if (!p->placed)
		(void)t->name(t->userdata, p->node, &p->at);
	/* Had it more names, which the environment took, the brain believes it to have them yet. */
	p->placed = p->placed &&
		    (t->links(t->userdata, true, p->node) <= 1 || (own && own->dropped));
	p->base = now.content;
	if (same_content(&now.content, want)) {
		p->verdict = REC_DONE;
		return;
	}
	if (same_content(&now.content, base)) {
		step(p, STEP_PUT_OVER);
		return;
	}
	own = own && own->content ? own : NULL;
	grown = want->size_bytes > base->size_bytes && t->begins(t->userdata, want, base);
	/* Joined already; or the brain's version before this one was, and this one goes on. */
	if (grown && (t->begins(t->userdata, &now.content, want) ||
		      (own && same_content(&own->wanted, want) &&
		       t->begins(t->userdata, &now.content, &own->got))))
		p->verdict = REC_DONE;
	/* All begins with nothing: who writes a file anew cuts it first, and appends to nobody's. */
	else if (grown && base->size_bytes > 0 &&
		 (t->begins(t->userdata, &now.content, base) ||
		  (own && same_content(&own->wanted, base) &&
		   t->begins(t->userdata, &now.content, &own->got))))
		step(p, STEP_JOIN);
	else
		lost(p, CONFLICT_EDIT_EDIT, p->node);
}

/* The name is gone and others are left, all known to the brain: it was made, and who had asked
 * for it died before that was recorded. */
static bool is_removed(const struct rec_tree *t, uint64_t node)
{
	struct touched c = {.t = t};
	struct intent_name n;

	return t->name(t->userdata, node, &n) && is_placed(&c, t->own(t->userdata, node), &n, node);
}

static void removal(const struct rec_tree *t, const struct intent *in, struct rec_plan *p)
{
	const struct intent_own *own = t->own(t->userdata, p->node);
	uint64_t held;
	struct node now;
	/* Names that the brain took itself may be counted in `shared` yet. */
	bool shared = in->shared && !(own && own->dropped);

	p->at = here(t, &in->at);
	held = p->at.parent ? t->lookup(t->userdata, false, &p->at) : 0;
	if (!alive(t, p->node, &now)) {
		/* An editor that saves by rename leaves another node there: it is an edit. */
		if (held && !t->own(t->userdata, held))
			lost(p, CONFLICT_EDIT_DELETE, held);
		return;
	}
	if (!held && in->shared && is_removed(t, p->node))
		return;
	if (held != p->node) {
		/* It was moved there: what nobody saw under its new name is not removed. */
		lost(p, CONFLICT_RENAME, p->node);
		return;
	}
	if (now.type != NODE_TYPE_DIRECTORY && has_other_name(t, p->node))
		step(p, STEP_REMOVE);
	else if (shared || is_touched(t, &p->at, p->node))
		lost(p, CONFLICT_EDIT_DELETE, p->node);
	else
		step(p, STEP_REMOVE);
}

static bool is_beneath(const struct rec_tree *t, uint64_t dir, uint64_t top)
{
	struct intent_name n;

	for (unsigned i = 0; i < DEEP && dir != NODE_ROOT; i++) {
		if (dir == top)
			return true;
		if (!t->name(t->userdata, dir, &n))
			return false;
		dir = n.parent;
	}
	return dir == top;
}

static bool any_entry(const struct intent_name *n, uint64_t node, void *arg)
{
	(void)n;
	(void)node;
	(void)arg;
	return true;
}

/* Does what has the name stand in the way of a move? */
static bool in_the_way(const struct rec_tree *t, const struct intent *in, const struct rec_plan *p,
		       uint64_t held, const struct node *moved)
{
	struct node there;

	if (!in->replaces || held != p->replaces || !alive(t, held, &there))
		return true;
	if ((there.type == NODE_TYPE_DIRECTORY) != (moved->type == NODE_TYPE_DIRECTORY))
		return true;
	if (there.type == NODE_TYPE_DIRECTORY)
		return t->list(t->userdata, held, any_entry, NULL);
	return is_touched(t, &p->to, held) && !has_other_name(t, held);
}

static void move(const struct rec_tree *t, const struct intent *in, struct rec_plan *p)
{
	struct node now;
	uint64_t held;

	if (!alive(t, p->node, &now)) {
		lost(p, CONFLICT_RENAME, 0);
		return;
	}
	p->at = here(t, &in->at);
	if (!goal(t, &in->to, in->to_path, p, &p->to, &held))
		return;
	if (held == p->node) { /* it has the name there, and maybe the old one, too */
		if (is_at(t, &p->at, p->node) && !same_name(&p->at, &p->to))
			step(p, STEP_REMOVE);
		return;
	}
	if (!is_at(t, &p->at, p->node)) {
		lost(p, CONFLICT_RENAME, p->node);
		return;
	}
	if (p->to.parent && is_beneath(t, p->to.parent, p->node)) {
		lost(p, CONFLICT_RENAME, p->node);
		return;
	}
	p->replaces = t->alias(t->userdata, in->replaces);
	if (held && in_the_way(t, in, p, held, &now)) {
		lost(p, CONFLICT_RENAME, held);
		return;
	}
	if (!held)
		p->replaces = 0;
	step(p, STEP_MOVE);
}

static void another_name(const struct rec_tree *t, const struct intent *in, struct rec_plan *p)
{
	struct node now;
	uint64_t held;

	if (!alive(t, p->node, &now)) {
		/* Its first name is gone there; this one keeps what was in it. */
		put_new(t, &in->to, in->to_path, &in->base, p);
		p->to = p->at;
		return;
	}
	if (!goal(t, &in->to, in->to_path, p, &p->to, &held))
		return;
	(void)t->name(t->userdata, p->node, &p->at);
	if (held == p->node)
		p->verdict = REC_DONE;
	else if (held)
		lost(p, CONFLICT_RENAME, held);
	else
		step(p, STEP_LINK);
}

/* A write changes a file's time, too, and here a name in it a directory's: a time that somebody
 * sets in a view, or a fork, stands against other contents only. */
static bool time_is_ours(const struct rec_tree *t, const struct intent *in,
			 const struct rec_plan *p, const struct node *now)
{
	const struct intent_own *own = t->own(t->userdata, p->node);

	return now->type != NODE_TYPE_FILE ||
	       memcmp(now->content.sha256, in->base.content.sha256, SHA256_BYTES) == 0 ||
	       (own && own->content &&
		memcmp(now->content.sha256, own->got.sha256, SHA256_BYTES) == 0);
}

static void attributes(const struct rec_tree *t, const struct intent *in, struct rec_plan *p)
{
	struct node now;
	uint32_t theirs, open;

	if (!alive(t, p->node, &now)) {
		p->verdict = REC_DONE; /* attributes alone do not bring it back */
		return;
	}
	(void)t->name(t->userdata, p->node, &p->at);
	open = in->fields & node_compare(&now, &in->wanted, 0);
	theirs = open & node_compare(&now, &in->base, 0);
	if ((in->view_number || in->merge_last) && theirs & NODE_FIELD_MTIME) {
		theirs &= ~(uint32_t)NODE_FIELD_MTIME;
		if (!time_is_ours(t, in, p, &now))
			open &= ~(uint32_t)NODE_FIELD_MTIME;
	}
	p->fields = open & ~theirs;
	if (p->fields)
		step(p, STEP_ATTR);
	if (theirs && !p->fields)
		lost(p, CONFLICT_EDIT_EDIT, p->node);
	else if (theirs)
		p->conflict = CONFLICT_EDIT_EDIT;
}

void reconcile(const struct rec_tree *t, const struct intent *in, struct rec_plan *ret)
{
	static void (*const rules[])(const struct rec_tree *t, const struct intent *in,
				     struct rec_plan *p) = {
		[INTENT_CREATE] = create, [INTENT_WRITE] = rewrite,	[INTENT_REMOVE] = removal,
		[INTENT_MOVE] = move,	  [INTENT_LINK] = another_name, [INTENT_ATTR] = attributes,
	};

	*ret = (struct rec_plan){.verdict = REC_DONE};
	if (in->kind != INTENT_CREATE) {
		ret->node = t->alias(t->userdata, in->node);
		if (!ret->node) { /* it was to be made by a change that is not there */
			ret->verdict = REC_WAIT;
			return;
		}
	}
	rules[in->kind](t, in, ret);
	ret->dropped = ret->step == STEP_REMOVE;
	ret->astray = ret->verdict == REC_CONFLICT &&
		      (in->kind == INTENT_MOVE || in->kind == INTENT_LINK);
}
