/*
 * env.h - one environment: its directory, log and index, what is known of its
 * present incarnation, and the condition that `limb status` shows.
 *
 * An environment is opened with its log and index (env_open), attached by
 * link.h and life.h, and judged by env_state(), a pure function of its fields.
 */
#ifndef BRAIN_ENV_H
#define BRAIN_ENV_H

#include <jansson.h>

#include "base/ignore.h"
#include "brain/brain.h"
#include "brain/entry.h"
#include "journal/index.h"

struct commit;
struct link;
struct view;
struct feed;
struct queue;

enum env_state {
	ENV_CREATING,
	ENV_LIVE,
	ENV_CATCHING_UP,
	ENV_DEGRADED,
	ENV_AWAY,
	ENV_LOST,
	ENV_MOUNT_CHANGED,
	ENV_HALTED,
	ENV_HOSTILE,
	ENV_PAUSED,
	ENV_STOPPED,
};
const char *env_state_name(enum env_state s);

/* Nodes that died within a short while (intake.c). */
struct removals {
	uint64_t since_ms; /* monotonic; 0: none yet */
	uint64_t before_seq, before_nodes, removed;
	bool labelled;
};

/* SHA-256 of each content that was read from the packs, checked and sent, in the restore that
 * goes on. */
struct brought {
	uint8_t (*v)[SHA256_BYTES];
	size_t n, cap;
};

/* Removals and nothing else, close upon one another, of which nobody was told yet that they are
 * durable. */
struct removal_run {
	uint64_t last_ms, before_seq; /* 0: none */
	bool empties;		      /* something went, or a directory has the time of that */
};

#define ENV_DEFERRED_MAX 16
#define ENV_REASONS_MAX 32
struct env_reason {
	char code[32];
	char *detail; /* owned */
	char *path;   /* owned; NULL: of all, or of more than one */
	int64_t since_ns;
};

struct env {
	struct brain *brain;
	struct env *next;
	uint8_t id[16];
	char id_hex[33];
	char *name;
	char *dir; /* STATE/envs/ID */
	int dir_fd, log_fd;
	int64_t created_ns;

	/* spec */
	char *provider, *target;
	char *user_root; /* --root DIR; NULL: limbfs owns dir/root */
	json_t *spec;
	bool work_mode;
	bool network; /* its provider's transport is one: bulks are compressed, deltas pay */
	char *class;
	struct ignore ignore; /* rules in force, as it says */
	char *ignored_hash;   /* of those that are recorded; NULL: none are */

	/* Where it lives; two places of one environment can be alive on one machine, while it
	 * moves: hands.N and root.N are those of place N, hands and root those of place 0. */
	uint64_t place;
	char *place_dir;     /* in whose directory; NULL: its own (a fork of late words borrows) */
	uint8_t wire_id[16]; /* by which limb-syncd knows it; its id, but for such a fork */
	char wire_hex[33];
	/* what the provider answered at create */
	char *handle, *root, *host_root, *inner_dir, *inner_syncd;
	int init_pid;
	int syncd_host_pid;	     /* limb-syncd as this machine numbers it; 0 not known */
	json_t *unsupported;	     /* of the last rebuild: [{path, field}]; may be NULL */
	json_t *warned;		     /* warned.h: [{path, by, seq, at}]; may be NULL */
	json_t *enforces, *defaults; /* and of limits, and of those that it sets unasked */
	json_t *isolation;	     /* what the provider's `info` says; may be NULL */

	struct log *log;
	struct index *index;
	struct commit *commit;
	struct link *link; /* NULL: not attached */
	struct view *view;
	struct feed *feeds;    /* queue */
	struct basis *bases;   /* queue */
	struct accept *accept; /* what is written in its view (accept.h) */
	struct queue *queue;   /* changes of the brain's side (queue.h); NULL: not open */
	void *life;	       /* the struct life that is under way */
	void *restore;	       /* the struct restoring */
	unsigned threads;      /* helper threads that read its index now */
	unsigned runs;	       /* provider's executables that run for it */

	/* the present incarnation */
	uint64_t incarnation;
	uint64_t grant_first, grant_end, node_used; /* node_used: highest new id taken */
	uint8_t mark[16];
	uint32_t unheld;
	uint32_t self_uid, self_gid;
	char syncd_version[36];
	uint8_t syncd_sha256[32];
	uint8_t boot_id[16];
	bool syncd_static;
	uint32_t syncd_pid; /* in the environment's own numbering */
	bool compress;	    /* bulks to it go as lz4 blocks */
	bool trees;	    /* WIRE_CAP_TREES */
	bool deltas;	    /* it takes copies of what it has */
	bool settings;	    /* it takes SETTINGS */
	/* By origin: what is asked of it now by APPLY. */
	unsigned applying[ORIGIN_MERGE_ + 1];
	uint64_t last_number;  /* highest change number taken from this incarnation */
	uint64_t taken_number; /* the same, to be acknowledged by the next DURABLE */
	struct removals removals;
	struct call *deferred[ENV_DEFERRED_MAX]; /* until limbd has tried to bring it back */
	size_t n_deferred;
	struct removal_run run;
	unsigned sweep_fails, sweep_skip; /* the places that it left: ticks not to look at them */
	struct brought brought;
	bool durable_asked; /* a DURABLE is on its way through the commit */

	/* what its journal takes (quota.h) */
	uint64_t content_bytes, content_saved;
	uint64_t full_at;    /* bytes of its log when it exceeded its quota; 0: it does not */
	int quota;	     /* enum quota_verdict */
	bool full;	     /* it is told to capture no more */
	uint64_t full_bytes; /* what came all the same */

	/* moving (migrate.h) */
	struct env *guest_of;  /* this is no environment but another place of that one */
	bool guest_is_old;     /* ... where it was, not where it goes */
	bool guest_spoke;      /* ... and what it said is no longer of this log */
	char *staged;	       /* create --from: where it moves once it is made here; else NULL */
	json_t *migration;     /* under way, or interrupted: {to, to_incarnation}; may be NULL */
	json_t *left;	       /* places that it had before; may be NULL */
	json_t *forked_from;   /* {environment, id, seq, base}: base is the seq here; or NULL */
	char *home_root;       /* the last --root directory that it had here */
	uint64_t restore_base; /* TREE_GET leaves out what is as it was at that point; 0: none */
	bool paused;	       /* a person said so; outlives limbd, as frozen does */
	bool frozen;	       /* its processes are stopped; outlives limbd */
	uint64_t synced_point; /* the record of the last consistent point; 0: none since start */
	bool muted;	       /* what it says of its files waits: it is not the writer of record */
	bool no_jobs;	       /* none is started now */

	/* the synced copy of its index (upkeep.c) */
	bool copy_known;
	uint64_t copy_seq, copy_ms; /* what it has, and when it was made: 0 not by this limbd */
	uint64_t looked_seq, looked_ms;

	/* condition */
	bool wanted; /* should be running and attached */
	bool busy;   /* a create, rebuild, start or stop is under way */
	bool creating;
	uint64_t left_out;     /* of --from, in its creation: what could not be read, and mounts */
	uint64_t rebuild_from; /* see env_root_gone; 0: the newest; outlives limbd */
	bool restoring;	       /* a rebuild began and not all files are back; outlives limbd */
	bool first_sync_done;
	bool hostile, halted, lost, mount_changed, failed;
	bool unread; /* env.json could not be read, so it is not written over */
	struct env_reason reasons[ENV_REASONS_MAX]; /* limbd's own */
	size_t n_reasons;
	struct env_reason said[ENV_REASONS_MAX]; /* from the last STATUS */
	size_t n_said;
	struct entry_status status; /* last; zeros before */
	bool has_status;
	uint64_t last_word_ms; /* monotonic; 0 never */
	uint64_t fell_ms;      /* monotonic: since when its line, that was up, is down; else 0 */
	uint64_t restore_at;   /* index point that PULL and TREE_GET read; INDEX_NOW usually */
	unsigned attach_failures;
	bool was_up; /* its line was up, and no other was tried since */

	/* what the next HELLO is for (attach.h) */
	const char *next_why; /* NULL: the same life goes on */
	bool next_fresh, next_restoring;
	uv_timer_t retry;
	bool retry_ready;
	uint64_t session; /* counts WELCOMEs: whose JOB_LIST can know a job */
	/* job-output.c: since old output was last looked for */
	uint64_t output_bytes;
	unsigned output_dirs;
};

int env_new(struct brain *b, const char *name, struct env **ret); /* with a fresh id, no files */
int env_load(struct brain *b, const uint8_t id[16], const char *name, struct env **ret);
/* One whose env.json cannot be read: its name and its directory, failed and unread. */
int env_new_unread(struct brain *b, const uint8_t id[16], const char *name, struct env **ret);
int env_make_dirs(struct env *env);
int env_open(struct env *env, bool create); /* log and index */
int env_resume(struct env *env);	    /* what the index knows of its present incarnation */
void env_close(struct env *env);	    /* closes log and index; keeps the struct */
void env_free(struct env *env);
/* When no commit round and no timer of it runs any more. */
void env_free_later(struct env *env);
void env_link_in(struct env *env); /* into brain->envs */
void env_link_out(struct env *env);
struct env *env_find(struct brain *b, const char *name);
struct env *env_parent(const struct env *env); /* of which it is a fork, if that is still there */

/* A place of env as an env of its own, with its journal and without a view, in no list: for
 * a line to it. What is of the place is empty. */
int env_guest_new(struct env *env, uint64_t place, struct env **ret);
json_t *env_place_json(const struct env *env);
int env_place_take(struct env *env, json_t *o); /* -EBADMSG: not a place */
void env_place_swap(struct env *a, struct env *b);
char *env_hands_dir(const struct env *env); /* malloc'ed paths of this machine */
char *env_own_root(const struct env *env);
void env_place_name(const struct env *env, const char *what, char out[40]); /* "root.N" */

/* Spec, provider answers, wanted and mode, in dir/env.json: how this machine carries the
 * environment. Replaced atomically at each change. */
int env_save(struct env *env);

enum env_state env_state(const struct env *env);
int env_set_reason(struct env *env, const char *code, const char *fmt, ...) _printf_(3, 4);
/* Nothing more is tried: a person has to do what the reason says, which takes the place of what
 * was said of the line. */
void env_halt(struct env *env, const char *code, const char *fmt, ...) _printf_(3, 4);
/* It said what cannot be; the handler that found it ends the line. Nothing more is heard of it
 * until a person says so. */
void env_lied(struct env *env, const char *fmt, ...) _printf_(2, 3);
/* Its root is gone. Who removes a directory empties it first, and what was watched says so: the
 * deletions that led up to this are not meant for the tree. rebuild_from is the position
 * before them, and a rebuild takes that. */
void env_root_gone(struct env *env);
void env_reason_done(struct env_reason *r);
bool env_has_reason(const struct env *env, const char *code);
void env_clear_reason(struct env *env, const char *code); /* NULL: all */

uint64_t env_seq(struct env *env); /* last committed */
/* index_read_begin() of its index; -EIO for one whose journal could not be opened. */
int env_read_begin(struct env *env, struct index_txn **ret);
uint64_t env_nodes(struct env *env); /* that its tree has now; 0: not known */

/* Objects of the command-line contract; new references, NULL only without memory. */
json_t *env_json_inspect(struct env *env);
json_t *env_json_status(struct env *env);
json_t *env_json_reasons(const struct env *env); /* [REASON] */

#endif
