/*
 * keep.h - content of the brain's side into the store: in a helper thread, into a pack of
 * its own, durable before anybody names it.
 *
 *	keep_begin(brain, env_id, &k)
 *	keep_file_begin(k); keep_data(k, p, n) ...; keep_file_end(k, &ref)	as often as need be
 *	keep_end(k)		synced, in the table, sealed: the references may be recorded
 *	keep_drop(k)		frees it; what was not ended is nowhere
 *
 * What limb-ingest writes comes from an environment; this comes from limbd's own clients, so
 * it needs no process of its own. Small packs are put together later (store-merge.h).
 */
#ifndef BRAIN_KEEP_H
#define BRAIN_KEEP_H

#include "brain/brain.h"
#include "journal/content.h"

struct keep;

int keep_begin(struct brain *b, const uint8_t env_id[16], struct keep **ret);
void keep_file_begin(struct keep *k);
int keep_data(struct keep *k, const void *data, size_t n);
int keep_file_end(struct keep *k, struct content_ref *ret);
int keep_end(struct keep *k);
void keep_drop(struct keep *k);
DEFINE_CLEANUP(struct keep, keep_drop);

#endif
