/*
 * registry.h - which environments a brain has, as its log tells: who reads a
 * state directory without a daemon finds them here by name.
 *
 *	registry_open(brain_log_fd, &rg);
 *	registry_lookup(rg, "box", id, &removed);	again and again: it reads what
 *							the log got since
 *	registry_close(rg);
 *
 * Not for several threads at once.
 */
#ifndef JOURNAL_REGISTRY_H
#define JOURNAL_REGISTRY_H

#include <stdbool.h>
#include <stdint.h>

#include "base/util.h"

struct registry;
int registry_open(int brain_log_fd, struct registry **ret);
void registry_close(struct registry *rg);
DEFINE_CLEANUP(struct registry, registry_close);

/* The id of the environment that has the name at the end of the log; else of the last one that
 * had it, was removed, and whose journal was kept (*ret_removed, which may be NULL). -ENOENT. */
int registry_lookup(struct registry *rg, const char *name, uint8_t ret_id[16], bool *ret_removed);

/* The same, once. */
int registry_find(int brain_log_fd, const char *name, uint8_t ret_id[16]);

#endif
