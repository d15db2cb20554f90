#include "fs/reader.h"

#include <pthread.h>

#include "base/log.h"

static int unreadable(uint64_t node, int r)
{
	static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
	static struct log_limit limit;
	bool say;

	if (r == -ENOMEM)
		return r;
	(void)pthread_mutex_lock(&lock);
	say = log_limited(&limit, 10, 1000);
	(void)pthread_mutex_unlock(&lock);
	if (say)
		(void)log_line_errno(LOG_LEVEL_WARNING, r, "cannot read the content of node %llu",
				     (unsigned long long)node);
	return -EIO;
}

int reader_read(struct source *s, uint64_t node, const struct content_ref *ref, uint64_t offset,
		size_t n, struct buf *out)
{
	int r;

	r = content_read(ref, offset, n, source_fetch, s, out);
	return r < 0 ? unreadable(node, r) : 0;
}

int reader_seek(struct source *s, uint64_t node, const struct content_ref *ref, uint64_t offset,
		bool hole, uint64_t *ret_offset)
{
	uint64_t bytes;
	bool is_hole;
	int r;

	if (offset >= ref->size_bytes)
		return -ENXIO;
	while (offset < ref->size_bytes) {
		r = content_extent(ref, offset, UINT64_MAX, source_fetch, s, &is_hole, &bytes);
		if (r < 0)
			return unreadable(node, r);
		if (is_hole == hole) {
			*ret_offset = offset;
			return 0;
		}
		offset += bytes;
	}
	/* To its end there is no more: the end counts as a hole. */
	if (!hole)
		return -ENXIO;
	*ret_offset = ref->size_bytes;
	return 0;
}
