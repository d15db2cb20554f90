/* What the file verbs share: a call whose reading is done by a helper thread. */
#ifndef BRAIN_FILE_IMPL_H
#define BRAIN_FILE_IMPL_H

#include "brain/env.h"
#include "brain/verb.h"

enum {
	FILE_EDIT_MAX = 16 << 20, /* a file that is edited or written at once */
};

struct file_call {
	struct call *call;
	struct env *env;
	char *path;  /* as asked, below the root */
	char *root;  /* of the environment */
	uint64_t at; /* INDEX_NOW, or a point */
	uv_work_t work;
	struct file_call *next;			  /* of those that wait for a thread */
	int (*run)(struct file_call *f);	  /* in the thread: fills result, or fails */
	void (*then)(struct file_call *f, int r); /* in the loop; NULL: answers */
	void (*done)(struct file_call *f);	  /* drops priv; may be NULL */
	void *priv;
	json_t *result;
	const char *code; /* a failure's, where it is not the errno's */
	char problem[400];
};

/* NULL: the call is answered. The call's "name", "path" and "point" are read. */
struct file_call *file_call_new(struct call *call, int (*run)(struct file_call *f));
/* Runs it in a helper thread. */
void file_call_go(struct file_call *f);
void file_call_fail(struct file_call *f, int r); /* answers, frees */
void file_call_ok(struct file_call *f);		 /* answers with result, frees */

/* In the thread. -E... with problem set. The node is that of an entry that is there. */
int file_find(struct file_call *f, struct index_txn *t, bool follow, struct buf *path,
	      struct index_node *ret);
/* What every answer begins with: environment, seq, path, and the age of what is away. */
json_t *file_answer(struct file_call *f, struct index_txn *t, const struct buf *path);

#endif
