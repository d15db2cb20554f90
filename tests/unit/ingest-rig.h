/*
 * ingest-rig.h - the real limb-ingest between a fake limbd and a fake limb-syncd.
 *
 *	rig_start(&rig, packs ready or not)	HELLO is through
 *	rig_say(&rig, WIRE_X, &msg.base, bulk, n)	from the environment
 *	e = rig_entry(&rig, ENTRY_X)		the next entry, which must be of this type
 *	rig_content(&rig, &ref, &buf)		read back from the packs by its places
 *	rig_end(&rig, exit status)
 *
 * ENTRY_PLACES are taken on the way: rig_entry() never gives them.  Everything waits for
 * conditions, up to RIG_WAIT_MS.
 */
#ifndef TESTS_INGEST_RIG_H
#define TESTS_INGEST_RIG_H

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include "base/clock.h"
#include "base/io.h"
#include "brain/entry.h"
#include "journal/content.h"
#include "journal/pack.h"
#include "wire/frame.h"
#include "wire/wire.pb-c.h"

#define RIG_WAIT_MS 30000
#define RIG_PACKS_MAX 16
#define RIG_MARK_BYTES 16

struct rig_place {
	struct entry_place place;
	int pack_fd;
};

struct rig {
	pid_t pid;
	int limbd, to, from; /* our ends */
	int packs[RIG_PACKS_MAX];
	size_t n_packs;
	uint64_t pack_end; /* of the newest, as limbd was told */
	struct rig_place *places;
	size_t n_places;
	unsigned places_entries; /* how many ENTRY_PLACES came */
	struct buf to_wire, from_wire, to_limb, from_limb;
	size_t taken;		    /* bytes of the entry handed out last */
	bool limbd_deaf, wire_deaf; /* this end is not read */
	bool limbd_eof, wire_eof;
	uint64_t number; /* of the last change */
};

static inline const char *rig_program(void)
{
	static char path[4096];
	const char *dir = getenv("LIMB_TOP_BUILDDIR");

	(void)snprintf(path, sizeof(path), "%s/brain/limb-ingest", dir ? dir : ".");
	return path;
}

/* The descriptors become 0, 1 and 3 of the program. */
static inline pid_t rig_spawn(int in, int out, int limbd, char *const argv[])
{
	pid_t pid = fork();

	assert_true(pid >= 0);
	if (pid > 0)
		return pid;
	in = fcntl(in, F_DUPFD, 10);
	out = fcntl(out, F_DUPFD, 10);
	limbd = fcntl(limbd, F_DUPFD, 10);
	if (dup2(in, 0) < 0 || dup2(out, 1) < 0 || dup2(limbd, 3) < 0)
		_exit(126);
	execv(argv[0], argv);
	_exit(127);
}

static inline void rig_spawn_with(struct rig *r, char *const argv[])
{
	int sock[2], in[2], out[2];

	*r = (struct rig){.limbd = -1};
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sock), 0);
	assert_int_equal(pipe2(in, O_CLOEXEC), 0);
	assert_int_equal(pipe2(out, O_CLOEXEC), 0);
	r->pid = rig_spawn(in[0], out[1], sock[1], argv);
	close(in[0]);
	close(out[1]);
	close(sock[1]);
	r->limbd = sock[0];
	r->to = in[1];
	r->from = out[0];
	assert_int_equal(fcntl(r->limbd, F_SETFL, O_NONBLOCK), 0);
	assert_int_equal(fcntl(r->to, F_SETFL, O_NONBLOCK), 0);
	assert_int_equal(fcntl(r->from, F_SETFL, O_NONBLOCK), 0);
	(void)signal(SIGPIPE, SIG_IGN);
}

static inline void rig_read(int fd, struct buf *b, bool *eof)
{
	uint8_t *p;
	ssize_t n;

	assert_int_equal(buf_reserve(b, 65536, &p), 0);
	n = io_read_some(fd, p, 65536, "rig");
	if (n == -EAGAIN)
		return;
	if (n <= 0)
		*eof = true;
	else
		buf_commit(b, (size_t)n);
}

static inline void rig_write(int fd, struct buf *b)
{
	ssize_t n = io_write_some(fd, buf_data(b), buf_len(b), "rig");

	if (n == -EAGAIN)
		return;
	if (n < 0)
		buf_clear(b); /* it has gone */
	else
		buf_consume(b, (size_t)n);
}

/* One round of moving bytes on all sides; false when nothing moved in `ms`. */
static inline bool rig_step(struct rig *r, int ms)
{
	struct pollfd p[] = {
		{.fd = r->limbd_eof ? -1 : r->limbd},
		{.fd = buf_len(&r->to_wire) ? r->to : -1, .events = POLLOUT},
		{.fd = r->wire_deaf || r->wire_eof ? -1 : r->from, .events = POLLIN},
	};
	int n;

	if (!r->limbd_deaf)
		p[0].events |= POLLIN;
	if (buf_len(&r->to_limb))
		p[0].events |= POLLOUT;
	if (!p[0].events)
		p[0].fd = -1;
	n = poll(p, 3, ms);
	if (n <= 0)
		return false;
	if (p[0].revents & POLLOUT)
		rig_write(r->limbd, &r->to_limb);
	if (!r->limbd_deaf && p[0].revents & (POLLIN | POLLHUP | POLLERR))
		rig_read(r->limbd, &r->from_limb, &r->limbd_eof);
	if (p[1].revents)
		rig_write(r->to, &r->to_wire);
	if (p[2].revents)
		rig_read(r->from, &r->from_wire, &r->wire_eof);
	return true;
}

/* As long as `condition` does not hold. */
#define RIG_UNTIL(r, condition)                                             \
	do {                                                                \
		uint64_t by_ = clock_mono_ms() + RIG_WAIT_MS;               \
		while (!(condition)) {                                      \
			(void)rig_step(r, 100);                             \
			if (clock_mono_ms() > by_)                          \
				fail_msg("waited in vain: %s", #condition); \
		}                                                           \
	} while (0)

/* ---- limbd ---- */

static inline void rig_tell(struct rig *r, uint16_t type, const void *e, size_t size,
			    const void *tail, size_t n)
{
	assert_int_equal(entry_add(&r->to_limb, type, e, size, tail, n), 0);
	RIG_UNTIL(r, r->limbd_deaf || r->limbd_eof || buf_len(&r->to_limb) == 0);
}

static inline void rig_pack_of(struct rig *r, int fd, uint64_t seal_bytes)
{
	struct entry_pack e = {
		.offset = PACK_HEADER_BYTES, .seal_bytes = seal_bytes, .zstd_level = 1};
	union {
		struct cmsghdr head;
		char bytes[CMSG_SPACE(sizeof(int))];
	} control = {0};
	struct iovec iov = {.iov_base = &e, .iov_len = sizeof(e)};
	struct msghdr m = {.msg_iov = &iov,
			   .msg_iovlen = 1,
			   .msg_control = &control,
			   .msg_controllen = sizeof(control)};

	assert_true(r->n_packs < RIG_PACKS_MAX);
	RIG_UNTIL(r, buf_len(&r->to_limb) == 0);
	e.head = (struct entry_head){.length = sizeof(e), .type = ENTRY_PACK};
	control.head.cmsg_level = SOL_SOCKET;
	control.head.cmsg_type = SCM_RIGHTS;
	control.head.cmsg_len = CMSG_LEN(sizeof(int));
	memcpy(CMSG_DATA(&control.head), &fd, sizeof(fd));
	assert_int_equal(sendmsg(r->limbd, &m, 0), sizeof(e));
	r->packs[r->n_packs++] = fd;
	r->pack_end = PACK_HEADER_BYTES;
}

static inline void rig_pack(struct rig *r, uint64_t seal_bytes)
{
	int fd = memfd_create("pack", MFD_CLOEXEC);

	assert_true(fd >= 0);
	assert_int_equal(ftruncate(fd, PACK_HEADER_BYTES), 0);
	rig_pack_of(r, fd, seal_bytes);
}

static inline void rig_seed(struct rig *r, const void *data, size_t n)
{
	struct entry_head e = {0};
	uint8_t hash[SHA256_BYTES];

	sha256(data, n, hash);
	rig_tell(r, ENTRY_SEED, &e, sizeof(e), hash, sizeof(hash));
}

static inline void rig_take_places(struct rig *r, const struct entry_places *e)
{
	const struct entry_place *p = entry_tail(e);
	int pack = r->packs[r->n_packs - 1];
	uint8_t header[FRAME_HEADER_BYTES];
	struct frame_info info;

	assert_true(r->n_packs > 0);
	r->places_entries++;
	r->places = realloc(r->places, (r->n_places + e->n) * sizeof(*r->places));
	for (uint32_t i = 0; i < e->n; i++) {
		struct buf b = BUF_INIT(FRAME_RAW_MAX);

		r->places[r->n_places++] = (struct rig_place){.place = p[i], .pack_fd = pack};
		/* What limbd hears of is there already, and is what its hash says. */
		assert_int_equal(frame_read_member(pack, p[i].offset, p[i].hash, &b), 0);
		assert_int_equal(buf_len(&b), p[i].len);
		buf_done(&b);
	}
	/* One frame, behind the one before. */
	assert_int_equal(pread(pack, header, sizeof(header), (off_t)r->pack_end), sizeof(header));
	assert_int_equal(frame_header_parse(header, &info), 0);
	assert_int_equal(info.n_members, e->n);
	assert_true(e->pack_end == r->pack_end + info.total);
	r->pack_end = e->pack_end;
}

/* The next entry but for places; NULL at the end of the socket. Lent until the next. */
static inline const struct entry_head *rig_next(struct rig *r)
{
	const struct entry_head *e;
	const char *why = "";
	ssize_t n;

	buf_consume(&r->from_limb, r->taken);
	r->taken = 0;
	for (;;) {
		RIG_UNTIL(r,
			  (n = entry_whole(buf_data(&r->from_limb), buf_len(&r->from_limb))) != 0 ||
				  r->limbd_eof);
		if (n == 0) {
			assert_int_equal(buf_len(&r->from_limb), 0);
			return NULL;
		}
		assert_true(n > 0);
		e = (const void *)buf_data(&r->from_limb);
		if (entry_check(e, &why) < 0)
			fail_msg("entry of type %u: %s", e->type, why);
		if (e->type != ENTRY_PLACES) {
			r->taken = (size_t)n;
			return e;
		}
		rig_take_places(r, (const void *)e);
		buf_consume(&r->from_limb, (size_t)n);
	}
}

static inline const void *rig_entry(struct rig *r, uint16_t type)
{
	const struct entry_head *e = rig_next(r);

	if (!e)
		fail_msg("end in place of an entry of type %u", type);
	if (e->type == ENTRY_HOSTILE && type != ENTRY_HOSTILE)
		fail_msg("hostile: %.*s", (int)((const struct entry_text *)e)->len,
			 (const char *)entry_tail((const struct entry_text *)e));
	assert_int_equal(e->type, type);
	return e;
}

/* Nothing comes: asked after a round trip that would have brought it. */
static inline void rig_quiet(struct rig *r)
{
	assert_int_equal(buf_len(&r->from_limb), r->taken);
}

/* ---- limb-syncd ---- */

static inline void rig_say_raw(struct rig *r, uint8_t type, const void *body, size_t body_len,
			       const void *bulk, size_t n)
{
	assert_int_equal(wframe_encode(&r->to_wire, type, body, body_len, bulk, n, true), 0);
}

static inline void rig_say(struct rig *r, uint8_t type, const ProtobufCMessage *msg,
			   const void *bulk, size_t n)
{
	size_t len = protobuf_c_message_get_packed_size(msg);
	uint8_t *body = malloc(len + 1);

	assert_non_null(body);
	protobuf_c_message_pack(msg, body);
	rig_say_raw(r, type, body, len, bulk, n);
	free(body);
}

static inline void rig_say_hello(struct rig *r)
{
	Limbwire__Hello hello = LIMBWIRE__HELLO__INIT;

	hello.protocol_min = hello.protocol_max = WIRE_PROTOCOL_VERSION;
	hello.syncd_version = (char *)"0.1.0";
	rig_say(r, WIRE_HELLO, &hello.base, NULL, 0);
}

/* ---- all ---- */

static inline void rig_start_without_pack(struct rig *r)
{
	char *argv[] = {(char *)rig_program(), NULL};
	struct entry_start start = {.durable_number = 0};

	rig_spawn_with(r, argv);
	assert_int_equal(buf_add(&r->to_wire, WIRE_START, WIRE_START_BYTES), 0);
	rig_say_hello(r);
	(void)rig_entry(r, ENTRY_HELLO);
	rig_tell(r, ENTRY_START, &start, sizeof(start), NULL, 0);
}

static inline void rig_start(struct rig *r)
{
	rig_start_without_pack(r);
	rig_pack(r, PACK_SEAL_BYTES);
}

/* The program has ended, or ends now, with this status; nothing came behind what was read. */
static inline void rig_end(struct rig *r, int status)
{
	int got;

	rig_quiet(r);
	buf_consume(&r->from_limb, r->taken);
	r->taken = 0;
	RIG_UNTIL(r, r->limbd_eof);
	assert_int_equal(buf_len(&r->from_limb), 0);
	assert_int_equal(waitpid(r->pid, &got, 0), r->pid);
	if (!WIFEXITED(got) || WEXITSTATUS(got) != status)
		fail_msg("wait status %#x, not exit %d", got, status);
	for (size_t i = 0; i < 3; i++) {
		int fd = (int[]){r->limbd, r->from, r->to}[i];

		if (fd >= 0)
			close(fd);
	}
	for (size_t i = 0; i < r->n_packs; i++)
		close(r->packs[i]);
	free(r->places);
	buf_done(&r->to_wire);
	buf_done(&r->from_wire);
	buf_done(&r->to_limb);
	buf_done(&r->from_limb);
}

/* The environment hangs up in good order. */
static inline void rig_hang_up(struct rig *r)
{
	const struct entry_text *bye;

	RIG_UNTIL(r, buf_len(&r->to_wire) == 0);
	close(r->to);
	r->to = -1;
	bye = rig_entry(r, ENTRY_BYE);
	assert_int_equal(bye->error, 0);
	assert_int_equal(bye->len, strlen("transport ended"));
	assert_memory_equal(entry_tail(bye), "transport ended", bye->len);
	rig_end(r, 0);
}

/* A rule was broken: that is the last word. */
static inline void rig_hostile(struct rig *r, const char *rule)
{
	const struct entry_text *e = rig_entry(r, ENTRY_HOSTILE);
	char text[ENTRY_TEXT_MAX + 1] = "";

	memcpy(text, entry_tail(e), e->len);
	if (!strstr(text, rule))
		fail_msg("hostile for '%s', not for '%s'", text, rule);
	rig_end(r, 3);
}

static inline int rig_fetch(const uint8_t hash[SHA256_BYTES], struct buf *out, void *userdata)
{
	struct rig *r = userdata;

	for (size_t i = r->n_places; i-- > 0;)
		if (memcmp(r->places[i].place.hash, hash, SHA256_BYTES) == 0)
			return frame_read_member(r->places[i].pack_fd, r->places[i].place.offset,
						 hash, out);
	return -ENOENT;
}

static inline void rig_content(struct rig *r, const struct content_ref *ref, struct buf *out)
{
	assert_int_equal(content_read(ref, 0, ref->size_bytes, rig_fetch, r, out), 0);
	assert_int_equal(buf_len(out), ref->size_bytes);
}

/* ---- changes ---- */

/* A CHANGE of one PUT of a file with content; bend it, then rig_say_change(). */
struct rig_change {
	Limbwire__WireChange change;
	Limbwire__WireOp wops[CHANGE_OPS_MAX + 1], *pointers[CHANGE_OPS_MAX + 1];
	Limb__Op ops[CHANGE_OPS_MAX + 1];
	Limb__Attr attrs[CHANGE_OPS_MAX + 1];
	Limb__Content contents[CHANGE_OPS_MAX + 1];
	uint8_t hashes[CHANGE_OPS_MAX + 1][SHA256_BYTES];
	struct buf bulk;
};

static inline void rig_change_init(struct rig *r, struct rig_change *c)
{
	memset(c, 0, sizeof(*c));
	limbwire__wire_change__init(&c->change);
	c->change.number = ++r->number;
	c->change.ops = c->pointers;
}

static inline size_t rig_add_op(struct rig_change *c, Limb__OpKind kind)
{
	size_t i = c->change.n_ops++;

	limbwire__wire_op__init(&c->wops[i]);
	limb__op__init(&c->ops[i]);
	limb__attr__init(&c->attrs[i]);
	limb__content__init(&c->contents[i]);
	c->pointers[i] = &c->wops[i];
	c->wops[i].op = &c->ops[i];
	c->ops[i].kind = kind;
	return i;
}

/* A PUT of a file whose content is said to be these bytes. */
static inline size_t rig_add_file(struct rig_change *c, uint64_t node, const void *data, size_t n)
{
	size_t i = rig_add_op(c, LIMB__OP_KIND__OP_PUT);

	c->ops[i].node = node;
	c->ops[i].attr = &c->attrs[i];
	c->attrs[i].type = LIMB__NODE_TYPE__NODE_FILE;
	c->attrs[i].mode = 0644;
	c->ops[i].content = &c->contents[i];
	c->contents[i].size_bytes = n;
	sha256(data, n, c->hashes[i]);
	c->contents[i].sha256.data = c->hashes[i];
	c->contents[i].sha256.len = SHA256_BYTES;
	return i;
}

/* The same, with the bytes inline. */
static inline size_t rig_add_inline(struct rig_change *c, uint64_t node, const void *data, size_t n)
{
	assert_int_equal(buf_add(&c->bulk, data, n), 0);
	return rig_add_file(c, node, data, n);
}

static inline void rig_set_name(ProtobufCBinaryData *b, const char *name)
{
	b->data = (uint8_t *)name;
	b->len = strlen(name);
}

static inline size_t rig_add_link(struct rig_change *c, uint64_t parent, const char *name,
				  uint64_t node)
{
	size_t i = rig_add_op(c, LIMB__OP_KIND__OP_LINK);

	c->ops[i].parent = parent;
	c->ops[i].node = node;
	rig_set_name(&c->ops[i].name, name);
	return i;
}

static inline void rig_say_change(struct rig *r, struct rig_change *c)
{
	rig_say(r, WIRE_CHANGE, &c->change.base, buf_data(&c->bulk), buf_len(&c->bulk));
	buf_done(&c->bulk);
}

static inline void rig_say_data(struct rig *r, uint32_t stream, uint64_t offset, const void *data,
				size_t n, uint64_t hole, bool last)
{
	Limbwire__Data m = LIMBWIRE__DATA__INIT;

	m.stream = stream;
	m.offset = offset;
	m.hole_bytes = hole;
	m.last = last;
	rig_say(r, WIRE_DATA, &m.base, data, n);
}

/* A small change, whole: what any session can take. */
static inline void rig_say_small(struct rig *r, const char *text)
{
	struct rig_change c;

	rig_change_init(r, &c);
	(void)rig_add_inline(&c, 100 + r->number, text, strlen(text));
	rig_say_change(r, &c);
}

static inline const struct entry_change *rig_change_entry(struct rig *r, uint64_t number)
{
	const struct entry_change *e = rig_entry(r, ENTRY_CHANGE);

	assert_int_equal(e->number, number);
	return e;
}

/* Says what must not be said. */
typedef void (*rig_say_fn)(struct rig *r, int arg);

/* A good change comes before it, and another behind it. */
static inline void rig_check_hostile(rig_say_fn say, int arg, const char *rule)
{
	struct rig r;

	rig_start(&r);
	rig_say_small(&r, "good");
	say(&r, arg);
	rig_say_small(&r, "too late");
	(void)rig_change_entry(&r, 1);
	rig_hostile(&r, rule);
}

/* Bytes that look random, the same for the same seed. */
static inline void rig_bytes(uint8_t *p, size_t n, uint64_t seed)
{
	uint64_t x = seed * 0x9e3779b97f4a7c15u + 1;

	for (size_t i = 0; i < n; i++)
		p[i] = (uint8_t)((x = x * 6364136223846793005u + 1442695040888963407u) >> 56);
}

/* The first number behind "\nKey:" in the program's status. */
static inline uint64_t rig_status(const struct rig *r, const char *key)
{
	char path[64], text[8192], *at;
	int fd;
	ssize_t n;

	(void)snprintf(path, sizeof(path), "/proc/%d/status", (int)r->pid);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	assert_true(fd >= 0);
	n = read(fd, text, sizeof(text) - 1);
	close(fd);
	assert_true(n > 0);
	text[n] = '\0';
	at = strstr(text, key);
	assert_non_null(at);
	return strtoull(at + strlen(key), NULL, 10);
}

#endif
