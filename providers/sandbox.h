/*
 * sandbox.h - what a bubblewrap environment looks like, as bwrap's arguments.
 *
 *	/usr /bin /sbin /lib*	as here, read-only
 *	/etc			made of files that programs need and that hold no
 *				secret, read-only (sandbox.c lists them): with a full
 *				id map the sandbox's root reads what root may read
 *	/proc /dev		its own; /dev minimal
 *	/tmp /var/tmp /run, home	its own, in memory
 *	/w			the root, writable
 *	/run/limb		DIR/run of the private directory, writable
 *	/run/limb-syncd		limb-syncd, read-only
 *
 * The rest of the private directory (records, log) is never inside: what runs
 * there must not name the processes that we signal.
 */
#ifndef PROVIDERS_SANDBOX_H
#define PROVIDERS_SANDBOX_H

#include <stddef.h>

#include "providers/provider.h"

#define SANDBOX_ROOT "/w"
#define SANDBOX_DIR "/run/limb"
#define SANDBOX_SYNCD "/run/limb-syncd"
#define SANDBOX_PROCESSES 4096
#define SANDBOX_RUN "run" /* in the private directory */

/* Capabilities that the sandbox's root keeps, over its own ids only; the numbers
 * of linux/capability.h. Root's only: a normal user's sandbox has none. */
extern const unsigned sandbox_capabilities[];
extern const size_t sandbox_capabilities_count;

/* HOME inside. */
const char *sandbox_home(void);

/* argv for bwrap itself at `program`. userns_fd: a user namespace to use, or -1:
 * bwrap makes one with a single id. info_fd: where bwrap writes about itself.
 * env: variables for the first process. NULL without memory. */
char **sandbox_argv(const struct provider_call *call, const char *program, int userns_fd,
		    int info_fd, char **env);

#endif
