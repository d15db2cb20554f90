/*
 * apply-client.h - a limb-syncd to which changes of the brain's side are sent, for
 * test-apply and test-apply-changes.
 *
 *	assert_int_equal(apply(&(struct change){.kind = ..., .path = ...}), 0);
 */
#ifndef TESTS_UNIT_APPLY_CLIENT_H
#define TESTS_UNIT_APPLY_CLIENT_H

#include "journal/node.h"
#include "syncd-client.h"

static struct client c;

static inline int setup(void **state)
{
	client_make(&c);
	client_join(&c);
	return 0;
}

/* Nothing is known at first; what the root has is found. */
static inline void join_syncing(void)
{
	Limbwire__TreePart part = LIMBWIRE__TREE_PART__INIT;

	c.mode = LIMBWIRE__WELCOME__MODE__MODE_SYNC;
	client_welcome(&c);
	part.request = ((Limbwire__TreeGet *)client_wait(&c, WIRE_TREE_GET))->request;
	part.last = true;
	client_send(&c, WIRE_TREE_PART, &part.base, NULL, 0);
}

static inline int setup_syncing(void **state)
{
	client_make(&c);
	(void)client_attach(&c);
	join_syncing();
	return 0;
}

/* The brain has heard all that was told until now: up to this number. */
static inline uint64_t barrier(void)
{
	Limbwire__Barrier m = LIMBWIRE__BARRIER__INIT;

	m.request = ++c.request;
	m.deadline_ms = CLIENT_PATIENCE_MS;
	client_send(&c, WIRE_BARRIER, &m.base, NULL, 0);
	return ((Limbwire__BarrierDone *)client_wait(&c, WIRE_BARRIER_DONE))->number;
}

static inline int teardown(void **state)
{
	char **names;
	size_t n;

	/* No temporary name stays behind. */
	assert_int_equal(file_list(AT_FDCWD, c.root, 1000, &names, &n), 0);
	for (size_t i = 0; i < n; i++)
		assert_int_not_equal(strncmp(names[i], ".limb-", 6), 0);
	file_names_free(names, n);
	client_remove(&c);
	return 0;
}

static inline const char *in_root(const char *name)
{
	static char path[2][600];
	static unsigned turn;

	turn = !turn;
	(void)snprintf(path[turn], sizeof(path[turn]), "%s/%s", c.root, name);
	return path[turn];
}

struct change {
	Limbwire__Apply__Kind kind;
	const char *path, *to, *bytes, *target;
	uint32_t mode, uid;
	int64_t mtime_ns;
	bool full, no_replace, no_attr, careful;
	uint64_t number, node, replaces, seen, batch, left, replaces_left;
	const char *base; /* the bytes that go */
	uint32_t fields;
};

static uint32_t pushes;

static inline void push(const char *bytes)
{
	Limbwire__Push m = LIMBWIRE__PUSH__INIT;
	size_t half = strlen(bytes) / 2;

	m.push = ++pushes;
	client_send(&c, WIRE_PUSH, &m.base, bytes, half);
	m.offset = half;
	m.last = true;
	client_send(&c, WIRE_PUSH, &m.base, bytes + half, strlen(bytes) - half);
}

static inline uint64_t apply_ask(const struct change *x)
{
	Limbwire__Apply m = LIMBWIRE__APPLY__INIT;
	Limb__Attr attr = LIMB__ATTR__INIT;
	uint8_t hash[SHA256_BYTES];

	m.request = ++c.request;
	m.kind = x->kind;
	m.path = (ProtobufCBinaryData){strlen(x->path), (uint8_t *)x->path};
	if (x->to)
		m.to_path = (ProtobufCBinaryData){strlen(x->to), (uint8_t *)x->to};
	attr.type = x->kind == LIMBWIRE__APPLY__KIND__MKDIR ? LIMB__NODE_TYPE__NODE_DIRECTORY
		    : x->target				    ? LIMB__NODE_TYPE__NODE_SYMLINK
							    : LIMB__NODE_TYPE__NODE_FILE;
	attr.mode = x->mode;
	attr.uid = attr.gid = x->uid;
	attr.uid_kind = attr.gid_kind = x->uid ? LIMB__OWNER_KIND__OWNER_NUMBER
					       : LIMB__OWNER_KIND__OWNER_SELF;
	attr.mtime_ns = x->mtime_ns;
	if (x->target)
		attr.target = (ProtobufCBinaryData){strlen(x->target), (uint8_t *)x->target};
	m.attr = x->no_attr ? NULL : &attr;
	m.attr_defaults = !x->full;
	m.no_replace = x->no_replace;
	m.careful = x->careful;
	m.number = x->number;
	m.node = x->node;
	m.replaces = x->replaces;
	m.seen = x->seen;
	m.fields = x->fields;
	m.batch = x->batch;
	m.left = x->left;
	m.replaces_left = x->replaces_left;
	if (x->base) {
		sha256(x->base, strlen(x->base), hash);
		m.base_sha256 = (ProtobufCBinaryData){sizeof(hash), hash};
	}
	if (x->bytes) {
		push(x->bytes);
		m.push = pushes;
	}
	client_send(&c, WIRE_APPLY, &m.base, NULL, 0);
	return m.request;
}

/* The errno of APPLIED. */
static inline int apply(const struct change *x)
{
	uint64_t request = apply_ask(x);
	Limbwire__Done *done = client_wait(&c, WIRE_APPLIED);

	assert_int_equal(done->request, request);
	return done->error;
}

static inline bool file_is(const char *name, const char *bytes)
{
	_cleanup_(buf_done) struct buf b = BUF_INIT(1 << 20);

	return file_read(AT_FDCWD, in_root(name), &b) == 0 && buf_len(&b) == strlen(bytes) &&
	       (*bytes == 0 || memcmp(buf_data(&b), bytes, strlen(bytes)) == 0);
}

static inline const char *outside(void)
{
	static char path[600];

	(void)snprintf(path, sizeof(path), "%s/outside", c.top);
	return path;
}

static inline bool in_private(const char *name)
{
	char path[600];

	(void)snprintf(path, sizeof(path), "%s/%s", c.dir, name);
	return access(path, F_OK) == 0;
}

#endif
