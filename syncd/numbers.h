/*
 * numbers.h - which changes of the brain's side were made here: the last ones, by number,
 * in a file that survives us, and in memory what each left.
 *
 * The file is not synced: after a loss of power the brain's judging of what is there has to
 * do, which finds most changes done that are.
 *
 *	numbers_init(&n)
 *	numbers_made(&n, fd of the private directory, number)	... 1: do nothing twice
 *	numbers_add(&n, number, &st)				... it was made, and left this
 *	numbers_left(&n, number, &dev, &ino)			a later change is about that
 *	numbers_forget(&n, private)				another tree is made here
 */
#ifndef SYNCD_NUMBERS_H
#define SYNCD_NUMBERS_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/stat.h>

/* Twice what the brain has under way at a time, so that those of one limbd that died do not
 * push each other out. */
#define NUMBERS_MAX 1024

struct number {
	uint64_t number, inode;
	dev_t device; /* inode 0: not known, or nothing was left */
};

struct numbers {
	int fd; /* -1: not open yet */
	struct number made[NUMBERS_MAX];
};

void numbers_init(struct numbers *n);
void numbers_done(struct numbers *n);
/* 1: that one was made. 0, or an error: it cannot be known. */
int numbers_made(struct numbers *n, int private_fd, uint64_t number);
/* After numbers_made(). st NULL: it left nothing. */
int numbers_add(struct numbers *n, uint64_t number, const struct stat *st);
/* Is it this that the change left? */
bool numbers_left(const struct numbers *n, uint64_t number, const struct stat *st);
void numbers_forget(struct numbers *n, int private_fd);

#endif
