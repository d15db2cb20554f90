/*
 * process.h - processes that are not our children: found again, watched, ended,
 * without ever taking one for another whose number was used again.
 *
 * A process is known by its number, its start time in clock ticks since boot,
 * and the boot.  What we start carries a mark in its environment,
 * LIMB_HANDS=PROVIDER BRAIN ID, which its forks inherit, so that it is found
 * when the record of it is lost, too.
 *
 * A process can change what /proc shows of its environment.  So a mark counts
 * only in our own pid namespace, where nothing of a sandbox is: there, whoever
 * forges one is the user himself.
 */
#ifndef PROVIDERS_PROCESS_H
#define PROVIDERS_PROCESS_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define PROCESS_MARK "LIMB_HANDS"

struct process {
	pid_t pid;
	uint64_t start_ticks;
};

/* -ESRCH when there is none (or a zombie). */
int process_identify(pid_t pid, struct process *ret);
/* True if it is still the same process, and no zombie. */
bool process_alive(const struct process *p);
/* A pidfd of exactly this process; -ESRCH. */
int process_open(const struct process *p);

/* {"pid", "start_ticks", "boot_id"} in DIR/NAME, and back; -ENOENT when there is
 * none, or it is of another boot. */
int process_save(int dir, const char *name, const struct process *p);
int process_load(int dir, const char *name, struct process *ret);

/* Sends a signal; waits until it has ended or end_ms (clock_mono_ms) passed:
 * -ETIMEDOUT. Already gone is 0. */
int process_end(const struct process *p, int sig, uint64_t end_ms);

/* Each process of ours (same uid) whose mark is exactly `mark`, or begins with
 * `mark` when that ends with a blank. fn returns true to stop. */
typedef bool (*process_fn)(const struct process *p, const char *mark, void *userdata);
int process_each_marked(const char *mark, process_fn fn, void *userdata);

/* Kills every process with this mark and everything below it, until none is
 * left: -ETIMEDOUT. */
int process_kill_marked(const char *mark, uint64_t end_ms);

/* The child of `parent` that is the first process of a pid namespace below ours;
 * -ESRCH. */
int process_child_init(pid_t parent, struct process *ret);

#endif
