#include "journal/log-head.h"

#include <fcntl.h>
#include <sys/stat.h>

#include "base/io.h"
#include "base/util.h"

enum {
	SLOT_BYTES = 64,
	SLOT_STRIDE = 512, /* a sector each: a torn write spoils one */
	FILE_BYTES = 1024,
	CHECK_OFFSET = 56,
};

static const char head_name[] = "head";
static const uint8_t magic[8] = "LIMBHEAD";

static void slot_seal(const struct log_head *head, uint8_t out[SLOT_BYTES])
{
	uint8_t hash[SHA256_BYTES];

	memset(out, 0, SLOT_BYTES);
	memcpy(out, magic, sizeof(magic));
	put_le64(out + 8, head->seq);
	memcpy(out + 16, head->chain, SHA256_BYTES);
	sha256(out, CHECK_OFFSET, hash);
	memcpy(out + CHECK_OFFSET, hash, SLOT_BYTES - CHECK_OFFSET);
}

static bool slot_parse(const uint8_t in[SLOT_BYTES], struct log_head *ret)
{
	uint8_t hash[SHA256_BYTES];

	sha256(in, CHECK_OFFSET, hash);
	if (memcmp(in, magic, sizeof(magic)) != 0 ||
	    memcmp(in + CHECK_OFFSET, hash, SLOT_BYTES - CHECK_OFFSET) != 0)
		return false;
	ret->seq = get_le64(in + 8);
	memcpy(ret->chain, in + 16, SHA256_BYTES);
	return true;
}

/* -ENOENT: nothing was ever put; -EBADMSG: no slot is good. */
static int read_slots(int fd, struct log_head *ret, unsigned *ret_slot)
{
	uint8_t bytes[FILE_BYTES] = {0};
	struct log_head h;
	bool found = false;
	ssize_t k;

	k = io_pread_full(fd, bytes, sizeof(bytes), 0, "log.read");
	if (k < 0)
		return (int)k;
	for (unsigned i = 0; i < 2; i++) {
		if (!slot_parse(bytes + (size_t)i * SLOT_STRIDE, &h) ||
		    (found && h.seq <= ret->seq))
			continue;
		*ret = h;
		*ret_slot = i;
		found = true;
	}
	if (found)
		return 0;
	for (size_t i = 0; i < sizeof(bytes); i++) {
		if (bytes[i] != 0)
			return -EBADMSG;
	}
	return -ENOENT;
}

int log_head_read(int dir_fd, struct log_head *ret)
{
	cleanup_close int fd = -1;
	struct log_head h = {0};
	unsigned slot = 0;
	int r;

	fd = openat(dir_fd, head_name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
	if (fd < 0)
		return -errno;
	r = read_slots(fd, &h, &slot);
	if (r < 0)
		return r;
	if (h.seq == 0)
		return -ENOENT;
	*ret = h;
	return 0;
}

static int prepare(int dir_fd, int fd)
{
	struct stat st;
	int r;

	if (fstat(fd, &st) < 0)
		return -errno;
	if (st.st_size >= FILE_BYTES)
		return 0;
	r = io_fill_zeros(fd, (uint64_t)st.st_size, FILE_BYTES, "log.head.fill");
	if (r < 0)
		return r;
	r = io_fsync(fd, "log.head.sync");
	if (r < 0)
		return r;
	return io_fsync(dir_fd, "log.dir.sync");
}

int log_head_open(int dir_fd, struct log_head_file *ret, struct log_head *ret_head)
{
	cleanup_close int fd = -1;
	struct log_head h = {0};
	unsigned slot = 1;
	int r;

	fd = openat(dir_fd, head_name, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (fd < 0)
		return -errno;
	r = prepare(dir_fd, fd);
	if (r < 0)
		return r;
	r = read_slots(fd, &h, &slot);
	if (r < 0 && r != -ENOENT && r != -EBADMSG)
		return r;
	*ret = (struct log_head_file){.fd = take_fd(&fd), .next_slot = 1 - slot};
	*ret_head = h;
	return 0;
}

void log_head_done(struct log_head_file *f)
{
	if (f->fd >= 0)
		(void)close(f->fd);
	f->fd = -1;
}

int log_head_put(struct log_head_file *f, const struct log_head *head)
{
	uint8_t bytes[SLOT_BYTES];
	int r;

	slot_seal(head, bytes);
	r = io_pwrite_full(f->fd, bytes, sizeof(bytes), (uint64_t)f->next_slot * SLOT_STRIDE,
			   "log.head.write");
	if (r < 0)
		return r;
	f->next_slot = 1 - f->next_slot;
	return 0;
}

int log_head_sync(struct log_head_file *f)
{
	return io_fdatasync(f->fd, "log.head.sync");
}
