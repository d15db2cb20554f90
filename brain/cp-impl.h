/* What the files of cp share; nobody else includes it. */
#ifndef BRAIN_CP_IMPL_H
#define BRAIN_CP_IMPL_H

#include "brain/env.h"
#include "brain/verb.h"

enum {
	CP_STEP = 1 << 20,
	CP_SYNC_MS = 60000,
	CP_LOOK_MS = 10000, /* then what the journal has is read: something never settles there */
};

/* One file or directory of the host, by paths below the two tops. */
struct item {
	char *path; /* below the tops; "" the top itself */
	mode_t mode;
};

struct copy {
	struct call *call;
	struct env *env;
	char *host, *inner; /* the tops */
	uint64_t files, bytes;
	struct item *items;
	size_t n_items, cap_items, at;

	/* into: the file under way */
	int fd;
	uint64_t offset;
	uint32_t push;
	uint64_t request;
	bool item_sent, from_stdin, into;
	struct buf frames;

	/* into one that is away: what is to be there, by item */
	struct cp_thing *things;
	size_t wanted; /* not durable yet */
	uint64_t wanted_seq;

	/* out */
	uint64_t point; /* INDEX_NOW, or as it was then */
	bool to_stdout, drained_wait, out_over;
	bool unsynced;	   /* it may be an older version */
	uint64_t changing; /* files of which it holds several moments, maybe: they never rested */
	struct content_ref ref;

	uv_work_t work;
	bool working;	  /* into: a thread has it; it is not freed before that is over */
	int ended;	  /* ... and this is why it will be */
	uv_timer_t pause; /* until the line has room */
	bool pause_made;
	int result;
	char problem[300];
};

void copy_fail(struct copy *c, int r, const char *what); /* answers, frees */
void copy_fail_inner(struct copy *c, int r);		 /* the same, because of its path there */
/* What copy_fail() says in place of `what`: cannot read '...'. */
void copy_problem(struct copy *c, const char *what, const char *path);
void copy_ok(struct copy *c, uint64_t seq);
char *cp_join(const char *a, const char *b);	/* with a '/' where both are there */
void copy_queued(struct copy *c, uint64_t seq); /* the same: accepted, not applied */
int cp_queue_begin(struct copy *c);		/* cp-queue.c */
void cp_things_free(struct copy *c);
void cp_list(struct copy *c);	   /* in a helper thread: the host's side into items; result */
int cp_in_begin(struct copy *c);   /* cp-in.c */
void cp_out_begin(struct copy *c); /* cp-out.c */

#endif
