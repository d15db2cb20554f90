/*
 * content-check.h - is the content that a log names there, and is it what it
 * was?  For limb-journal verify.
 *
 *	content_check_new(&c);
 *	log_verify(dir_fd, head, content_check_record, c, &report);
 *	content_check_run(c, store_fd, dir_fd, &report);
 *
 * The log is read first: what it names was durable before it was named, so a
 * limbd at work beside us is no fault.  Packs are read in whole, also what other
 * environments of the same owner have there.
 */
#ifndef JOURNAL_CONTENT_CHECK_H
#define JOURNAL_CONTENT_CHECK_H

#include "journal/log.h"

struct content_check;

int content_check_new(struct content_check **ret);
void content_check_free(struct content_check *c);
DEFINE_CLEANUP(struct content_check, content_check_free);

/* Notes the contents of a CHANGE record; log_each_fn. */
int content_check_record(const struct log_record *rec, void *check);
/* store_fd: STATE/store, one directory for each owner.  Adds problems of kind
 * content: of packs (the segment is the pack's name), and of records. */
int content_check_run(struct content_check *c, int store_fd, int log_fd, struct log_report *report);

#endif
