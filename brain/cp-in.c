/* cp into an environment. */
#include "brain/cp-impl.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include "base/io.h"
#include "brain/barrier.h"
#include "brain/env.h"
#include "brain/link.h"
#include "wire/wire.pb-c.h"

enum {
	PIECE = 256 << 10,
	ASK_MS = 60000, /* without any progress */
	LINE_HIGH = 4 << 20,
	PAUSE_MS = 5,
	ITEMS_MAX = 1 << 20,
};

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
	cleanup_free char *path = cp_join(c->host, below);
	struct dirent *e;
	DIR *d = path ? opendir(path) : NULL;
	int r = 0;

	if (!path)
		return -ENOMEM;
	if (!d) {
		r = -errno;
		copy_problem(c, "read", path);
		return r;
	}
	while (r == 0 && (errno = 0, e = readdir(d))) {
		cleanup_free char *child = NULL;
		struct stat st;

		if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0)
			continue;
		child = cp_join(below, e->d_name);
		if (!child)
			r = -ENOMEM;
		else if (fstatat(dirfd(d), e->d_name, &st, AT_SYMLINK_NOFOLLOW) == 0)
			r = list_add(c, child, st.st_mode);
	}
	(void)closedir(d);
	return r;
}

void cp_list(struct copy *c)
{
	struct stat st;

	copy_problem(c, "read", c->host);
	c->result = stat(c->host, &st) < 0 ? -errno : list_add(c, "", st.st_mode);
	for (size_t i = 0; c->result == 0 && i < c->n_items; i++)
		if (S_ISDIR(c->items[i].mode))
			c->result = list_dir(c, c->items[i].path);
	if (c->result == 0)
		c->problem[0] = 0;
}

static void list_work(uv_work_t *w)
{
	cp_list(container_of(w, struct copy, work));
}

/* ---- into: one item's frames, made by a thread ---- */

static int put_push(struct copy *c, const void *data, size_t n, bool last)
{
	Limbwire__Push p = LIMBWIRE__PUSH__INIT;

	p.push = c->push;
	p.offset = c->offset;
	p.last = last;
	c->offset += n;
	c->bytes += n;
	return wframe_pack(&c->frames, WIRE_PUSH, &p.base, data, n, c->env->compress);
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
	m.origin = LIMB__ORIGIN__ORIGIN_BRAIN;
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
	return wframe_pack(&c->frames, WIRE_APPLY, &m.base, NULL, 0, c->env->compress);
}

static int item_step(struct copy *c)
{
	const struct item *it = &c->items[c->at];
	cleanup_free char *host = cp_join(c->host, it->path), *inner = cp_join(c->inner, it->path);
	cleanup_free uint8_t *piece = NULL;
	char target[4097];
	ssize_t n;
	int r;

	if (!host || !inner)
		return -ENOMEM;
	copy_problem(c, "copy to", inner);
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
		if (c->fd < 0) {
			r = -errno;
			copy_problem(c, "read", host);
			return r;
		}
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
	} while (n == PIECE && buf_len(&c->frames) < CP_STEP);
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

/* Neither it nor its environment goes away before `then`. */
static int work_begin(struct copy *c, uv_work_cb fn, uv_after_work_cb then)
{
	int r = uv_queue_work(c->env->brain->loop, &c->work, fn, then);

	if (r < 0)
		return r;
	c->working = true;
	c->env->threads++;
	return 0;
}

static void work_end(struct copy *c)
{
	c->working = false;
	c->env->threads--;
}

/* Somebody there writes what was just copied, without a rest. */
static bool is_left_out(const struct copy *c, const struct barrier_result *res)
{
	bool any = c->from_stdin && barrier_left_out(res, c->inner);

	for (size_t i = 0; res->n_left_out && !any && i < c->n_items; i++) {
		cleanup_free char *path = cp_join(c->inner, c->items[i].path);

		any = S_ISREG(c->items[i].mode) && path && barrier_left_out(res, path);
	}
	return any;
}

static void into_synced(struct env *env, const struct barrier_result *res, void *userdata)
{
	struct copy *c = userdata;

	(void)env;
	c->problem[0] = 0;
	if (res->r < 0)
		copy_fail(c, res->r, "it is copied there, but cannot be synced");
	else if (is_left_out(c, res))
		copy_fail(c, -ETIMEDOUT,
			  "it is copied there, but somebody writes to it without a rest, so it "
			  "cannot be synced");
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
	if (c->working) { /* its thread ends first; an answer before the question is a lie */
		c->ended = r < 0 ? r : -EPROTO;
		return;
	}
	if (r == 0 && !c->item_sent)
		r = -EPROTO;
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
	c->offset = 0;
	c->item_sent = false;
	c->push = link_push_number();
	return link_expect(c->env, ENTRY_DONE, ASK_MS, item_done, c, &c->request);
}

static void into_next(struct copy *c)
{
	int r;

	while (!c->from_stdin && c->at < c->n_items && !S_ISREG(c->items[c->at].mode) &&
	       !S_ISDIR(c->items[c->at].mode) && !S_ISLNK(c->items[c->at].mode))
		c->at++; /* fifos, sockets, devices are not copied */
	if (c->from_stdin || c->at == c->n_items) {
		r = barrier_run_past(c->env, CP_SYNC_MS, into_synced, c);
	} else {
		r = into_begin_item(c);
		if (r == 0) {
			r = work_begin(c, item_work, item_worked);
			if (r < 0)
				link_forget(c->env, c->request);
		}
	}
	if (r < 0)
		copy_fail(c, r, "it cannot be asked");
}

static void item_fail(struct copy *c, int r)
{
	link_forget(c->env, c->request);
	copy_fail(c, r, "cannot read the source");
}

static void pause_over(uv_timer_t *t);

/* What waits for the line is bounded. */
static bool line_is_full(struct copy *c)
{
	if (link_queued(c->env) < LINE_HIGH)
		return false;
	if (!c->pause_made)
		(void)uv_timer_init(c->env->brain->loop, &c->pause);
	c->pause_made = true;
	(void)uv_timer_start(&c->pause, pause_over, PAUSE_MS, 0);
	return true;
}

static void item_go_on(struct copy *c)
{
	int r;

	if (line_is_full(c))
		return;
	r = work_begin(c, item_work, item_worked);
	if (r < 0)
		item_fail(c, r);
}

/* A line that falls meanwhile, or moves nothing, ends the request and with it the copy. */
static void pause_over(uv_timer_t *t)
{
	struct copy *c = container_of(t, struct copy, pause);

	if (!c->from_stdin)
		item_go_on(c);
	else if (!line_is_full(c))
		call_pause(c->call, false);
}

/* The answer comes for the whole item; until then more pieces. */
static void item_worked(uv_work_t *w, int status)
{
	struct copy *c = container_of(w, struct copy, work);
	int r = c->result;

	(void)status;
	work_end(c);
	if (c->ended < 0) {
		copy_fail(c, c->ended, "it cannot be copied there");
		return;
	}
	if (r == 0)
		r = link_send_raw(c->env, buf_data(&c->frames), buf_len(&c->frames));
	buf_clear(&c->frames);
	if (r < 0) {
		item_fail(c, r);
		return;
	}
	link_extend(c->env, c->request, ASK_MS);
	if (!c->item_sent)
		item_go_on(c);
}

static void listed(uv_work_t *w, int status)
{
	struct copy *c = container_of(w, struct copy, work);

	(void)status;
	work_end(c);
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
		return;
	}
	link_extend(c->env, c->request, ASK_MS);
	if (!c->item_sent && line_is_full(c))
		call_pause(call, true);
}

int cp_in_begin(struct copy *c)
{
	c->into = true;
	c->env->applying[ORIGIN_BRAIN_]++;
	if (c->from_stdin) {
		c->call->on_stdin = stdin_piece;
		return into_begin_item(c);
	}
	return work_begin(c, list_work, listed);
}
