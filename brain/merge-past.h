/*
 * merge-past.h - what a log says of the merges of one fork: how far each came, and what
 * became of their changes.
 *
 * A merge is a DECISION `merge` (key: the fork's id; value: the numbers of its changes, up to
 * which record of the fork's log, which paths), and its INTENTs behind that.  One whose
 * INTENTs are not all there never was (queue-merge.c ends them as `withdrawn`).
 *
 * The log is read from the fork's point on each time: it is the truth, merges are rare, and so
 * no table has to be kept for them.
 */
#ifndef BRAIN_MERGE_PAST_H
#define BRAIN_MERGE_PAST_H

#include <stdbool.h>
#include <stdint.h>

#include "journal/record.pb-c.h"

struct merge_mark {
	uint64_t first, last; /* numbers of its changes */
	uint64_t to;	      /* the fork as it was with this record of its own log */
	char **paths;	      /* below the root; none: all */
	size_t n_paths;
	uint64_t found; /* INTENTs of it in the log */
};

/* A node of the fork that a change was to make. */
struct merge_made {
	uint64_t node, change;
	bool made; /* else it was lost, or waits */
};

struct merge_past {
	char fork[33]; /* hex */
	struct merge_mark *marks;
	size_t n_marks;
	struct merge_made *made; /* by change, rising */
	size_t n_made, cap_made;
	Limb__Record **ends; /* INTENT_ENDs, of merges and others */
	size_t n_ends, cap_ends;
};

/* fork NULL: whose merge has `last` as its last change; there may be none. Any thread. */
int merge_past_read(int log_fd, uint64_t from_seq, const char *fork, uint64_t last,
		    struct merge_past *ret);
/* Is it the end of a change of this fork? */
bool merge_past_is_own(const struct merge_past *p, const Limb__IntentEnd *e);
void merge_past_done(struct merge_past *p);

/* The value of such a DECISION; malloc'ed, NULL without memory. */
char *merge_mark_text(const struct merge_mark *m);

#endif
