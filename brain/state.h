/*
 * state.h - the state directory: made or checked, locked, the brain's own log
 * read into the list of environments.
 *
 * state_open() is the first thing limbd does; every error it returns has one
 * sentence with a remedy in *ret_why (malloc'ed).  What is there is judged
 * before anything is changed.
 */
#ifndef BRAIN_STATE_H
#define BRAIN_STATE_H

#include "brain/brain.h"

int state_open(struct brain *b, const char *state_dir, const char *mount_dir, char **ret_why);
void state_close(struct brain *b);

/* Appends an ENVIRONMENT record to the brain's log, durably (blocks: one fdatasync). */
int state_record_env(struct brain *b, const struct env *env, const char *what);

#endif
