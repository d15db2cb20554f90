/*
 * tree-source.h - a directory served as a brain would serve it from its journal:
 * TREE_GET and PULL answered for a client (syncd-client.h), and two directories
 * compared in everything that a restore must give back.
 */
#ifndef TESTS_TREE_SOURCE_H
#define TESTS_TREE_SOURCE_H

#include <sys/sysmacros.h>
#include <sys/xattr.h>

#include "syncd-client.h"

struct source_node {
	char *path;
	struct stat st;
	uint64_t node;
	uint64_t parent;
	uint32_t same_as;
};

struct source {
	int root;
	char top[220];
	struct source_node *nodes;
	size_t n, cap;
	uint64_t pulls, outstanding_max;
	uint64_t fail_node; /* its content cannot be read */
	/* What has a base is answered by this; NULL: whole. */
	void (*answer_base)(struct source *s, struct client *c, uint64_t request,
			    const struct source_node *x, const ProtobufCBinaryData *sha, bool last);
	unsigned bases;
};

static void source_walk(struct source *s, const char *path, uint64_t parent)
{
	struct source_node *x;
	uint64_t id;
	char **names;
	size_t n;

	if (s->n == s->cap) {
		s->cap = s->cap ? 2 * s->cap : 64;
		s->nodes = realloc(s->nodes, s->cap * sizeof(*s->nodes));
	}
	x = &s->nodes[s->n++];
	memset(x, 0, sizeof(*x));
	x->path = strdup(path);
	assert_int_equal(fstatat(s->root, *path ? path : ".", &x->st, AT_SYMLINK_NOFOLLOW), 0);
	x->parent = parent;
	x->node = s->n == 1 ? 1 : 100 + s->n;
	for (size_t i = 0; !S_ISDIR(x->st.st_mode) && x->st.st_nlink > 1 && i + 1 < s->n; i++) {
		if (s->nodes[i].st.st_ino == x->st.st_ino && s->nodes[i].same_as == 0) {
			x->same_as = (uint32_t)i + 1;
			x->node = s->nodes[i].node;
			break;
		}
	}
	if (!S_ISDIR(x->st.st_mode))
		return;
	id = x->node;
	assert_int_equal(file_list(s->root, *path ? path : ".", SIZE_MAX, &names, &n), 0);
	for (size_t i = 0; i < n; i++) {
		char *child;

		assert_true(asprintf(&child, "%s%s%s", path, *path ? "/" : "", names[i]) > 0);
		source_walk(s, child, id);
		free(child);
	}
	file_names_free(names, n);
}

static inline void source_open(struct source *s, const char *top)
{
	memset(s, 0, sizeof(*s));
	(void)snprintf(s->top, sizeof(s->top), "%s", top);
	s->root = file_open_dir(AT_FDCWD, top);
	assert_true(s->root >= 0);
	source_walk(s, "", 0);
}

static inline void source_close(struct source *s)
{
	for (size_t i = 0; i < s->n; i++)
		free(s->nodes[i].path);
	free(s->nodes);
	(void)close(s->root);
}

/* "name=value" pieces, sorted; for links too. */
static inline size_t source_xattrs(const char *top, const char *path, char *names, size_t size)
{
	char full[600];
	ssize_t n;

	(void)snprintf(full, sizeof(full), "%.250s/%.300s", top, path);
	n = llistxattr(full, names, size);
	return n > 0 ? (size_t)n : 0;
}

static inline ssize_t source_xattr(const char *top, const char *path, const char *name, char *value,
				   size_t size)
{
	char full[600];

	(void)snprintf(full, sizeof(full), "%.250s/%.300s", top, path);
	return lgetxattr(full, name, value, size);
}

static int source_by_name(const void *a, const void *b)
{
	return strcmp(*(char *const *)a, *(char *const *)b);
}

struct source_entry {
	Limbwire__TreeEntry m;
	Limb__Attr attr;
	Limb__Content content;
	Limb__Xattr xattrs[8], *xattr_ptrs[8];
	char names[500], values[8][200], target[4096];
	uint8_t zeros[32], sha[32];
};

static inline void source_hash(const struct source *s, const struct source_node *x,
			       uint8_t out[SHA256_BYTES])
{
	struct sha256_ctx *ctx = sha256_new();
	int fd = openat(s->root, x->path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
	uint8_t block[16384];
	ssize_t n;

	while (fd >= 0 && (n = read(fd, block, sizeof(block))) > 0)
		sha256_update(ctx, block, (size_t)n);
	if (fd >= 0)
		(void)close(fd);
	sha256_final(ctx, out);
	sha256_free(ctx);
}

static inline void source_fill(const struct source *s, const struct source_node *x,
			       struct source_entry *e)
{
	char *sorted[8];
	size_t n = 0, len;
	ssize_t got;

	limbwire__tree_entry__init(&e->m);
	limb__attr__init(&e->attr);
	limb__content__init(&e->content);
	e->m.node = x->node;
	e->m.parent = x->parent;
	e->m.same_as = x->same_as;
	e->m.root = x->node == 1;
	e->m.version = 1;
	if (*x->path) {
		const char *name = strrchr(x->path, '/');

		name = name ? name + 1 : x->path;
		e->m.name = (ProtobufCBinaryData){strlen(name), (uint8_t *)name};
	}
	e->m.attr = &e->attr;
	e->attr.mode = S_ISLNK(x->st.st_mode) ? 0777 : x->st.st_mode & 07777;
	e->attr.uid_kind = e->attr.gid_kind = LIMB__OWNER_KIND__OWNER_NUMBER;
	e->attr.uid = x->st.st_uid;
	e->attr.gid = x->st.st_gid;
	e->attr.mtime_ns = clock_from_timespec(x->st.st_mtim);
	e->attr.ctime_ns = clock_from_timespec(x->st.st_ctim);
	e->attr.inode = x->st.st_ino;
	e->attr.generation = 0;
	switch (x->st.st_mode & S_IFMT) {
	case S_IFREG: e->attr.type = LIMB__NODE_TYPE__NODE_FILE; break;
	case S_IFDIR: e->attr.type = LIMB__NODE_TYPE__NODE_DIRECTORY; break;
	case S_IFLNK: e->attr.type = LIMB__NODE_TYPE__NODE_SYMLINK; break;
	case S_IFIFO: e->attr.type = LIMB__NODE_TYPE__NODE_FIFO; break;
	case S_IFSOCK: e->attr.type = LIMB__NODE_TYPE__NODE_SOCKET; break;
	case S_IFCHR: e->attr.type = LIMB__NODE_TYPE__NODE_CHAR; break;
	default: e->attr.type = LIMB__NODE_TYPE__NODE_BLOCK;
	}
	if (S_ISCHR(x->st.st_mode) || S_ISBLK(x->st.st_mode)) {
		e->attr.rdev_major = major(x->st.st_rdev);
		e->attr.rdev_minor = minor(x->st.st_rdev);
	}
	if (S_ISLNK(x->st.st_mode)) {
		got = readlinkat(s->root, x->path, e->target, sizeof(e->target));
		assert_true(got > 0);
		e->attr.target = (ProtobufCBinaryData){(size_t)got, (uint8_t *)e->target};
	}
	if (S_ISREG(x->st.st_mode)) {
		e->m.content = &e->content;
		e->content.size_bytes = (uint64_t)x->st.st_size;
		source_hash(s, x, e->sha);
		sha256("", 0, e->zeros);
		e->content.sha256 =
			(ProtobufCBinaryData){32, x->st.st_size > 0 ? e->sha : e->zeros};
		e->content.holes = (uint64_t)x->st.st_blocks * 512 < (uint64_t)x->st.st_size;
		if (x->st.st_size > 0) {
			e->content.root = (ProtobufCBinaryData){32, e->sha};
			e->content.depth = 1;
		}
	}
	len = source_xattrs(s->top, x->path, e->names, sizeof(e->names));
	for (char *p = e->names; p < e->names + len && n < 8; p += strlen(p) + 1) {
		if (strncmp(p, "user.limb.", 10) != 0)
			sorted[n++] = p;
	}
	qsort(sorted, n, sizeof(*sorted), source_by_name);
	for (size_t i = 0; i < n; i++) {
		limb__xattr__init(&e->xattrs[i]);
		got = source_xattr(s->top, x->path, sorted[i], e->values[i], sizeof(e->values[i]));
		assert_true(got >= 0);
		e->xattrs[i].name = (ProtobufCBinaryData){strlen(sorted[i]), (uint8_t *)sorted[i]};
		e->xattrs[i].value = (ProtobufCBinaryData){(size_t)got, (uint8_t *)e->values[i]};
		e->xattr_ptrs[i] = &e->xattrs[i];
	}
	e->attr.xattrs = e->xattr_ptrs;
	e->attr.n_xattrs = n;
}

static inline void source_send_tree(struct source *s, struct client *c, uint64_t request)
{
	enum { AT_ONCE = 200 };
	struct source_entry *e = malloc(AT_ONCE * sizeof(*e));
	Limbwire__TreeEntry *ptrs[AT_ONCE];
	size_t i = 0;

	do {
		Limbwire__TreePart m = LIMBWIRE__TREE_PART__INIT;

		m.request = request;
		m.entries = ptrs;
		for (; i < s->n && m.n_entries < AT_ONCE; i++) {
			source_fill(s, &s->nodes[i], &e[m.n_entries]);
			ptrs[m.n_entries] = &e[m.n_entries].m;
			m.n_entries++;
		}
		m.last = i == s->n;
		client_send(c, WIRE_TREE_PART, &m.base, NULL, 0);
	} while (i < s->n);
	free(e);
}

static inline void source_send_file(struct source *s, struct client *c, uint64_t request,
				    const struct source_node *x, bool last)
{
	enum { PIECE = 1 << 20 };
	Limbwire__PullData m = LIMBWIRE__PULL_DATA__INIT;
	cleanup_free uint8_t *piece = malloc(PIECE);
	cleanup_close int fd = openat(s->root, x->path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
	off_t at = 0, data;

	m.request = request;
	m.node = x->node;
	if (x->node == s->fail_node) {
		m.error = EIO;
		m.last_of_node = true;
		m.last = last;
		client_send(c, WIRE_PULL_DATA, &m.base, NULL, 0);
		return;
	}
	assert_true(fd >= 0);
	while (at < x->st.st_size) {
		ssize_t n = 0;

		m.offset = (uint64_t)at;
		m.hole_bytes = 0;
		data = lseek(fd, at, SEEK_DATA);
		if (data < 0)
			data = x->st.st_size;
		if (data > at) {
			m.hole_bytes = (uint64_t)(data - at);
			at = data;
		} else {
			off_t hole = lseek(fd, at, SEEK_HOLE);

			n = pread(fd, piece, (size_t)MIN((off_t)PIECE, hole - at), at);
			assert_true(n > 0);
			at += n;
		}
		m.last_of_node = at == x->st.st_size;
		m.last = last && m.last_of_node;
		client_send(c, WIRE_PULL_DATA, &m.base, piece, (size_t)n);
	}
}

static inline void source_serve_pull(struct source *s, struct client *c, const Limbwire__Pull *m)
{
	size_t base = 0;

	s->pulls++;
	assert_true(m->n_nodes > 0 && m->n_nodes <= 64);
	for (size_t i = 0; i < m->n_nodes; i++) {
		const struct source_node *x = NULL;

		/* node = 100 + number, see source_walk */
		if (m->nodes[i] > 100 && m->nodes[i] - 101 < s->n)
			x = &s->nodes[m->nodes[i] - 101];
		assert_non_null(x);
		if (base < m->n_bases && m->bases[base]->node == x->node && s->answer_base) {
			s->bases++;
			s->answer_base(s, c, m->request, x, &m->bases[base++]->sha256,
				       i + 1 == m->n_nodes);
			continue;
		}
		source_send_file(s, c, m->request, x, i + 1 == m->n_nodes);
	}
}

/* Sends RESTORE and serves until RESTORED. */
static inline Limbwire__Restored *source_restore(struct source *s, struct client *c, bool empty)
{
	Limbwire__Restore m = LIMBWIRE__RESTORE__INIT;

	m.request = ++c->request;
	m.empty_root = empty;
	client_send(c, WIRE_RESTORE, &m.base, NULL, 0);
	while (client_next(c, CLIENT_PATIENCE_MS)) {
		const ProtobufCMessageDescriptor *type = client_type(c->frame.type);
		ProtobufCMessage *got;

		if (!type)
			continue;
		got = protobuf_c_message_unpack(type, NULL, c->frame.body_len, c->frame.body);
		assert_non_null(got);
		if (c->frame.type == WIRE_TREE_GET)
			source_send_tree(s, c, ((Limbwire__TreeGet *)got)->request);
		else if (c->frame.type == WIRE_PULL)
			source_serve_pull(s, c, (Limbwire__Pull *)got);
		if (c->frame.type == WIRE_RESTORED) {
			if (c->last)
				protobuf_c_message_free_unpacked(c->last, NULL);
			c->last = got;
			return (Limbwire__Restored *)got;
		}
		protobuf_c_message_free_unpacked(got, NULL);
	}
	fail_msg("no RESTORED came");
	return NULL;
}

/* ---- comparing ---- */

static inline void source_same_bytes(const struct source *a, const struct source *b, size_t i)
{
	cleanup_close int x = openat(a->root, a->nodes[i].path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
	cleanup_close int y = openat(b->root, b->nodes[i].path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
	uint8_t p[16384], q[16384];
	ssize_t n;

	do {
		n = io_read_full(x, p, sizeof(p), "test");
		assert_int_equal(io_read_full(y, q, sizeof(q), "test"), n);
		assert_true(n == 0 || memcmp(p, q, (size_t)n) == 0);
	} while (n > 0);
	if (a->nodes[i].st.st_blocks * 512 < a->nodes[i].st.st_size)
		assert_true(b->nodes[i].st.st_blocks <= a->nodes[i].st.st_blocks + 16);
}

static inline void source_same_xattrs(const struct source *a, const struct source *b, size_t i)
{
	char names[500], value[200], other[200];
	size_t len = source_xattrs(a->top, a->nodes[i].path, names, sizeof(names));

	for (char *p = names; p < names + len; p += strlen(p) + 1) {
		ssize_t n;

		if (strncmp(p, "user.limb.", 10) == 0)
			continue;
		n = source_xattr(a->top, a->nodes[i].path, p, value, sizeof(value));
		assert_int_equal(source_xattr(b->top, b->nodes[i].path, p, other, sizeof(other)),
				 n);
		assert_memory_equal(value, other, (size_t)n);
	}
}

/* owners: false where we are not root. */
static inline void source_same(const char *one, const char *two, bool owners)
{
	struct source a, b;

	source_open(&a, one);
	source_open(&b, two);
	for (size_t i = 0; i < a.n && i < b.n; i++) {
		const struct source_node *x = &a.nodes[i], *y = &b.nodes[i];

		assert_string_equal(x->path, y->path);
		if (x->st.st_mode != y->st.st_mode)
			fail_msg("'%s': mode %o, not %o", x->path, y->st.st_mode, x->st.st_mode);
		if (owners && (x->st.st_uid != y->st.st_uid || x->st.st_gid != y->st.st_gid))
			fail_msg("'%s': owner", x->path);
		if (x->st.st_mtim.tv_sec != y->st.st_mtim.tv_sec ||
		    x->st.st_mtim.tv_nsec != y->st.st_mtim.tv_nsec)
			fail_msg("'%s': time", x->path);
		assert_int_equal(x->same_as, y->same_as);
		assert_int_equal(x->st.st_rdev, y->st.st_rdev);
		if (S_ISREG(x->st.st_mode)) {
			assert_int_equal(x->st.st_size, y->st.st_size);
			source_same_bytes(&a, &b, i);
		}
		if (S_ISLNK(x->st.st_mode)) {
			char p[4096], q[4096];
			ssize_t n = readlinkat(a.root, x->path, p, sizeof(p));

			assert_int_equal(readlinkat(b.root, y->path, q, sizeof(q)), n);
			assert_memory_equal(p, q, (size_t)n);
		}
		source_same_xattrs(&a, &b, i);
		source_same_xattrs(&b, &a, i);
	}
	assert_int_equal(a.n, b.n);
	source_close(&a);
	source_close(&b);
}

#endif
