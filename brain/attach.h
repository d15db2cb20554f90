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

#include "brain/commit.h"
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

/* Sends WELCOME over the line that is up; its number is what the index has of env->incarnation. */
void attach_welcome(struct env *env, enum attach_mode mode, bool set_mark);
/* Node ids for a new incarnation of it: fields of env, good once the record is durable. */
int attach_grant(struct env *env);
/* Queues the record by which `to` (env itself, or its guest) begins to be env's incarnation. */
int attach_record(struct env *env, const struct env *to, enum record_type type, const char *why,
		  commit_fn fn, void *userdata);
/* A mark says whose the root is (half of it) and which incarnation's (the other half). */
void attach_make_mark(const struct env *env, uint8_t mark[16]);
bool attach_mark_is_ours(const struct env *env, const uint8_t mark[16]);

/* What the next HELLO is for. why: create, restart, rebuild, migrate. */
void attach_expect(struct env *env, const char *why, bool fresh, bool restoring);

#endif
