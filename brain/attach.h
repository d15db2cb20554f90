/*
 * attach.h - the first words of a session: which incarnation speaks, and what
 * it may do.
 *
 * HELLO says what limb-syncd finds: its root, the root's mark, the shadow that it
 * still has.  attach_judge(), a pure function of that and of the log's last
 * incarnation, decides: go on, begin a new incarnation, restore, or hold
 * (halted, with the reason).  A fresh or emptied root under an old name is
 * restored on request, never obeyed.
 */
#ifndef BRAIN_ATTACH_H
#define BRAIN_ATTACH_H

#include "brain/env.h"

enum attach_mode { ATTACH_SYNC, ATTACH_RESTORE, ATTACH_HOLD };

struct attach_facts {
	bool root_missing, root_empty, has_mark, mark_equal;
	uint64_t shadow_incarnation; /* 0 none */
	uint64_t incarnation;	     /* the log's newest; 0: none yet */
	bool fresh;	  /* this root was made for a new incarnation: it may be marked */
	bool restoring;	  /* ... to be filled from the journal */
	bool known_files; /* the journal has nodes beside the root */
	bool unfinished;  /* a rebuild of this root did not get to its end */
	bool restarted;	  /* the sandbox was started anew since */
};

struct attach_decision {
	enum attach_mode mode;
	bool new_incarnation;
	bool set_mark;
	const char *reason; /* code, with ATTACH_HOLD */
	const char *detail;
};

struct attach_decision attach_judge(const struct attach_facts *f);

int attach_on_hello(struct env *env, const struct entry_head *e);
int attach_on_status(struct env *env, const struct entry_head *e);

/* What the next HELLO is for. why: create, restart, rebuild, migrate. */
void attach_expect(struct env *env, const char *why, bool fresh, bool restoring);

#endif
