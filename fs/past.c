#include "fs/past.h"

#include <fcntl.h>
#include <jansson.h>
#include <pthread.h>
#include <stdio.h>
#include <sys/eventfd.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/sha256.h"
#include "base/text.h"
#include "fs/ids.h"
#include "fs/ops.h"
#include "fs/siphash.h"
#include "journal/points.h"
#include "journal/registry.h"

enum {
	IDLE_MS = 60000,
	TICK_MS = 10000,
	NAME_S = 1, /* for which the kernel may keep a name of the session's root */
};

struct past_env {
	struct past_env *next;
	uint8_t id[16];
	int dir_fd, log_fd;
	struct source *source;
	unsigned refs; /* trees, and look-ups under way */
};

struct past_tree {
	struct fs fs;
	struct past_tree *next;
	struct past_env *env; /* NULL: the only tree */
	uint8_t env_id[16];
	char *name, *target; /* as it was looked up; of a link: where it leads */
	bool settled;	     /* the point cannot come to mean another position */
	struct stat st;	     /* of the root, or the link */
	uint64_t refs;	     /* ids, and requests under way */
};

struct past {
	struct fs session;
	int state_fd, envs_fd, brain_log_fd, fresh_fd;
	uint8_t key[16];
	struct contents *contents;
	struct dirs *dirs;
	struct timespec since;
	pthread_mutex_t registry_lock;
	struct registry *registry; /* NULL: not read yet */
	atomic_bool busy;	   /* something was asked since the last tick */
	pthread_mutex_t lock;	   /* of all below, and of what hangs there */
	struct past_env *envs;
	struct past_tree *trees, *only;
	struct ids *ids;
	uint64_t spaces;
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

static void env_free(struct past_env *e)
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
		env_free(e);
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

/* Under the lock. */
static struct past_tree *tree_new(struct past *p, struct source *source,
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

static int stat_root(const struct past_tree *t, struct index_txn *txn, struct stat *ret)
{
	struct index_node n;
	int r = index_get_node(txn, NODE_ROOT, t->fs.at, &n);

	return r < 0 ? r : ops_stat(&t->fs, txn, &n, 0, ret);
}

int past_show_tree(struct past *p, struct source *source, const uint8_t env_id[16],
		   const struct attr_rules *rules, uint64_t at)
{
	struct past_tree *t = tree_new(p, source, rules, env_id, at);
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
	r = stat_root(t, txn, &t->st);
	source_end(source, txn);
	return r;
}

/* ---- what is known ---- */

static void tree_unref(struct past *p, struct past_tree *t)
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

static void note_use(struct past *p)
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
	note_use(p);
	return 0;
}

void past_put(struct past *p, struct spot *s)
{
	(void)pthread_mutex_lock(&p->lock);
	tree_unref(p, tree_of(s->fs));
	(void)pthread_mutex_unlock(&p->lock);
}

static int hold(struct past *p, struct past_tree *t, uint64_t node, uint64_t depth, uint64_t parent,
		fuse_ino_t *ret_ino)
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
	r = hold(p, tree_of(dir->fs), n->id, depth, dir->node, ret_ino);
	(void)pthread_mutex_unlock(&p->lock);
	return r;
}

void past_forget(struct past *p, fuse_ino_t ino, uint64_t count)
{
	struct ids_key key;

	(void)pthread_mutex_lock(&p->lock);
	if (ids_forget(p->ids, ino, count, &key))
		tree_unref(p, key.tree);
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

/* ---- environments ---- */

static int find_id(struct past *p, const char *name, uint8_t ret_id[16], bool *ret_removed)
{
	int r = 0;

	(void)pthread_mutex_lock(&p->registry_lock);
	if (!p->registry)
		r = registry_open(p->brain_log_fd, &p->registry);
	if (r >= 0)
		r = registry_lookup(p->registry, name, ret_id, ret_removed);
	/* A reader that met damage is of no more use. */
	if (r < 0 && r != -ENOENT) {
		registry_close(p->registry);
		p->registry = NULL;
	}
	(void)pthread_mutex_unlock(&p->registry_lock);
	return r;
}

/* Under the lock, as no index may be opened twice. */
static int env_open(struct past *p, const uint8_t id[16], struct past_env **ret)
{
	struct past_env *e = calloc(1, sizeof(*e));
	char hex[33];
	int r;

	if (!e)
		return -ENOMEM;
	memcpy(e->id, id, sizeof(e->id));
	text_hex(hex, id, sizeof(e->id));
	e->log_fd = -1;
	r = e->dir_fd = file_open_dir(p->envs_fd, hex);
	if (r >= 0)
		r = e->log_fd = file_open_dir(e->dir_fd, "log");
	if (r >= 0)
		r = source_open(e->dir_fd, p->contents, SOURCE_LAZY, &e->source);
	if (r < 0) {
		env_free(e);
		return r;
	}
	e->next = p->envs;
	p->envs = e;
	*ret = e;
	return 0;
}

static int env_get(struct past *p, const uint8_t id[16], bool removed, struct past_env **ret)
{
	struct past_env *e;
	int r = 0;

	(void)pthread_mutex_lock(&p->lock);
	for (e = p->envs; e && memcmp(e->id, id, sizeof(e->id)) != 0; e = e->next)
		;
	if (!e)
		r = env_open(p, id, &e);
	if (r >= 0) {
		if (removed)
			source_set_kept(e->source);
		e->refs++;
		*ret = e;
	}
	(void)pthread_mutex_unlock(&p->lock);
	return r;
}

static void env_put(struct past *p, struct past_env *e)
{
	(void)pthread_mutex_lock(&p->lock);
	e->refs--;
	(void)pthread_mutex_unlock(&p->lock);
}

/* As limbd keeps it; look where that cannot be read. */
static bool is_trusted(const struct past_env *e)
{
	_cleanup_(buf_done) struct buf b = BUF_INIT(0);
	bool trusted = false;
	json_t *o;

	if (file_read(e->dir_fd, "env.json", &b) < 0)
		return false;
	o = json_loadb((const char *)buf_data(&b), buf_len(&b), 0, NULL);
	trusted = json_is_true(json_object_get(o, "work_mode"));
	json_decref(o);
	return trusted;
}

/* ---- names ---- */

struct wanted {
	char env_name[NODE_NAME_MAX + 1];
	struct point point;
	bool consistent; /* in place of point */
	bool link;
	struct attr_rules rules;
};

static bool parse_name(const char *name, struct wanted *w)
{
	const char *at = strchr(name, '@');

	if (!at || at == name || (size_t)(at - name) >= sizeof(w->env_name))
		return false;
	memcpy(w->env_name, name, (size_t)(at - name));
	w->env_name[at - name] = '\0';
	w->consistent = strcmp(at + 1, "consistent") == 0;
	if (!w->consistent && !point_parse_all(at + 1, &w->point))
		return false;
	w->link = w->consistent || w->point.kind == POINT_HEAD || w->point.kind == POINT_NOW;
	return true;
}

/* Under the lock; at 0: whatever it is, if that is settled. */
static struct past_tree *tree_find(struct past *p, const struct past_env *e, const char *name,
				   const struct wanted *w, uint64_t at)
{
	struct past_tree *t;

	for (t = p->trees; t; t = t->next)
		if (t->env == e && t->fs.rules.look == w->rules.look &&
		    (at ? t->fs.at == at : t->settled) && strcmp(t->name, name) == 0)
			break;
	if (t)
		t->refs++;
	return t;
}

/* The tree of that name at that position, one reference more. */
static int tree_make(struct past *p, struct past_env *e, const char *name, const struct wanted *w,
		     struct index_txn *txn, uint64_t at, struct past_tree **ret)
{
	struct past_tree *t;
	int r = 0;

	(void)pthread_mutex_lock(&p->lock);
	t = tree_find(p, e, name, w, at);
	if (!t && (t = tree_new(p, e->source, &w->rules, e->id, at))) {
		e->refs++;
		t->env = e;
		t->name = strdup(name);
		t->settled = w->point.kind == POINT_SEQ || w->point.kind == POINT_BEFORE_JOB ||
			     w->point.kind == POINT_AFTER_JOB ||
			     (w->point.kind == POINT_TIME && at < index_seq(txn));
		if (w->link) {
			t->settled = false;
			if (asprintf(&t->target, "%s@%llu", w->env_name, (unsigned long long)at) <
			    0)
				t->target = NULL;
		}
		r = t->name && (t->target || !w->link) ? stat_root(t, txn, &t->st) : -ENOMEM;
		if (r < 0)
			tree_unref(p, t);
	} else if (!t) {
		r = -ENOMEM;
	}
	(void)pthread_mutex_unlock(&p->lock);
	if (r >= 0)
		*ret = t;
	return r;
}

static int resolve(struct past *p, struct past_env *e, const char *name, const struct wanted *w,
		   struct past_tree **ret)
{
	struct index_txn *txn;
	uint64_t seq, at;
	int r;

	(void)pthread_mutex_lock(&p->lock);
	*ret = tree_find(p, e, name, w, 0);
	(void)pthread_mutex_unlock(&p->lock);
	if (*ret)
		return 0;
	note_use(p);
	r = source_begin(e->source, &txn, &seq);
	if (r < 0)
		return r;
	r = w->consistent ? points_consistent(txn, &at)
			  : points_find(txn, e->log_fd, &w->point, &at);
	if (r >= 0)
		r = tree_make(p, e, name, w, txn, at, ret);
	source_end(e->source, txn);
	return r;
}

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

static void stat_link(const struct past *p, const struct past_tree *t, uint64_t ino,
		      struct stat *ret)
{
	stat_own(p, S_IFLNK | 0777, ret);
	ret->st_ino = ino;
	ret->st_size = (off_t)strlen(t->target);
}

int past_find(struct past *p, const char *name, struct fuse_entry_param *ret)
{
	struct wanted w = {0};
	struct past_tree *t;
	struct past_env *e;
	uint8_t id[16];
	bool removed;
	int r;

	if (!parse_name(name, &w))
		return -ENOENT;
	r = find_id(p, w.env_name, id, &removed);
	if (r >= 0)
		r = env_get(p, id, removed, &e);
	if (r < 0)
		return r;
	attr_rules_init(&w.rules, removed || !is_trusted(e), geteuid(), getegid());
	r = resolve(p, e, name, &w, &t);
	if (r >= 0) {
		(void)pthread_mutex_lock(&p->lock);
		r = hold(p, t, NODE_ROOT, 0, NODE_ROOT, &ret->ino);
		if (r >= 0 && t->target)
			stat_link(p, t, ret->ino, &ret->attr);
		else if (r >= 0)
			ret->attr = t->st;
		tree_unref(p, t);
		(void)pthread_mutex_unlock(&p->lock);
	}
	env_put(p, e);
	ret->entry_timeout = NAME_S;
	ret->attr_timeout = OPS_FOREVER_S;
	return r;
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
			stat_link(p, t, ino, ret);
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
			env_free(e);
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
