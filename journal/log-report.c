#include "journal/log-report.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>

static const char *const problem_names[] = {
	[LOG_PROBLEM_CHECKSUM] = "checksum",
	[LOG_PROBLEM_CHAIN] = "chain",
	[LOG_PROBLEM_MISSING_RECORD] = "missing_record",
	[LOG_PROBLEM_SWAPPED] = "swapped",
	[LOG_PROBLEM_MISSING_SEGMENT] = "missing_segment",
	[LOG_PROBLEM_MISSING_TAIL] = "missing_tail",
	[LOG_PROBLEM_ROLLED_BACK] = "rolled_back",
	[LOG_PROBLEM_BAD_HEADER] = "bad_header",
	[LOG_PROBLEM_CONTENT] = "content",
};

const char *log_problem_name(enum log_problem_kind kind)
{
	return problem_names[kind];
}

/* Room for one more at the end of a list: its size doubles at powers of two. */
static int grow(void *list, size_t n, size_t size)
{
	void **p = list;
	void *more;

	if (n & (n - 1))
		return 0;
	more = reallocarray(*p, n ? n * 2 : 1, size);
	if (!more)
		return -ENOMEM;
	*p = more;
	return 0;
}

int log_notes_problem(struct log_notes *n, enum log_problem_kind kind, const struct log_place *at,
		      uint64_t seq, const char *fmt, ...)
{
	struct log_report *rep = n->report;
	struct log_problem *p;
	va_list ap;
	int r;

	if (rep->n_problems >= LOG_PROBLEMS_MAX) {
		rep->problems_cut = true;
		return 0;
	}
	r = grow(&rep->problems, rep->n_problems, sizeof(*p));
	if (r < 0)
		return r;
	p = &rep->problems[rep->n_problems++];
	*p = (struct log_problem){.kind = kind, .offset = at->offset, .seq = seq};
	memcpy(p->segment, at->segment, sizeof(p->segment));
	va_start(ap, fmt);
	(void)vsnprintf(p->detail, sizeof(p->detail), fmt, ap);
	va_end(ap);
	return 0;
}

int log_notes_gap(struct log_notes *n, const struct log_place *at, uint64_t first, uint64_t last)
{
	int r = grow(&n->gaps, n->n_gaps, sizeof(*n->gaps));

	if (r < 0)
		return r;
	n->gaps[n->n_gaps++] = (struct log_gap){.first = first, .last = last, .place = *at};
	return 0;
}

static int add_number(uint64_t **list, size_t *n, uint64_t seq)
{
	int r = grow(list, *n, sizeof(**list));

	if (r < 0)
		return r;
	(*list)[(*n)++] = seq;
	return 0;
}

int log_notes_seen(struct log_notes *n, uint64_t seq)
{
	return add_number(&n->seen, &n->n_seen, seq);
}

int log_notes_purged(struct log_notes *n, uint64_t seq)
{
	return add_number(&n->purged, &n->n_purged, seq);
}

int log_notes_blank(struct log_notes *n, const struct log_place *at, uint64_t seq)
{
	int r = grow(&n->blanks, n->n_blanks, sizeof(*n->blanks));

	if (r < 0)
		return r;
	n->blanks[n->n_blanks++] = (struct log_blank){.seq = seq, .place = *at};
	return 0;
}

bool log_notes_in_gap(const struct log_notes *n, uint64_t seq)
{
	for (size_t i = 0; i < n->n_gaps; i++) {
		if (seq >= n->gaps[i].first && seq <= n->gaps[i].last)
			return true;
	}
	return false;
}

bool log_notes_was_seen(const struct log_notes *n, uint64_t seq)
{
	for (size_t i = 0; i < n->n_seen; i++) {
		if (n->seen[i] == seq)
			return true;
	}
	return false;
}

static int compare_numbers(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return x < y ? -1 : x > y;
}

static void sort_numbers(uint64_t *list, size_t n)
{
	if (n > 0)
		qsort(list, n, sizeof(*list), compare_numbers);
}

static bool has_number(const uint64_t *list, size_t n, uint64_t seq)
{
	return n > 0 && bsearch(&seq, list, n, sizeof(*list), compare_numbers);
}

static int missing(struct log_notes *n, const struct log_place *at, uint64_t first, uint64_t last)
{
	if (first > last)
		return 0;
	if (first == last)
		return log_notes_problem(n, LOG_PROBLEM_MISSING_RECORD, at, first,
					 "record %" PRIu64 " is missing", first);
	return log_notes_problem(n, LOG_PROBLEM_MISSING_RECORD, at, first,
				 "records %" PRIu64 " to %" PRIu64 " are missing", first, last);
}

/* What stands at another place is not missing. */
static int judge_gap(struct log_notes *n, const struct log_gap *g)
{
	uint64_t first = g->first;
	int r;

	for (size_t i = 0; i < n->n_seen; i++) {
		uint64_t seq = n->seen[i];

		if (seq < first || seq > g->last)
			continue;
		r = missing(n, &g->place, first, seq - 1);
		if (r < 0)
			return r;
		first = seq + 1;
	}
	return missing(n, &g->place, first, g->last);
}

static int judge_blank(struct log_notes *n, const struct log_blank *b)
{
	if (has_number(n->purged, n->n_purged, b->seq))
		return 0;
	n->report->records--;
	return log_notes_problem(
		n, LOG_PROBLEM_CHECKSUM, &b->place, b->seq,
		"the body of record %" PRIu64 " is blank, and no purge record names it", b->seq);
}

static int compare_problems(const void *a, const void *b)
{
	const struct log_problem *x = a, *y = b;
	int r = strcmp(x->segment, y->segment);

	if (r != 0)
		return r;
	return x->offset < y->offset ? -1 : x->offset > y->offset;
}

int log_notes_finish(struct log_notes *n)
{
	int r;

	sort_numbers(n->seen, n->n_seen);
	sort_numbers(n->purged, n->n_purged);
	for (size_t i = 0; i < n->n_gaps; i++) {
		r = judge_gap(n, &n->gaps[i]);
		if (r < 0)
			return r;
	}
	for (size_t i = 0; i < n->n_blanks; i++) {
		r = judge_blank(n, &n->blanks[i]);
		if (r < 0)
			return r;
	}
	if (n->report->n_problems > 0)
		qsort(n->report->problems, n->report->n_problems, sizeof(struct log_problem),
		      compare_problems);
	return 0;
}

void log_notes_done(struct log_notes *n)
{
	free(n->gaps);
	free(n->blanks);
	free(n->seen);
	free(n->purged);
}

void log_report_done(struct log_report *rep)
{
	if (!rep)
		return;
	free(rep->problems);
	*rep = (struct log_report){0};
}
