/*
 * commit.h - group commit of one environment: records and the content they
 * name become durable together, then visible, then acknowledged.
 *
 *	commit_submit(env, type, body, n, fn, ud)	a record; fn when durable
 *	commit_change(env, &change, &seq)		not while commit_busy()
 *	commit_places(env, ...)				content written to the pack
 *	commit_wait(env, fn, ud)			all so far is durable
 *	commit_tell(env, fn, ud)			the same, but it does not hurry
 *
 * A round: what was appended is written; log and pack are synced in parallel by
 * helper threads; then places go to the store's table, the index transaction
 * commits, and everybody who waits is told.  While a round syncs
 * (commit_busy()) records queue up for the next one and limb-ingest's entries
 * stay unread: that is the back-pressure.  A failed round is for ever: the
 * environment is marked failed, nothing is acknowledged any more, and nobody is
 * welcomed any more (the log may have more than the index says); anew.h.
 */
#ifndef BRAIN_COMMIT_H
#define BRAIN_COMMIT_H

#include "brain/entry.h"
#include "brain/env.h"
#include "journal/record.pb-c.h"

struct commit;

typedef void (*commit_fn)(int r, uint64_t seq, void *userdata);

int commit_new(struct env *env, struct commit **ret);
/* The environment goes: who waits is told -ECANCELED, and nothing more is taken. */
void commit_cancel(struct env *env);
void commit_free(struct commit *c); /* no round may be running */
bool commit_busy(const struct env *env);
bool commit_idle(const struct env *env); /* nothing waits, nothing runs */

/* Packs rec (its common fields are filled in when zero: incarnation, time) and queues
 * it; fn may be NULL. */
int commit_submit(struct env *env, enum record_type type, Limb__Record *rec, commit_fn fn,
		  void *userdata);
/* Opens the round's index transaction, so that index_writer_txn() answers. */
int commit_prepare(struct env *env);
/* Appends and applies at once. -EINVAL with *ret_why: the index refuses it. */
int commit_change(struct env *env, const struct change *c, uint64_t *ret_seq, const char **ret_why);
int commit_places(struct env *env, const struct entry_place *places, size_t n, uint64_t pack_end);
int commit_wait(struct env *env, commit_fn fn, void *userdata);
/* The same for who can wait: after a round that had much the next gathers for a moment. */
int commit_tell(struct env *env, commit_fn fn, void *userdata);

/* The pack that limb-ingest fills now: its id and a descriptor to sync. */
int commit_set_pack(struct env *env, const uint8_t pack_id[16], int fd);
int commit_pack_id(const struct env *env, uint8_t ret_id[16]); /* -EPROTO: there is none */
int commit_drop_pack(struct env *env); /* seals it; after the round that needs it, if that does */
/* Has its pack something in it, and for so long nothing more came? Asked again after as long. */
bool commit_pack_quiet(struct env *env, uint64_t quiet_ms);

/* Starts a round for each environment that has something; once per loop turn. */
void commit_kick_all(struct brain *b);

#endif
