#include "syncd/record.h"

#include <fcntl.h>
#include <sys/file.h>

#include "base/io.h"
#include "base/sha256.h"
#include "base/util.h"
#include "syncd/link.h"

enum {
	SLOT_BYTES = 2048,
	RECORD_BYTES = 2 * SLOT_BYTES,
	ID_BYTES = LINK_JOB_MAX + 1,
	HEAD_BYTES = ID_BYTES + 4,
	CHECK_BYTES = 8,
	BODY_MAX = SLOT_BYTES - HEAD_BYTES - CHECK_BYTES,
};

static void check_of(const uint8_t slot[SLOT_BYTES], uint8_t out[CHECK_BYTES])
{
	uint8_t hash[SHA256_BYTES];

	sha256(slot, SLOT_BYTES - CHECK_BYTES, hash);
	memcpy(out, hash, CHECK_BYTES);
}

int record_prepare(int dir, int *ret_fd)
{
	static const uint8_t zeros[RECORD_BYTES];
	cleanup_close int fd = -1;
	int r;

	fd = openat(dir, "record", O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
	if (fd < 0)
		return -errno;
	if (flock(fd, LOCK_EX | LOCK_NB) < 0)
		return -errno;
	r = io_pwrite_full(fd, zeros, sizeof(zeros), 0, "record.prepare");
	if (r < 0)
		return r;
	*ret_fd = take_fd(&fd);
	return 0;
}

int record_write(int fd, const char *job, enum record_slot which, const ProtobufCMessage *m)
{
	uint8_t slot[SLOT_BYTES] = {0};
	size_t n = protobuf_c_message_get_packed_size(m);

	if (n > BODY_MAX || strlen(job) > LINK_JOB_MAX)
		return -E2BIG;
	memcpy(slot, job, strlen(job));
	put_le32(slot + ID_BYTES, (uint32_t)n);
	(void)protobuf_c_message_pack(m, slot + HEAD_BYTES);
	check_of(slot, slot + SLOT_BYTES - CHECK_BYTES);
	return io_pwrite_full(fd, slot, sizeof(slot), (uint64_t)which * SLOT_BYTES, "record.write");
}

void *record_read(int fd, const char *job, enum record_slot which)
{
	const ProtobufCMessageDescriptor *type = which == RECORD_BEGIN
							 ? &limbwire__job_started__descriptor
							 : &limbwire__job_exit__descriptor;
	uint8_t slot[SLOT_BYTES], check[CHECK_BYTES];
	uint32_t n;

	if (io_pread_full(fd, slot, sizeof(slot), (uint64_t)which * SLOT_BYTES, "record.read") !=
	    SLOT_BYTES)
		return NULL;
	check_of(slot, check);
	n = get_le32(slot + ID_BYTES);
	if (memcmp(check, slot + SLOT_BYTES - CHECK_BYTES, sizeof(check)) != 0 || n > BODY_MAX ||
	    strlen(job) > LINK_JOB_MAX || strncmp((const char *)slot, job, ID_BYTES) != 0)
		return NULL;
	return protobuf_c_message_unpack(type, NULL, n, slot + HEAD_BYTES);
}

bool record_locked(int fd)
{
	if (flock(fd, LOCK_SH | LOCK_NB) < 0)
		return true;
	(void)flock(fd, LOCK_UN);
	return false;
}
