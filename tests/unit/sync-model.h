/*
 * sync-model.h - what sync-brain.h's brain knows: a tree of nodes and names that
 * takes CHANGEs, each rule of the journal checked, and is compared with a root.
 */
#ifndef TESTS_UNIT_SYNC_MODEL_H
#define TESTS_UNIT_SYNC_MODEL_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "base/util.h"

#include <uv.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/sha256.h"
#include "journal/node.h"
#include "syncd/session.h"
#include "syncd/sync.h"
#include "wire/attr.h"
#include "wire/digest.h"
#include "wire/wire.pb-c.h"

struct bnode {
	uint64_t id;
	struct node n;
	uint8_t *owned;
	struct bname *children; /* of a directory */
	unsigned names;
	uint64_t version;
	struct bnode *hash_next;
	uint32_t number; /* scratch of a TREE_GET */
	bool had;
};

struct bname {
	uint64_t parent;
	struct bnode *node;
	struct bname *next, *prev; /* siblings */
	struct bname *hash_next;
	size_t len;
	char name[256];
};

struct bstream {
	struct bstream *next;
	uint32_t id;
	struct sha256_ctx *sha;
	uint64_t at;
	bool last, holes;
	bool keep; /* its bytes, as what later ones may be based on */
	struct buf bytes;
	const struct bcontent *base;
	bool based, refused;
};

/* What came by a stream, with `deltas`. */
struct bcontent {
	struct bcontent *next;
	uint8_t sha[32];
	struct buf bytes;
};

enum { BRAIN_HASH = 1 << 16 };

struct brain {
	uv_loop_t loop;
	uv_timer_t timer;
	struct sync *sync;
	struct bnode *nodes[BRAIN_HASH];
	struct bname *names[BRAIN_HASH];
	struct bstream *streams;
	uint64_t number;  /* newest CHANGE taken */
	uint64_t durable; /* acknowledged */
	uint64_t n_nodes;
	bool attached, no_ack, drop; /* drop: what is sent is lost */
	uint64_t tree_request;
	/* Counts, for tests that say how something is to be done. */
	unsigned puts, contents, links, unlinks, moves, changes, statuses;
	uint64_t bytes, inline_bytes;
	Limbwire__Status *status;  /* newest */
	unsigned unlinks_labelled; /* came while mass_delete was shown */
	/* A barrier's result. */
	bool done;
	struct sync_result result;
	char unsettled[2048];
	/* TREE_PARTs from E */
	Limbwire__TreePart *parts[256];
	size_t n_parts;
	int32_t error; /* of ERROR or ACCEPTED */
	bool answered;
	uint64_t incarnation, node_first;
	uint8_t mark[16];
	bool set_mark, hold, restore;
	uint32_t watch_limit;
	const char *ignore;
	size_t queued;	     /* what session_queued() says of bulk */
	bool deltas, forget; /* they are taken; forget: no base is known */
	struct bcontent *known;
	uint32_t done_stream; /* DATA_DONE is to be said of it */
	unsigned refusals;
	uint64_t copied;
	/* TREE_GET with what there is, and what was answered */
	bool trees;
	uint8_t env[16];
	uint8_t *hashes;
	size_t n_hashes;
	unsigned tree_entries, tree_had;
	void (*changed)(struct brain *b); /* after each CHANGE; may be NULL */
};

static struct brain *the_brain;

/* ---- the model ---- */

static inline struct bnode *brain_node(struct brain *b, uint64_t id)
{
	struct bnode *n = b->nodes[id % BRAIN_HASH];

	while (n && n->id != id)
		n = n->hash_next;
	return n;
}

static inline unsigned brain_name_hash(uint64_t parent, const void *name, size_t len)
{
	uint64_t h = parent * 0x9e3779b97f4a7c15ull;

	for (size_t i = 0; i < len; i++)
		h = (h ^ ((const uint8_t *)name)[i]) * 0x100000001b3ull;
	return (unsigned)((h ^ (h >> 32)) % BRAIN_HASH);
}

static inline struct bname *brain_name(struct brain *b, uint64_t parent, const void *name,
				       size_t len)
{
	struct bname *e = b->names[brain_name_hash(parent, name, len)];

	while (e && (e->parent != parent || e->len != len || memcmp(e->name, name, len) != 0))
		e = e->hash_next;
	return e;
}

static inline struct bnode *brain_add_node(struct brain *b, uint64_t id)
{
	struct bnode *n = calloc(1, sizeof(*n));

	assert_non_null(n);
	n->id = id;
	n->hash_next = b->nodes[id % BRAIN_HASH];
	b->nodes[id % BRAIN_HASH] = n;
	b->n_nodes++;
	return n;
}

static inline void brain_drop_node(struct brain *b, struct bnode *n)
{
	struct bnode **at = &b->nodes[n->id % BRAIN_HASH];

	while (*at != n)
		at = &(*at)->hash_next;
	*at = n->hash_next;
	b->n_nodes--;
	free(n->owned);
	free(n);
}

static inline void brain_add_name(struct brain *b, struct bnode *parent, const void *name,
				  size_t len, struct bnode *n)
{
	struct bname *e = calloc(1, sizeof(*e));
	unsigned h = brain_name_hash(parent->id, name, len);

	assert_non_null(e);
	e->parent = parent->id;
	e->node = n;
	e->len = len;
	memcpy(e->name, name, len);
	e->next = parent->children;
	if (e->next)
		e->next->prev = e;
	parent->children = e;
	e->hash_next = b->names[h];
	b->names[h] = e;
	n->names++;
}

/* Takes the name only; returns the node. */
static inline struct bnode *brain_take_name(struct brain *b, struct bname *e)
{
	struct bname **at = &b->names[brain_name_hash(e->parent, e->name, e->len)];
	struct bnode *parent = brain_node(b, e->parent), *n = e->node;

	while (*at != e)
		at = &(*at)->hash_next;
	*at = e->hash_next;
	if (e->prev)
		e->prev->next = e->next;
	else
		parent->children = e->next;
	if (e->next)
		e->next->prev = e->prev;
	free(e);
	n->names--;
	return n;
}

static inline void brain_remove(struct brain *b, struct bname *e)
{
	struct bnode *n = brain_take_name(b, e);

	while (n->children)
		brain_remove(b, n->children);
	if (n->names == 0)
		brain_drop_node(b, n);
}

static inline bool brain_is_beneath(struct brain *b, uint64_t id, uint64_t above)
{
	while (id != above) {
		struct bname *e = NULL;

		if (id == NODE_ROOT)
			return false;
		for (unsigned h = 0; !e && h < BRAIN_HASH; h++)
			for (struct bname *x = b->names[h]; x && !e; x = x->hash_next)
				if (x->node->id == id)
					e = x;
		if (!e)
			return false;
		id = e->parent;
	}
	return true;
}

/* ---- CHANGE ---- */

static inline struct bstream *brain_stream(struct brain *b, uint32_t id, bool make)
{
	struct bstream *s;

	for (s = b->streams; s; s = s->next)
		if (s->id == id)
			return s;
	if (!make)
		return NULL;
	s = calloc(1, sizeof(*s));
	s->id = id;
	s->sha = sha256_new();
	s->keep = b->deltas;
	s->next = b->streams;
	b->streams = s;
	return s;
}

static inline void brain_drop_stream(struct brain *b, uint32_t id)
{
	struct bstream **at = &b->streams, *s;

	while (*at && (*at)->id != id)
		at = &(*at)->next;
	s = *at;
	if (!s)
		return;
	*at = s->next;
	sha256_free(s->sha);
	buf_done(&s->bytes);
	free(s);
}

static inline const struct bcontent *brain_known(struct brain *b, const uint8_t sha[32])
{
	for (const struct bcontent *c = b->known; c && !b->forget; c = c->next)
		if (memcmp(c->sha, sha, 32) == 0)
			return c;
	return NULL;
}

static inline void brain_forget_all(struct brain *b)
{
	struct bcontent *c;

	while ((c = b->known)) {
		b->known = c->next;
		buf_done(&c->bytes);
		free(c);
	}
}

/* Bytes of the base, and at the end what the brain then says. */
static inline void brain_take_delta(struct brain *b, struct bstream *s, const Limbwire__Data *d)
{
	struct bcontent *c;

	if (d->base_node) {
		assert_true(b->deltas);
		assert_int_equal(d->base_sha256.len, 32);
		assert_int_equal(s->at, 0);
		s->based = true;
		s->base = brain_known(b, d->base_sha256.data);
		s->refused = !s->base;
		b->refusals += s->refused;
	}
	if (d->copy_bytes && !s->refused) {
		assert_true(s->based);
		assert_true(d->copy_from + d->copy_bytes <= buf_len(&s->base->bytes));
		assert_int_equal(
			buf_add(&s->bytes, buf_data(&s->base->bytes) + d->copy_from, d->copy_bytes),
			0);
		sha256_update(s->sha, buf_data(&s->base->bytes) + d->copy_from, d->copy_bytes);
	}
	b->copied += d->copy_bytes;
	if (!d->last)
		return;
	if (s->based)
		b->done_stream = s->id;
	if (s->refused)
		return;
	c = calloc(1, sizeof(*c));
	sha256(buf_data(&s->bytes), buf_len(&s->bytes), c->sha);
	c->bytes = s->bytes;
	buf_init(&s->bytes, 0);
	c->next = b->known;
	b->known = c;
}

static inline void brain_take_data(struct brain *b, const Limbwire__Data *d, const void *bulk,
				   size_t n)
{
	struct bstream *s;

	if (d->abort) {
		brain_drop_stream(b, d->stream);
		return;
	}
	s = brain_stream(b, d->stream, true);
	assert_false(s->last);
	assert_int_equal(d->offset, s->at);
	if (d->hole_bytes) {
		sha256_update_zeros(s->sha, d->hole_bytes);
		s->holes = true;
	}
	sha256_update(s->sha, bulk, n);
	if (s->keep)
		assert_int_equal(buf_add(&s->bytes, bulk, n), 0);
	if (s->keep && !d->hole_bytes)
		brain_take_delta(b, s, d);
	s->at += n + d->hole_bytes + d->copy_bytes;
	s->last = d->last;
	b->bytes += n;
}

static inline void brain_put(struct brain *b, const Limbwire__WireOp *w, const uint8_t **bulk,
			     size_t *left)
{
	const Limb__Op *op = w->op;
	struct bnode *n = brain_node(b, op->node);
	_cleanup_(buf_done) struct buf xattrs = BUF_INIT(1 << 20);
	const char *why = "";
	struct node v;

	assert_true(op->node != 0);
	assert_int_equal(wire_attr_parse(op->attr, op->content, &xattrs, &v, &why), 0);
	b->puts++;
	if (!n) {
		assert_true(op->node >= b->node_first);
		n = brain_add_node(b, op->node);
	} else {
		assert_int_equal(v.type, n->n.type);
		if (v.type == NODE_TYPE_FILE && !op->content) {
			v.content = n->n.content;
			v.torn = n->n.torn;
		}
	}
	if (op->content && w->stream == 0) {
		uint8_t sha[32];

		b->contents++;
		assert_true(v.content.size_bytes <= *left);
		sha256(*bulk, v.content.size_bytes, sha);
		assert_memory_equal(sha, v.content.sha256, 32);
		*bulk += v.content.size_bytes;
		*left -= v.content.size_bytes;
		b->bytes += v.content.size_bytes;
		b->inline_bytes += v.content.size_bytes;
	} else if (op->content) {
		struct bstream *s = brain_stream(b, w->stream, false);
		uint8_t sha[32];

		b->contents++;
		assert_non_null(s);
		assert_true(s->last);
		assert_int_equal(s->at, v.content.size_bytes);
		sha256_final(s->sha, sha);
		assert_memory_equal(sha, v.content.sha256, 32);
		v.content.holes = s->holes;
		brain_drop_stream(b, w->stream);
	}
	free(n->owned);
	n->owned = malloc(v.target_len + v.xattrs_len + 1);
	memcpy(n->owned, v.target ? v.target : (const uint8_t *)"", v.target_len);
	memcpy(n->owned + v.target_len, v.xattrs ? v.xattrs : (const uint8_t *)"", v.xattrs_len);
	v.target = n->owned;
	v.xattrs = n->owned + v.target_len;
	n->n = v;
	n->version = b->number;
}

static inline struct bnode *brain_dir(struct brain *b, uint64_t id)
{
	struct bnode *n = brain_node(b, id);

	assert_non_null(n);
	assert_int_equal(n->n.type, NODE_TYPE_DIRECTORY);
	return n;
}

/* What had the name before; a directory with something in it may not go like that. */
static inline void brain_make_free(struct brain *b, uint64_t parent, const void *name, size_t len)
{
	struct bname *e = brain_name(b, parent, name, len);

	if (!e)
		return;
	assert_null(e->node->children);
	brain_remove(b, e);
}

static inline bool brain_has_reason(const struct brain *b, const char *code)
{
	for (size_t i = 0; b->status && i < b->status->n_reasons; i++)
		if (strcmp(b->status->reasons[i]->code, code) == 0)
			return true;
	return false;
}

static inline void brain_op(struct brain *b, const Limbwire__WireOp *w, const uint8_t **bulk,
			    size_t *left)
{
	const Limb__Op *op = w->op;
	struct bname *e;
	struct bnode *n;

	switch (op->kind) {
	case LIMB__OP_KIND__OP_PUT: brain_put(b, w, bulk, left); break;
	case LIMB__OP_KIND__OP_LINK:
		b->links++;
		n = brain_node(b, op->node);
		assert_non_null(n);
		if (n->n.type == NODE_TYPE_DIRECTORY)
			assert_int_equal(n->names, 0);
		n->names++; /* held while its old place is cleared */
		brain_make_free(b, op->parent, op->name.data, op->name.len);
		n->names--;
		brain_add_name(b, brain_dir(b, op->parent), op->name.data, op->name.len, n);
		break;
	case LIMB__OP_KIND__OP_UNLINK:
		b->unlinks++;
		assert_true(op->evidence != LIMB__EVIDENCE__EVIDENCE_NONE);
		e = brain_name(b, op->parent, op->name.data, op->name.len);
		assert_non_null(e);
		if (brain_has_reason(b, "mass_delete"))
			b->unlinks_labelled++;
		brain_remove(b, e);
		break;
	case LIMB__OP_KIND__OP_MOVE:
		b->moves++;
		e = brain_name(b, op->parent, op->name.data, op->name.len);
		assert_non_null(e);
		n = brain_take_name(b, e);
		if (n->n.type == NODE_TYPE_DIRECTORY)
			assert_false(brain_is_beneath(b, op->to_parent, n->id));
		n->names++;
		brain_make_free(b, op->to_parent, op->to_name.data, op->to_name.len);
		n->names--;
		brain_add_name(b, brain_dir(b, op->to_parent), op->to_name.data, op->to_name.len,
			       n);
		break;
	default: fail_msg("operation of unknown kind");
	}
}

static inline void brain_change(struct brain *b, const Limbwire__WireChange *c, const uint8_t *bulk,
				size_t left)
{
	b->changes++;
	assert_true(c->n_ops > 0 && c->n_ops <= 64);
	assert_int_equal(c->number, b->number + 1);
	b->number = c->number;
	for (size_t i = 0; i < c->n_ops; i++)
		brain_op(b, c->ops[i], &bulk, &left);
	assert_int_equal(left, 0);
	/* A node without names is gone: none may be left over by a CHANGE. */
	for (size_t i = 0; i < c->n_ops; i++) {
		struct bnode *n = c->ops[i]->op->kind == LIMB__OP_KIND__OP_PUT
					  ? brain_node(b, c->ops[i]->op->node)
					  : NULL;

		if (n && n->id != NODE_ROOT)
			assert_true(n->names > 0);
	}
}

/* ---- comparing ---- */

static inline struct bnode *brain_lookup(struct brain *b, const char *path)
{
	struct bnode *n = brain_node(b, NODE_ROOT);

	while (n && *path) {
		const char *slash = strchr(path, '/');
		size_t len = slash ? (size_t)(slash - path) : strlen(path);
		struct bname *e = brain_name(b, n->id, path, len);

		n = e ? e->node : NULL;
		path += len + (slash != NULL);
	}
	return n;
}

static inline unsigned brain_compare_dir(struct brain *b, int fd, struct bnode *dir,
					 const char *where);

static inline void brain_file_sha(int dir, const char *name, uint8_t out[32])
{
	cleanup_close int fd = openat(dir, name, O_RDONLY | O_CLOEXEC);
	struct sha256_ctx *c = sha256_new();
	uint8_t mem[65536];
	ssize_t n;

	while (fd >= 0 && (n = read(fd, mem, sizeof(mem))) > 0)
		sha256_update(c, mem, (size_t)n);
	sha256_final(c, out);
	sha256_free(c);
}

static inline void brain_differs(const char *where, const char *name, const char *what)
{
	fail_msg("%s/%s: %s differs", where, name, what);
}

static inline unsigned brain_compare_one(struct brain *b, int fd, const char *name, struct bnode *n,
					 const char *where)
{
	char target[4096], *path = NULL;
	struct stat st;
	uint8_t sha[32];
	unsigned count = 1;
	ssize_t len;

	assert_int_equal(fstatat(fd, name, &st, AT_SYMLINK_NOFOLLOW), 0);
	if (n->n.type != node_type_of_mode(st.st_mode))
		brain_differs(where, name, "type");
	if (S_ISREG(st.st_mode)) {
		if (n->names != st.st_nlink)
			brain_differs(where, name, "number of links");
		if (n->n.content.size_bytes != (uint64_t)st.st_size)
			brain_differs(where, name, "size");
		brain_file_sha(fd, name, sha);
		if (memcmp(sha, n->n.content.sha256, 32) != 0)
			brain_differs(where, name, "content");
	}
	if (!S_ISLNK(st.st_mode) && n->n.mode != (st.st_mode & 07777))
		brain_differs(where, name, "mode");
	if (n->n.mtime_ns != clock_from_timespec(st.st_mtim))
		brain_differs(where, name, "mtime");
	if (n->n.ctime_ns != clock_from_timespec(st.st_ctim))
		brain_differs(where, name, "ctime");
	if (n->n.inode != st.st_ino)
		brain_differs(where, name, "inode");
	if (n->n.uid != st.st_uid || n->n.gid != st.st_gid)
		brain_differs(where, name, "owner");
	if (S_ISLNK(st.st_mode)) {
		len = readlinkat(fd, name, target, sizeof(target));
		if (len != (ssize_t)n->n.target_len || memcmp(target, n->n.target, n->n.target_len))
			brain_differs(where, name, "target");
	}
	if (S_ISCHR(st.st_mode) &&
	    (n->n.rdev_major != major(st.st_rdev) || n->n.rdev_minor != minor(st.st_rdev)))
		brain_differs(where, name, "device");
	if (S_ISDIR(st.st_mode)) {
		int sub = openat(fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);

		assert_true(sub >= 0);
		assert_true(asprintf(&path, "%s/%s", where, name) > 0);
		count += brain_compare_dir(b, sub, n, path);
		free(path);
		(void)close(sub);
	}
	return count;
}

static inline unsigned brain_compare_dir(struct brain *b, int fd, struct bnode *dir,
					 const char *where)
{
	unsigned count = 0, have = 0;
	struct dirent *e;
	DIR *d = fdopendir(dup(fd));

	assert_non_null(d);
	while ((e = readdir(d))) {
		struct bname *name;

		if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0)
			continue;
		name = brain_name(b, dir->id, e->d_name, strlen(e->d_name));
		if (!name)
			fail_msg("%s/%s: the brain lacks it", where, e->d_name);
		have++;
		count += brain_compare_one(b, fd, e->d_name, name->node, where);
	}
	(void)closedir(d);
	for (struct bname *x = dir->children; x; x = x->next)
		have--;
	if (have != 0)
		for (struct bname *x = dir->children; x; x = x->next)
			if (faccessat(fd, x->name, F_OK, AT_SYMLINK_NOFOLLOW) != 0)
				fail_msg("%s/%s: only the brain has it", where, x->name);
	return count;
}

/* Returns how many entries there are. */
static inline unsigned brain_compare(struct brain *b, const char *root)
{
	cleanup_close int fd = open(root, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	assert_true(fd >= 0);
	return brain_compare_dir(b, fd, brain_node(b, NODE_ROOT), "");
}

#endif
