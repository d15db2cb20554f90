/*
 * fs-process.h - starting a limb-fs, and finding one that outlived a limbd.
 */
#ifndef BRAIN_FS_PROCESS_H
#define BRAIN_FS_PROCESS_H

#include "brain/brain.h"

/* args: what follows the program, up to a NULL. Detached; exit_cb is told of its end, the loop
 * does not wait for it. -ENOENT: it is not installed. */
int fs_process_spawn(struct brain *b, const char *const *args, uv_exit_cb exit_cb,
		     uv_process_t *process);

/* To the socket of the one that serves this directory. */
int fs_process_connect(int dir_fd, int *ret_sock, int *ret_pid);

#endif
