/*
 * up.h - `limb up` and `limb down`: limbd started, and ended.
 *
 * up checks what limbd would stumble over (socket path, owner of the state
 * directory), makes the state directory 0700, starts limbd with its stderr in
 * STATE/limbd.log, and returns when limbd has answered the method "up".  Two
 * ups at once start one limbd: STATE/up.lock.  down waits for limbd's end.
 */
#ifndef BRIDGE_UP_H
#define BRIDGE_UP_H

#include <jansson.h>
#include <stdbool.h>

#include "bridge/args.h"
#include "bridge/places.h"

/* NULL and *ret_result, or the failure. With foreground *ret_pid is limbd's, a
 * child of ours that up_wait() waits for; else, and if it was up already, 0. */
json_t *up_run(const struct places *places, bool foreground, json_t **ret_result, pid_t *ret_pid);
/* limbd's exit status. TERM, INT and HUP that we get, it gets. */
int up_wait(pid_t pid);

json_t *down_run(const struct places *places, const json_t *params, json_t **ret_result);

#endif
