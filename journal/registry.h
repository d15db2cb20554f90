/*
 * registry.h - which environments a brain has, as its log tells: who reads a
 * state directory without a daemon finds them here by name.
 */
#ifndef JOURNAL_REGISTRY_H
#define JOURNAL_REGISTRY_H

#include <stdint.h>

/* The id of the environment that has the name at the end of the brain's log; one that was
 * removed and whose journal was kept counts, unless another took its name. -ENOENT. */
int registry_find(int brain_log_fd, const char *name, uint8_t ret_id[16]);

#endif
