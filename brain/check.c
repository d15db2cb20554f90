#include "brain/check.h"

#include <stdbool.h>
#include <sys/resource.h>
#include <sys/syscall.h>

#include "base/io.h"
#include "journal/pack.h"

/* ioprio_set(2) has no wrapper in the C library. */
enum { IOPRIO_WHO_PROCESS = 1, IOPRIO_CLASS_IDLE = 3, IOPRIO_CLASS_SHIFT = 13 };

void check_be_quiet(void)
{
	(void)setpriority(PRIO_PROCESS, 0, 19);
	(void)syscall(SYS_ioprio_set, IOPRIO_WHO_PROCESS, 0,
		      IOPRIO_CLASS_IDLE << IOPRIO_CLASS_SHIFT);
}

struct check {
	int fd, out;
	bool bad;
};

static int each_frame(uint64_t offset, const struct frame_info *info,
		      const struct frame_member *members, size_t n, void *userdata)
{
	struct check *c = userdata;
	int r;

	(void)info;
	(void)members;
	(void)n;
	r = frame_compare(c->fd, offset);
	if (r < 0)
		return r;
	if (r == 0) {
		c->bad = true;
		return 0;
	}
	return io_write_full(c->out, &offset, sizeof(offset), "check.say");
}

int check_pack(int fd, uint64_t length, int out)
{
	struct check c = {.fd = fd, .out = out};
	const uint64_t whole = CHECK_WHOLE;
	bool damaged;
	uint64_t end;
	int r;

	r = pack_walk_sized(fd, length, PACK_HEADER_BYTES, each_frame, &c, &end, &damaged);
	if (r < 0)
		return r;
	if (c.bad || damaged || end != length)
		return 0;
	return io_write_full(out, &whole, sizeof(whole), "check.say");
}
