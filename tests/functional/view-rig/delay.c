/*
 * delay.c - preloaded into limb-fs: holds back each answer (not notifications) for
 * LIMB_TEST_DELAY_US, between its making and its sending. Where what is known may be
 * overtaken by what is new, it then is.
 */
#include <dlfcn.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <time.h>

static ssize_t (*next)(int fd, const struct iovec *iov, int n);

__attribute__((constructor)) static void find_next(void)
{
	void *p = dlsym(RTLD_NEXT, "writev");

	memcpy(&next, &p, sizeof(p));
}

ssize_t writev(int fd, const struct iovec *iov, int n)
{
	const char *delay_us = getenv("LIMB_TEST_DELAY_US");
	struct timespec pause = {0};
	uint64_t unique;

	/* fuse_out_header: u32 length, i32 error, u64 unique, which is 0 in notifications. */
	if (delay_us && n > 0 && iov[0].iov_len == 16) {
		memcpy(&unique, (const char *)iov[0].iov_base + 8, sizeof(unique));
		pause.tv_nsec = unique ? strtol(delay_us, NULL, 10) * 1000 : 0;
		if (unique)
			(void)nanosleep(&pause, NULL);
	}
	return next(fd, iov, n);
}
