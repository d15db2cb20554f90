/*
 * store-merge.h - equal content of many environments kept once. For limbd, one
 * thread at a time.
 *
 * Each environment stores for itself, so that a hash proves nothing. Later its
 * sealed packs are looked at: one whose contents all lie in checked packs goes;
 * of another each frame is compared with its hashes by a process that can do
 * nothing else (limb-ingest --check), and then its contents take the place of all
 * that are not in checked packs. So what a hostile environment wrote under a right
 * hash displaces nothing, and gives way to what is right.
 *
 *	while ((r = store_merge_next(st, &pace, &job)) > 0) {
 *		frames = what a worker says of job.fd
 *		store_merge_checked(st, &pace, &job, &verdict);
 *		store_merge_done(&job);
 *	}
 *	store_merge_packs(st, &pace);	small and half-empty packs into one
 *
 * A pack goes after all of its contents are placed in packs that are synced, and
 * the table is derived: a crash at any point loses nothing.
 */
#ifndef JOURNAL_STORE_MERGE_H
#define JOURNAL_STORE_MERGE_H

#include "journal/store.h"

/* Called between pieces of a few ms, with no lock held: waits while others are busy. Not 0: end
 * with -ECANCELED. */
struct store_merge_pace {
	int (*wait)(void *userdata);
	void *userdata;
};

struct store_merge_job {
	uint8_t pack_id[16];
	int fd; /* for reading; nobody has the pack open for writing */
	uint64_t length;
};

/* 1: a pack to be checked; 0: none; each that nothing needs is removed on the way. */
int store_merge_next(struct store *st, const struct store_merge_pace *pace,
		     struct store_merge_job *ret);
void store_merge_done(struct store_merge_job *job);

/* Offsets of the frames that hold what they say, rising; whole: there is nothing else. */
struct store_merge_verdict {
	const uint64_t *good;
	size_t n_good;
	bool whole;
};
int store_merge_checked(struct store *st, const struct store_merge_pace *pace,
			const struct store_merge_job *job, const struct store_merge_verdict *v);

/* 1: some packs were put together, their frames as they are; 0: not worth it. */
int store_merge_packs(struct store *st, const struct store_merge_pace *pace);

/* Packs that were removed since the store was opened: readers should let go of them. */
uint64_t store_merge_removed(struct store *st);

/* Which of n checked packs should become one: those of which half or more is not needed, and
 * small ones once there are several of about one size (so that a byte is copied some five
 * times in all). Pure; returns how many `chosen` are set. */
struct store_merge_pack {
	uint64_t length, live, contents;
};
#define STORE_MERGE_SMALL_BYTES (64ull << 20)
#define STORE_MERGE_SEVERAL 8
size_t store_merge_choose(const struct store_merge_pack *packs, size_t n, bool *chosen);

#endif
