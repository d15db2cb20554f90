/*
 * cp: files into an environment (APPLY with bytes by PUSH), or out of its journal.
 *
 * Into: a helper thread reads the host's files a piece at a time and makes the
 * frames; one file is under way at a time, its answer awaited before the next.
 * Out: after a barrier a helper thread writes what the journal has; nothing is
 * asked of the environment.  "-" is the client's stdin or stdout.
 */
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>

#include "base/beneath.h"
#include "base/clock.h"
#include "base/io.h"
#include "brain/barrier.h"
#include "brain/env.h"
#include "brain/link.h"
#include "brain/verb.h"
#include "wire/wire.pb-c.h"

enum {
	PIECE = 256 << 10,
	STEP = 1 << 20,
	LINE_HIGH = 4 << 20,
	ASK_MS = 60000,
	SYNC_MS = 60000,
	ITEMS_MAX = 1 << 20,
};

/* One file or directory of the host, by paths below the two tops. */
struct item {
	char *path; /* below the tops; "" the top itself */
	mode_t mode;
};

struct copy {
	struct call *call;
	struct env *env;
	char *host, *inner; /* the tops */
	uint64_t files, bytes;
	struct item *items;
	size_t n_items, cap_items, at;

	/* into: the file under way */
	int fd;
	uint64_t offset;
	uint32_t push;
	uint64_t request;
	bool item_sent, from_stdin;
	struct buf frames;

	/* out */
	bool to_stdout, drained_wait, out_over;
	struct content_ref ref;

	uv_work_t work;
	int result;
	char problem[300];
};

static void copy_free(struct copy *c)
{
	for (size_t i = 0; i < c->n_items; i++)
		free(c->items[i].path);
	free(c->items);
	if (c->fd >= 0)
		(void)close(c->fd);
	buf_done(&c->frames);
	free(c->host);
	free(c->inner);
	free(c);
}

static void copy_detach(struct copy *c)
{
	c->call->op = NULL;
	c->call->on_stdin = NULL;
	c->call->on_drained = NULL;
}

static void copy_fail(struct copy *c, int r, const char *what)
{
	copy_detach(c);
	call_fail(c->call, verb_code(r), c->env->name, NULL, "environment '%s': %s: %s",
		  c->env->name, c->problem[0] ? c->problem : what,
		  r == -ETIMEDOUT ? "no answer before its deadline" : strerror(-r));
	copy_free(c);
}

static void copy_ok(struct copy *c, uint64_t seq)
{
	json_t *o = json_pack("{s:s, s:I, s:I, s:I}", "environment", c->env->name, "files",
			      (json_int_t)c->files, "bytes", (json_int_t)c->bytes, "seq",
			      (json_int_t)seq);

	copy_detach(c);
	call_ok(c->call, o);
	copy_free(c);
}

static char *join(const char *a, const char *b)
{
	char *s;

	return asprintf(&s, "%s%s%s", a, *a && *b ? "/" : "", b) < 0 ? NULL : s;
}

/* ---- into: listing the host's side ---- */

static int list_add(struct copy *c, const char *path, mode_t mode)
{
	if (c->n_items == ITEMS_MAX)
		return -E2BIG;
	if (c->n_items == c->cap_items) {
		size_t cap = c->cap_items ? c->cap_items * 2 : 64;
		struct item *p = reallocarray(c->items, cap, sizeof(*p));

		if (!p)
			return -ENOMEM;
		c->items = p;
		c->cap_items = cap;
	}
	c->items[c->n_items].path = strdup(path);
	if (!c->items[c->n_items].path)
		return -ENOMEM;
	c->items[c->n_items++].mode = mode;
	return 0;
}

/* Breadth first: the list of items is the queue of directories, too. */
static int list_dir(struct copy *c, const char *below)
{
	cleanup_free char *path = join(c->host, below);
	struct dirent *e;
	DIR *d = path ? opendir(path) : NULL;
	int r = 0;

	if (!path)
		return -ENOMEM;
	if (!d)
		return -errno;
	while (r == 0 && (errno = 0, e = readdir(d))) {
		cleanup_free char *child = NULL;
		struct stat st;

		if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0)
			continue;
		child = join(below, e->d_name);
		if (!child)
			r = -ENOMEM;
		else if (fstatat(dirfd(d), e->d_name, &st, AT_SYMLINK_NOFOLLOW) == 0)
			r = list_add(c, child, st.st_mode);
	}
	(void)closedir(d);
	return r;
}

static void list_work(uv_work_t *w)
{
	struct copy *c = container_of(w, struct copy, work);
	struct stat st;

	c->result = stat(c->host, &st) < 0 ? -errno : list_add(c, "", st.st_mode);
	for (size_t i = 0; c->result == 0 && i < c->n_items; i++)
		if (S_ISDIR(c->items[i].mode))
			c->result = list_dir(c, c->items[i].path);
}

/* ---- into: one item's frames, made by a thread ---- */

static int put_frame(struct copy *c, enum wire_type type, const ProtobufCMessage *m,
		     const void *bulk, size_t n)
{
	cleanup_free uint8_t *body = NULL;
	size_t len = protobuf_c_message_get_packed_size(m);

	body = malloc(len ? len : 1);
	if (!body)
		return -ENOMEM;
	(void)protobuf_c_message_pack(m, body);
	return wframe_encode(&c->frames, (uint8_t)type, body, len, bulk, n, false);
}

static int put_push(struct copy *c, const void *data, size_t n, bool last)
{
	Limbwire__Push p = LIMBWIRE__PUSH__INIT;

	p.push = c->push;
	p.offset = c->offset;
	p.last = last;
	c->offset += n;
	c->bytes += n;
	return put_frame(c, WIRE_PUSH, &p.base, data, n);
}

static int put_apply(struct copy *c, const char *inner, mode_t mode, const char *target)
{
	Limbwire__Apply m = LIMBWIRE__APPLY__INIT;
	Limb__Attr attr = LIMB__ATTR__INIT;
	Limb__Content content = LIMB__CONTENT__INIT;

	m.request = c->request;
	m.path = (ProtobufCBinaryData){strlen(inner), (uint8_t *)inner};
	m.attr = &attr;
	m.attr_defaults = true;
	m.deadline_ms = ASK_MS - 1000;
	attr.mode = mode & 07777;
	if (S_ISDIR(mode)) {
		m.kind = LIMBWIRE__APPLY__KIND__MKDIR;
		attr.type = LIMB__NODE_TYPE__NODE_DIRECTORY;
	} else if (S_ISLNK(mode)) {
		m.kind = LIMBWIRE__APPLY__KIND__SYMLINK;
		attr.type = LIMB__NODE_TYPE__NODE_SYMLINK;
		attr.target = (ProtobufCBinaryData){strlen(target), (uint8_t *)target};
	} else {
		m.kind = LIMBWIRE__APPLY__KIND__PUT;
		attr.type = LIMB__NODE_TYPE__NODE_FILE;
		m.content = &content;
		content.size_bytes = c->offset;
		m.push = c->push;
	}
	return put_frame(c, WIRE_APPLY, &m.base, NULL, 0);
}

static int item_step(struct copy *c)
{
	const struct item *it = &c->items[c->at];
	cleanup_free char *host = join(c->host, it->path), *inner = join(c->inner, it->path);
	cleanup_free uint8_t *piece = NULL;
	char target[4097];
	ssize_t n;
	int r;

	if (!host || !inner)
		return -ENOMEM;
	(void)snprintf(c->problem, sizeof(c->problem), "cannot copy '%.200s'", it->path);
	if (S_ISDIR(it->mode)) {
		c->item_sent = true;
		return put_apply(c, inner, it->mode, NULL);
	}
	if (S_ISLNK(it->mode)) {
		n = readlink(host, target, sizeof(target) - 1);
		if (n < 0)
			return -errno;
		target[n] = 0;
		c->item_sent = true;
		return put_apply(c, inner, it->mode, target);
	}
	if (c->fd < 0) {
		c->fd = open(host,
			     O_RDONLY | O_CLOEXEC | O_NONBLOCK | (it->path[0] ? O_NOFOLLOW : 0));
		if (c->fd < 0)
			return -errno;
	}
	piece = malloc(PIECE);
	if (!piece)
		return -ENOMEM;
	do {
		n = io_read_full(c->fd, piece, PIECE, "cp.read");
		if (n < 0)
			return (int)n;
		r = put_push(c, piece, (size_t)n, n < PIECE);
		if (r < 0)
			return r;
	} while (n == PIECE && buf_len(&c->frames) < STEP);
	if (n == PIECE)
		return 0;
	(void)close(take_fd(&c->fd));
	c->item_sent = true;
	return put_apply(c, inner, it->mode, NULL);
}

static void item_work(uv_work_t *w)
{
	struct copy *c = container_of(w, struct copy, work);

	c->result = item_step(c);
}

/* ---- into: the loop ---- */

static void into_next(struct copy *c);
static void item_worked(uv_work_t *w, int status);

static void into_synced(struct env *env, const struct barrier_result *res, void *userdata)
{
	struct copy *c = userdata;

	(void)env;
	c->problem[0] = 0;
	if (res->r < 0)
		copy_fail(c, res->r, "it is copied there, but cannot be synced");
	else
		copy_ok(c, res->seq);
}

static void item_done(struct env *env, int r, const struct entry_head *e, void *userdata)
{
	const struct entry_done *d = (const struct entry_done *)e;
	struct copy *c = userdata;

	(void)env;
	if (r == 0 && d->error)
		r = -d->error;
	/* A directory that is there already is as good as one that was made. */
	if (r == -EEXIST && !c->from_stdin && S_ISDIR(c->items[c->at].mode))
		r = 0;
	if (r < 0) {
		copy_fail(c, r, "it cannot be copied there");
		return;
	}
	if (c->from_stdin || !S_ISDIR(c->items[c->at].mode))
		c->files++;
	c->at++;
	call_progress(c->call, "copying", c->files, c->bytes, c->n_items, 0);
	into_next(c);
}

static int into_begin_item(struct copy *c)
{
	static uint32_t last_push;

	c->offset = 0;
	c->item_sent = false;
	c->push = ++last_push;
	return link_expect(c->env, ASK_MS, item_done, c, &c->request);
}

static void into_next(struct copy *c)
{
	int r;

	while (!c->from_stdin && c->at < c->n_items && !S_ISREG(c->items[c->at].mode) &&
	       !S_ISDIR(c->items[c->at].mode) && !S_ISLNK(c->items[c->at].mode))
		c->at++; /* fifos, sockets, devices are not copied */
	if (c->from_stdin || c->at == c->n_items) {
		r = barrier_run(c->env, SYNC_MS, into_synced, c);
	} else {
		r = into_begin_item(c);
		if (r == 0)
			r = uv_queue_work(c->env->brain->loop, &c->work, item_work, item_worked);
	}
	if (r < 0)
		copy_fail(c, r, "it cannot be asked");
}

static void item_worked(uv_work_t *w, int status)
{
	struct copy *c = container_of(w, struct copy, work);
	int r = c->result;

	(void)status;
	if (r == 0)
		r = link_send_raw(c->env, buf_data(&c->frames), buf_len(&c->frames));
	buf_clear(&c->frames);
	if (r < 0) {
		link_forget(c->env, c->request);
		copy_fail(c, r, "cannot read the source");
		return;
	}
	/* The answer comes for the whole item; until then more pieces. A line that is full is
	 * waited for in the thread's stead: OUT_LIMIT of link.c bounds it. */
	if (!c->item_sent)
		(void)uv_queue_work(c->env->brain->loop, &c->work, item_work, item_worked);
}

static void listed(uv_work_t *w, int status)
{
	struct copy *c = container_of(w, struct copy, work);

	(void)status;
	if (c->result < 0)
		copy_fail(c, c->result, "cannot read the source");
	else
		into_next(c);
}

static void stdin_piece(struct call *call, const void *data, size_t n, bool eof)
{
	struct copy *c = call->op;
	int r = 0;

	if (!c || c->item_sent)
		return;
	for (size_t at = 0; r == 0 && at < n; at += PIECE)
		r = put_push(c, (const uint8_t *)data + at, MIN(n - at, (size_t)PIECE), false);
	if (r == 0 && eof) {
		r = put_push(c, NULL, 0, true);
		c->item_sent = true;
		if (r == 0)
			r = put_apply(c, c->inner, S_IFREG | 0644, NULL);
	}
	if (r == 0 && buf_len(&c->frames))
		r = link_send_raw(c->env, buf_data(&c->frames), buf_len(&c->frames));
	buf_clear(&c->frames);
	if (r < 0) {
		link_forget(c->env, c->request);
		copy_fail(c, r, "cannot be sent");
	}
}

/* ---- out ---- */

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

	fd = *path ? beneath_open(o->top, path, O_WRONLY | O_CREAT | O_TRUNC, 0600)
		   : open(o->c->host, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	if (fd < 0)
		return *path ? fd : -errno;
	while (at < n->n.content.size_bytes) {
		buf_clear(&o->piece);
		r = content_read(&n->n.content, at, STEP, store_fetch_fn, o->c->env->brain->store,
				 &o->piece);
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
	(void)snprintf(o->c->problem, sizeof(o->c->problem), "cannot write '%.200s'", p);
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

	buf_init(&o.piece, STEP + FRAME_RAW_MAX);
	r = env_read_begin(c->env, &o.t);
	if (r < 0)
		goto out;
	r = index_lookup_path(o.t, c->inner, strlen(c->inner), INDEX_NOW, &node);
	if (r == 0)
		r = index_get_node(o.t, node, INDEX_NOW, &n);
	if (r == 0 && n.n.type == NODE_TYPE_FILE) {
		r = out_file(&o, "", &n);
	} else if (r == 0 && n.n.type == NODE_TYPE_DIRECTORY) {
		r = mkdir(c->host, 0755) < 0 && errno != EEXIST ? -errno : 0;
		if (r == 0) {
			o.top = open(c->host, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
			r = o.top < 0 ? -errno : index_walk(o.t, node, INDEX_NOW, out_entry, &o);
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
	if (c->result < 0)
		copy_fail(c, c->result, "cannot be copied");
	else
		copy_ok(c, env_seq(c->env));
}

/* One piece for the client's stdout; the file's reference was taken at the barrier. */
static void piece_work(uv_work_t *w)
{
	struct copy *c = container_of(w, struct copy, work);

	buf_clear(&c->frames);
	c->result = c->offset < c->ref.size_bytes
			    ? content_read(&c->ref, c->offset, STEP, store_fetch_fn,
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
	r = index_lookup_path(t, c->inner, strlen(c->inner), INDEX_NOW, &node);
	if (r == 0)
		r = index_get_node(t, node, INDEX_NOW, &n);
	if (r == 0)
		r = n.n.type == NODE_TYPE_FILE	      ? 0
		    : n.n.type == NODE_TYPE_DIRECTORY ? -EISDIR
						      : -EINVAL;
	if (r == 0)
		c->ref = n.n.content;
	index_read_end(t);
	return r;
}

static void out_synced(struct env *env, const struct barrier_result *res, void *userdata)
{
	struct copy *c = userdata;
	int r;

	(void)res; /* away: what the journal has is what there is */
	if (c->to_stdout) {
		r = take_ref(c);
		if (r < 0) {
			copy_fail(c, r, "there is no such file");
			return;
		}
		c->call->on_drained = piece_drained;
		piece_go(c);
		return;
	}
	env->threads++;
	(void)uv_queue_work(env->brain->loop, &c->work, out_work, out_worked);
}

/* ---- the request ---- */

/* DST that is a directory takes SRC under its own name. */
static int into_directory(char **dst, const char *src, bool is_dir)
{
	const char *base = strrchr(src, '/');
	char *joined;

	if (!is_dir)
		return 0;
	base = base ? base + 1 : src;
	joined = join(*dst, base);
	if (!joined)
		return -ENOMEM;
	free(*dst);
	*dst = joined;
	return 0;
}

static bool inner_is_dir(struct env *env, const char *path)
{
	struct index_txn *t;
	struct index_node n;
	uint64_t node;
	bool dir = false;

	if (env_read_begin(env, &t) < 0)
		return false;
	if (index_lookup_path(t, path, strlen(path), INDEX_NOW, &node) == 0 &&
	    index_get_node(t, node, INDEX_NOW, &n) == 0)
		dir = n.n.type == NODE_TYPE_DIRECTORY;
	index_read_end(t);
	return dir;
}

static int copy_into(struct copy *c, const char *src)
{
	int r;

	c->from_stdin = strcmp(src, "-") == 0;
	if (c->from_stdin) {
		c->call->on_stdin = stdin_piece;
		return into_begin_item(c);
	}
	r = into_directory(&c->inner, c->host, inner_is_dir(c->env, c->inner));
	if (r < 0)
		return r;
	return uv_queue_work(c->env->brain->loop, &c->work, list_work, listed);
}

static int copy_out(struct copy *c, const char *dst)
{
	struct barrier_result none = {.r = -ENOTCONN};
	struct stat st;
	int r;

	c->to_stdout = strcmp(dst, "-") == 0;
	if (!c->to_stdout) {
		r = into_directory(&c->host, c->inner,
				   stat(c->host, &st) == 0 && S_ISDIR(st.st_mode));
		if (r < 0)
			return r;
	}
	if (barrier_run(c->env, SYNC_MS, out_synced, c) < 0)
		out_synced(c->env, &none, c);
	return 0;
}

void verb_cp(struct call *call)
{
	const char *src = call_str(call, "src"), *dst = call_str(call, "dst"), *name, *colon;
	struct env *env = verb_env(call);
	struct copy *c;
	bool into;
	int r;

	if (!env)
		return;
	name = env->name;
	into = !src || strncmp(src, name, strlen(name)) != 0 || src[strlen(name)] != ':';
	if (!src || !dst ||
	    (into && (strncmp(dst, name, strlen(name)) != 0 || dst[strlen(name)] != ':'))) {
		call_fail(call, "usage", name, "limb help cp",
			  "cp wants SRC and NAME:PATH, or NAME:PATH and DST; the past cannot be "
			  "copied yet");
		return;
	}
	if (into && !link_up(env)) {
		(void)verb_live_env(call);
		return;
	}
	c = calloc(1, sizeof(*c));
	if (!c) {
		call_fail(call, "internal", name, NULL, "out of memory");
		return;
	}
	c->call = call;
	c->env = env;
	c->fd = -1;
	buf_init(&c->frames, 4 << 20);
	colon = into ? dst + strlen(name) + 1 : src + strlen(name) + 1;
	c->host = strdup(into ? src : dst);
	c->inner = verb_path(call, env, colon);
	if (!c->inner) {
		copy_free(c);
		return; /* answered */
	}
	call->op = c;
	r = !c->host ? -ENOMEM : into ? copy_into(c, src) : copy_out(c, dst);
	if (r < 0)
		copy_fail(c, r, "cannot begin");
}
