/*
 * control.h - limb-fs's end of the socket to limbd (brain/view-protocol.h): it
 * listens on envs/ID/fs.sock, the newest connection counts, and limbd may come
 * and go.
 *
 *	control_open(env_fd, &c);
 *	control_run(c, fs, follow, wake_fd);	the main thread, until the end
 *	control_seen(seq, c);			from the follower
 *	control_stop(c);			the socket is gone
 *	control_free(c);			when the follower has stopped
 *
 * Only processes of our own user are heard.
 */
#ifndef FS_CONTROL_H
#define FS_CONTROL_H

#include "fs/follow.h"

struct control;
/* env_fd stays the caller's, and open for as long. A socket that is there is replaced. */
int control_open(int env_fd, struct control **ret);
void control_stop(struct control *c); /* control_seen() does nothing from then on */
void control_free(struct control *c);

void control_seen(uint64_t seq, void *control);
void control_drained(uint64_t token, void *control); /* from the keeper */
/* From who waits for limbd, await.h. */
void control_waits(uint64_t last, void *control);
void control_told(uint64_t first, uint64_t last, void *control);

/* Tells status and follower (NULL: nothing changes) what limbd says, until QUIT or until wake_fd becomes readable.
 * c NULL: there is no limbd to listen to. */
void control_run(struct control *c, struct fs *fs, struct follow *f, int wake_fd);

#endif
