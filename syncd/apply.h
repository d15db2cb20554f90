/*
 * apply.h - making the root as the brain says: RESTORE of a whole tree, APPLY of
 * one change, PUSH of its bytes.
 *
 * Everything is written through descriptors beneath the root (beneath.h), beside
 * its name and then exchanged (RENAME_EXCHANGE), never through a link.  A file whose
 * names are several and all beneath the root (sync_has_all_names) keeps them, as does
 * one that is mounted: it is written in place, under a log (apply-log.h).  With a name
 * elsewhere only the name here changes.  What this incarnation cannot hold is listed,
 * not guessed.
 */
#ifndef SYNCD_APPLY_H
#define SYNCD_APPLY_H

#include <stdbool.h>

#include <uv.h>

#include "syncd/session.h"
#include "syncd/sync.h"
#include "wire/wire.pb-c.h"

struct apply;

int apply_new(uv_loop_t *loop, struct session *session, struct sync *sync, struct apply **ret);
void apply_free(struct apply *ap);
void apply_on_restore(struct apply *ap, const Limbwire__Restore *m);
/* Tree parts of a TREE_GET that apply asked for (by request id); true if it was ours. */
bool apply_on_tree_part(struct apply *ap, const Limbwire__TreePart *part);
void apply_on_pull_data(struct apply *ap, const Limbwire__PullData *m, const void *bulk, size_t n);
void apply_on_push(struct apply *ap, const Limbwire__Push *m, const void *bulk, size_t n);
void apply_on_apply(struct apply *ap, const Limbwire__Apply *m);
/* ERROR for a request of ours; true if it was. */
bool apply_on_error(struct apply *ap, const Limbwire__Error *m);
/* Names under which apply writes before the exchange (".limb-", 16 hex digits, "~"): what is
 * found under such a name is not the workspace's. */
bool apply_is_temp(const char *name, size_t len);
void apply_detached(struct apply *ap); /* transport gone: a restore ends unfinished */

#endif
