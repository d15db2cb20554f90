/* Lies about what is there: names, trees, attributes, contents. */
#include "tests/functional/hostile/hostile.h"

/* ---- names and trees ---- */

/* A new file with this name in the directory. */
void tell_name(uint64_t directory, const void *name, size_t n)
{
	struct said *c = begin();

	(void)put_file(c, node, "x", 1);
	(void)link_name(c, directory, name, n, node++);
	end(c);
}

static void name_slash(void)
{
	tell_name(known.dir, "../../x", 7);
}

static void name_dotdot(void)
{
	tell_name(known.dir, "..", 2);
}

static void name_dot(void)
{
	tell_name(known.dir, ".", 1);
}

static void name_empty(void)
{
	tell_name(known.dir, "", 0);
}

static void name_nul(void)
{
	tell_name(known.dir, "a\0b", 3);
}

static void name_long(void)
{
	static char name[256];

	memset(name, 'n', sizeof(name));
	tell_name(known.dir, name, sizeof(name));
}

static void name_twice(void)
{
	struct said *c = begin();

	(void)put_file(c, node, "x", 1);
	(void)link_name(c, known.dir, "twice", 5, node++);
	(void)put_file(c, node, "y", 1);
	(void)link_name(c, known.dir, "twice", 5, node++);
	end(c);
}

static void beneath_link(void)
{
	tell_name(known.link, "passwd", 6);
}

static void beneath_file(void)
{
	tell_name(known.file, "x", 1);
}

static void beneath_nothing(void)
{
	tell_name(node + 1000, "x", 1);
}

/* In one change: a directory becomes a link, and something is put beneath it. */
static void link_then_beneath(void)
{
	struct said *c = begin();
	Limb__Op *op = put(c, known.dir, LIMB__NODE_TYPE__NODE_SYMLINK);

	set_bytes(&op->attr->target, "/etc", 4);
	(void)put_file(c, node, "x", 1);
	(void)link_name(c, known.dir, "passwd", 6, node++);
	end(c);
}

static void directory_two_names(void)
{
	struct said *c = begin();

	(void)link_name(c, 1, "other", 5, known.dir);
	end(c);
}

static void cycle(void)
{
	struct said *c = begin();

	(void)put(c, node, LIMB__NODE_TYPE__NODE_DIRECTORY);
	(void)link_name(c, known.dir, "sub", 3, node);
	(void)move_name(c, 1, "d", node++, "d");
	end(c);
}

static void root_named(void)
{
	struct said *c = begin();

	(void)link_name(c, known.dir, "root", 4, 1);
	end(c);
}

static void root_becomes_file(void)
{
	struct said *c = begin();

	(void)put_file(c, 1, "x", 1);
	end(c);
}

static void removal_without_evidence(void)
{
	struct said *c = begin();
	Limb__Op *op = add(c, LIMB__OP_KIND__OP_UNLINK);

	op->parent = known.dir;
	set_bytes(&op->name, "f", 1);
	end(c);
}

static void node_not_granted(void)
{
	struct said *c = begin();

	(void)put_file(c, welcome->node_end, "x", 1);
	(void)link_name(c, known.dir, "foreign", 7, welcome->node_end);
	end(c);
}

static void node_again(void)
{
	struct said *c = begin();
	Limb__Op *op;

	(void)put_file(c, node, "x", 1);
	(void)link_name(c, known.dir, "gone", 4, node);
	end(c);
	c = begin();
	op = add(c, LIMB__OP_KIND__OP_UNLINK);
	op->parent = known.dir;
	op->evidence = LIMB__EVIDENCE__EVIDENCE_ABSENT;
	set_bytes(&op->name, "gone", 4);
	end(c);
	c = begin();
	(void)put_file(c, node, "y", 1);
	(void)link_name(c, known.dir, "again", 5, node);
	end(c);
}

static void node_zero(void)
{
	struct said *c = begin();

	(void)put_file(c, 0, "x", 1);
	end(c);
}

static void too_many_ops(void)
{
	struct said *c = begin();

	for (int i = 0; i < 65; i++)
		(void)put_file(c, known.file, "x", 1);
	end(c);
}

static void no_ops(void)
{
	end(begin());
}

/* ---- attributes ---- */

static void bad_mode(void)
{
	struct said *c = begin();

	put_file(c, known.file, "x", 1)->attr->mode = 0170644;
	end(c);
}

static void bad_type(void)
{
	struct said *c = begin();

	(void)put(c, known.file, (Limb__NodeType)99);
	end(c);
}

static void target_nul(void)
{
	struct said *c = begin();

	set_bytes(&put(c, known.link, LIMB__NODE_TYPE__NODE_SYMLINK)->attr->target, "a\0b", 3);
	end(c);
}

static void target_long(void)
{
	static char target[5000];
	struct said *c = begin();

	memset(target, 't', sizeof(target));
	set_bytes(&put(c, known.link, LIMB__NODE_TYPE__NODE_SYMLINK)->attr->target, target,
		  sizeof(target));
	end(c);
}

static void xattrs_unsorted(void)
{
	Limb__Xattr x[2] = {LIMB__XATTR__INIT, LIMB__XATTR__INIT}, *ptrs[] = {&x[0], &x[1]};
	struct said *c = begin();
	Limb__Op *op = put_file(c, known.file, "x", 1);

	set_bytes(&x[0].name, "user.b", 6);
	set_bytes(&x[1].name, "user.a", 6);
	op->attr->n_xattrs = 2;
	op->attr->xattrs = ptrs;
	end(c);
}

static void xattrs_large(void)
{
	static uint8_t value[70000];
	Limb__Xattr x = LIMB__XATTR__INIT, *ptrs[] = {&x};
	struct said *c = begin();
	Limb__Op *op = put_file(c, known.file, "x", 1);

	set_bytes(&x.name, "user.a", 6);
	set_bytes(&x.value, value, sizeof(value));
	op->attr->n_xattrs = 1;
	op->attr->xattrs = ptrs;
	end(c);
}

/* ---- content ---- */

static void size_more(void)
{
	struct said *c = begin();

	put_file(c, known.file, "x", 1)->content->size_bytes = 2;
	end(c);
}

static void size_less(void)
{
	struct said *c = begin();

	put_file(c, known.file, "xy", 2)->content->size_bytes = 1;
	end(c);
}

static void size_huge(void)
{
	struct said *c = begin();

	put_file(c, known.file, "x", 1)->content->size_bytes = UINT64_MAX - 1;
	end(c);
}

static void wrong_hash(void)
{
	struct said *c = begin();

	(void)put_file(c, known.file, "x", 1);
	c->hashes[0][0] ^= 1;
	end(c);
}

static void foreign_list(void)
{
	struct said *c = begin();
	Limb__Op *op = put_file(c, known.file, "x", 1);

	op->content->depth = 3;
	set_bytes(&op->content->root, c->hashes[0], SHA256_BYTES);
	end(c);
}

static void stream_unknown(void)
{
	struct said *c = begin();

	(void)put_file(c, known.file, "", 0);
	c->contents[0].size_bytes = 10;
	c->wops[0].stream = 77;
	end(c);
}

static void say_data(uint32_t stream, uint64_t offset, uint64_t hole, const char *data, bool last)
{
	Limbwire__Data m = LIMBWIRE__DATA__INIT;

	m.stream = stream;
	m.offset = offset;
	m.hole_bytes = hole;
	m.last = last;
	say(WIRE_DATA, &m.base, data, strlen(data));
}

static void stream_gap(void)
{
	say_data(1, 0, 0, "abc", false);
	say_data(1, 100, 0, "abc", false);
}

static void streams_many(void)
{
	for (uint32_t i = 1; i < 20; i++)
		say_data(i, 0, 0, "abc", false);
}

static void stream_holes(void)
{
	say_data(1, 0, 5ull << 40, "", false);
}

/* Ended, and never named by a change. */
static void streams_left(void)
{
	for (uint32_t i = 1; i < 200; i++)
		say_data(i, 0, 0, "abc", true);
}

const struct lie lies_of_trees[] = {
	{"name-slash", name_slash, NULL, NULL},
	{"name-dotdot", name_dotdot, NULL, NULL},
	{"name-dot", name_dot, NULL, NULL},
	{"name-empty", name_empty, NULL, NULL},
	{"name-nul", name_nul, NULL, NULL},
	{"name-long", name_long, NULL, NULL},
	{"name-twice", name_twice, NULL, NULL},
	{"beneath-link", beneath_link, NULL, NULL},
	{"beneath-file", beneath_file, NULL, NULL},
	{"beneath-nothing", beneath_nothing, NULL, NULL},
	{"link-then-beneath", link_then_beneath, NULL, NULL},
	{"directory-two-names", directory_two_names, NULL, NULL},
	{"cycle", cycle, NULL, NULL},
	{"root-named", root_named, NULL, NULL},
	{"root-becomes-file", root_becomes_file, NULL, NULL},
	{"removal-without-evidence", removal_without_evidence, NULL, NULL},
	{"node-not-granted", node_not_granted, NULL, NULL},
	{"node-again", node_again, NULL, NULL},
	{"node-zero", node_zero, NULL, NULL},
	{"too-many-ops", too_many_ops, NULL, NULL},
	{"no-ops", no_ops, NULL, NULL},
	{"bad-mode", bad_mode, NULL, NULL},
	{"bad-type", bad_type, NULL, NULL},
	{"target-nul", target_nul, NULL, NULL},
	{"target-long", target_long, NULL, NULL},
	{"xattrs-unsorted", xattrs_unsorted, NULL, NULL},
	{"xattrs-large", xattrs_large, NULL, NULL},
	{"size-more", size_more, NULL, NULL},
	{"size-less", size_less, NULL, NULL},
	{"size-huge", size_huge, NULL, NULL},
	{"wrong-hash", wrong_hash, NULL, NULL},
	{"foreign-list", foreign_list, NULL, NULL},
	{"stream-unknown", stream_unknown, NULL, NULL},
	{"stream-gap", stream_gap, NULL, NULL},
	{"streams-many", streams_many, NULL, NULL},
	{"stream-holes", stream_holes, NULL, NULL},
	{"streams-left", streams_left, NULL, NULL},
	{NULL, NULL, NULL, NULL},
};
