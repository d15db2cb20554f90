/*
 * fuzz.h - what the fuzzers share: input taken piece by piece (zeros behind its
 * end), and a directory in memory.
 */
#ifndef TESTS_FUZZ_FUZZ_H
#define TESTS_FUZZ_FUZZ_H

#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "base/util.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* What has to hold; a fuzzer sees it in the abort. */
#define must(ok)                                                                       \
	do {                                                                           \
		if (!(ok)) {                                                           \
			(void)fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #ok); \
			abort();                                                       \
		}                                                                      \
	} while (0)

struct fuzz_in {
	const uint8_t *p;
	size_t n;
};

static inline uint64_t fuzz_take(struct fuzz_in *in, unsigned bytes)
{
	uint64_t v = 0;

	for (unsigned i = 0; i < bytes && in->n > 0; i++) {
		v |= (uint64_t)*in->p++ << 8 * i;
		in->n--;
	}
	return v;
}

/* At most max bytes, as many as a length of two bytes in front of them says; lent. */
static inline size_t fuzz_take_bytes(struct fuzz_in *in, size_t max, const uint8_t **ret)
{
	size_t n = (size_t)fuzz_take(in, 2);

	n = MIN(n, max);
	n = MIN(n, in->n);
	*ret = in->p;
	in->p += n;
	in->n -= n;
	return n;
}

static char fuzz_dir_path[64] __attribute__((unused));

static inline void fuzz_dir_remove(void)
{
	(void)file_remove_tree(AT_FDCWD, fuzz_dir_path);
}

/* A directory of this process, gone at its exit. */
static inline int fuzz_dir(void)
{
	const char *tmp = getenv("TMPDIR");
	int fd;

	if (!tmp || strlen(tmp) > sizeof(fuzz_dir_path) - 20)
		tmp = access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp";
	(void)snprintf(fuzz_dir_path, sizeof(fuzz_dir_path), "%s/limb-fuzz-XXXXXX", tmp);
	must(mkdtemp(fuzz_dir_path) != NULL);
	(void)atexit(fuzz_dir_remove);
	fd = file_open_dir(AT_FDCWD, fuzz_dir_path);
	must(fd >= 0);
	return fd;
}

#endif
