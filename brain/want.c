#include "brain/want.h"

#include "brain/link.h"

bool want_is_away(const struct env *env)
{
	return env->queue && env->commit && env->wanted && !link_up(env) && !env->halted &&
	       !env->hostile && !env->failed && !env->lost && !env->creating && !env->restoring &&
	       strncmp(env->class, "strong", 6) != 0;
}

static struct intent_name name_of(const struct queue_entry *e)
{
	return (struct intent_name){e->parent, e->name, e->len};
}

static int add_create(struct env *env, const struct queue_entry *e, const char *path,
		      const struct node *thing, queue_durable_fn fn, void *userdata)
{
	struct intent in = {
		.kind = INTENT_CREATE, .at = name_of(e), .path = path, .wanted = *thing};

	return queue_add(env, &in, fn, userdata);
}

static int add_remove(struct env *env, const struct queue_entry *e, const char *path,
		      queue_durable_fn fn, void *userdata)
{
	struct intent in = {.kind = INTENT_REMOVE,
			    .node = e->node,
			    .at = name_of(e),
			    .path = path,
			    .base = e->n,
			    .shared = e->n.type != NODE_TYPE_DIRECTORY && e->links > 1};

	return queue_add(env, &in, fn, userdata);
}

/* The first directory on the way that is not there. */
static int make_parent(struct env *env, const char *path, size_t missing)
{
	struct node dir = {.type = NODE_TYPE_DIRECTORY, .mode = 0755};
	cleanup_free char *up = strndup(path, missing);
	struct queue_entry e;
	int r;

	if (!up)
		return -ENOMEM;
	r = queue_seen(env, up, &e, NULL);
	return r < 0 ? r : add_create(env, &e, up, &dir, NULL, NULL);
}

int want_look(struct env *env, const char *path, bool parents, struct queue_entry *ret)
{
	size_t missing = 0, made;
	int r;

	if (!*path)
		return -EINVAL;
	for (;;) {
		made = missing;
		r = queue_seen(env, path, ret, &missing);
		if (r != -ENOENT || !parents)
			return r;
		/* What was just made is there, or something is wrong. */
		r = missing > made ? make_parent(env, path, missing) : -EIO;
		if (r < 0)
			return r;
	}
}

int want_look_any(struct env *env, const char *path, struct queue_entry *ret)
{
	return *path ? want_look(env, path, false, ret) : queue_seen(env, "", ret, NULL);
}

int want_put(struct env *env, const char *path, const struct node *thing, unsigned flags,
	     queue_durable_fn fn, void *userdata)
{
	struct intent in = {.kind = INTENT_WRITE, .path = path};
	struct queue_entry e;
	int r;

	r = want_look(env, path, flags & WANT_PARENTS, &e);
	if (r < 0)
		return r;
	if (!e.node)
		return add_create(env, &e, path, thing, fn, userdata);
	if (flags & WANT_NO_REPLACE)
		return -EEXIST;
	if (thing->type == NODE_TYPE_DIRECTORY)
		return e.n.type == NODE_TYPE_DIRECTORY ? -EALREADY : -EEXIST;
	if (e.n.type == NODE_TYPE_DIRECTORY)
		return -EISDIR;
	if (thing->type != NODE_TYPE_FILE || e.n.type != NODE_TYPE_FILE) {
		if (!queue_has_room(env, 2))
			return -EDQUOT;
		r = add_remove(env, &e, path, NULL, NULL);
		return r < 0 ? r : add_create(env, &e, path, thing, fn, userdata);
	}
	if (memcmp(e.n.content.sha256, thing->content.sha256, SHA256_BYTES) == 0)
		return -EALREADY;
	in.node = e.node;
	in.at = name_of(&e);
	in.base = in.wanted = e.n;
	in.wanted.content = thing->content;
	return queue_add(env, &in, fn, userdata);
}

int want_remove(struct env *env, const char *path, queue_durable_fn fn, void *userdata)
{
	struct queue_entry e;
	int r;

	r = want_look(env, path, false, &e);
	if (r == 0 && !e.node)
		r = -ENOENT;
	return r < 0 ? r : add_remove(env, &e, path, fn, userdata);
}

static int judge_move(struct env *env, const char *from, const char *to,
		      const struct queue_entry *a, const struct queue_entry *b)
{
	bool dir = a->n.type == NODE_TYPE_DIRECTORY;
	size_t n = strlen(from);

	if (dir && strncmp(from, to, n) == 0 && to[n] == '/')
		return -EINVAL;
	if (!b->node)
		return 0;
	if (b->n.type == NODE_TYPE_DIRECTORY)
		return !dir ? -EISDIR : queue_dir_is_empty(env, b->node) ? 0 : -ENOTEMPTY;
	return dir ? -ENOTDIR : 0;
}

/* What is called so, as a, and what has the name that it is to get, as b. */
static int look_at_both(struct env *env, struct intent *in, struct queue_entry *a,
			struct queue_entry *b)
{
	int r = want_look(env, in->to_path, false, b);

	if (r == 0)
		r = want_look(env, in->path, false, a);
	if (r == 0 && !a->node)
		r = -ENOENT;
	if (r == 0 && a->node == b->node)
		r = -EALREADY;
	if (r < 0)
		return r;
	in->node = a->node;
	in->base = a->n;
	in->at = name_of(a);
	in->to = name_of(b);
	return 0;
}

int want_move(struct env *env, const char *from, const char *to, queue_durable_fn fn,
	      void *userdata)
{
	struct intent in = {.kind = INTENT_MOVE, .path = from, .to_path = to};
	struct queue_entry a, b;
	int r;

	r = look_at_both(env, &in, &a, &b);
	if (r == 0)
		r = judge_move(env, from, to, &a, &b);
	if (r < 0)
		return r;
	in.replaces = b.node;
	return queue_add(env, &in, fn, userdata);
}

int want_link(struct env *env, const char *from, const char *to, queue_durable_fn fn,
	      void *userdata)
{
	struct intent in = {.kind = INTENT_LINK, .path = from, .to_path = to};
	struct queue_entry a, b;
	int r;

	r = look_at_both(env, &in, &a, &b);
	if (r == 0 && b.node)
		r = -EEXIST;
	return r < 0 ? r : queue_add(env, &in, fn, userdata);
}

int want_attr(struct env *env, const char *path, const struct node *wanted, uint32_t fields,
	      queue_durable_fn fn, void *userdata)
{
	struct intent in = {.kind = INTENT_ATTR, .path = path, .fields = fields};
	struct queue_entry e;
	int r;

	r = want_look_any(env, path, &e);
	if (r == 0 && !e.node)
		r = -ENOENT;
	if (r < 0)
		return r;
	in.node = e.node;
	in.at = name_of(&e);
	in.base = in.wanted = e.n;
	node_set_fields(&in.wanted, wanted, fields);
	return queue_add(env, &in, fn, userdata);
}
