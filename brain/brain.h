/*
 * brain.h - limbd's data model: the brain, its environments, and who owns what.
 *
 * One loop thread owns every struct here.  Helper threads (uv_queue_work) get
 * values and descriptors, never these structs.  Modules, each with its header:
 *
 *	state	  the state directory: opening, locking, the brain's own log
 *	env	  an environment: its log, index, registry entry, condition
 *	commit	  group commit of an environment's records and content
 *	provider  running provider executables
 *	link	  the transport and limb-ingest of an attached environment
 *	attach	  HELLO and WELCOME: which incarnation this is, what may happen
 *	intake	  what an environment says became of its files, into the log
 *	feed	  TREE_GET and PULL: what the brain has, for the environment
 *	job	  jobs: records, output files, who waits
 *	life	  create, start, stop, rebuild, remove
 *	verify	  both sides compared, byte by byte
 *	quota	  what an environment's journal may take;  anew: after its disk was full
 *	upkeep	  what the journal needs in quiet times
 *	want	  what the brain's side wants changed, by paths;  queue: on its way into the
 *		  environment;  reconcile: when both sides changed it;  keep: its content
 *	view	  limb-fs processes;  past: the one of MNT/.at
 *	rpc	  clients; verb-*.c: the verbs that they call
 *
 * STATE/  limbd.sock limbd.lock limbd.log
 *	brain/log/		envs/ID/{log,index.N,jobs,hands,root,intent}
 *	store/main/		mnt/ (or where --mount says)
 */
#ifndef BRAIN_BRAIN_H
#define BRAIN_BRAIN_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <uv.h>

#include "journal/log.h"
#include "journal/store.h"

struct env;
struct rpc_server;
struct upkeep;
struct past;
struct job;

struct brain {
	uv_loop_t *loop;
	char *state_dir; /* absolute */
	char *mount_dir; /* absolute */
	char *socket_path;
	int state_fd, envs_fd, lock_fd;
	uint8_t id[16];
	uint64_t term;
	struct log *log; /* the brain's own */
	struct store *store;
	struct env *envs; /* list, by name */
	struct job *jobs; /* list, newest first */
	struct rpc_server *rpc;
	int64_t started_ns;
	char *helper_dir; /* where limb-ingest, limb-fs ... are: pkglibexecdir or the build tree */
	bool in_build_tree;
	mode_t umask;	  /* of whoever started limbd: for what runs in environments */
	char *syncd_path; /* limb-syncd on this machine */
	bool stopping;
	bool disk_full; /* almost: quota.h */
	bool anew;	/* anew.h */
	uv_timer_t anew_timer;
	uv_timer_t disk_timer;
	unsigned pack_works;		/* helper threads that make or close packs */
	_Atomic uint64_t last_round_ms; /* when a commit round began last; any thread */
	struct upkeep *upkeep;
	struct past *past;	 /* NULL: not started, or ended */
	unsigned past_failures;	 /* limb-fs of past views that ended, one after the other */
	uv_check_t commit_check; /* starts group commits once per loop turn */
	uv_timer_t commit_timer; /* for those that gather */
	void (*stopped)(struct brain *b);
};

/* Path of a helper program (limb-ingest, limb-fs, providers/bwrap): malloc'ed. */
char *brain_helper(const struct brain *b, const char *name);

#endif
