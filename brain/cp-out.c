/* cp out of an environment's journal. */
#include "brain/cp-impl.h"

#include <fcntl.h>
#include <sys/stat.h>
#include "base/beneath.h"
#include "base/io.h"
#include "brain/barrier.h"
#include "brain/env.h"

struct out_writer {
	struct copy *c;
	struct index_txn *t;
	struct buf piece;
	int top;
};

static int out_file(struct out_writer *o, const char *path, const struct index_node *n)
{
	cleanup_close int fd = -1;
	uint64_t at = 0;
	int r;

	copy_problem(o->c, "write", *path ? path : o->c->host);
	fd = *path ? beneath_open(o->top, path, O_WRONLY | O_CREAT | O_TRUNC, 0600)
		   : open(o->c->host, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	if (fd < 0)
		return *path ? fd : -errno;
	while (at < n->n.content.size_bytes) {
		buf_clear(&o->piece);
		r = content_read(&n->n.content, at, CP_STEP, store_fetch_fn,
				 o->c->env->brain->store, &o->piece);
		if (r < 0)
			return r;
		if (buf_len(&o->piece) == 0)
			return -EBADMSG;
		r = io_write_full(fd, buf_data(&o->piece), buf_len(&o->piece), "cp.write");
		if (r < 0)
			return r;
		at += buf_len(&o->piece);
	}
	o->c->files++;
	o->c->changing += n->n.torn;
	o->c->bytes += at;
	return fchmod(fd, n->n.mode & 0777) < 0 ? -errno : 0;
}

static int out_entry(const char *path, size_t len, const struct index_node *n, uint32_t same_as,
		     void *userdata)
{
	struct out_writer *o = userdata;
	cleanup_free char *p = strndup(path, len), *target = NULL;
	cleanup_close int parent = -1;
	const char *name;
	int r;

	(void)same_as;
	if (!p)
		return -ENOMEM;
	copy_problem(o->c, "write", p);
	if (n->n.type == NODE_TYPE_FILE)
		return out_file(o, p, n);
	r = beneath_open_parent(o->top, p, &parent, &name);
	if (r < 0)
		return r;
	if (n->n.type == NODE_TYPE_DIRECTORY)
		return mkdirat(parent, name, 0755) < 0 && errno != EEXIST ? -errno : 0;
	if (n->n.type != NODE_TYPE_SYMLINK)
		return 0;
	target = strndup((const char *)n->n.target, n->n.target_len);
	if (!target)
		return -ENOMEM;
	o->c->files++;
	return symlinkat(target, parent, name) < 0 ? -errno : 0;
}

static void out_work(uv_work_t *w)
{
	struct copy *c = container_of(w, struct copy, work);
	struct out_writer o = {.c = c, .top = -1};
	struct index_node n;
	uint64_t node;
	int r;

	buf_init(&o.piece, CP_STEP + FRAME_RAW_MAX);
	r = env_read_begin(c->env, &o.t);
	if (r < 0)
		goto out;
	r = index_lookup_path(o.t, c->inner, strlen(c->inner), c->point, &node);
	if (r == 0)
		r = index_get_node(o.t, node, c->point, &n);
	if (r == 0 && n.n.type == NODE_TYPE_FILE) {
		r = out_file(&o, "", &n);
	} else if (r == 0 && n.n.type == NODE_TYPE_DIRECTORY) {
		copy_problem(c, "make the directory", c->host);
		r = mkdir(c->host, 0755) < 0 && errno != EEXIST ? -errno : 0;
		if (r == 0) {
			o.top = open(c->host, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
			r = o.top < 0 ? -errno : index_walk(o.t, node, c->point, out_entry, &o);
		}
	} else if (r == 0) {
		r = -EINVAL;
	}
	index_read_end(o.t);
out:
	if (o.top >= 0)
		(void)close(o.top);
	buf_done(&o.piece);
	c->result = r;
}

static void out_worked(uv_work_t *w, int status)
{
	struct copy *c = container_of(w, struct copy, work);

	(void)status;
	c->env->threads--;
	if (c->result < 0 && c->problem[0])
		copy_fail(c, c->result, "cannot be copied");
	else if (c->result < 0)
		copy_fail_inner(c, c->result);
	else
		copy_ok(c, env_seq(c->env));
}

/* One piece for the client's stdout; the file's reference was taken at the barrier. */
static void piece_work(uv_work_t *w)
{
	struct copy *c = container_of(w, struct copy, work);

	buf_clear(&c->frames);
	c->result = c->offset < c->ref.size_bytes
			    ? content_read(&c->ref, c->offset, CP_STEP, store_fetch_fn,
					   c->env->brain->store, &c->frames)
			    : 0;
}

static void piece_go(struct copy *c);

static void piece_worked(uv_work_t *w, int status)
{
	struct copy *c = container_of(w, struct copy, work);
	size_t n = buf_len(&c->frames);

	(void)status;
	c->env->threads--;
	if (c->result < 0) {
		copy_fail(c, c->result, "its content cannot be read");
		return;
	}
	if (n == 0) {
		c->files = 1;
		c->bytes = c->offset;
		copy_ok(c, env_seq(c->env));
		return;
	}
	c->offset += n;
	if (call_bytes(c->call, RPC_STDOUT, buf_data(&c->frames), n))
		piece_go(c);
	else
		c->drained_wait = true;
}

static void piece_go(struct copy *c)
{
	c->env->threads++;
	(void)uv_queue_work(c->env->brain->loop, &c->work, piece_work, piece_worked);
}

static void piece_drained(struct call *call)
{
	struct copy *c = call->op;

	if (c && c->drained_wait) {
		c->drained_wait = false;
		piece_go(c);
	}
}

static int take_ref(struct copy *c)
{
	struct index_txn *t;
	struct index_node n;
	uint64_t node;
	int r;

	r = env_read_begin(c->env, &t);
	if (r < 0)
		return r;
	r = index_lookup_path(t, c->inner, strlen(c->inner), c->point, &node);
	if (r == 0)
		r = index_get_node(t, node, c->point, &n);
	if (r == 0)
		r = n.n.type == NODE_TYPE_FILE	      ? 0
		    : n.n.type == NODE_TYPE_DIRECTORY ? -EISDIR
						      : -EINVAL;
	if (r == 0) {
		c->ref = n.n.content;
		c->changing = n.n.torn;
	}
	index_read_end(t);
	return r;
}

static void out_synced(struct env *env, const struct barrier_result *res, void *userdata)
{
	struct copy *c = userdata;
	int r;

	/* What the journal has is what there is. */
	c->unsynced = c->point == INDEX_NOW && res->r < 0 && env->wanted;
	if (c->to_stdout) {
		r = take_ref(c);
		if (r < 0) {
			copy_fail_inner(c, r);
			return;
		}
		c->call->on_drained = piece_drained;
		piece_go(c);
		return;
	}
	env->threads++;
	(void)uv_queue_work(env->brain->loop, &c->work, out_work, out_worked);
}

void cp_out_begin(struct copy *c)
{
	struct barrier_result none = {.r = -ENOTCONN};

	if (c->point != INDEX_NOW || barrier_run(c->env, CP_LOOK_MS, out_synced, c) < 0)
		out_synced(c->env, &none, c);
}
