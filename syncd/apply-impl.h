/* What the files of apply.h share; nobody else includes it. */
#ifndef SYNCD_APPLY_IMPL_H
#define SYNCD_APPLY_IMPL_H

#include "base/buf.h"
#include "journal/node.h"
#include "syncd/sync.h"
#include "wire/wire.pb-c.h"

#define APPLY_TEMP_BYTES 23 /* ".limb-", 16 hex digits, "~" */

/* Bytes that came for an APPLY. */
struct push {
	uint32_t number; /* 0: free */
	int fd;
	uint64_t size_bytes;
	bool last;
	int error;
};

struct change {
	const Limbwire__Apply *m;
	struct sync *sync;
	int root;
	char *path, *to_path;
	struct node node; /* attributes, if there are any */
	struct buf xattrs;
	struct push *push;
	bool based; /* there is a base_sha256 */
};

void apply_temp_name(char out[APPLY_TEMP_BYTES + 1]);
int apply_rename(int from_dir, const char *from, int to_dir, const char *to, unsigned flags);
/* Puts what stands under a temporary name in the place of `name`; never of a directory. */
int apply_move_into_place(int dir, const char *temp, const char *name, bool no_replace);
/* 0, or why what was asked for could not be given. */
int apply_give_attrs(const struct change *c, int dir, const char *name, int fd);
/* The shape of st is what was seen before: nobody wrote to it since. */
bool apply_same_file(const struct stat *a, const struct stat *b);

int apply_put(const struct change *c, int dir, const char *name); /* apply-put.c */
/* Is this a file with the content that the change was made from? 0, -ESTALE. */
int apply_hash_check(const struct change *c, int dir, const char *name);
/* apply-change.c: the change is read from its message and made; and dropped. */
int apply_change_read(struct change *c, const Limbwire__Apply *m, struct sync *sync,
		      struct push *push, const char **ret_why);
int apply_change_make(const struct change *c);
/* The directory of a path, and its name there; of "", the root, that is "." */
int apply_change_dir(const struct change *c, const char *path, int *ret_dir, const char **ret_name);
void apply_change_done(struct change *c);

#endif
