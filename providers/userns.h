/*
 * userns.h - a user namespace in which every id of ours is itself.
 *
 * bwrap run by root maps a single id: chown gives EINVAL then, and git finds
 * dubious owners.  With this one, ids inside are those outside; capabilities
 * inside are over nothing but what the namespace owns.
 */
#ifndef PROVIDERS_USERNS_H
#define PROVIDERS_USERNS_H

/* A descriptor of the new namespace (close-on-exec). Needs root. */
int userns_new_identity(int *ret_fd);

#endif
