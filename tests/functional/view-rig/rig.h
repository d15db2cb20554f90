/*
 * rig.h - limbd's part towards limb-fs without limbd: a state directory made
 * by the journal's library from a real directory, kept like it on demand, and
 * the view's protocol; and programs that look at the view while it changes.
 *
 *	view-rig limbd STATE ID NAME SRC	commands on stdin, one answer line each
 *	view-rig read FILE SECONDS		open, read, close: never missing, never mixed
 *	view-rig crowd DIR THREADS SECONDS	stat, list, create; the longest call
 *	...
 */
#ifndef TESTS_VIEW_RIG_H
#define TESTS_VIEW_RIG_H

#include <stdbool.h>
#include <stdint.h>

#include "base/util.h"

struct journal;

/* Opens or makes STATE with one environment. Exits on failure, as all here do. */
struct journal *journal_open(const char *state, const char *id_hex, const char *name,
			     const char *src);
/* Makes the journal's tree like SRC, in one commit; the sequence number it ends with. */
uint64_t journal_follow(struct journal *j);
void journal_sync(struct journal *j);
/* Damages: the index is thrown away and made anew, as a limbd does that does not trust it. */
uint64_t journal_rebuild(struct journal *j);
int journal_env_fd(const struct journal *j);
void journal_close(struct journal *j);

void run_limbd(char **argv);
int run_read(char **argv);
int run_crowd(char **argv);
int run_hold(char **argv);
int run_list(char **argv);

_Noreturn void fail(int r, const char *what);

#endif
