#include "tests/functional/view-rig/journal-impl.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/xattr.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/io.h"
#include "base/text.h"
#include "journal/index.h"
#include "journal/log.h"
#include "journal/pack.h"
#include "journal/record.pb-c.h"
#include "journal/store.h"

#define NAMES_MAX 10000000

/* ---- inodes ---- */

struct known *find_known(struct journal *j, uint64_t inode)
{
	size_t i = (size_t)(inode * 0x9e3779b97f4a7c15ull >> 20) & (j->room_known - 1);

	while (j->known[i].inode && j->known[i].inode != inode)
		i = (i + 1) & (j->room_known - 1);
	return &j->known[i];
}

void set_known(struct journal *j, uint64_t inode, uint64_t node)
{
	struct known *old = j->known, *k;
	size_t n_old = j->room_known;

	if ((j->n_known + 1) * 2 > j->room_known) {
		j->room_known = MAX(n_old * 2, (size_t)4096);
		j->known = calloc(j->room_known, sizeof(*j->known));
		for (size_t i = 0; i < n_old; i++)
			if (old[i].inode)
				*find_known(j, old[i].inode) = old[i];
		free(old);
	}
	k = find_known(j, inode);
	j->n_known += !k->inode;
	*k = (struct known){inode, node};
}

/* ---- one commit ---- */

static void apply_ops(struct journal *j)
{
	struct change c = {.origin = ORIGIN_BRAIN_, .ops = j->ops, .n_ops = j->n_ops};
	_cleanup_(buf_done) struct buf body = BUF_INIT(0);
	int64_t time_ns = clock_real_ns();
	const char *why = "";
	uint64_t seq;
	int r;

	if (j->n_ops == 0)
		return;
	r = index_check_change(j->ix, &c, &why);
	if (r < 0)
		fail(r, why);
	r = change_pack(&c, &body);
	if (r >= 0)
		r = log_append(j->log, RECORD_CHANGE, buf_data(&body), buf_len(&body), time_ns,
			       &seq);
	if (r >= 0)
		r = index_apply_change(j->ix, seq, time_ns, &c);
	if (r < 0)
		fail(r, "change");
	for (size_t i = 0; i < j->n_ops; i++) {
		free(j->lent[i].xattrs);
		j->lent[i].xattrs = NULL;
	}
	j->n_ops = 0;
}

static struct change_op *add_op(struct journal *j, enum change_op_kind kind, uint64_t node,
				uint64_t parent, const char *name)
{
	struct change_op *op;

	if (j->n_ops == CHANGE_OPS_MAX)
		apply_ops(j);
	op = &j->ops[j->n_ops];
	*op = (struct change_op){.kind = (uint8_t)kind, .node = node, .parent = parent};
	if (name) {
		(void)snprintf(j->lent[j->n_ops].name, NODE_NAME_MAX + 1, "%s", name);
		op->name = j->lent[j->n_ops].name;
		op->name_len = (uint16_t)strlen(name);
	}
	j->n_ops++;
	return op;
}

static uint8_t owner_kind(uint32_t id, uint32_t self)
{
	return id == self ? NODE_OWNER_SELF : id == 0 ? NODE_OWNER_ROOT : NODE_OWNER_NUMBER;
}

static int compare_text(const void *a, const void *b)
{
	return strcmp(*(char *const *)a, *(char *const *)b);
}

static void read_xattrs(struct node *n, int dir, const char *name, uint8_t **ret_mem)
{
	_cleanup_(buf_done) struct buf b = BUF_INIT(NODE_XATTRS_MAX);
	char path[64 + NODE_NAME_MAX], list[16384], value[16384], *names[256];
	size_t n_names = 0;
	ssize_t len;

	(void)snprintf(path, sizeof(path), "/proc/self/fd/%d/%s", dir, name);
	len = llistxattr(path, list, sizeof(list));
	for (char *p = list; len > 0 && p < list + len && n_names < 256; p += strlen(p) + 1)
		names[n_names++] = p;
	qsort(names, n_names, sizeof(names[0]), compare_text);
	for (size_t i = 0; i < n_names; i++) {
		ssize_t m = lgetxattr(path, names[i], value, sizeof(value));
		uint8_t number[4];

		if (m < 0)
			continue;
		put_le16(number, (uint16_t)strlen(names[i]));
		(void)buf_add(&b, number, 2);
		(void)buf_add_str(&b, names[i]);
		put_le32(number, (uint32_t)m);
		(void)buf_add(&b, number, 4);
		(void)buf_add(&b, value, (size_t)m);
	}
	if (buf_len(&b) == 0)
		return;
	*ret_mem = malloc(buf_len(&b));
	memcpy(*ret_mem, buf_data(&b), buf_len(&b));
	n->xattrs = *ret_mem;
	n->xattrs_len = (uint32_t)buf_len(&b);
}

static void put_node(struct journal *j, uint64_t node, int dir, const char *name,
		     const struct stat *st, bool content)
{
	struct change_op *op;
	struct node *n;
	size_t slot;

	/* It needs a name by the end of the change. */
	if (j->n_ops > CHANGE_OPS_MAX - 2)
		apply_ops(j);
	op = add_op(j, CHANGE_PUT, node, 0, NULL);
	slot = j->n_ops - 1;
	n = &op->attr;
	n->type = node_type_of_mode(st->st_mode);
	n->mode = n->type == NODE_TYPE_SYMLINK ? 0777 : st->st_mode & 07777;
	n->uid_kind = owner_kind(st->st_uid, geteuid());
	n->gid_kind = owner_kind(st->st_gid, getegid());
	n->uid = st->st_uid;
	n->gid = st->st_gid;
	n->mtime_ns = clock_from_timespec(st->st_mtim);
	n->ctime_ns = clock_from_timespec(st->st_ctim);
	n->inode = st->st_ino;
	n->device = st->st_dev == j->device ? 0 : st->st_dev;
	n->rdev_major = major(st->st_rdev);
	n->rdev_minor = minor(st->st_rdev);
	n->allocated_bytes = (uint64_t)st->st_blocks * 512;
	if (n->type == NODE_TYPE_SYMLINK) {
		ssize_t len = readlinkat(dir, name, (char *)j->lent[slot].target, NODE_TARGET_MAX);
		n->target = j->lent[slot].target;
		n->target_len = (uint32_t)MAX(len, (ssize_t)0);
	}
	if (n->type == NODE_TYPE_FILE && content) {
		op->has_content = true;
		capture(j, dir, name, &n->content);
	}
	read_xattrs(n, dir, name, &j->lent[slot].xattrs);
}

/* ---- comparing ---- */

static bool is_same(const struct index_node *old, const struct stat *st)
{
	return old->n.ctime_ns == clock_from_timespec(st->st_ctim) &&
	       old->n.mtime_ns == clock_from_timespec(st->st_mtim) &&
	       (!S_ISREG(st->st_mode) || old->n.content.size_bytes == (uint64_t)st->st_size);
}

static int note_name(uint64_t parent, const char *name, size_t len, void *userdata)
{
	struct gone *g = userdata;

	g->parent = parent;
	memcpy(g->name, name, len);
	g->name[len] = '\0';
	return 1;
}

static void follow_entry(struct journal *j, int dir, uint64_t parent, const char *name);

static void follow_dir(struct journal *j, int fd, uint64_t node)
{
	char **names;
	size_t n;
	int r;

	r = file_list(fd, ".", NAMES_MAX, &names, &n);
	if (r < 0)
		fail(r, "list");
	for (size_t i = 0; i < n; i++)
		follow_entry(j, fd, node, names[i]);
	file_names_free(names, n);
}

static void name_it(struct journal *j, uint64_t node, uint64_t parent, const char *name,
		    bool is_dir)
{
	struct gone was = {0};
	struct change_op *op;
	uint64_t old;

	if (index_lookup(j->before, parent, name, strlen(name), INDEX_NOW, &old) >= 0 &&
	    old == node)
		return;
	(void)index_names(j->before, node, note_name, &was);
	if (!is_dir || !was.parent) {
		(void)add_op(j, CHANGE_LINK, node, parent, name);
		return;
	}
	op = add_op(j, CHANGE_MOVE, 0, was.parent, was.name);
	op->to_parent = parent;
	op->to_name = j->lent[j->n_ops - 1].to_name;
	op->to_name_len = (uint16_t)strlen(name);
	memcpy(j->lent[j->n_ops - 1].to_name, name, strlen(name));
}

static void follow_entry(struct journal *j, int dir, uint64_t parent, const char *name)
{
	struct index_node old;
	struct stat st;
	uint64_t node;
	bool is_new;

	if (fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return;
	node = find_known(j, st.st_ino)->node;
	is_new = !node || index_get_node(j->before, node, INDEX_NOW, &old) < 0 ||
		 old.n.type != node_type_of_mode(st.st_mode);
	if (is_new && !(node >= j->first_new)) {
		node = j->next_node++;
		set_known(j, st.st_ino, node);
		put_node(j, node, dir, name, &st, true);
	} else if (!is_new && !is_same(&old, &st)) {
		put_node(j, node, dir, name, &st, true);
	}
	name_it(j, node, parent, name, S_ISDIR(st.st_mode));
	if (S_ISDIR(st.st_mode)) {
		int fd = openat(dir, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);

		if (fd < 0)
			fail(-errno, name);
		follow_dir(j, fd, node);
		(void)close(fd);
	}
}

/* ---- what is gone ---- */

struct missing {
	struct journal *j;
	int fd;
	uint64_t dir;
};

static int note_missing(const char *name, size_t len, uint64_t node, void *userdata)
{
	const struct missing *m = userdata;
	struct missing below = {.j = m->j, .dir = node};
	char text[NODE_NAME_MAX + 1] = {0};
	struct index_node n;
	struct stat st;
	struct gone *g;
	int r;

	memcpy(text, name, len);
	if (fstatat(m->fd, text, &st, AT_SYMLINK_NOFOLLOW) < 0 ||
	    find_known(m->j, st.st_ino)->node != node) {
		g = calloc(1, sizeof(*g));
		g->parent = m->dir;
		g->node = node;
		memcpy(g->name, text, sizeof(text));
		g->next = m->j->gone;
		m->j->gone = g;
		return 0;
	}
	r = index_get_node(m->j->before, node, INDEX_NOW, &n);
	if (r < 0 || n.n.type != NODE_TYPE_DIRECTORY)
		return r;
	below.fd = openat(m->fd, text, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (below.fd < 0)
		return 0;
	r = index_list(m->j->before, node, NULL, 0, INDEX_NOW, note_missing, &below);
	(void)close(below.fd);
	return r;
}

/* Names that still hold what is not there; after all else, when moves are done. */
static void remove_gone(struct journal *j)
{
	struct index_txn *t = index_writer_txn(j->ix);
	struct gone *g;
	uint64_t node;

	apply_ops(j);
	while ((g = j->gone)) {
		j->gone = g->next;
		if (index_lookup(t, g->parent, g->name, strlen(g->name), INDEX_NOW, &node) >= 0 &&
		    node == g->node) {
			add_op(j, CHANGE_UNLINK, 0, g->parent, g->name)->evidence =
				EVIDENCE_ABSENT_;
			apply_ops(j);
		}
		free(g);
	}
}

uint64_t journal_follow(struct journal *j)
{
	int fd = open(j->src, O_RDONLY | O_DIRECTORY | O_CLOEXEC), r;
	struct missing m = {.j = j, .fd = fd, .dir = NODE_ROOT};
	struct index_node root;
	struct stat st;

	if (fd < 0 || fstat(fd, &st) < 0)
		fail(-errno, j->src);
	j->first_new = j->next_node;
	r = index_read_begin(j->ix, &j->before);
	if (r >= 0)
		r = index_begin(j->ix);
	if (r >= 0)
		r = index_get_node(j->before, NODE_ROOT, INDEX_NOW, &root);
	if (r < 0)
		fail(r, "index");
	if (!is_same(&root, &st))
		put_node(j, NODE_ROOT, fd, ".", &st, false);
	follow_dir(j, fd, NODE_ROOT);
	apply_ops(j);
	r = index_list(j->before, NODE_ROOT, NULL, 0, INDEX_NOW, note_missing, &m);
	if (r < 0)
		fail(r, "missing");
	remove_gone(j);
	finish_content(j); /* content is there before it can be seen */
	r = log_write(j->log);
	if (r >= 0)
		r = index_commit(j->ix);
	if (r < 0)
		fail(r, "commit");
	index_read_end(j->before);
	(void)close(fd);
	return log_last(j->log);
}

void journal_sync(struct journal *j)
{
	int r = log_sync(j->log);

	if (r < 0)
		fail(r, "sync");
}

/* ---- opening ---- */

static int make_dir(int dir, const char *name)
{
	int r = file_make_dir(dir, name);

	if (r >= 0)
		r = file_open_dir(dir, name);
	if (r < 0)
		fail(r, name);
	return r;
}

static uint64_t append(struct log *log, uint16_t type, const Limb__Record *rec,
		       struct log_record *ret)
{
	static uint8_t body[8192];
	int r;

	ret->type = type;
	ret->n = limb__record__pack(rec, body);
	ret->body = body;
	ret->time_ns = clock_real_ns();
	r = log_append(log, type, body, ret->n, ret->time_ns, &ret->seq);
	if (r >= 0)
		r = log_write(log);
	if (r < 0)
		fail(r, "append");
	memcpy(ret->chain, log_chain(log), sizeof(ret->chain));
	return ret->seq;
}

/* The brain's own log, which knows the environment by its name. */
static void register_env(int state_fd, const uint8_t id[16], const char *name)
{
	const struct log_ids ids = {.log_id = {2}, .brain_id = {3}, .term = 1};
	Limb__EnvironmentEvent e = LIMB__ENVIRONMENT_EVENT__INIT;
	Limb__Record rec = LIMB__RECORD__INIT;
	int brain = make_dir(state_fd, "brain"), fd = make_dir(brain, "log"), r;
	struct log_record lr;
	struct log *log;

	r = log_open(fd, &ids, LOG_CREATE, &log, NULL);
	if (r < 0)
		fail(r, "brain log");
	e.what = (char *)"created";
	e.id = (ProtobufCBinaryData){16, (uint8_t *)(uintptr_t)id};
	e.name = (char *)(uintptr_t)name;
	rec.body_case = LIMB__RECORD__BODY_ENVIRONMENT;
	rec.environment = &e;
	if (log_last(log) == 0)
		(void)append(log, RECORD_ENVIRONMENT, &rec, &lr);
	log_close(log);
	(void)close(fd);
	(void)close(brain);
}

static void add_incarnation(struct journal *j)
{
	Limb__Incarnation inc = LIMB__INCARNATION__INIT;
	Limb__Record rec = LIMB__RECORD__INIT;
	struct log_record lr;
	int r;

	inc.root = (char *)(uintptr_t)j->src;
	rec.incarnation = 1;
	rec.body_case = LIMB__RECORD__BODY_INCARNATION_START;
	rec.incarnation_start = &inc;
	(void)append(j->log, RECORD_INCARNATION, &rec, &lr);
	r = index_begin(j->ix);
	if (r >= 0)
		r = index_apply(j->ix, &lr);
	if (r >= 0)
		r = index_commit(j->ix);
	if (r < 0)
		fail(r, "incarnation");
}

/* What the tree holds from a run before. */
static int learn(const char *path, size_t len, const struct index_node *n, uint32_t same_as,
		 void *userdata)
{
	(void)path;
	(void)len;
	(void)same_as;
	set_known(userdata, n->n.inode, n->id);
	return 0;
}

static void open_index(struct journal *j)
{
	struct index_txn *t;
	int r;

	r = index_open(j->env_fd, INDEX_WRITE, j->log_fd, NULL, NULL, &j->ix);
	if (r >= 0)
		r = index_read_begin(j->ix, &t);
	if (r < 0)
		fail(r, "index");
	j->next_node = index_next_node(t);
	r = index_walk(t, NODE_ROOT, INDEX_NOW, learn, j);
	if (r < 0 && r != -ENAMETOOLONG)
		fail(r, "walk");
	index_read_end(t);
}

struct journal *journal_open(const char *state, const char *id_hex, const char *name,
			     const char *src)
{
	struct journal *j = calloc(1, sizeof(*j));
	struct log_ids ids = {.brain_id = {3}, .term = 1};
	struct stat st;
	int envs, stores, r;

	r = text_unhex(ids.log_id, sizeof(ids.log_id), id_hex);
	if (r >= 0)
		r = file_make_dirs(state);
	j->state_fd = r < 0 ? r : file_open_dir(AT_FDCWD, state);
	if (j->state_fd < 0 || stat(src, &st) < 0)
		fail(j->state_fd < 0 ? j->state_fd : -errno, "state");
	j->src = src;
	j->device = st.st_dev;
	register_env(j->state_fd, ids.log_id, name);
	envs = make_dir(j->state_fd, "envs");
	j->env_fd = make_dir(envs, id_hex);
	(void)close(envs);
	j->log_fd = make_dir(j->env_fd, "log");
	r = log_open(j->log_fd, &ids, LOG_CREATE, &j->log, NULL);
	if (r < 0)
		fail(r, "log");
	set_known(j, UINT64_MAX, 0);
	stores = make_dir(j->state_fd, "store");
	j->store_fd = make_dir(stores, "main");
	(void)close(stores);
	open_content(j, ids.log_id);
	open_index(j);
	if (log_last(j->log) == 0)
		add_incarnation(j);
	return j;
}

uint64_t journal_rebuild(struct journal *j)
{
	index_close(j->ix);
	if (unlinkat(j->env_fd, "index", 0) < 0)
		fail(-errno, "index");
	open_index(j);
	return log_last(j->log);
}

int journal_env_fd(const struct journal *j)
{
	return j->env_fd;
}

void journal_close(struct journal *j)
{
	content_writer_free(j->writer);
	frame_builder_free(j->frames);
	index_close(j->ix);
	log_close(j->log);
	store_close(j->store);
	(void)close(j->pack_fd);
	(void)close(j->store_fd);
	(void)close(j->log_fd);
	(void)close(j->env_fd);
	(void)close(j->state_fd);
	free(j->known);
	free(j);
}
