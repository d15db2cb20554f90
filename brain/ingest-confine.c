#include "brain/ingest-confine.h"

#include <grp.h>
#include <seccomp.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>

#include "base/log.h"
#include "base/util.h"
#include "journal/pack.h"

#if defined(__SANITIZE_ADDRESS__)
#define SANITIZERS 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define SANITIZERS 1
#endif
#endif
#ifndef SANITIZERS
#define SANITIZERS 0
#endif

#define DEFAULT_ACTION (SANITIZERS ? SCMP_ACT_ERRNO(EPERM) : SCMP_ACT_KILL_PROCESS)

enum {
	/* stdio, the socket, a pack, the pack behind it, and what a message may bring */
	FILES_MAX = 16,
};

/* mmap stands apart: anonymous memory only, and never executable. */
static const int allowed[] = {
	SCMP_SYS(brk),	       SCMP_SYS(clock_gettime),	  SCMP_SYS(close),
	SCMP_SYS(exit),	       SCMP_SYS(exit_group),	  SCMP_SYS(futex),
	SCMP_SYS(getrandom),   SCMP_SYS(madvise),	  SCMP_SYS(mremap),
	SCMP_SYS(munmap),      SCMP_SYS(restart_syscall), SCMP_SYS(rt_sigreturn),
	SCMP_SYS(write),
#if SANITIZERS
	SCMP_SYS(sigaltstack), /* before each call that does not return */
#endif
};

static const int allowed_ingest[] = {
	SCMP_SYS(poll),	   SCMP_SYS(ppoll),   SCMP_SYS(pwrite64), SCMP_SYS(read),
	SCMP_SYS(recvmsg), SCMP_SYS(sendmsg), SCMP_SYS(writev),
};

static const int allowed_check[] = {SCMP_SYS(pread64)};

/* What a C library may try on the way to a message or an abort. */
static const int refused[] = {
	SCMP_SYS(fcntl),	  SCMP_SYS(fstat),
	SCMP_SYS(getpid),	  SCMP_SYS(gettid),
	SCMP_SYS(ioctl),	  SCMP_SYS(lseek),
	SCMP_SYS(newfstatat),	  SCMP_SYS(open),
	SCMP_SYS(openat),	  SCMP_SYS(readlink),
	SCMP_SYS(readlinkat),	  SCMP_SYS(rt_sigaction),
	SCMP_SYS(rt_sigprocmask), SCMP_SYS(sched_getaffinity),
	SCMP_SYS(stat),		  SCMP_SYS(statx),
	SCMP_SYS(sysinfo),
};

static int limit(int resource, rlim_t max)
{
	struct rlimit old, new;

	if (getrlimit(resource, &old) < 0)
		return -errno;
	max = MIN(max, old.rlim_max);
	new = (struct rlimit){.rlim_cur = max, .rlim_max = max};
	return setrlimit(resource, &new) < 0 ? -errno : 0;
}

static int set_limits(void)
{
	int r;

	r = limit(RLIMIT_CORE, 0);
	if (r >= 0)
		r = limit(RLIMIT_NOFILE, FILES_MAX);
	/* Of a pack, also of what a write past its end can take from the disk. */
	if (r >= 0)
		r = limit(RLIMIT_FSIZE, 2 * PACK_SEAL_BYTES);
	if (r >= 0 && !SANITIZERS)
		r = limit(RLIMIT_AS, CONFINE_MEMORY_BYTES);
	return r;
}

static int become(uid_t uid)
{
	if (uid == CONFINE_NO_UID)
		return 0;
	if (setgroups(0, NULL) < 0 || setresgid(uid, uid, uid) < 0 || setresuid(uid, uid, uid) < 0)
		return -errno;
	return 0;
}

static int allow(scmp_filter_ctx ctx, const int *calls, size_t n)
{
	int r = 0;

	for (size_t i = 0; i < n && r >= 0; i++)
		r = seccomp_rule_add(ctx, SCMP_ACT_ALLOW, calls[i], 0);
	return r;
}

static int add_rules(scmp_filter_ctx ctx, enum confine_as as)
{
	int r;

	r = allow(ctx, allowed, ARRAY_SIZE(allowed));
	if (r >= 0)
		r = as == CONFINE_CHECK ? allow(ctx, allowed_check, ARRAY_SIZE(allowed_check))
					: allow(ctx, allowed_ingest, ARRAY_SIZE(allowed_ingest));
	for (size_t i = 0; i < ARRAY_SIZE(refused) && r >= 0 && !SANITIZERS; i++)
		r = seccomp_rule_add(ctx, SCMP_ACT_ERRNO(EPERM), refused[i], 0);
	if (r >= 0)
		r = seccomp_rule_add(ctx, SCMP_ACT_ALLOW, SCMP_SYS(mmap), 2,
				     SCMP_A2(SCMP_CMP_MASKED_EQ, PROT_EXEC, 0),
				     SCMP_A3(SCMP_CMP_MASKED_EQ, MAP_ANONYMOUS, MAP_ANONYMOUS));
	return r;
}

static int load_filter(enum confine_as as)
{
	scmp_filter_ctx ctx;
	int r;

	ctx = seccomp_init(DEFAULT_ACTION);
	if (!ctx)
		return -ENOMEM;
	r = add_rules(ctx, as);
	if (r >= 0)
		r = seccomp_load(ctx);
	seccomp_release(ctx);
	return r;
}

int confine(enum confine_as as, uid_t uid, unsigned first_closed)
{
	int r;

	if (close_range(first_closed, ~0u, 0) < 0)
		return log_error_errno(errno, "cannot close descriptors");
	r = set_limits();
	if (r < 0)
		return log_error_errno(r, "cannot set limits");
	r = become(uid);
	if (r < 0)
		return log_error_errno(r, "cannot become user %u", (unsigned)uid);
	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 || prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) < 0)
		return log_error_errno(errno, "cannot give up privileges");
	r = load_filter(as);
	if (r < 0)
		return log_error_errno(r, "cannot install the system call filter");
	return 0;
}
