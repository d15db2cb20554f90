/*
 * places.h - where a brain's state, mount and socket are: flag, then variable,
 * then default (CLI contract, section 1).
 *
 *	_cleanup_(places_done) struct places places = {0};
 *	failure = places_find(&places, arg_state, arg_mount);
 *
 * All paths are absolute.  Nothing is made here, and nothing but $HOME, the
 * variables LIMB_STATE, LIMB_MOUNT, LIMB_SOCKET, XDG_STATE_HOME and, without
 * $HOME, passwd is looked at.
 */
#ifndef BRIDGE_PLACES_H
#define BRIDGE_PLACES_H

#include <jansson.h>
#include <stddef.h>

#include "base/util.h"

struct places {
	char *state;
	char *mount;
	char *socket;
};

/* NULL, or the failure; state and mount may be NULL (not given). */
json_t *places_find(struct places *p, const char *state, const char *mount);
void places_done(struct places *p);

/* The same path made absolute by the current directory, trailing slashes off;
 * "" is refused. NULL with errno. */
char *places_absolute(const char *path);

/* A failure if the socket's path does not fit in a sockaddr_un, else NULL. */
json_t *places_check_socket(const struct places *p);
/* A failure if the state directory belongs to somebody else (sudo over a user's
 * brain, or the other way round), else NULL; absent is fine. */
json_t *places_check_owner(const struct places *p);

/* A program of ours: beside this one (in a build tree: in ../BUILD_DIR), or in
 * libexec. The path, or NULL with errno (ENOENT: not there). */
char *places_program(const char *name, const char *build_dir);

#endif
