/*
 * classes.h - when a call that changes something in a writable view returns, by path: what the
 * spec says (`class`, `classes`), as limbd has put it into env.json.
 *
 *	ordered		when it is accepted
 *	strong		when the environment has made it, or with the errno that it gave (await.h)
 *	eventual	as ordered; but a file's bytes are on their way when there is time for
 *			them: no barrier waits for them, and while it is away only the last count
 *
 *	classes_load(c, env_fd)		at the start, and whenever limbd says so
 *	classes_of(c, path, is_dir)	of the nearest name that a pattern meets, the newest one
 */
#ifndef FS_CLASSES_H
#define FS_CLASSES_H

#include <stdbool.h>
#include <stdint.h>

enum view_class { CLASS_ORDERED, CLASS_STRONG, CLASS_EVENTUAL };

struct classes;
struct classes *classes_new(void); /* all is ordered; NULL: no memory */
void classes_free(struct classes *c);

/* On an error all stays as it is. */
int classes_load(struct classes *c, int env_fd);
/* path: from the root, "" is the root. Any thread. */
enum view_class classes_of(struct classes *c, const char *path, bool is_dir);
const char *classes_name(enum view_class class);
/* For how long what was written may wait until writers do (`view`, `wait_s`); 0: as long as it
 * likes. */
uint64_t classes_wait_ms(const struct classes *c);
/* All is ordered: nobody needs to know paths. NULL: there are none. */
bool classes_plain(const struct classes *c);

#endif
