/*
 * points.h - the points that one log has, and what a POINT (point.h has the
 * grammar) means in it.
 *
 *	point_parse_all("before:j-...", &p);
 *	r = points_find(t, log_fd, &p, &at);		0, -ENOENT
 *	r = points_list(t, &l);  ...  points_done(&l);
 *
 * A position is a sequence number: the tree is seen as it was when that record
 * was the last.  Only the index is read, and for a time a little of the log.
 */
#ifndef JOURNAL_POINTS_H
#define JOURNAL_POINTS_H

#include "journal/index.h"
#include "journal/point.h"

#define POINTS_MAX 100000 /* looked at; more are not listed */

struct points_item {
	uint64_t seq; /* the position */
	int64_t time_ns;
	char label[POINT_WORD_MAX + 1], kind[16], job[POINT_WORD_MAX + 1]; /* "": none */
	bool consistent;
	bool automatic; /* not made by a person: HEAD~N counts these */
};

struct points {
	struct points_item *items; /* the newest first */
	size_t n, room;
};

/* POINT records, and the beginning and end of each job. */
int points_list(struct index_txn *t, struct points *ret);
void points_done(struct points *l);

/* The position that p means; -ENOENT: the log has none such. */
int points_find(struct index_txn *t, int log_fd, const struct point *p, uint64_t *ret_at);
/* The newest point in which nothing was changing; -ENOENT. */
int points_consistent(struct index_txn *t, uint64_t *ret_at);

#endif
