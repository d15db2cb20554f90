/*
 * mountpoint.h - the directory beneath a view.
 *
 *	mountpoint_clear(path, source);		no dead mount of ours is left on it
 *	mountpoint_make(path, &mp);		it exists, is empty
 *	  ... mount ...
 *	mountpoint_close_up(&mp);		nobody writes beneath the mount
 *	  ... unmount ...
 *	mountpoint_remove(&mp);			what was made goes
 *
 * What was made gets mode 0 and, as root where the file system has it, the
 * immutable flag: when the mount is gone without us, tools get an error there
 * and not an empty directory to fill.  A mount is ours when it is of type
 * fuse.limbfs and its source is the one that we would mount; nothing else is
 * ever unmounted.
 */
#ifndef FS_MOUNTPOINT_H
#define FS_MOUNTPOINT_H

#include <stdbool.h>
#include <stddef.h>

#include "base/util.h"

#define MOUNTPOINT_TYPE "limbfs"

struct mountpoint {
	char *path; /* absolute, without links but for a last component */
	int fd;	    /* of the directory itself; -1: it was there and is not ours */
};

enum mountpoint_state { MOUNTPOINT_FREE, MOUNTPOINT_OURS, MOUNTPOINT_FOREIGN };

/* What is mounted at path according to the text of /proc/self/mountinfo; the topmost one
 * counts. Pure. */
enum mountpoint_state mountpoint_judge(const char *mountinfo, const char *path, const char *source);

/* Resolves all of the path but its last component, which may be a dead mount. Makes what is
 * missing of the directories above. malloc'ed. */
int mountpoint_resolve(const char *path, char **ret);

/* -EBUSY: something else is mounted there. */
int mountpoint_clear(const char *path, const char *source);
/* Lazily, whatever it is. */
int mountpoint_unmount(const char *path);

/* always_ours: a directory that is already there is taken for one that we made, if it is
 * empty, else -ENOTEMPTY. */
int mountpoint_make(const char *path, bool always_ours, struct mountpoint *ret);
void mountpoint_close_up(struct mountpoint *mp);
void mountpoint_remove(struct mountpoint *mp);
void mountpoint_done(struct mountpoint *mp); /* the directory stays */

#endif
