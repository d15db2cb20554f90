/*
 * copy.h - a state directory without its daemon: which environment is meant.
 */
#ifndef FS_COPY_H
#define FS_COPY_H

#define COPY_ID_HEX 33

/* name: of an environment, or its id in hex; NULL: the only one. -ENOENT: there is none such;
 * -ENOTUNIQ: there are several, and no name. */
int copy_find(int state_fd, const char *name, char ret_id[COPY_ID_HEX]);

#endif
