/*
 * journal-impl.h - what the rig's journal*.c share.
 */
#ifndef TESTS_VIEW_RIG_JOURNAL_IMPL_H
#define TESTS_VIEW_RIG_JOURNAL_IMPL_H

#include <sys/stat.h>

#include "journal/index.h"
#include "journal/log.h"
#include "journal/pack.h"
#include "journal/store.h"
#include "tests/functional/view-rig/rig.h"

struct known {
	uint64_t inode, node;
};

struct gone {
	struct gone *next;
	uint64_t parent, node;
	char name[NODE_NAME_MAX + 1];
};

struct journal {
	const char *src;
	dev_t device;
	int state_fd, env_fd, log_fd, store_fd;
	struct log *log;
	struct index *ix;
	struct index_txn *before; /* the tree as it was */
	struct store *store;
	struct content_writer *writer;
	struct frame_builder *frames;
	uint8_t pack_id[16];
	int pack_fd;
	uint64_t pack_at;

	/* inode -> node of what is in the tree; open addressing */
	struct known *known;
	size_t n_known, room_known;
	struct gone *gone;

	struct change_op ops[CHANGE_OPS_MAX];
	size_t n_ops;
	struct {
		char name[NODE_NAME_MAX + 1], to_name[NODE_NAME_MAX + 1];
		uint8_t target[NODE_TARGET_MAX], *xattrs;
	} lent[CHANGE_OPS_MAX];
	uint64_t next_node, first_new; /* of this round: the others are in the tree */
};

/* ---- journal.c ---- */

struct known *find_known(struct journal *j, uint64_t inode);
void set_known(struct journal *j, uint64_t inode, uint64_t node);

/* ---- journal-content.c ---- */

void open_content(struct journal *j, const uint8_t id[16]);
void capture(struct journal *j, int dir, const char *name, struct content_ref *ret);
/* What was captured is in the store. */
void finish_content(struct journal *j);

#endif
