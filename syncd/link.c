#include "syncd/link.h"

#include "base/io.h"
#include "base/util.h"

enum { HEADER_BYTES = 8, READ_BYTES = 64 << 10 };

int link_add(struct buf *out, enum link_type type, const void *data, size_t n)
{
	uint8_t *p;
	int r;

	if (n > LINK_MESSAGE_MAX)
		return -E2BIG;
	r = buf_reserve(out, HEADER_BYTES + n, &p);
	if (r < 0)
		return r;
	put_le32(p, (uint32_t)type);
	put_le32(p + 4, (uint32_t)n);
	if (n > 0)
		memcpy(p + HEADER_BYTES, data, n);
	buf_commit(out, HEADER_BYTES + n);
	return 0;
}

int link_next(const struct buf *in, uint32_t *ret_type, const uint8_t **ret_data, size_t *ret_n,
	      size_t *ret_bytes)
{
	const uint8_t *p = buf_data(in);
	size_t n;

	if (buf_len(in) < HEADER_BYTES)
		return 0;
	n = get_le32(p + 4);
	if (n > LINK_MESSAGE_MAX)
		return -EBADMSG;
	if (buf_len(in) < HEADER_BYTES + n)
		return 0;
	*ret_type = get_le32(p);
	*ret_data = p + HEADER_BYTES;
	*ret_n = n;
	*ret_bytes = HEADER_BYTES + n;
	return 1;
}

ssize_t link_receive(int fd, struct buf *in)
{
	uint8_t *p;
	ssize_t n;
	int r;

	r = buf_reserve(in, READ_BYTES, &p);
	if (r < 0)
		return r;
	n = io_read_some(fd, p, READ_BYTES, "link.receive");
	if (n > 0)
		buf_commit(in, (size_t)n);
	return n;
}

int link_flush(int fd, struct buf *out)
{
	while (buf_len(out) > 0) {
		ssize_t n = io_write_some(fd, buf_data(out), buf_len(out), "link.send");

		if (n == -EAGAIN)
			return 0;
		if (n < 0)
			return (int)n;
		buf_consume(out, (size_t)n);
	}
	return 0;
}
