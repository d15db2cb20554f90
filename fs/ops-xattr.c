#include "fs/ops.h"

#include <inttypes.h>

#include "base/clock.h"
#include "fs/classes.h"
#include "fs/past.h"
#include "journal/body.h"
#include "journal/index-view.h"

enum { XATTR_VALUE_MAX = 64 << 10 };

static void reply(fuse_req_t req, int r, const struct buf *b, size_t size)
{
	if (r < 0)
		(void)fuse_reply_err(req, -r);
	else if (size == 0)
		(void)fuse_reply_xattr(req, buf_len(b));
	else if (buf_len(b) > size)
		(void)fuse_reply_err(req, ERANGE);
	else
		(void)fuse_reply_buf(req, (const char *)buf_data(b), buf_len(b));
}

/* ---- what the view says of itself: user.limb.*, by name only ---- */

static int say_state(const struct spot *s, struct buf *out)
{
	const struct fs *fs = s->fs;

	if (fs->past)
		return buf_add_str(out, "past");
	return buf_add_str(out, status_is_live(&fs->status) ? "live" : "away");
}

static int say_seq(const struct spot *s, struct buf *out)
{
	const struct fs *fs = s->fs;
	uint64_t seq = fs->past ? fs->at : atomic_load(&fs->status.seen);

	return buf_printf(out, "%" PRIu64, seq);
}

static int say_age(const struct spot *s, struct buf *out)
{
	const struct status *st = &s->fs->status;
	uint64_t age_ms = status_is_live(st) ? 0 : clock_mono_ms() - atomic_load(&st->since_ms);

	/* What does not change does not age. */
	return s->fs->past ? -ENODATA : buf_printf(out, "%" PRIu64, age_ms);
}

/* "SUM OPCODE:COUNT ...", this request included: what of a warm pass should not move. */
static int say_messages(const struct spot *spot, struct buf *out)
{
	const struct fs *fs = spot->fs;
	const struct status *s = fs->past ? &past_session(fs->past)->status : &fs->status;
	uint64_t sum = 0, n;
	int r;

	for (size_t i = 0; i < STATUS_OPCODES; i++)
		sum += atomic_load(&s->messages[i]);
	r = buf_printf(out, "%" PRIu64, sum);
	for (size_t i = 0; r >= 0 && i < STATUS_OPCODES; i++) {
		n = atomic_load(&s->messages[i]);
		if (n > 0)
			r = buf_printf(out, " %zu:%" PRIu64, i, n);
	}
	return r;
}

/* The record that gave it its content and attributes. */
static int read_last_record(const struct spot *s, struct arena *arena, struct buf *body,
			    Limb__Record **ret)
{
	struct index_txn *t;
	struct index_node n;
	uint16_t type;
	uint64_t seq;
	int r;

	r = spot_begin(s, &t, &seq);
	if (r >= 0) {
		r = spot_node(s, t, &n);
		spot_end(s, t);
	}
	if (r < 0)
		return r;
	seq = n.version;
	r = seq ? source_record(s->fs->source, seq, &type, body) : -ENOENT;
	if (r >= 0)
		r = type == RECORD_CHANGE ? body_unpack(arena, buf_data(body), buf_len(body), ret)
					  : -ENOENT;
	return r == -ENOENT ? -ENODATA : r;
}

static int say_of_record(const struct spot *s, bool job, struct buf *out)
{
	_cleanup_(buf_done) struct buf body = BUF_INIT(0);
	_cleanup_(arena_done) struct arena arena = ARENA_INIT(0);
	const char *text;
	Limb__Record *m;
	int r;

	r = read_last_record(s, &arena, &body, &m);
	if (r < 0)
		return r;
	text = job ? m->job : change_origin_name((int)m->origin);
	return text && *text ? buf_add_str(out, text) : -ENODATA;
}

static int say_origin(const struct spot *s, struct buf *out)
{
	return say_of_record(s, false, out);
}

static int say_job(const struct spot *s, struct buf *out)
{
	return say_of_record(s, true, out);
}

struct by_path {
	struct buf path;
	bool dir;
	uint64_t conflict; /* number of the newest one of that path; 0: none */
};

static int match_conflict(const struct index_intent *row, void *userdata)
{
	_cleanup_(arena_done) struct arena arena = ARENA_INIT(0);
	struct by_path *p = userdata;
	const char *path = (const char *)buf_data(&p->path);
	Limb__Record *m;

	/* Rows come in the order of their numbers. */
	if (body_unpack(&arena, row->body, row->n, &m) >= 0 &&
	    m->body_case == LIMB__RECORD__BODY_CONFLICT && m->conflict->path.len == strlen(path) &&
	    memcmp(m->conflict->path.data, path, m->conflict->path.len) == 0)
		p->conflict = row->change;
	return 0;
}

static int find_by_path(const struct spot *s, bool conflict, struct by_path *p)
{
	struct index_node n;
	struct index_txn *t;
	uint64_t seq;
	int r;

	r = spot_begin(s, &t, &seq);
	if (r >= 0) {
		r = spot_node(s, t, &n);
		if (r >= 0)
			r = spot_path(s, t, &p->path);
		p->dir = r >= 0 && n.n.type == NODE_TYPE_DIRECTORY;
		if (r >= 0 && conflict)
			r = index_conflicts(t, match_conflict, p);
		spot_end(s, t);
	}
	return r == -ENOENT ? -ENODATA : r;
}

/* When calls return that change it. */
static int say_class(const struct spot *s, struct buf *out)
{
	struct by_path p = {.path = BUF_INIT(INDEX_PATH_MAX + 1)};
	int r = s->fs->classes ? find_by_path(s, false, &p) : -ENODATA;

	if (r >= 0)
		r = buf_add_str(out,
				classes_name(classes_of(s->fs->classes,
							(const char *)buf_data(&p.path), p.dir)));
	buf_done(&p.path);
	return r;
}

/* As `limb conflicts` calls it. */
static int say_conflict(const struct spot *s, struct buf *out)
{
	struct by_path p = {.path = BUF_INIT(INDEX_PATH_MAX + 1)};
	int r = find_by_path(s, true, &p);

	if (r >= 0)
		r = p.conflict ? buf_printf(out, "c-%" PRIu64, p.conflict) : -ENODATA;
	buf_done(&p.path);
	return r;
}

static const struct {
	const char *name;
	int (*say)(const struct spot *s, struct buf *out);
} own_xattrs[] = {
	{"user.limb.state", say_state}, {"user.limb.seq", say_seq},
	{"user.limb.age_ms", say_age},	{"user.limb.origin", say_origin},
	{"user.limb.job", say_job},	{"user.limb.messages", say_messages},
	{"user.limb.class", say_class}, {"user.limb.conflict", say_conflict},
};

/* 1: it is one of ours, and said. */
static int get_own(const struct spot *s, const char *name, struct buf *out)
{
	for (size_t i = 0; i < ARRAY_SIZE(own_xattrs); i++) {
		if (strcmp(name, own_xattrs[i].name) == 0) {
			int r = own_xattrs[i].say(s, out);
			return r < 0 ? r : 1;
		}
	}
	return 0;
}

/* ---- the environment's ---- */

static int find_xattr(const struct fs *fs, const struct node *n, const char *name, struct buf *out)
{
	const uint8_t *value;
	uint32_t len;

	/* ls asks for ACLs and labels of each file, until it hears that there are none here. */
	if (!attr_xattr_shown(&fs->rules, name, strlen(name)))
		return -EOPNOTSUPP;
	if (node_xattrs_find(n->xattrs, n->xattrs_len, name, &value, &len))
		return buf_add(out, value, len);
	return strcmp(name, "security.selinux") == 0 ? -EOPNOTSUPP : -ENODATA;
}

static int list_xattrs(const struct fs *fs, const struct node *n, struct buf *out)
{
	uint16_t entry_len;
	uint32_t pos = 0, value_len;
	const uint8_t *value;
	const char *entry;
	int r;

	while (node_xattrs_next(n->xattrs, n->xattrs_len, &pos, &entry, &entry_len, &value,
				&value_len) > 0) {
		if (!attr_xattr_shown(&fs->rules, entry, entry_len))
			continue;
		r = buf_add(out, entry, entry_len);
		if (r >= 0)
			r = buf_add_u8(out, 0);
		if (r < 0)
			return r;
	}
	return 0;
}

/* name NULL: the list of them. */
static int read_xattrs(const struct spot *s, const char *name, struct buf *out)
{
	struct fs *fs = s->fs;
	struct index_txn *t;
	struct index_node n;
	uint64_t seq;
	int r;

	r = spot_begin(s, &t, &seq);
	if (r >= 0) {
		r = spot_node(s, t, &n);
		if (r >= 0)
			r = name ? find_xattr(fs, &n.n, name, out) : list_xattrs(fs, &n.n, out);
		spot_end(s, t);
	}
	return r;
}

void ops_getxattr(fuse_req_t req, fuse_ino_t ino, const char *name, size_t size)
{
	_cleanup_(buf_done) struct buf out = BUF_INIT(XATTR_VALUE_MAX);
	_cleanup_(spot_done) struct spot s = {0};
	int r;

	r = spot_get(req, ino, &s);
	if (r >= 0)
		r = get_own(&s, name, &out);
	if (r == 0)
		r = read_xattrs(&s, name, &out);
	reply(req, r, &out, size);
}

void ops_listxattr(fuse_req_t req, fuse_ino_t ino, size_t size)
{
	_cleanup_(buf_done) struct buf out = BUF_INIT(XATTR_VALUE_MAX);
	_cleanup_(spot_done) struct spot s = {0};
	int r;

	r = spot_get(req, ino, &s);
	if (r >= 0)
		r = read_xattrs(&s, NULL, &out);
	reply(req, r, &out, size);
}
