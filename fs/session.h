/*
 * session.h - the FUSE session: made, mounted, answered by a fixed number of
 * threads, ended.
 *
 *	session_new(fs, name, &s);	options from fs->rules; name: the mount's source
 *	session_mount(s, path);
 *	session_serve(s, wake_fd);	threads; writes to the eventfd when the mount ends
 *	session_end(s);			after the unmount: threads are joined
 *	session_free(s);
 */
#ifndef FS_SESSION_H
#define FS_SESSION_H

#include "fs/ops.h"

struct session;
int session_new(struct fs *fs, const char *name, struct session **ret);
void session_free(struct session *s);
DEFINE_CLEANUP(struct session, session_free);

struct fuse_session *session_fuse(struct session *s);

/* Can there be a mount at all? 0, or an error with *ret_why, a sentence with the remedy. */
int session_probe(const char **ret_why);
/* -EIO: what libfuse said has been logged at level debug, its last line is *ret_why (lent). */
int session_mount(struct session *s, const char *path, const char **ret_why);
int session_serve(struct session *s, int wake_fd);
/* While it is served: the kernel reads 1 MiB ahead where it would 128 KiB, whatever INIT
 * says. As root only; nothing depends on it. */
void session_read_ahead(const char *path);
void session_end(struct session *s);

#endif
