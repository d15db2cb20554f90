/* Entries for limb-ingest: queued, written when its socket has room. */
#include "brain/link-impl.h"

#include <fcntl.h>
#include <sys/socket.h>

#include "base/log.h"
#include "base/sha256.h"
#include "brain/commit.h"
#include "brain/proof.h"
#include "journal/pack.h"

enum {
	OUT_LIMIT = 256 << 20,
	ZSTD_LEVEL = 1,
};

static int out_write(struct link *l, struct out *o)
{
	struct iovec iov = {.iov_base = o->bytes + o->done, .iov_len = o->n - o->done};
	union {
		char bytes[CMSG_SPACE(sizeof(int))];
		struct cmsghdr align;
	} control = {0};
	struct msghdr msg = {.msg_iov = &iov, .msg_iovlen = 1};
	struct cmsghdr *cm;
	ssize_t n;

	if (o->fd >= 0) {
		msg.msg_control = control.bytes;
		msg.msg_controllen = sizeof(control.bytes);
		cm = CMSG_FIRSTHDR(&msg);
		cm->cmsg_level = SOL_SOCKET;
		cm->cmsg_type = SCM_RIGHTS;
		cm->cmsg_len = CMSG_LEN(sizeof(int));
		memcpy(CMSG_DATA(cm), &o->fd, sizeof(int));
	}
	do
		n = sendmsg(l->sock, &msg, MSG_NOSIGNAL | MSG_DONTWAIT);
	while (n < 0 && errno == EINTR);
	if (n < 0)
		return -errno;
	if (o->fd >= 0) {
		(void)close(o->fd);
		o->fd = -1;
	}
	o->done += (size_t)n;
	l->out_bytes -= (size_t)n;
	return 0;
}

int link_flush(struct link *l)
{
	struct out *o;
	int r;

	while ((o = l->out_head)) {
		r = out_write(l, o);
		if (r == -EAGAIN)
			break;
		if (r < 0)
			return r;
		if (o->done < o->n)
			continue;
		l->out_head = o->next;
		if (!l->out_head)
			l->out_tail = &l->out_head;
		free(o);
	}
	link_poll_update(l);
	return 0;
}

/* An entry of `type`: a fixed part and bytes; fd (or -1) is taken over. */
static int link_put(struct env *env, enum entry_type type, const void *fixed, size_t fixed_n,
		    const void *data, size_t n, int fd)
{
	struct link *l = env->link;
	struct entry_head head = {.type = (uint16_t)type};
	size_t total = ALIGN_UP(sizeof(head) + fixed_n + n, (size_t)8);
	struct out *o;

	if (!l || l->out_bytes + total > OUT_LIMIT || !(o = calloc(1, sizeof(*o) + total))) {
		if (fd >= 0)
			(void)close(fd);
		return !l ? -ENOTCONN : l->out_bytes + total > OUT_LIMIT ? -ENOBUFS : -ENOMEM;
	}
	head.length = (uint32_t)total;
	memcpy(o->bytes, &head, sizeof(head));
	if (fixed_n)
		memcpy(o->bytes + sizeof(head), fixed, fixed_n);
	if (n)
		memcpy(o->bytes + sizeof(head) + fixed_n, data, n);
	o->n = total;
	o->fd = fd;
	*l->out_tail = o;
	l->out_tail = &o->next;
	l->out_bytes += total;
	/* Failure shows at the read side, where the line is ended once. */
	(void)link_flush(l);
	return 0;
}

int link_send_raw(struct env *env, const void *frames, size_t n)
{
	const uint32_t len[2] = {(uint32_t)n, 0}; /* as in struct entry_send */

	if (env->link)
		env->link->sent_bytes += n;
	return link_put(env, ENTRY_SEND, len, sizeof(len), frames, n, -1);
}

int link_send_start(struct env *env, uint64_t durable_number)
{
	return link_put(env, ENTRY_START, &durable_number, sizeof(durable_number), NULL, 0, -1);
}

int link_send(struct env *env, enum wire_type type, const ProtobufCMessage *msg, const void *bulk,
	      size_t bulk_len)
{
	_cleanup_(buf_done) struct buf frame = BUF_INIT(WIRE_BODY_MAX + WIRE_BULK_MAX + 64);
	int r;

	if (!env->link)
		return -ENOTCONN;
	r = wframe_pack(&frame, type, msg, bulk, bulk_len, env->compress);
	if (r < 0)
		return r;
	return link_send_raw(env, buf_data(&frame), buf_len(&frame));
}

uint32_t link_push_number(void)
{
	static uint32_t last;

	return ++last ? last : ++last;
}

size_t link_queued(const struct env *env)
{
	return env->link ? env->link->out_bytes : 0;
}

int link_send_seal(struct env *env)
{
	return link_put(env, ENTRY_SEAL, NULL, 0, NULL, 0, -1);
}

int link_send_seed(struct env *env, const void *hashes, size_t n)
{
	int r = 0;

	if (n == 0 || !env->link)
		return 0;
	for (size_t i = 0; i < n && r == 0; i++)
		r = proof_add(env->link->proof, (const uint8_t *)hashes + i * SHA256_BYTES);
	if (r < 0)
		return r;
	return link_put(env, ENTRY_SEED, NULL, 0, hashes, n * SHA256_BYTES, -1);
}

int link_send_base(struct env *env, uint64_t request, uint64_t size_bytes, int error,
		   const void *data, size_t n)
{
	struct entry_base_data e = {
		.request = request, .size_bytes = size_bytes, .error = error, .len = (uint32_t)n};

	return link_put(env, ENTRY_BASE_DATA, (const uint8_t *)&e + sizeof(e.head),
			sizeof(e) - sizeof(e.head), data, n, -1);
}

struct making {
	uv_work_t work;
	struct brain *brain;
	struct link *link; /* NULL: it ended meanwhile */
	uint8_t env_id[16], id[16];
	int fd, result;
};

void link_pack_forget(struct link *l)
{
	if (l->making)
		l->making->link = NULL;
	l->making = NULL;
}

static void making_work(uv_work_t *w)
{
	struct making *m = container_of(w, struct making, work);

	m->result = store_pack_create(m->brain->store, m->env_id, 0, m->id, &m->fd);
}

static int hand_over(struct env *env, struct making *m)
{
	struct entry_pack p = {.offset = PACK_HEADER_BYTES,
			       .seal_bytes = PACK_SEAL_BYTES,
			       .zstd_level = ZSTD_LEVEL};
	int r, copy;

	memcpy(p.pack_id, m->id, sizeof(p.pack_id));
	copy = fcntl(m->fd, F_DUPFD_CLOEXEC, 3);
	if (copy < 0)
		return -errno;
	r = commit_set_pack(env, m->id, m->fd);
	if (r < 0) {
		(void)close(copy);
		return r;
	}
	(void)take_fd(&m->fd);
	return link_put(env, ENTRY_PACK, (const uint8_t *)&p + sizeof(p.head),
			sizeof(p) - sizeof(p.head), NULL, 0, copy);
}

static void making_done(uv_work_t *w, int status)
{
	struct making *m = container_of(w, struct making, work);
	struct env *env = m->link ? m->link->env : NULL;
	int r = m->result;

	(void)status;
	m->brain->pack_works--;
	if (m->link)
		m->link->making = NULL;
	if (env && r >= 0)
		r = hand_over(env, m);
	if (m->fd >= 0) {
		(void)store_pack_done(m->brain->store, m->id, PACK_HEADER_BYTES);
		(void)close(m->fd);
	}
	if (env && r < 0) {
		log_warning_errno(r, "environment '%s': cannot make a pack", env->name);
		(void)env_set_reason(
			env, r == -ENOSPC || r == -EDQUOT ? "no_space" : "line_down",
			"cannot make a pack for what it sends: %s; limbd tries again by "
			"itself",
			strerror(-r));
		link_lost(env, "no pack");
	}
	free(m);
}

/* What a guest sends is not kept. */
static int send_guest_pack(struct env *env)
{
	struct entry_pack p = {.offset = PACK_HEADER_BYTES,
			       .seal_bytes = PACK_SEAL_BYTES,
			       .zstd_level = ZSTD_LEVEL};
	int fd;

	random_bytes(p.pack_id, sizeof(p.pack_id));
	fd = openat(env->dir_fd, ".", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
	if (fd < 0)
		return -errno;
	return link_put(env, ENTRY_PACK, (const uint8_t *)&p + sizeof(p.head),
			sizeof(p) - sizeof(p.head), NULL, 0, fd);
}

int link_send_pack(struct env *env)
{
	struct making *m;
	int r;

	if (env->guest_of)
		return send_guest_pack(env);
	if (env->link->making) /* limb-ingest has none that could be full */
		return -EPROTO;
	m = calloc(1, sizeof(*m));
	if (!m)
		return -ENOMEM;
	m->brain = env->brain;
	m->link = env->link;
	m->fd = -1;
	memcpy(m->env_id, env->id, sizeof(m->env_id));
	r = uv_queue_work(m->brain->loop, &m->work, making_work, making_done);
	if (r < 0) {
		free(m);
		return r;
	}
	env->link->making = m;
	m->brain->pack_works++;
	return 0;
}
