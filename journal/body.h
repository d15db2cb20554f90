/*
 * body.h - record bodies (record.proto) unpacked into an arena, for the
 * modules of journal/ only.
 *
 * protobuf-c makes about a hundred bytes of message out of two bytes of input:
 * the arena's limit, set here from the body's length, bounds what a hostile
 * body costs.
 */
#ifndef JOURNAL_BODY_H
#define JOURNAL_BODY_H

#include "journal/arena.h"
#include "journal/change.h"
#include "journal/record.pb-c.h"

/* Sets the arena's limit; the message lives in it. -EBADMSG. */
int body_unpack(struct arena *a, const uint8_t *body, size_t n, Limb__Record **ret);

/* The change in an unpacked CHANGE record, judged; ops live in the arena. -EBADMSG, -ENOMEM. */
int body_to_change(struct arena *a, const Limb__Record *rec, struct change *ret);

#endif
