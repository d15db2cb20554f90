/*
 * index-mark.h - the file `index` beside the indexes: which index.N is the one,
 * and whether it may be opened. For index*.c alone.
 *
 * Commits are not synced. After a loss of power the file may be anything, and
 * LMDB does not survive reading that, so trust is decided outside of it: a clean
 * mark (all synced, nothing written since) holds for ever; another holds while
 * the kernel has not been restarted, and for the very file that was marked: a
 * copy of an index at work may be torn.
 */
#ifndef JOURNAL_INDEX_MARK_H
#define JOURNAL_INDEX_MARK_H

#include <stdbool.h>
#include <stdint.h>

struct index_mark {
	uint64_t number;  /* N of index.N */
	uint32_t format;  /* INDEX_FORMAT */
	uint32_t machine; /* what the layout of LMDB's file depends on */
	bool clean;
	uint8_t boot_id[16];
	uint64_t dev, ino; /* of data.mdb */
};

/* -ENOENT: none, or none that can be read: make an index anew. */
int index_mark_read(int dir_fd, struct index_mark *ret);
/* Marks index.N as it is now, durably; its file must exist. */
int index_mark_write(int dir_fd, uint64_t number, bool clean);

bool index_mark_fits(const struct index_mark *m); /* format and machine are ours */
/* May index.N be opened? (It fits.) */
bool index_mark_trusted(int dir_fd, const struct index_mark *m);

#define INDEX_NAME_MAX 32
void index_mark_name(char out[INDEX_NAME_MAX], uint64_t number); /* "index.N" */

#endif
