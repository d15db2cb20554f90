/*
 * store-mark.h - the file `state` beside an LMDB file: whether that may be opened.
 * For store*.c alone.
 *
 * A clean mark holds for ever: all is synced, nothing was written since. Another
 * holds while the kernel has not been restarted, for the very file that was marked
 * (a copy of a file at work may be torn).
 */
#ifndef JOURNAL_STORE_MARK_H
#define JOURNAL_STORE_MARK_H

#include <stdbool.h>
#include <stdint.h>

struct store_mark {
	uint32_t machine; /* what the layout of LMDB's file depends on */
	bool clean;
	uint8_t boot_id[16];
	uint64_t dev, ino; /* of data.mdb */
	uint64_t txn;	   /* LMDB's last one when it was marked */
};

/* -ENOENT: the index was not finished. -EBADMSG, -EPROTONOSUPPORT. */
int store_mark_read(int index_fd, struct store_mark *ret);
int store_mark_write(int index_fd, bool clean, uint64_t txn); /* durable */
bool store_mark_trusted(int index_fd, const struct store_mark *m);

#endif
