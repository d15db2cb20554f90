/*
 * check.h - the worker that compares a sealed pack with its hashes: limb-ingest
 * --check, for limbd (upkeep.h). One process a pack, so that a pack which takes
 * over its reader can only have it lie about itself.
 *
 * It says the offset of each frame that holds what it says, rising, as u64 in host
 * byte order, and CHECK_WHOLE at the end when there was nothing else in the pack.
 */
#ifndef BRAIN_CHECK_H
#define BRAIN_CHECK_H

#include <stdint.h>

#define CHECK_WHOLE UINT64_MAX
/* No frame is shorter: so many are in a pack at most. */
#define CHECK_FRAME_BYTES_MIN 80

/* Others go first, at the processor and at the disk. */
void check_be_quiet(void);
int check_pack(int fd, uint64_t length, int out);

#endif
