/*
 * fs.h - limb-fs's data model: one mount and what its threads share.
 *
 *	look, attr	how a node is shown; pure
 *	source		the index;  contents: the store
 *	nodes, dirs	what the kernel knows; directories in a stable order
 *	reader		content
 *	spot		what the kernel's ids mean
	ops		the kernel's requests, answered by several threads
 *	intent, overlay, change, bytes, settle, keeper: what is written in the view
	classes, await: when who wrote it is answered
	past		many trees of one session, each at its point
 *	follow		limbd's news, told to the kernel; one thread
 *	control		the socket to limbd; the main thread
 *	session		FUSE: mount, threads, end
 *	mountpoint	the directory beneath it
 *
 * A thread that answers takes no lock across a reply, and the follower none
 * across a notification.
 */
#ifndef FS_FS_H
#define FS_FS_H

#include "fs/attr.h"
#include "fs/dirs.h"
#include "fs/nodes.h"
#include "fs/source.h"
#include "fs/status.h"

struct past;
struct overlay;
struct keeper;
struct classes;
struct await;

struct fs {
	uint64_t at;	   /* the position that is shown, or INDEX_NOW */
	struct past *past; /* NULL: a live view */
	uint64_t space;	   /* whose listings, where trees share dirs */
	struct attr_rules rules;
	struct contents *contents;
	struct source *source;
	struct nodes *nodes;
	struct dirs *dirs;
	struct overlay *overlay; /* NULL: nothing can be written */
	struct keeper *keeper;
	struct classes *classes; /* both: with an overlay */
	struct await *await;
	int state_fd; /* its file system is what statfs tells of */
	struct status status;
};

#endif
