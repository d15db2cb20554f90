/*
 * apply-log.h - a file that must stay the file it is gets other bytes, and whoever dies in
 * the middle leaves nothing torn.
 *
 *	DIR/apply-new	the bytes that it gets, whole
 *	DIR/apply-base	those that it had
 *	DIR/apply-log	the record, durable once both are
 *
 * Then what differs is written in place and synced, and the record goes.  Where that fails
 * the old bytes are put back.  A record that is found when the root is opened, so before
 * any scan, is finished, but only if its path still leads to that file (inode, birth) and
 * each byte of it is one of the two: what somebody else wrote since is theirs and stays.
 *
 * The record, little-endian: "LIMBAPL1", u64 inode of the root, u64 inode and u32
 * generation (stamp_generation) of the file, u32 length of the path, u64 sizes of base and
 * new, SHA-256 of new, the path, SHA-256 of all before.  No device: numbers of devices are
 * given out anew at each boot.
 */
#ifndef SYNCD_APPLY_LOG_H
#define SYNCD_APPLY_LOG_H

#include <stdint.h>

/* dir: the private directory. path: beneath the root. fd: that file, for reading and
 * writing. from: size_bytes that it is to have. */
int apply_log_write(int dir, int root, const char *path, int fd, int from, uint64_t size_bytes);

/* Finishes or drops what is found; the record of another root waits for its own. */
int apply_log_mend(int dir, int root);

#endif
