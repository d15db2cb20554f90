/*
 * log-head.h - the file `head` beside the segments (FORMAT 2), for the writer.
 *
 * Two slots, written in turn and in place: renewing costs one write into the
 * page cache and no metadata, so a sync that renews it is no slower.  It is
 * synced at close and before records are dropped; in between it may lag.
 */
#ifndef JOURNAL_LOG_HEAD_H
#define JOURNAL_LOG_HEAD_H

#include "journal/log.h"

struct log_head_file {
	int fd;
	unsigned next_slot;
};

/* Makes the file when it is missing.  *ret_head: seq 0 where it says nothing,
 * being new or damaged. */
int log_head_open(int dir_fd, struct log_head_file *ret, struct log_head *ret_head);
void log_head_done(struct log_head_file *f);
int log_head_put(struct log_head_file *f, const struct log_head *head);
int log_head_sync(struct log_head_file *f);

#endif
