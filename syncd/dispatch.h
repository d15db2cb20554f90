/*
 * dispatch.h - what each frame from the brain means: a table from type to
 * message to handler, and the few messages that belong to the session itself.
 *
 * Checks what concerns everybody: nothing but WELCOME comes first, the
 * environment is ours, the incarnation is not older than one we have served
 * (PROTOCOL 3); limits of single messages are their handlers' business.
 */
#ifndef SYNCD_DISPATCH_H
#define SYNCD_DISPATCH_H

#include <uv.h>

#include "syncd/apply.h"
#include "syncd/jobs.h"
#include "syncd/place.h"
#include "syncd/session.h"
#include "syncd/sync.h"

struct dispatch;

/* Makes the session, too; the rest is set before the first attach. place and dir are lent
 * for its life. */
int dispatch_new(uv_loop_t *loop, const struct place *place, int dir_fd, struct dispatch **ret);
void dispatch_free(struct dispatch *d); /* and the session */
struct session *dispatch_session(struct dispatch *d);
void dispatch_set(struct dispatch *d, struct sync *sync, struct jobs *jobs, struct apply *apply);

#endif
