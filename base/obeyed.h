/*
 * obeyed.h - names of files that programs obey where they meet them.
 *
 * Who runs git, an editor or an agent in a directory does what some files in it say: a
 * hook is run, a setting names a program to run.  In a view in mode work somebody else
 * writes those files, so a change to one is something to be told of.  The list is short:
 * what is read without a question by tools that many people use.  It is no protection,
 * and not all there is: a Makefile, package.json or conftest.py runs as well, but only
 * when somebody asks for what it says.
 */
#ifndef BASE_OBEYED_H
#define BASE_OBEYED_H

#include <stddef.h>

/* Who obeys it: "git", "an editor", "an agent", "direnv"; NULL: nobody that is known. The path
 * is from the environment's root, without '/' at its ends; so is that of what was moved there as a
 * whole directory (`.git`). */
const char *obeyed_by(const char *path, size_t len);

#endif
