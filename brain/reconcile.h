/*
 * reconcile.h - both sides changed the tree: what becomes of one change of the
 * brain's side.  A pure function of (base, environment, brain); no I/O.
 *
 *	environment	the tree as the environment has it now, by callbacks
 *	base		the tree that the brain had seen, by the same callbacks
 *	brain		the change that it wants (struct intent)
 *
 *	reconcile(&tree, &intent, &plan)
 *
 * The environment's tree is the one that is: nothing of it is ever undone here.
 * A plan says what has to be done there so that the change is in it, too, or
 * that it cannot be: then it is a conflict, the environment's version wins and
 * the brain's stays in the journal.  Changes are taken in the order in which they
 * were made, each over the tree that has the one before it (or that is lost); in a
 * batch that tree is foreseen, and the plan is made only if it came so (HACKING).
 *
 * The rules, in the words of ARCHITECTURE ("Both sides changed it"):
 *  - Nodes are compared, not paths: a file that the environment moved is written
 *    where it is now.
 *  - A version is a base or it is not; no clock is asked.
 *  - A deletion never beats an edit: what is edited in the environment stays,
 *    with all that lies around it in a removed directory; what is edited in the
 *    brain is made again, directories on the way included.  Attributes alone are
 *    no edit.
 *  - Appends over one base are joined, the environment's first; what is over an empty base is
 *    no append.
 *  - Attributes merge field by field; of one field that both changed, the
 *    environment's value stays.
 *  - A move to beneath itself is undone on the brain's side, as is one over a
 *    thing that is not what it was to replace.
 *  - What is as wanted already is done: a change that is looked at twice does nothing.
 *  - Of a file with several names, the one that would be its last because the
 *    environment took the others is not removed. (So two removed directories that share
 *    a file and nothing else keep the second: a conflict that is none, and loses nothing.)
 *
 * What the brain's earlier changes made has no node before it is in the environment's tree.
 * Until then it is called INTENT_MADE | number of that change; the tree's `alias` says what it
 * became, and `own` which versions are the brain's own doing, so that they do not count as the
 * environment's.
 */
#ifndef BRAIN_RECONCILE_H
#define BRAIN_RECONCILE_H

#include <stdbool.h>
#include <stdint.h>

#include "journal/node.h"

#define INTENT_MADE (1ull << 63)

enum intent_kind {
	INTENT_CREATE = 1, /* (parent, name): a file, directory or link that was not there */
	INTENT_WRITE = 2,  /* node has this content */
	INTENT_REMOVE = 3, /* (parent, name), and what is beneath */
	INTENT_MOVE = 4,   /* (parent, name) -> (to_parent, to_name), over `replaces` */
	INTENT_LINK = 5,   /* one more name of node: (to_parent, to_name) */
	INTENT_ATTR = 6,   /* fields of node */
};

struct intent_name {
	uint64_t parent;
	const char *name; /* bytes, not NUL-terminated */
	uint16_t len;
};

struct intent {
	uint64_t number;
	uint8_t kind;
	uint64_t node;	       /* that it changes; CREATE: 0 */
	struct intent_name at; /* where it was found, or is made */
	struct intent_name to; /* MOVE, LINK */
	uint64_t replaces;     /* MOVE: what stood at `to`; 0: nothing */
	bool shared;	       /* REMOVE: the node had another name, too, and was to stay */
	const char *path;      /* of `at`, as the brain saw it, from the root */
	const char *to_path;   /* of `to` */
	uint32_t fields;       /* ATTR: bits of enum node_field */
	struct node wanted;    /* CREATE: all; WRITE: content; ATTR: those fields */
	struct node base;      /* WRITE, ATTR, LINK: node as the brain saw it */
	uint64_t base_seq;     /* the tree that it saw; 0: that of now (queue_add) */
	uint64_t view_epoch, view_number; /* the view's entry that it was made from; 0: another's */
	uint64_t merge_last, merge_node;  /* of a merge: its last change, the fork's node; else 0 */
};

struct intent_names {
	struct intent_names *next;
	struct intent_name name;
};

/* What the brain's own earlier changes left of a node. */
struct intent_own {
	struct intent_name at;		   /* the name that they gave it last; len 0: none */
	const struct intent_names *before; /* those that they gave it before that */
	bool astray;  /* a name that they gave it could not be: they believe it elsewhere */
	bool dropped; /* they took a name of it away */
	bool content; /* they made it, or wrote it: */
	struct content_ref wanted, got; /* the content that was meant; what it became (joined) */
};

struct rec_tree {
	void *userdata;
	/* What a name leads to, 0 nothing; now, or in the tree that the intent's author saw. */
	uint64_t (*lookup)(void *userdata, bool base, const struct intent_name *n);
	/* False: there is no such node. */
	bool (*node)(void *userdata, bool base, uint64_t node, struct node *ret);
	/* One name of a node now; false: it has none. */
	bool (*name)(void *userdata, uint64_t node, struct intent_name *ret);
	/* How many names it has. */
	uint32_t (*links)(void *userdata, bool base, uint64_t node);
	/* Entries of a directory now, until each() returns true; its result. */
	bool (*list)(void *userdata, uint64_t dir,
		     bool (*each)(const struct intent_name *n, uint64_t node, void *arg),
		     void *arg);
	/* What an id of the brain's is in the environment: itself, another node, 0 not (yet). */
	uint64_t (*alias)(void *userdata, uint64_t node);
	const struct intent_own *(*own)(void *userdata, uint64_t node); /* NULL: nothing */
	/* Does content `a` begin with all of `b`? */
	bool (*begins)(void *userdata, const struct content_ref *a, const struct content_ref *b);
};

enum rec_verdict {
	REC_DONE,     /* it is so */
	REC_APPLY,    /* step */
	REC_CONFLICT, /* the environment's version stays */
	REC_WAIT,     /* it builds on an earlier change that was not made */
};

enum rec_step {
	STEP_NONE,
	STEP_PUT_NEW,  /* make `wanted` at a free name */
	STEP_PUT_OVER, /* wanted's content over node, which has base_content */
	STEP_JOIN,     /* what wanted has more than base, behind node's content */
	STEP_REMOVE,
	STEP_MOVE,
	STEP_LINK,
	STEP_ATTR,
};

enum rec_conflict {
	CONFLICT_NONE,
	CONFLICT_EDIT_EDIT,
	CONFLICT_EDIT_DELETE,
	CONFLICT_TYPE,
	CONFLICT_RENAME
};

struct rec_plan {
	enum rec_verdict verdict;
	enum rec_step step;
	/* In ids of the environment's tree. Names are those of the intent or of the tree. */
	uint64_t node;
	struct intent_name at; /* the node's name; PUT_NEW: where it comes */
	struct intent_name to; /* MOVE, LINK */
	uint64_t replaces;
	/* The directory of the name that is made (`at` of PUT_NEW, `to`) is gone: it is made again
	 * by its path, that of the intent. `parent` is not known then. */
	bool by_path;
	uint64_t gone;		 /* with by_path: the directory's id in the intent */
	uint32_t fields;	 /* ATTR: those that are left to set */
	struct content_ref base; /* PUT_OVER, JOIN: content of node now */
	/* CONFLICT, or with APPLY what a person should see though the brain's change is made. */
	enum rec_conflict conflict;
	uint64_t other; /* the environment's node in it; 0: it is gone */
	/* With the step, or the conflict, what is known of `node` as the brain's own is: */
	bool astray, dropped;
	bool placed; /* PUT_OVER, JOIN: it is where the brain believes it to be */
};

void reconcile(const struct rec_tree *t, const struct intent *in, struct rec_plan *ret);

#endif
