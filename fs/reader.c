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

struct seek {
	uint64_t from;
	bool hole;
	uint64_t found;
};

static int seek_piece(const uint8_t *hash, uint64_t offset, uint64_t len, void *userdata)
{
	struct seek *k = userdata;

	if (offset + len <= k->from || (hash == NULL) != k->hole)
		return 0;
	k->found = MAX(offset, k->from);
	return 1;
}

int reader_seek(struct source *s, uint64_t node, const struct content_ref *ref, uint64_t offset,
		bool hole, uint64_t *ret_offset)
{
	struct seek k = {.from = offset, .hole = hole};
	int r = 0;

	if (offset >= ref->size_bytes)
		return -ENXIO;
	if (!ref->holes)
		k.found = hole ? ref->size_bytes : offset;
	else
		r = content_walk(ref, source_fetch, s, seek_piece, &k);
	if (r < 0)
		return unreadable(node, r);
	if (ref->holes && r == 0) {
		/* To its end there is no more: the end counts as a hole. */
		if (!hole)
			return -ENXIO;
		k.found = ref->size_bytes;
	}
	*ret_offset = k.found;
	return 0;
}
