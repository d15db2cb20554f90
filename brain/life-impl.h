/* What the files of life.h share; nobody else includes it. */
#ifndef BRAIN_LIFE_IMPL_H
#define BRAIN_LIFE_IMPL_H

#include "brain/life.h"
#include "brain/provider.h"

enum {
	LIFE_ATTACH_MS = 30000,
	/* limb-syncd has to get there first, perhaps over a slow line */
	LIFE_PROVIDER_MS = 120000,
	INFO_MS = 10000,
};

struct life;
typedef void (*life_next_fn)(struct life *l, const struct provider_error *err);

struct life {
	struct env *env;
	struct call *call; /* NULL: limbd's own doing */
	const char *verb;
	uint64_t begun_ms;
	uint64_t previous; /* incarnation before */
	bool force, keep_journal, owned_root;
	bool copied; /* create --from: its root is here */
	bool fresh;  /* rebuild: what stands at the provider's goes aside */
	life_next_fn next;
	void (*then)(struct env *env, void *userdata); /* stop without a call */
	void *then_userdata;

	void (*attached)(struct life *l, enum attach_mode mode);
	void (*late)(struct life *l);
	void (*after_timer)(struct life *l);
	void (*on_status)(struct life *l);
	uv_timer_t timer;
	bool timer_made;

	/* create --from */
	uv_process_t copier;
	uv_pipe_t copier_out;
	unsigned copier_handles;
	int64_t copier_status;
	uint64_t files, bytes;
	char *from;
	char line[512];
	size_t line_n;
	bool copying;
	bool unwanted;	       /* create: it ends at its next step, and nothing stays */
	struct call *given_up; /* by this `rm --force`, which waits for that */

	/* failure on the way */
	char code[40];
	char detail[512];
	char step[300]; /* what the provider says to do about it */

	void *extra;	/* migrate: its struct */
	char *old_root; /* rebuild: where the old root was moved to */
	json_t *answer;
	uint64_t at;	     /* rebuild: the point; INDEX_NOW: the newest */
	uint64_t forked_seq; /* fork: the point of the other's log */
};

struct life *life_new(struct env *env, struct call *call, const char *verb);
void life_free(struct life *l);
void life_done(struct life *l, json_t *result); /* answers (if result), frees */
uint64_t life_ms(const struct life *l);
const char *life_code(int r); /* errno to a code of the contract */
/* What stopped a RESTORE, as a sentence; returns out. */
const char *life_not_restored(const struct entry_restored *e, char *out, size_t size);
/* The environment that the call names, or NULL and the call is answered. */
struct env *life_env(struct call *call, bool may_be_busy);

/* What the provider says of itself, each time anew. */
void life_take_info(struct env *env, json_t *info);
void life_provider_create(struct life *l, life_next_fn next); /* info, create, start */
void life_provider_start(struct life *l, life_next_fn next);
void life_provider_stop(struct life *l, const char *verb, life_next_fn next);

/* Attaches; attached() when WELCOME is sent, late() after LIFE_ATTACH_MS. why NULL: go on. */
void life_attach(struct life *l, const char *why, bool fresh, bool restoring,
		 void (*attached)(struct life *, enum attach_mode), void (*late)(struct life *));
/* Closes the timer, then goes on; before life_done() always. */
void life_end_timer(struct life *l, void (*then)(struct life *));

/* The struct and its files go; the caller has recorded it. */
void life_discard(struct env *env, bool keep_journal);
/* Calls that wait for a revival (life.c) are answered: it is gone. */
void life_fail_deferred(struct env *env);
void life_remove_later(struct brain *b, int dir, const char *name);
/* After limbd was killed during a create: the first sync's end is awaited without a caller. */
void life_finish_create(struct env *env);
/* create --from to another machine: the environment is made here first, and then moves. */
int life_stage(struct life *l);
int life_make_root(struct env *env); /* limbfs's own, where it has no other */
/* A create or fork that did not come about: nothing of it stays, and its caller hears why. */
void life_create_fail(struct life *l, const char *code, const char *detail);
/* life-rebuild.c: fills what stands empty from the journal, compares both sides, and answers. */
void rebuild_begin(struct life *l);
/* A create under way ends, and the call (rm) is answered when nothing of it is left. False:
 * none is. */
bool life_give_up(struct env *env, struct call *call);
/* What create answers. */
json_t *life_created(struct env *env, uint64_t took_ms);

/* life-judge.c */
/* A name that is free; false: answered. */
bool life_judge_name(struct call *call, const char *name);
/* PROVIDER[:TARGET], NULL the usual one, in two (malloc'ed); false: answered. */
bool life_judge_provider(struct call *call, const char *name, const char *provider,
			 char **ret_provider, char **ret_target);
struct life_request {
	const char *name;
	char *from, *root, *provider, *target;
	json_t *spec;
};
/* Fills it in; false: the call is answered. Done with in either case. */
bool life_judge(struct call *call, struct life_request *q);
void life_request_done(struct life_request *q);
/* A directory that may become, or be copied to, a root; realpath in *ret. NULL or a sentence. */
const char *life_judge_dir(struct brain *b, const char *dir, char **ret);
/* The environment with a --root that is root, above or beneath it; NULL: none. */
const struct env *life_root_taken(struct brain *b, const char *root);
/* life-create.c */
void create_attached(struct life *l, enum attach_mode mode);
void create_late(struct life *l);

#endif
