/*
 * log-private.h - what tests need of the writer beside log.h.
 */
#ifndef JOURNAL_LOG_PRIVATE_H
#define JOURNAL_LOG_PRIVATE_H

#include "journal/log.h"

/* Seals segments at another size than SEGMENT_SEAL_BYTES, from now on. */
void log_set_seal_bytes(struct log *log, uint64_t bytes);
/* `head` is renewed at each sync, not once a second. */
void log_set_head_interval(struct log *log, uint64_t interval_ms);

#endif
