/*
 * shell.h - what a shell session keeps between commands: `exec --shell NAME`.
 *
 * A session is no process but a file of the environment, in limb-syncd's directory,
 * outside the root: exported variables and the working directory, as the last command
 * of the session left them.  Each command is a job like any other, run by a /bin/sh that
 * reads that file first and writes it last.  So a session outlives limbd, limb-syncd and
 * the client, and ends with the incarnation.  Functions, aliases and variables that are
 * not exported are not kept; of two commands at once the last one to end is kept; one that
 * is killed, or calls `exec`, leaves the session as it was.
 */
#ifndef BRAIN_SHELL_H
#define BRAIN_SHELL_H

#include <stdbool.h>

/* Letters, digits, '.', '_', '-'; begins with a letter or digit; at most 64 bytes. */
bool shell_name_ok(const char *name);

/*
 * The words that run argv in the session, or an interactive shell if argv is NULL; one word is a
 * line for the shell.  dir: limb-syncd's there.  set: NAME=value, NULL-terminated or NULL, what
 * is asked for this time and wins over the session; keep_cwd: so does the directory that the job
 * starts in.  To be freed with each of its words; NULL without memory.
 */
char **shell_argv(const char *dir, const char *name, char *const *argv, char *const *set,
		  bool keep_cwd);

#endif
