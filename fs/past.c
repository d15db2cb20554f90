#include "fs/past-impl.h"

#include <sys/eventfd.h>

#include "base/file.h"
#include "fs/ids.h"
#include "fs/ops.h"
#include "fs/siphash.h"

enum {
	IDLE_MS = 60000,
	TICK_MS = 10000,
};

static struct past_tree *tree_of(const struct fs *fs)
{
	return container_of(fs, struct past_tree, fs);
}

/* ---- made ---- */

int past_new(int state_fd, struct past **ret)
{
	_cleanup_(past_freep) struct past *p = calloc(1, sizeof(*p));
	int r;

	if (!p)
		return -ENOMEM;
	p->envs_fd = p->brain_log_fd = -1;
	p->state_fd = state_fd;
	(void)pthread_mutex_init(&p->lock, NULL);
	(void)pthread_mutex_init(&p->registry_lock, NULL);
	(void)clock_gettime(CLOCK_REALTIME, &p->since);
	random_bytes(p->key, sizeof(p->key));
	p->session.past = p;
	p->session.at = INDEX_NOW;
	p->session.state_fd = state_fd;
	atomic_store(&p->session.status.daemon, true);
	/* Of several environments some are not trusted. */
	attr_rules_init(&p->session.rules, true, geteuid(), getegid());
	p->fresh_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (p->fresh_fd < 0)
		return -errno;
	r = ids_new(&p->ids);
	if (r >= 0)
		r = dirs_new(&p->dirs);
	if (r < 0)
		return r;
	*ret = take_ptr(&p);
	return 0;
}

void past_env_free(struct past_env *e)
{
	source_close(e->source);
	if (e->dir_fd >= 0)
		(void)close(e->dir_fd);
	if (e->log_fd >= 0)
		(void)close(e->log_fd);
	free(e);
}

static void tree_free(struct past_tree *t)
{
	free(t->name);
	free(t->target);
	free(t);
}

void past_free(struct past *p)
{
	struct past_tree *t;
	struct past_env *e;

	if (!p)
		return;
	while ((t = p->trees)) {
		p->trees = t->next;
		tree_free(t);
	}
	while ((e = p->envs)) {
		p->envs = e->next;
		past_env_free(e);
	}
	registry_close(p->registry);
	ids_free(p->ids);
	dirs_free(p->dirs);
	(void)pthread_mutex_destroy(&p->lock);
	(void)pthread_mutex_destroy(&p->registry_lock);
	for (size_t i = 0; i < 3; i++) {
		int fd = (const int[]){p->envs_fd, p->brain_log_fd, p->fresh_fd}[i];
		if (fd >= 0)
			(void)close(fd);
	}
	free(p);
}

struct fs *past_session(struct past *p)
{
	return &p->session;
}

int past_show_brain(struct past *p, struct contents *contents)
{
	p->contents = p->session.contents = contents;
	p->envs_fd = file_open_dir(p->state_fd, "envs");
	if (p->envs_fd < 0)
		return p->envs_fd;
	p->brain_log_fd = file_open_dir(p->state_fd, "brain/log");
	return p->brain_log_fd < 0 ? p->brain_log_fd : 0;
}

struct past_tree *past_tree_new(struct past *p, struct source *source,
				const struct attr_rules *rules, const uint8_t env_id[16],
				uint64_t at)
{
	struct past_tree *t = calloc(1, sizeof(*t));

	if (!t)
		return NULL;
	memcpy(t->env_id, env_id, sizeof(t->env_id));
	t->fs.at = at;
	t->fs.past = p;
	t->fs.space = ++p->spaces;
	t->fs.rules = *rules;
	t->fs.source = source;
	t->fs.dirs = p->dirs;
	t->fs.state_fd = p->state_fd;
	t->refs = 1;
	t->next = p->trees;
	p->trees = t;
	return t;
}

int past_stat_root(const struct past_tree *t, struct index_txn *txn, struct stat *ret)
{
	struct index_node n;
	int r = index_get_node(txn, NODE_ROOT, t->fs.at, &n);

	return r < 0 ? r : ops_stat(&t->fs, txn, &n, 0, ret);
}

int past_show_tree(struct past *p, struct source *source, const uint8_t env_id[16],
		   const struct attr_rules *rules, uint64_t at)
{
	struct past_tree *t = past_tree_new(p, source, rules, env_id, at);
	struct index_txn *txn;
	uint64_t seq;
	int r;

	if (!t)
		return -ENOMEM;
	p->session.rules = *rules;
	p->session.source = source;
	p->only = t;
	r = source_begin(source, &txn, &seq);
	if (r < 0)
		return r;
	r = past_stat_root(t, txn, &t->st);
	source_end(source, txn);
	return r;
}

/* ---- what is known ---- */

void past_tree_unref(struct past *p, struct past_tree *t)
{
	struct past_tree **at = &p->trees;

	if (--t->refs)
		return;
	while (*at != t)
		at = &(*at)->next;
	*at = t->next;
	if (t->env)
		t->env->refs--;
	tree_free(t);
}

void past_note_use(struct past *p)
{
	if (!atomic_exchange(&p->busy, true))
		(void)eventfd_write(p->fresh_fd, 1);
}

int past_get(struct past *p, fuse_ino_t ino, struct spot *ret)
{
	const struct ids_entry *e;
	struct past_tree *t = NULL;
	struct spot s = {.node = NODE_ROOT, .parent = NODE_ROOT};

	(void)pthread_mutex_lock(&p->lock);
	if (ino == FUSE_ROOT_ID) {
		t = p->only;
	} else if ((e = ids_get(p->ids, ino))) {
		t = e->key.tree;
		s = (struct spot){.node = e->key.node, .parent = e->parent, .depth = e->key.depth};
	}
	if (t)
		t->refs++;
	(void)pthread_mutex_unlock(&p->lock);
	if (!t)
		return -ESTALE;
	s.fs = &t->fs;
	*ret = s;
	past_note_use(p);
	return 0;
}

void past_put(struct past *p, struct spot *s)
{
	(void)pthread_mutex_lock(&p->lock);
	past_tree_unref(p, tree_of(s->fs));
	(void)pthread_mutex_unlock(&p->lock);
}

int past_hold_node(struct past *p, struct past_tree *t, uint64_t node, uint64_t depth,
		   uint64_t parent, fuse_ino_t *ret_ino)
{
	const struct ids_key key = {.tree = t, .node = node, .depth = depth};
	bool fresh;
	int r = ids_hold(p->ids, &key, parent, ret_ino, &fresh);

	if (r >= 0 && fresh)
		t->refs++;
	return r;
}

int past_hold(const struct spot *dir, const struct index_node *n, fuse_ino_t *ret_ino)
{
	struct past *p = dir->fs->past;
	uint64_t depth = 0;
	int r;

	/* A link with several names leads elsewhere from each depth. */
	if (n->n.type == NODE_TYPE_DIRECTORY)
		depth = dir->depth + 1;
	else if (n->n.type == NODE_TYPE_SYMLINK)
		depth = dir->depth;
	(void)pthread_mutex_lock(&p->lock);
	r = past_hold_node(p, tree_of(dir->fs), n->id, depth, dir->node, ret_ino);
	(void)pthread_mutex_unlock(&p->lock);
	return r;
}

void past_forget(struct past *p, fuse_ino_t ino, uint64_t count)
{
	struct ids_key key;

	(void)pthread_mutex_lock(&p->lock);
	if (ids_forget(p->ids, ino, count, &key))
		past_tree_unref(p, key.tree);
	(void)pthread_mutex_unlock(&p->lock);
}

uint64_t past_inode(const struct fs *fs, const struct index_node *n)
{
	const struct past_tree *t = tree_of(fs);
	bool directory = n->n.type == NODE_TYPE_DIRECTORY;
	struct {
		uint8_t env_id[16];
		uint64_t node, version, directory;
	} what = {.node = n->id,
		  .version = directory ? t->fs.at : n->version,
		  .directory = directory};

	memcpy(what.env_id, t->env_id, sizeof(what.env_id));
	/* 0 and 1 mean something to others. */
	return (siphash(fs->past->key, &what, sizeof(what)) >> 2) + 2;
}

/* ---- the session's own ---- */

static void stat_own(const struct past *p, mode_t mode, struct stat *ret)
{
	*ret = (struct stat){.st_mode = mode,
			     .st_ino = FUSE_ROOT_ID,
			     .st_nlink = 1,
			     .st_uid = geteuid(),
			     .st_gid = getegid(),
			     .st_mtim = p->since,
			     .st_ctim = p->since,
			     .st_atim = p->since};
}

void past_stat_link(const struct past *p, const struct past_tree *t, uint64_t ino, struct stat *ret)
{
	stat_own(p, S_IFLNK | 0777, ret);
	ret->st_ino = ino;
	ret->st_size = (off_t)strlen(t->target);
}

enum past_own past_own(struct past *p, fuse_ino_t ino, struct stat *ret, char **ret_target)
{
	enum past_own own = PAST_TREE;
	const struct ids_entry *e;

	if (ino == FUSE_ROOT_ID) {
		stat_own(p, S_IFDIR | 0500, ret);
		return p->only ? PAST_TREE : PAST_ROOT;
	}
	(void)pthread_mutex_lock(&p->lock);
	e = ids_get(p->ids, ino);
	if (e) {
		const struct past_tree *t = e->key.tree;

		if (t->target) {
			own = PAST_LINK;
			past_stat_link(p, t, ino, ret);
			*ret_target = strdup(t->target);
		}
	}
	(void)pthread_mutex_unlock(&p->lock);
	return own;
}

/* ---- idle ---- */

int past_fd(const struct past *p)
{
	return p->fresh_fd;
}

static bool is_gone(const struct past_env *e)
{
	struct stat st;

	return fstat(e->dir_fd, &st) < 0 || st.st_nlink == 0;
}

int past_tick(struct past *p)
{
	struct past_env **at = &p->envs, *e;
	eventfd_t n;
	bool open = false;

	(void)eventfd_read(p->fresh_fd, &n);
	/* First: who uses something from now on says so. */
	atomic_store(&p->busy, false);
	(void)pthread_mutex_lock(&p->lock);
	while ((e = *at)) {
		bool rests = !source_rest(e->source, is_gone(e) ? 0 : IDLE_MS);

		open |= !rests;
		if (rests && !e->refs) {
			*at = e->next;
			past_env_free(e);
		} else {
			at = &e->next;
		}
	}
	(void)pthread_mutex_unlock(&p->lock);
	if (open) {
		atomic_store(&p->busy, true);
		return TICK_MS;
	}
	if (p->contents)
		contents_rest(p->contents);
	return -1;
}
