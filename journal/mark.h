/*
 * mark.h - the small file beside an LMDB file that says whether it may be opened.
 * For index*.c and store*.c alone.
 *
 * Commits are not synced. After a loss of power the file may be anything, and
 * LMDB does not survive reading that, so trust is decided outside of it: a clean
 * mark (all synced, nothing written since) holds for ever; another holds while
 * the kernel has not been restarted, and for the very file that was marked: a
 * copy of an index at work may be torn.
 */
#ifndef JOURNAL_MARK_H
#define JOURNAL_MARK_H

#include <stdbool.h>
#include <stdint.h>

/* Who marks what: a constant of the caller's. */
struct mark_kind {
	const char *name; /* of the file */
	uint32_t format;  /* of the tables in the LMDB file */
};

struct mark {
	uint64_t number;  /* N of index.N in the mark's directory; 0: data.mdb itself is there */
	uint32_t format;  /* of who wrote it */
	uint32_t machine; /* what the layout of LMDB's file depends on */
	bool clean;
	uint8_t boot_id[16];
	uint64_t dev, ino; /* of data.mdb */
	uint64_t txn;	   /* LMDB's last one when it was marked, if the marker said so */
};

/* -ENOENT: none, or none that can be read: make an index anew. */
int mark_read(int dir_fd, const struct mark_kind *k, struct mark *ret);
/* Marks the LMDB file as it is now, durably; it must exist. */
int mark_write(int dir_fd, const struct mark_kind *k, uint64_t number, uint64_t txn, bool clean);

bool mark_fits(const struct mark *m, const struct mark_kind *k); /* format and machine are ours */
/* May it be opened? (It fits.) */
bool mark_trusted(int dir_fd, const struct mark *m, const struct mark_kind *k);

#define MARK_INDEX_NAME_MAX 32
void mark_index_name(char out[MARK_INDEX_NAME_MAX], uint64_t number); /* "index.N" */

#endif
