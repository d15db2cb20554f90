/*
 * proc.h - processes as /proc shows them: who descends from whom, and signals
 * to a whole tree.
 *
 * A tree is walked by parent, not by group or session: what called setsid() or
 * forked twice is still below the subreaper that its job's holder is.
 */
#ifndef SYNCD_PROC_H
#define SYNCD_PROC_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

struct proc {
	pid_t pid, ppid, session;
	char state;			  /* as in /proc/PID/stat */
	unsigned long long started_ticks; /* since boot */
};

/* All processes of this pid namespace, by pid; free() it. -ENOENT without /proc. */
int proc_list(struct proc **ret, size_t *ret_n);
const struct proc *proc_find(const struct proc *list, size_t n, pid_t pid);
/* True if pid descends from ancestor (not if it is the same). */
bool proc_below(const struct proc *list, size_t n, pid_t pid, pid_t ancestor);

/* Sends sig to every living descendant of root (not to root itself); the count. SIGSTOP and
 * SIGKILL reach those, too, that are forked meanwhile, and SIGSTOP is waited for: -EAGAIN if that
 * has no end (half a second and more). */
int proc_signal_tree(pid_t root, int sig);
/* SIGKILL to that session if any of it has NAME=value in the environment that it was started with: a
 * number alone may be somebody else's by now. 0 when nothing of it is left (or it is not ours);
 * -EAGAIN: something still ends, or begins and cannot be told yet: to be called again. */
int proc_kill_session(pid_t session, const char *name, const char *value);

#endif
