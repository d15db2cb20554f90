#include "fs/contents.h"

#include <fcntl.h>
#include <pthread.h>

#include "base/util.h"

struct contents {
	int fd;
	enum store_mode mode;
	pthread_rwlock_t lock; /* readers: it is used; writer: it is opened or closed */
	struct store *store;
};

int contents_open(int store_fd, enum store_mode mode, struct contents **ret)
{
	struct contents *c = calloc(1, sizeof(*c));
	int r;

	if (!c)
		return -ENOMEM;
	c->mode = mode;
	c->fd = fcntl(store_fd, F_DUPFD_CLOEXEC, 3);
	if (c->fd < 0) {
		r = -errno;
		free(c);
		return r;
	}
	(void)pthread_rwlock_init(&c->lock, NULL);
	*ret = c;
	return 0;
}

void contents_close(struct contents *c)
{
	if (!c)
		return;
	store_close(c->store);
	(void)pthread_rwlock_destroy(&c->lock);
	(void)close(c->fd);
	free(c);
}

static int open_store(struct contents *c)
{
	int r = 0;

	(void)pthread_rwlock_wrlock(&c->lock);
	if (!c->store)
		r = store_open(c->fd, c->mode, &c->store);
	(void)pthread_rwlock_unlock(&c->lock);
	return r;
}

int contents_fetch(const uint8_t hash[SHA256_BYTES], struct buf *out, void *contents)
{
	struct contents *c = contents;
	int r;

	(void)pthread_rwlock_rdlock(&c->lock);
	while (!c->store) {
		(void)pthread_rwlock_unlock(&c->lock);
		r = open_store(c);
		if (r < 0)
			return r;
		(void)pthread_rwlock_rdlock(&c->lock);
	}
	r = store_fetch(c->store, hash, out);
	(void)pthread_rwlock_unlock(&c->lock);
	return r;
}

void contents_close_removed(struct contents *c)
{
	(void)pthread_rwlock_rdlock(&c->lock);
	if (c->store)
		store_close_removed(c->store);
	(void)pthread_rwlock_unlock(&c->lock);
}

void contents_rest(struct contents *c)
{
	(void)pthread_rwlock_wrlock(&c->lock);
	store_close(c->store);
	c->store = NULL;
	(void)pthread_rwlock_unlock(&c->lock);
}
