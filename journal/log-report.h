/*
 * log-report.h - what log_verify() gathers: problems, numbers that are missing
 * or out of their place, bodies that are blank.
 *
 * Walking the records (log-verify.c) says what stands where; only at the end is
 * it known which numbers stand nowhere and which blanks a purge explains.
 */
#ifndef JOURNAL_LOG_REPORT_H
#define JOURNAL_LOG_REPORT_H

#include "base/util.h"
#include "journal/log.h"

#define LOG_PROBLEMS_MAX 1000

struct log_place {
	char segment[64];
	uint64_t offset;
};

struct log_gap {
	uint64_t first, last;
	struct log_place place;
};

struct log_blank {
	uint64_t seq;
	struct log_place place;
};

struct log_notes {
	struct log_report *report;
	struct log_gap *gaps;
	struct log_blank *blanks;
	uint64_t *seen, *purged; /* numbers: out of their place; named by a PURGE */
	size_t n_gaps, n_blanks, n_seen, n_purged;
};

/* All return 0 or -ENOMEM. */
int log_notes_problem(struct log_notes *n, enum log_problem_kind kind, const struct log_place *at,
		      uint64_t seq, const char *fmt, ...) _printf_(5, 6);
int log_notes_gap(struct log_notes *n, const struct log_place *at, uint64_t first, uint64_t last);
int log_notes_seen(struct log_notes *n, uint64_t seq);
int log_notes_blank(struct log_notes *n, const struct log_place *at, uint64_t seq);
int log_notes_purged(struct log_notes *n, uint64_t seq);
/* Was the number missing where it belongs? */
bool log_notes_in_gap(const struct log_notes *n, uint64_t seq);
bool log_notes_was_seen(const struct log_notes *n, uint64_t seq);

/* Judges gaps and blanks, and sorts the problems by place. */
int log_notes_finish(struct log_notes *n);
void log_notes_done(struct log_notes *n); /* the report is the caller's */

#endif
