#include "fs/change.h"

#include <fcntl.h>
#include <sys/stat.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/io.h"
#include "base/log.h"

enum { NAMES_MAX = 1000000 };

/* ---- applied ---- */

static int touch_dir(struct overlay *ov, struct index_txn *t, uint64_t dir, uint64_t stamp)
{
	struct onode *o;
	int r = overlay_take_over(ov, t, dir, &o);

	if (r < 0)
		return r;
	o->n.mtime_ns = o->n.ctime_ns = clock_real_ns();
	o->stamp = stamp;
	return 0;
}

static int create(struct overlay *ov, const struct accepted *e, const struct placed *p)
{
	struct onode *o = overlay_make(ov, e->node);
	int r;

	if (!o)
		return -ENOMEM;
	r = onode_set_target(o, e->n.target, e->n.target_len);
	if (r >= 0)
		r = onode_set_name(o, p->parent, p->name, strlen(p->name));
	if (r < 0)
		return r;
	o->over = true;
	o->links = 1;
	o->n.type = e->n.type;
	o->n.mode = e->n.mode;
	o->n.uid_kind = e->n.uid_kind;
	o->n.gid_kind = e->n.gid_kind;
	o->n.uid = e->n.uid;
	o->n.gid = e->n.gid;
	o->n.mtime_ns = o->n.ctime_ns = e->n.mtime_ns;
	o->n.content = e->n.content;
	o->stamp = e->number;
	ov->next_id = MAX(ov->next_id, e->node + 1);
	return overlay_set_entry(ov, p->parent, p->name, strlen(p->name), e->node, e->number);
}

static int count_links(struct overlay *ov, struct index_txn *t, uint64_t node, int links,
		       uint64_t stamp)
{
	struct onode *o;
	int r = overlay_take_over(ov, t, node, &o);

	if (r < 0)
		return r;
	o->links = (uint32_t)MAX(0, (int)o->links + links);
	o->n.ctime_ns = clock_real_ns();
	o->stamp = stamp;
	/* Nobody will ask for a version of it. */
	if (o->links == 0 && o->written) {
		o->written = false;
		ov->n_written--;
	}
	return 0;
}

static int take_name(struct overlay *ov, struct index_txn *t, uint64_t node, uint64_t parent,
		     const char *name, uint64_t stamp)
{
	int r = count_links(ov, t, node, -1, stamp);

	if (r >= 0)
		onode_drop_name(overlay_find(ov, node), parent, name);
	return r;
}

static int move(struct overlay *ov, struct index_txn *t, const struct accepted *e,
		const struct placed *p)
{
	struct onode *o;
	int r;

	r = overlay_take_over(ov, t, e->node, &o);
	if (r >= 0) {
		o->stamp = e->number;
		r = onode_set_name(o, p->to_parent, p->to_name, strlen(p->to_name));
	}
	if (r >= 0 && p->replaced)
		r = take_name(ov, t, p->replaced, p->to_parent, p->to_name, e->number);
	if (r >= 0)
		r = overlay_set_entry(ov, p->parent, p->name, strlen(p->name), 0, e->number);
	if (r >= 0)
		r = overlay_set_entry(ov, p->to_parent, p->to_name, strlen(p->to_name), e->node,
				      e->number);
	return r < 0 ? r : touch_dir(ov, t, p->to_parent, e->number);
}

static int set_attrs(struct overlay *ov, struct index_txn *t, const struct accepted *e)
{
	struct onode *o;
	int r = overlay_take_over(ov, t, e->node, &o);

	if (r < 0)
		return r;
	/* Those it owns. */
	node_set_fields(&o->n, &e->n, e->fields & ~(uint32_t)NODE_FIELD_XATTR);
	if (e->fields & NODE_FIELD_XATTR)
		r = onode_set_xattrs(o, e->n.xattrs, e->n.xattrs_len);
	o->n.ctime_ns = clock_real_ns();
	o->stamp = e->number;
	return r;
}

/* Its name leads to it until this is over, though what replaces it in the environment is
 * another node of the journal. */
static int hold_name(struct overlay *ov, const struct accepted *e, const struct placed *p,
		     struct onode *o)
{
	int r;

	if (!p->name)
		return 0;
	o->links = MAX(o->links, 1u);
	r = onode_set_name(o, p->parent, p->name, strlen(p->name));
	return r < 0 ? r
		     : overlay_set_entry(ov, p->parent, p->name, strlen(p->name), o->id, e->number);
}

static int stage(struct overlay *ov, struct index_txn *t, const struct accepted *e,
		 const struct placed *p)
{
	struct onode *o;
	int r = overlay_take_over(ov, t, e->node, &o);

	if (r < 0)
		return r;
	r = overlay_keep_old(ov, o);
	if (r < 0)
		return r;
	o->bytes = BYTES_STAGE;
	o->stage = e->number;
	o->stage_ms = clock_mono_ms();
	o->has_base = e->has_base;
	o->base = e->base;
	o->base_seq = e->base_seq;
	o->stamp = e->number;
	if (!o->written) {
		o->written = true;
		ov->n_written++;
	}
	r = onode_set_path(o, e->path);
	/* It has a name, though the environment may have taken what that lies in. */
	if (o->path)
		o->links = MAX(o->links, 1u);
	return r < 0 ? r : hold_name(ov, e, p, o);
}

static int version(struct overlay *ov, struct index_txn *t, const struct accepted *e,
		   const struct placed *p)
{
	struct onode *o;
	int r = overlay_take_over(ov, t, e->node, &o);

	if (r < 0)
		return r;
	ov->n_written -= o->written;
	o->written = false;
	r = overlay_keep_old(ov, o);
	if (r < 0)
		return r;
	o->bytes = BYTES_DATA;
	o->data = e->number;
	o->n.content = e->n.content;
	o->n.mtime_ns = e->n.mtime_ns;
	o->stamp = e->number;
	r = onode_set_path(o, p->name ? "" : e->path);
	return r < 0 ? r : hold_name(ov, e, p, o);
}

static int apply(struct overlay *ov, struct index_txn *t, const struct accepted *e,
		 const struct placed *p)
{
	int r;

	switch (e->kind) {
	case ACCEPTED_CREATE: r = create(ov, e, p); break;
	case ACCEPTED_REMOVE:
		r = take_name(ov, t, e->node, p->parent, p->name, e->number);
		if (r >= 0)
			r = overlay_set_entry(ov, p->parent, p->name, strlen(p->name), 0,
					      e->number);
		break;
	case ACCEPTED_MOVE: r = move(ov, t, e, p); break;
	case ACCEPTED_LINK:
		r = count_links(ov, t, e->node, 1, e->number);
		if (r >= 0)
			r = overlay_set_entry(ov, p->to_parent, p->to_name, strlen(p->to_name),
					      e->node, e->number);
		return r < 0 ? r : touch_dir(ov, t, p->to_parent, e->number);
	case ACCEPTED_ATTR: return set_attrs(ov, t, e);
	case ACCEPTED_STAGE: return stage(ov, t, e, p);
	case ACCEPTED_VERSION: return version(ov, t, e, p);
	default: return 0;
	}
	return r < 0 ? r : touch_dir(ov, t, p->parent, e->number);
}

int change_make(struct overlay *ov, struct index_txn *t, struct accepted *e, struct placed *p)
{
	int r = intent_append(ov->log, e);

	if (r < 0)
		return r;
	/* Only memory can be short from here on; it is in the log, and limbd will make it. */
	ov->last_change = e->number;
	return apply(ov, t, e, p);
}

/* ---- replayed ---- */

struct replay {
	struct overlay *ov;
	struct index_txn *t;
	uint64_t done, done_at; /* where the index shows that, and no more of the log */
	bool any;		/* entries that are not over */
};

/* The directory of a path, and its last component. */
static int walk(struct replay *c, const char *path, uint64_t *ret_parent, const char **ret_name)
{
	uint64_t dir = NODE_ROOT;
	const char *slash;
	int r;

	while ((slash = strchr(path, '/'))) {
		r = overlay_lookup(c->ov, c->t, dir, path, (size_t)(slash - path), &dir);
		if (r < 0)
			return r;
		path = slash + 1;
	}
	*ret_parent = dir;
	*ret_name = path;
	return *path && strlen(path) <= NODE_NAME_MAX ? 0 : -EINVAL;
}

static int look(struct replay *c, uint64_t parent, const char *name, uint64_t *ret)
{
	int r = overlay_lookup(c->ov, c->t, parent, name, strlen(name), ret);

	if (r == -ENOENT)
		*ret = 0;
	return r == -ENOENT ? 0 : r;
}

/* Under e->node's id, whatever it has become in the journal. */
static int call_it(struct replay *c, struct accepted *e, uint64_t journal)
{
	struct onode *o = overlay_make(c->ov, e->node);

	if (!o)
		return -ENOMEM;
	e->journal = journal;
	overlay_set_journal(c->ov, o, journal);
	return 0;
}

/* What the path leads to is what was meant, whatever it was called then: it may have had no id in
 * the journal yet, or one that an APPLY replaced. */
static int take_found(struct replay *c, struct accepted *e, uint64_t found)
{
	uint64_t journal = overlay_journal(c->ov, found);
	struct index_node n;

	if (found == e->node)
		return 0;
	/* A file's bytes may be called by its old id; names in a directory are by the new one. */
	if (found & OVERLAY_MADE || journal == e->journal || overlay_find(c->ov, found) ||
	    overlay_node(c->ov, c->t, found, &n) < 0 || n.n.type != NODE_TYPE_FILE) {
		e->node = found;
		return 0;
	}
	return call_it(c, e, journal);
}

/* Its path leads nowhere any more. The bytes that were written there are kept (bytes_version()),
 * unless the file was removed in the view, too. */
static int replay_gone(struct replay *c, struct accepted *e)
{
	struct placed p = {0};
	struct onode *o = overlay_find(c->ov, e->node);
	struct index_node n;
	int r = 0;

	if (e->kind == ACCEPTED_REMOVE && o && o->path && strcmp(o->path, e->path) == 0)
		o->links = 0;
	if (e->kind != ACCEPTED_STAGE && e->kind != ACCEPTED_VERSION)
		return 0;
	if (e->journal)
		r = call_it(c, e, e->journal);
	o = r < 0 ? NULL : overlay_make(c->ov, e->node);
	if (!o)
		return -ENOMEM;
	/* Nobody knows what else it was. */
	if (overlay_node(c->ov, c->t, e->node, &n) < 0) {
		o->over = true;
		o->n.type = NODE_TYPE_FILE;
		o->n.mode = 0600;
	}
	return apply(c->ov, c->t, e, &p);
}

static int replay_entry(struct replay *c, struct accepted *e)
{
	struct placed p = {0};
	uint64_t found = 0;
	int r = 0;

	if (*e->path)
		r = walk(c, e->path, &p.parent, &p.name);
	if (r >= 0 && *e->to_path)
		r = walk(c, e->to_path, &p.to_parent, &p.to_name);
	if (r >= 0 && p.name)
		r = look(c, p.parent, p.name, &found);
	if (r >= 0 && p.to_name && e->kind == ACCEPTED_MOVE)
		r = look(c, p.to_parent, p.to_name, &p.replaced);
	if (r == -ENOENT)
		return replay_gone(c, e);
	if (r < 0)
		return r == -EINVAL ? 0 : r;
	switch (e->kind) {
	case ACCEPTED_CREATE: break;
	case ACCEPTED_STAGE:
	case ACCEPTED_VERSION:
		/* Written under an id that meant it then, and its bytes are called by that. What
		 * its name leads to now is what a version before it has become. */
		if (found && found != e->node && overlay_journal(c->ov, found))
			e->journal = overlay_journal(c->ov, found);
		if (found != e->node && e->journal)
			r = call_it(c, e, e->journal);
		break;
	default:
		if (!p.name && e->node != NODE_ROOT)
			return 0;
		if (p.name && !found)
			return 0;
		if (p.name)
			r = take_found(c, e, found);
	}
	if (r < 0)
		return r;
	r = apply(c->ov, c->t, e, &p);
	return r == -ENOENT || r == -ESTALE ? 0 : r;
}

static int replay_one(const struct accepted *e, void *userdata)
{
	struct replay *c = userdata;
	struct accepted copy = *e;

	if (e->kind != ACCEPTED_DONE)
		c->ov->last_change = e->number;
	if (e->node & OVERLAY_MADE)
		c->ov->next_id = MAX(c->ov->next_id, e->node + 1);
	if (e->kind == ACCEPTED_DONE || e->number <= c->done)
		return 0;
	return replay_entry(c, &copy);
}

static int find_done(const struct accepted *e, void *userdata)
{
	struct replay *c = userdata;

	if (e->kind == ACCEPTED_DONE && e->done > c->done) {
		c->done = e->done;
		c->done_at = e->base_seq;
	}
	return 0;
}

/* Sizes and times of what is being written are those of its staging file; what belongs to
 * no node is of a crash, and goes. */
static void look_after(struct overlay *ov, const char *name)
{
	bool staged = strncmp(name, "stage.", 6) == 0;
	uint64_t number = strtoull(strchr(name, '.') ? strchr(name, '.') + 1 : "", NULL, 16);
	struct onode *o = NULL;
	struct stat st;

	if (strncmp(name, "log.", 4) == 0 || strncmp(name, "lost.", 5) == 0)
		return;
	if (fstatat(intent_dir(ov->log), name, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return;
	if (staged)
		o = overlay_find(ov, number);
	if (staged && o && o->over && o->bytes == BYTES_STAGE) {
		o->n.content.size_bytes = (uint64_t)st.st_size;
		o->n.mtime_ns = o->n.ctime_ns =
			(int64_t)st.st_mtim.tv_sec * 1000000000 + st.st_mtim.tv_nsec;
		overlay_count_bytes(ov, o, (uint64_t)st.st_size);
		return;
	}
	if (strncmp(name, "data.", 5) == 0 && number > ov->done && number <= intent_last(ov->log))
		return;
	(void)io_unlinkat(intent_dir(ov->log), name, 0, "overlay.unlink");
}

static int look_after_all(struct overlay *ov)
{
	char **names;
	size_t n;
	int r = file_list(intent_dir(ov->log), ".", NAMES_MAX, &names, &n);

	if (r < 0)
		return r;
	for (size_t i = 0; i < n; i++)
		look_after(ov, names[i]);
	file_names_free(names, n);
	return 0;
}

/* What was unlinked while it was open died with whoever had it open; and a loss of power may
 * have taken bytes that nobody was promised. */
static void look_after_nodes(struct overlay *ov)
{
	for (size_t i = 0; i < ov->n_slots; i++)
		for (struct onode *o = ov->nodes[i]; o; o = o->next) {
			char name[32];

			if (!o->over || o->bytes != BYTES_STAGE)
				continue;
			accepted_stage_name(o->id, name);
			if (o->links == 0 || faccessat(intent_dir(ov->log), name, F_OK, 0) < 0)
				overlay_drop_bytes(ov, o);
		}
}

/* What came when nothing waited saw all that was over, and nobody had written that down. */
static int find_first(const struct accepted *e, void *userdata)
{
	struct replay *c = userdata;

	if (c->any || e->number <= c->done || e->kind == ACCEPTED_DONE)
		return 0;
	c->done_at = MAX(c->done_at, e->base_seq);
	c->any = true;
	return 0;
}

/* limbd may be ahead of what it has said. The entries were made one after the other on the tree
 * of what was over then, so they are replayed on that. */
int change_replay(struct overlay *ov)
{
	struct replay c = {.ov = ov};
	uint64_t seq;
	int r;

	ov->next_id = OVERLAY_MADE + 1;
	r = intent_replay(ov->log, find_done, &c);
	if (r >= 0)
		r = intent_replay(ov->log, find_first, &c);
	if (r >= 0)
		r = source_begin(ov->fs->source, &c.t, &seq);
	if (r < 0)
		return r;
	ov->done = c.done;
	/* An index that was begun anew may have less. */
	ov->at = c.done_at && c.done_at < seq ? c.done_at : INDEX_NOW;
	r = intent_replay(ov->log, replay_one, &c);
	ov->at = INDEX_NOW;
	source_end(ov->fs->source, c.t);
	look_after_nodes(ov);
	if (r >= 0)
		r = look_after_all(ov);
	if (r >= 0 && intent_last(ov->log) > ov->done)
		log_info("%llu changes made in the view wait for the environment",
			 (unsigned long long)(intent_last(ov->log) - ov->done));
	return r;
}
