/*
 * spawner.h - the small process from which holders are forked: it has no
 * threads and little memory, so a fork costs a tenth of a millisecond.
 *
 * It is a subreaper above the holders. When one is killed, what ran below it
 * comes to the spawner, which kills it: a job without a holder has no business
 * (its end is unknown). It outlives the daemon until its last holder has ended.
 *
 *	spawner_start(&fd, &pid)	executes ourselves as `limb-syncd spawner`
 *	spawner_ask(fd, dir, link)	one more holder, with these two descriptors
 */
#ifndef SYNCD_SPAWNER_H
#define SYNCD_SPAWNER_H

#include <sys/types.h>

int spawner_start(int *ret_fd, pid_t *ret_pid);
/* dir: DIR; link: the holder's end of its socket. Both lent. */
int spawner_ask(int fd, int dir, int link);

int spawner_main(int fd); /* never returns in holders */

#endif
