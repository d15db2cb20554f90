/*
 * record.h - the file DIR/jobs/ID/record: who holds the job, how it began, how
 * it ended.
 *
 * 4096 bytes, written whole when the directory is prepared, so that writing the
 * end of a job needs no new block. Two slots of 2048 bytes: begin (JobStarted)
 * at 0, end (JobExit) at 2048; each: the job's id (65 bytes with NULs), u32
 * length, the message, and in its last 8 bytes the start of the SHA-256 of all
 * before. A slot that does not check, or names another job (directories are used
 * again), is empty. The holder keeps the file locked (flock) while it lives.
 */
#ifndef SYNCD_RECORD_H
#define SYNCD_RECORD_H

#include <stdbool.h>

#include "base/buf.h"
#include "wire/wire.pb-c.h"

enum record_slot { RECORD_BEGIN, RECORD_END };

int record_prepare(int dir, int *ret_fd); /* made or emptied, and locked */
int record_write(int fd, const char *job, enum record_slot slot, const ProtobufCMessage *m);
/* The message, or NULL when the slot is empty; protobuf_c_message_free_unpacked(). */
void *record_read(int fd, const char *job, enum record_slot slot);
/* Whether some process holds the lock. */
bool record_locked(int fd);

#endif
