/*
 * cp into an environment that is away: the host's files into the store, by a helper thread,
 * then one intent for each; durable when the call returns.
 */
#include "brain/cp-impl.h"

#include <fcntl.h>
#include <sys/stat.h>

#include "base/io.h"
#include "brain/keep.h"
#include "brain/want.h"

enum { PIECE = 256 << 10 };

struct cp_thing {
	struct node n; /* type 0: is left out */
	char *target;
};

static int keep_fd(struct copy *c, struct keep *k, int fd, struct content_ref *ret)
{
	cleanup_free uint8_t *piece = malloc(PIECE);
	ssize_t n;
	int r = 0;

	if (!piece)
		return -ENOMEM;
	keep_file_begin(k);
	do {
		n = io_read_full(fd, piece, PIECE, "cp.read");
		if (n < 0)
			return (int)n;
		r = keep_data(k, piece, (size_t)n);
		c->bytes += (uint64_t)n;
	} while (r == 0 && n == PIECE);
	return r < 0 ? r : keep_file_end(k, ret);
}

static int keep_item(struct copy *c, struct keep *k, size_t i)
{
	const struct item *it = &c->items[i];
	cleanup_free char *host = cp_join(c->host, it->path);
	struct cp_thing *th = &c->things[i];
	cleanup_close int fd = -1;
	char target[4097];
	ssize_t n;

	if (!host)
		return -ENOMEM;
	th->n.type = node_type_of_mode(it->mode);
	th->n.mode = it->mode & 07777;
	copy_problem(c, "read", host);
	if (th->n.type == NODE_TYPE_SYMLINK) {
		n = readlink(host, target, sizeof(target) - 1);
		th->target = n < 0 ? NULL : strndup(target, (size_t)n);
		if (!th->target)
			return n < 0 ? -errno : -ENOMEM;
		th->n.mode = 0777;
		th->n.target = (const uint8_t *)th->target;
		th->n.target_len = (uint32_t)n;
		return 0;
	}
	if (th->n.type != NODE_TYPE_FILE) {
		if (th->n.type != NODE_TYPE_DIRECTORY)
			th->n.type = NODE_TYPE_NONE; /* as cp does */
		return 0;
	}
	fd = open(host, O_RDONLY | O_CLOEXEC | O_NONBLOCK | (it->path[0] ? O_NOFOLLOW : 0));
	return fd < 0 ? -errno : keep_fd(c, k, fd, &th->n.content);
}

static int keep_stdin(struct copy *c, struct keep *k)
{
	c->things[0].n = (struct node){.type = NODE_TYPE_FILE, .mode = 0644};
	if (lseek(c->fd, 0, SEEK_SET) < 0)
		return -errno;
	return keep_fd(c, k, c->fd, &c->things[0].n.content);
}

static int keep_all(struct copy *c)
{
	_cleanup_(keep_dropp) struct keep *k = NULL;
	int r;

	c->things = calloc(c->n_items ? c->n_items : 1, sizeof(*c->things));
	if (!c->things)
		return -ENOMEM;
	r = keep_begin(c->env->brain, c->env->id, &k);
	if (r == 0 && c->from_stdin)
		r = keep_stdin(c, k);
	for (size_t i = 0; r == 0 && !c->from_stdin && i < c->n_items; i++)
		r = keep_item(c, k, i);
	return r < 0 ? r : keep_end(k);
}

static void keep_work(uv_work_t *w)
{
	struct copy *c = container_of(w, struct copy, work);

	if (!c->from_stdin)
		cp_list(c);
	else
		c->result = 0;
	if (c->result == 0)
		c->result = keep_all(c);
}

/* What is durable is counted; the last one answers. */
static void one_durable(int r, uint64_t seq, void *userdata)
{
	struct copy *c = userdata;

	c->wanted_seq = seq;
	c->result = c->result < 0 ? c->result : r;
	if (--c->wanted)
		return;
	c->problem[0] = 0;
	if (c->result < 0)
		copy_fail(c, c->result, "it cannot be kept for the environment");
	else
		copy_queued(c, c->wanted_seq);
}

static int want_one(struct copy *c, size_t i)
{
	const struct node *n = &c->things[i].n;
	cleanup_free char *inner = cp_join(c->inner, c->from_stdin ? "" : c->items[i].path);
	int r;

	if (!n->type)
		return 0;
	if (!inner)
		return -ENOMEM;
	copy_problem(c, "copy to", inner);
	c->wanted++;
	r = want_put(c->env, inner, n, 0, one_durable, c);
	if (r < 0)
		c->wanted--;
	c->files += r != -EALREADY && n->type != NODE_TYPE_DIRECTORY;
	return r == -EALREADY ? 0 : r;
}

static void kept(uv_work_t *w, int status)
{
	struct copy *c = container_of(w, struct copy, work);
	size_t n = c->from_stdin ? 1 : c->n_items;
	int r = c->result;

	(void)status;
	c->working = false;
	c->env->threads--;
	c->result = 0;
	c->wanted = 1; /* ours */
	for (size_t i = 0; r == 0 && i < n; i++)
		r = want_one(c, i);
	c->result = r;
	one_durable(r, env_seq(c->env), c);
}

static int begin(struct copy *c)
{
	int r = uv_queue_work(c->env->brain->loop, &c->work, keep_work, kept);

	if (r < 0)
		return r;
	c->working = true;
	c->env->threads++;
	return 0;
}

/* The client's stdin, in a file without a name until it is whole. */
static void stdin_piece(struct call *call, const void *data, size_t n, bool eof)
{
	struct copy *c = call->op;
	int r = 0;

	if (!c || c->item_sent)
		return;
	if (n)
		r = io_write_full(c->fd, data, n, "cp.spool");
	if (r == 0 && eof) {
		c->item_sent = true;
		r = begin(c);
	}
	if (r < 0)
		copy_fail(c, r, "cannot keep what came");
}

int cp_queue_begin(struct copy *c)
{
	if (!c->from_stdin)
		return begin(c);
	c->fd = openat(c->env->dir_fd, ".", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
	if (c->fd < 0)
		return -errno;
	c->call->on_stdin = stdin_piece;
	return 0;
}

void cp_things_free(struct copy *c)
{
	for (size_t i = 0; c->things && i < MAX(c->n_items, (size_t)1); i++)
		free(c->things[i].target);
	free(c->things);
}
