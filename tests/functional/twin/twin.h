/*
 * twin.h - random operations on a view and on a native directory, its twin, which must answer
 * the same and hold the same.
 *
 *	twin VIEW NATIVE [--seed N] [--ops N] [--first N] [--every N COMMAND] [--hold]
 *	twin --compare A B
 *
 * Both directories are empty at first (--first N: they are as operation N-1 left them). Each
 * operation is made on both, with the same bytes; what it returned, its errno and what it read
 * are compared, and the whole trees each SWEEP operations and at the end. At a difference the
 * seed and the last operations are printed, and the status is 1. What the environment's side
 * makes has names that begin with "env.", and is passed over.
 *
 * --every: COMMAND is run each N operations; all files are closed for it, but with --hold.
 */
#ifndef TESTS_TWIN_H
#define TESTS_TWIN_H

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/util.h"

#define SIZE_TOP (200u << 10)
#define PATH_ROOM 64

enum { VIEW, NATIVE, SIDES };

/* One operation's outcome on one side: what it returned, or negative errno. */
typedef long outcome[SIDES];

struct twin {
	int dir[SIDES];
	uint64_t seed, random, op;
};

extern struct twin twin;

uint64_t below(uint64_t n); /* 0 ... n - 1 */
bool one_in(uint64_t n);
const uint8_t *some_bytes(size_t n); /* until the next call */

/* What is about to be done, for the list; printf's format. */
void note(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* Both must be equal; what: of the last note. */
void same(const outcome r, const char *what);
void differ(const char *format, ...) __attribute__((format(printf, 1, 2), noreturn));
long result(long r); /* of a call that sets errno */

/* ---- names.c ---- */

struct operation {
	unsigned weight;
	void (*run)(void);
};
extern const struct operation name_operations[];
extern const size_t n_name_operations;

void some_path(char path[PATH_ROOM]);
/* One that is there as that type (S_IFREG, ...; 0: any), if a few tries find one. */
void some_path_of(unsigned type, char path[PATH_ROOM]);

/* ---- slots.c: open files ---- */

extern const struct operation slot_operations[];
extern const size_t n_slot_operations;

void slots_close_all(void);
void slots_sync(void); /* nothing is only in a mapping any more */

/* ---- compare.c ---- */

/* Everything in both trees; differ() if it is not equal. */
void compare_trees(int a, int b);

#endif
