/* What the files of past.h share; nobody else includes it. */
#ifndef FS_PAST_IMPL_H
#define FS_PAST_IMPL_H

#include <pthread.h>
#include <stdatomic.h>
#include <sys/stat.h>

#include "fs/past.h"
#include "journal/registry.h"

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

/* ---- past.c; all but the last two under the lock ---- */

void past_env_free(struct past_env *e);
/* One reference. NULL: no memory. */
struct past_tree *past_tree_new(struct past *p, struct source *source,
				const struct attr_rules *rules, const uint8_t env_id[16],
				uint64_t at);
void past_tree_unref(struct past *p, struct past_tree *t);
/* A node of it, for the kernel. */
int past_hold_node(struct past *p, struct past_tree *t, uint64_t node, uint64_t depth,
		   uint64_t parent, fuse_ino_t *ret_ino);
void past_stat_link(const struct past *p, const struct past_tree *t, uint64_t ino,
		    struct stat *ret);
int past_stat_root(const struct past_tree *t, struct index_txn *txn, struct stat *ret);
void past_note_use(struct past *p); /* past_tick() is wanted */

#endif
