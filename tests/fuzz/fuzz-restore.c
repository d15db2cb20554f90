/* Any tree as limb-syncd is told to make it: an entry is refused, or its path is one of names that
 * lead to a directory that came before, and its attributes are read again. */
#include "base/beneath.h"
#include "syncd/restore-tree.h"
#include "tests/fuzz/fuzz.h"
#include "wire/frame.h"

static void look(const struct rtree *t, const struct rentry *e)
{
	_cleanup_(buf_done) struct buf xattrs = BUF_INIT(NODE_XATTRS_MAX);
	Limbwire__TreeEntry *m = NULL;
	cleanup_free char *path = NULL;
	struct node n;
	char *at;

	must(e->number > 0 && e->number <= t->n && t->entries[e->number - 1] == e);
	must(rentry_path(e, &path) == 0);
	if (e->number == 1)
		must(!e->parent && path[0] == '\0');
	for (at = path; e->number > 1 && at; at = strchr(at, '/') ? strchr(at, '/') + 1 : NULL)
		must(beneath_name_ok(at, (size_t)(strchrnul(at, '/') - at)));
	/* With unknown fields that the library packs, but does not take back. */
	if (rentry_read(e, &xattrs, &m, &n) < 0)
		return;
	must(n.type == e->type && node_xattrs_ok(n.xattrs, n.xattrs_len));
	limbwire__tree_entry__free_unpacked(m, NULL);
}

/* Frames of the wire; others than TREE_PART are passed over. An empty one begins a tree that
 * leans on the one so far. */
static void read_trees(struct wframe_decoder *d, struct rtree trees[2])
{
	unsigned k = 0;
	struct wframe f;

	while (wframe_decoder_next(d, &f) > 0) {
		Limbwire__TreePart *part;
		const char *why = NULL;

		if (f.type != WIRE_TREE_PART)
			continue;
		part = limbwire__tree_part__unpack(NULL, f.body_len, f.body);
		for (size_t i = 0; part && i < part->n_entries; i++) {
			int r = rtree_add(&trees[k], part->entries[i], &why);

			must(r == 0 || (r == -EBADMSG && why) || r == -ENOMEM);
			if (r == 0)
				look(&trees[k], trees[k].entries[trees[k].n - 1]);
		}
		if (part && part->last && k == 0) {
			must(rtree_sort(&trees[0]) == 0);
			trees[1].base = &trees[0];
			k = 1;
		}
		if (part)
			limbwire__tree_part__free_unpacked(part, NULL);
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct wframe_decoder d;
	struct rtree trees[2] = {{0}};
	uint8_t *p;

	if (size > WIRE_READ_MAX - WIRE_START_BYTES)
		return 0;
	wframe_decoder_init(&d);
	must(wframe_decoder_reserve(&d, WIRE_START_BYTES + size, &p) == 0);
	memcpy(p, WIRE_START, WIRE_START_BYTES);
	if (size)
		memcpy(p + WIRE_START_BYTES, data, size);
	wframe_decoder_commit(&d, WIRE_START_BYTES + size);
	read_trees(&d, trees);
	rtree_done(&trees[1]);
	rtree_done(&trees[0]);
	wframe_decoder_done(&d);
	return 0;
}
