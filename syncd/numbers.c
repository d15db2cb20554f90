#include "syncd/numbers.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "base/io.h"
#include "base/util.h"

#define FILE_NAME "applied"

void numbers_init(struct numbers *n)
{
	*n = (struct numbers){.fd = -1};
}

void numbers_done(struct numbers *n)
{
	if (n->fd >= 0)
		(void)close(n->fd);
	n->fd = -1;
}

static int numbers_open(struct numbers *n, int private_fd)
{
	uint8_t b[NUMBERS_MAX * 8] = {0};

	if (n->fd >= 0)
		return 0;
	n->fd = openat(private_fd, FILE_NAME, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
	if (n->fd < 0)
		return -errno;
	if (io_pread_full(n->fd, b, sizeof(b), 0, "apply.number.read") < 0)
		return 0;
	for (unsigned i = 0; i < NUMBERS_MAX; i++)
		n->made[i].number = get_le64(b + (size_t)i * 8);
	return 0;
}

static const struct number *find(const struct numbers *n, uint64_t number)
{
	for (unsigned i = 0; i < NUMBERS_MAX; i++)
		if (n->made[i].number == number)
			return &n->made[i];
	return NULL;
}

int numbers_made(struct numbers *n, int private_fd, uint64_t number)
{
	int r = numbers_open(n, private_fd);

	return r < 0 ? r : find(n, number) != NULL;
}

int numbers_add(struct numbers *n, uint64_t number, const struct stat *st)
{
	unsigned at = 0;
	uint8_t b[8];

	/* In place of the oldest: numbers rise, but for those that were refused once. */
	for (unsigned i = 1; i < NUMBERS_MAX; i++)
		if (n->made[i].number < n->made[at].number)
			at = i;
	n->made[at] = (struct number){.number = number};
	if (st) {
		n->made[at].inode = st->st_ino;
		n->made[at].device = st->st_dev;
	}
	put_le64(b, number);
	return io_pwrite_full(n->fd, b, sizeof(b), (uint64_t)at * 8, "apply.number");
}

bool numbers_left(const struct numbers *n, uint64_t number, const struct stat *st)
{
	const struct number *m = find(n, number);

	return m && m->inode && m->inode == st->st_ino && m->device == st->st_dev;
}

void numbers_forget(struct numbers *n, int private_fd)
{
	numbers_done(n);
	numbers_init(n);
	(void)unlinkat(private_fd, FILE_NAME, 0);
}
