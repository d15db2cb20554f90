#include "journal/watch.h"

#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <poll.h>
#include <stdio.h>
#include <sys/inotify.h>
#include <sys/stat.h>

#include "base/clock.h"
#include "base/obeyed.h"
#include "base/text.h"
#include "journal/body.h"
#include "journal/change.h"
#include "journal/log.h"
#include "journal/record-paths.h"

enum {
	LOOK_MS = 1000, /* at least that often, whatever inotify says */
	SLOTS_MIN = 1024,
};

struct known {
	uint64_t node;	/* 0: a free slot */
	uint64_t looks; /* a hash of mode, owners and xattrs */
	uint8_t type;
};

struct watch {
	uint64_t since;
	bool json;
	struct record_paths *paths;
	struct known *known;
	size_t n, size;
	const struct log_record *rec;
	const Limb__Record *body;
};

/* ---- nodes: type and looks ---- */

static struct known *slot_of(struct known *slots, size_t size, uint64_t node)
{
	size_t i = (size_t)((node * 0x9e3779b97f4a7c15ull) >> 20) & (size - 1);

	while (slots[i].node && slots[i].node != node)
		i = (i + 1) & (size - 1);
	return &slots[i];
}

static struct known *know(struct watch *w, uint64_t node)
{
	struct known *k;

	if (w->n * 2 >= w->size) {
		size_t size = w->size ? w->size * 2 : SLOTS_MIN;
		struct known *slots = calloc(size, sizeof(*slots));

		if (!slots)
			return NULL;
		for (size_t i = 0; i < w->size; i++)
			if (w->known[i].node)
				*slot_of(slots, size, w->known[i].node) = w->known[i];
		free(w->known);
		w->known = slots;
		w->size = size;
	}
	k = slot_of(w->known, w->size, node);
	if (!k->node) {
		k->node = node;
		w->n++;
	}
	return k;
}

static uint64_t mix(uint64_t h, const void *data, size_t n)
{
	const uint8_t *p = data;

	for (size_t i = 0; i < n; i++)
		h = (h ^ p[i]) * 0x100000001b3ull;
	return h;
}

static uint64_t looks_of(const Limb__Attr *a)
{
	const uint32_t plain[] = {a->mode, (uint32_t)a->uid_kind, a->uid, (uint32_t)a->gid_kind,
				  a->gid};
	uint64_t h = mix(0xcbf29ce484222325ull, plain, sizeof(plain));

	for (size_t i = 0; i < a->n_xattrs; i++) {
		h = mix(h, a->xattrs[i]->name.data, a->xattrs[i]->name.len);
		h = mix(h, a->xattrs[i]->value.data, a->xattrs[i]->value.len);
	}
	return h;
}

/* ---- events ---- */

static void set_path(json_t *o, const char *key, const struct buf *path)
{
	_cleanup_(buf_done) struct buf text = BUF_INIT(0), exact = BUF_INIT(0);
	const void *data = buf_data(path);
	size_t n = buf_len(path);
	char base64[32];

	if (text_utf8_replace(&text, data, n) == 0)
		(void)json_object_set_new(
			o, key, json_stringn((const char *)buf_data(&text), buf_len(&text)));
	if (n == 0 || text_utf8_ok(data, n) || text_base64(&exact, data, n) < 0)
		return;
	(void)snprintf(base64, sizeof(base64), "%s_base64", key);
	(void)json_object_set_new(o, base64,
				  json_stringn((const char *)buf_data(&exact), buf_len(&exact)));
}

static void print_plain(const struct watch *w, const char *at, const char *kind,
			const struct buf *from, const struct buf *path)
{
	_cleanup_(buf_done) struct buf text = BUF_INIT(0);

	if (from) {
		(void)text_escape(&text, buf_data(from), buf_len(from));
		(void)buf_add_str(&text, " -> ");
	}
	(void)text_escape(&text, buf_data(path), buf_len(path));
	printf("%" PRIu64 " %s %s %.*s\n", w->rec->seq, at, kind, (int)buf_len(&text),
	       (const char *)buf_data(&text));
}

/* node 0, or from NULL: not said. */
static void tell(struct watch *w, const char *kind, const struct buf *from, const struct buf *path,
		 uint64_t node)
{
	char when[CLOCK_TEXT_MAX];
	const char *at = clock_format(when, w->rec->time_ns), *type = NULL, *obeyed;
	json_t *o;

	if (w->rec->seq <= w->since)
		return;
	if (!w->json) {
		print_plain(w, at, kind, from, path);
		return;
	}
	o = json_pack("{s:I, s:s, s:s}", "seq", (json_int_t)w->rec->seq, "at", at, "kind", kind);
	set_path(o, "path", path);
	if (from)
		set_path(o, "from_path", from);
	if (node && w->size)
		type = node_type_name(slot_of(w->known, w->size, node)->type);
	if (type)
		(void)json_object_set_new(o, "type", json_string(type));
	if (w->body) {
		const char *origin = change_origin_name((int)w->body->origin);

		if (origin)
			(void)json_object_set_new(o, "origin", json_string(origin));
		(void)json_object_set_new(o, "incarnation",
					  json_integer((json_int_t)w->body->incarnation));
		if (w->body->job && *w->body->job)
			(void)json_object_set_new(o, "job_id", json_string(w->body->job));
		obeyed = w->body->origin == LIMB__ORIGIN__ORIGIN_ENVIRONMENT &&
					 strcmp(kind, "remove") != 0 &&
					 !(strcmp(kind, "create") == 0 && type &&
					   strcmp(type, "directory") == 0)
				 ? obeyed_by((const char *)buf_data(path), buf_len(path))
				 : NULL;
		if (obeyed)
			(void)json_object_set_new(o, "obeyed_by", json_string(obeyed));
	}
	(void)json_dumpf(o, stdout, JSON_COMPACT);
	(void)putchar('\n');
	json_decref(o);
}

static void resync(struct watch *w)
{
	_cleanup_(buf_done) struct buf root = BUF_INIT(0);

	tell(w, "resync", NULL, &root, 0);
}

/* ---- operations ---- */

static int put(struct watch *w, const Limb__Op *op)
{
	_cleanup_(buf_done) struct buf path = BUF_INIT(0);
	uint64_t looks = op->attr ? looks_of(op->attr) : 0;
	uint8_t type = op->attr ? (uint8_t)op->attr->type : NODE_TYPE_FILE;
	struct known *k = know(w, op->node);
	bool fresh, same;

	if (!k)
		return -ENOMEM;
	fresh = k->type == 0;
	same = k->looks == looks;
	k->type = type;
	k->looks = looks;
	/* What is new is told of when it gets its name. That something in a directory changed
	 * its times is told already. */
	if (fresh || (same && !op->content && type == NODE_TYPE_DIRECTORY))
		return 0;
	if (record_paths_of_node(w->paths, op->node, &path) == 0)
		tell(w, op->content ? "write" : "chmod", NULL, &path, op->node);
	return 0;
}

static int name_changes(struct watch *w, const Limb__Op *op)
{
	_cleanup_(buf_done) struct buf path = BUF_INIT(0), to = BUF_INIT(0);
	int found, r;

	found = record_paths_of(w->paths, op->parent, op->name.data, op->name.len, &path);
	r = record_paths_apply(w->paths, op);
	if (r < 0)
		return r;
	if (found == 0 && op->kind == LIMB__OP_KIND__OP_MOVE)
		found = record_paths_of(w->paths, op->to_parent, op->to_name.data, op->to_name.len,
					&to);
	if (found < 0)
		resync(w);
	else if (op->kind == LIMB__OP_KIND__OP_MOVE)
		tell(w, "rename", &path, &to, op->node);
	else
		tell(w, op->kind == LIMB__OP_KIND__OP_LINK ? "create" : "remove", NULL, &path,
		     op->node);
	return 0;
}

static int take(struct watch *w, const struct log_record *rec, struct arena *arena)
{
	Limb__Record *m;
	int r;

	w->rec = rec;
	w->body = NULL;
	if (rec->type != RECORD_CHANGE)
		return 0;
	if (!rec->body) {
		resync(w);
		return 0;
	}
	arena_reset(arena);
	r = body_unpack(arena, rec->body, rec->n, &m);
	if (r < 0)
		return r;
	if (m->body_case != LIMB__RECORD__BODY_CHANGE)
		return 0;
	w->body = m;
	for (size_t i = 0; r >= 0 && i < m->change->n_ops; i++) {
		const Limb__Op *op = m->change->ops[i];

		r = op->kind == LIMB__OP_KIND__OP_PUT ? put(w, op) : name_changes(w, op);
	}
	return r;
}

/* ---- the log ---- */

static int wait_for_more(int log_fd, int inotify_fd)
{
	/* Of stdout only that its reader is gone. */
	struct pollfd p[] = {{.fd = inotify_fd, .events = POLLIN}, {.fd = STDOUT_FILENO}};
	char events[4096];
	struct stat st;

	if (poll(p, 2, LOOK_MS) > 0 && p[0].revents)
		(void)!read(inotify_fd, events, sizeof(events));
	if (p[1].revents & (POLLERR | POLLNVAL))
		return -EPIPE;
	return fstat(log_fd, &st) < 0 || st.st_nlink == 0 ? -ENOENT : 0;
}

static int follow(struct watch *w, int log_fd, int inotify_fd, struct log_reader *rd,
		  const volatile int *stop)
{
	_cleanup_(arena_done) struct arena arena = ARENA_INIT(0);
	struct log_record rec;
	uint64_t last = 0;
	int r = 0;

	while (r >= 0 && !*stop) {
		r = log_reader_next(rd, &rec);
		if (r > 0) {
			last = rec.seq;
			r = take(w, &rec, &arena);
			continue;
		}
		if (r < 0)
			break;
		if (w->since == WATCH_FROM_NOW)
			w->since = last;
		if (fflush(stdout) != 0)
			return -EPIPE;
		r = wait_for_more(log_fd, inotify_fd);
	}
	return MIN(r, 0);
}

int watch_run(int log_fd, uint64_t since, bool json, const volatile int *stop)
{
	_cleanup_(record_paths_freep) struct record_paths *paths = record_paths_new();
	_cleanup_(log_reader_freep) struct log_reader *rd = NULL;
	cleanup_close int inotify_fd = inotify_init1(IN_CLOEXEC | IN_NONBLOCK);
	struct watch w = {.since = since, .json = json, .paths = paths};
	char dir[64];
	int r;

	if (!paths)
		return -ENOMEM;
	/* Without it the log is looked at once a second. */
	(void)snprintf(dir, sizeof(dir), "/proc/self/fd/%d", log_fd);
	if (inotify_fd >= 0)
		(void)inotify_add_watch(inotify_fd, dir, IN_MODIFY | IN_CREATE);
	r = log_reader_open(log_fd, 0, &rd);
	if (r >= 0)
		r = follow(&w, log_fd, inotify_fd, rd, stop);
	free(w.known);
	return r;
}
