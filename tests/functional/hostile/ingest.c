/*
 * ingest.c - a limb-ingest that was taken over: it does what it likes within its
 * confinement, and that is the real one's.
 *
 * It stands where limbd looks for limb-ingest.  In the directory of its program,
 * "orders" is one line, or missing; then the real one is run, whose path is in
 * "real":
 *
 *	HOW ENVIRONMENT HASH SIZE NEEDLE	HASH and SIZE of a content of another
 *						environment, NEEDLE what is in it
 *
 * "known" is the state of the `hostile` that it speaks in place of.  When NEEDLE
 * comes from limbd, it says "rogue: LEAK" on stderr.
 */
#include "tests/functional/hostile/hostile.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>

#include "base/clock.h"
#include "base/io.h"
#include "base/text.h"
#include "brain/entry.h"
#include "brain/ingest-confine.h"
#include "journal/pack.h"

enum { LIMBD = 3, WAIT_MS = 20000 };

static char dir[4000], how[32], needle[128];
static uint8_t env_id[16], hash[SHA256_BYTES];
static unsigned long size;
static struct known mine;
static struct buf in, wire, held;
static bool holds; /* what is said waits in `held` */
static int pack_fd = -1;
static bool started;
static uint64_t next_number, first_node, pack_at;

static void say_line(const char *s)
{
	(void)!write(2, s, strlen(s));
}

/* ---- before the confinement ---- */

static ssize_t read_beside(const char *name, void *data, size_t n)
{
	char path[4100];
	ssize_t got;
	int fd;

	(void)snprintf(path, sizeof(path), "%s/%s", dir, name);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return -1;
	got = read(fd, data, n);
	(void)close(fd);
	return got;
}

static bool read_orders(void)
{
	char line[512] = "", id[64], hex[80];

	if (read_beside("orders", line, sizeof(line) - 1) <= 0)
		return false;
	if (sscanf(line, "%31s %63s %79s %lu %127s", how, id, hex, &size, needle) != 5 ||
	    text_unhex(env_id, sizeof(env_id), id) < 0 || text_unhex(hash, sizeof(hash), hex) < 0)
		errx(1, "bad orders");
	return read_beside("known", &mine, sizeof(mine)) == sizeof(mine);
}

static void run_real(char **argv)
{
	char path[4000] = "";

	if (read_beside("real", path, sizeof(path) - 1) <= 0)
		errx(1, "no real limb-ingest");
	path[strcspn(path, "\n")] = '\0';
	execv(path, argv);
	err(1, "%s", path);
}

/* ---- limbd ---- */

static void pass(const struct buf *b)
{
	if (holds ? buf_add(&held, buf_data(b), buf_len(b)) < 0
		  : io_write_full(LIMBD, buf_data(b), buf_len(b), "rogue") < 0)
		_exit(1);
}

static void tell(uint16_t type, const void *e, size_t n, const void *tail, size_t tail_n)
{
	_cleanup_(buf_done) struct buf b = BUF_INIT(0);

	if (entry_add(&b, type, e, n, tail, tail_n) < 0)
		_exit(1);
	pass(&b);
}

/* Everything that limbd says for the environment. */
static void look_at_wire(const void *p, size_t n)
{
	Limbwire__Welcome *w;
	const uint8_t *f;
	size_t len;

	if (memmem(p, n, needle, strlen(needle)))
		say_line("rogue: LEAK\n");
	(void)buf_add(&wire, p, n);
	f = buf_data(&wire);
	if (first_node || buf_len(&wire) < WIRE_HEADER_BYTES || f[0] != WIRE_WELCOME ||
	    buf_len(&wire) < WIRE_HEADER_BYTES + get_le32(f + 4))
		return;
	len = get_le32(f + 4);
	w = limbwire__welcome__unpack(NULL, len, f + WIRE_HEADER_BYTES);
	first_node = w ? w->node_first : 0;
}

static void take(const struct entry_head *e)
{
	if (e->type == ENTRY_START) {
		next_number = ((const struct entry_start *)e)->durable_number + 1;
		started = true;
	} else if (e->type == ENTRY_PACK) {
		pack_at = ((const struct entry_pack *)e)->offset;
	} else if (e->type == ENTRY_SEND) {
		look_at_wire((const struct entry_send *)e + 1, ((const struct entry_send *)e)->len);
	}
}

static void hear(int ms)
{
	union {
		struct cmsghdr head;
		char bytes[CMSG_SPACE(sizeof(int))];
	} control = {0};
	struct pollfd p = {.fd = LIMBD, .events = POLLIN};
	struct iovec iov;
	struct msghdr m = {.msg_iov = &iov, .msg_iovlen = 1};
	uint8_t *at;
	ssize_t n;

	if (poll(&p, 1, ms) <= 0)
		return;
	if (buf_reserve(&in, 65536, &at) < 0)
		_exit(1);
	iov = (struct iovec){at, 65536};
	m.msg_control = &control;
	m.msg_controllen = sizeof(control);
	n = recvmsg(LIMBD, &m, 0);
	if (n <= 0)
		_exit(0); /* cut off */
	if (m.msg_controllen >= CMSG_LEN(sizeof(int)))
		memcpy(&pack_fd, CMSG_DATA(&control.head), sizeof(int));
	buf_commit(&in, (size_t)n);
	while ((n = entry_whole(buf_data(&in), buf_len(&in))) > 0) {
		take((const struct entry_head *)buf_data(&in));
		buf_consume(&in, (size_t)n);
	}
}

static void hear_all(int ms)
{
	uint64_t by_ms = clock_mono_ms() + (uint64_t)ms;

	while (clock_mono_ms() < by_ms)
		hear(100);
}

/* ---- what it tries ---- */

static void begin_session(void)
{
	struct entry_hello h = {.protocol_min = 1,
				.protocol_max = 1,
				.shadow_incarnation = mine.incarnation,
				.shadow_number = 1,
				.has_mark = 1,
				.syncd_version = "0.1.0"};
	uint64_t by_ms = clock_mono_ms() + WAIT_MS;

	memcpy(h.environment_id, env_id, sizeof(env_id));
	memcpy(h.mark, mine.mark, sizeof(h.mark));
	tell(ENTRY_HELLO, &h, sizeof(h), NULL, 0);
	while ((!started || pack_fd < 0 || !first_node) && clock_mono_ms() < by_ms)
		hear(100);
	if (!started || pack_fd < 0)
		say_line("rogue: no session\n");
}

/* A frame of one content under this name, and its place. */
static void store(enum frame_kind kind, const uint8_t name[SHA256_BYTES], const void *data,
		  size_t n)
{
	struct entry_places e = {.n = 1};
	struct entry_place p = {.offset = pack_at, .len = (uint32_t)n, .kind = kind};
	struct frame_builder *fb;
	struct frame f;

	if (frame_builder_new(1, &fb) < 0 || frame_builder_add(fb, kind, name, data, n) < 0 ||
	    frame_builder_finish(fb, &f) < 0 ||
	    pwrite(pack_fd, f.bytes, f.n, (off_t)pack_at) != (ssize_t)f.n)
		say_line("rogue: cannot write\n");
	memcpy(p.hash, name, SHA256_BYTES);
	pack_at += f.n;
	e.pack_end = pack_at;
	tell(ENTRY_PLACES, &e, sizeof(e), &p, sizeof(p));
}

/* A new file in the directory whose content is this. */
static void name_it(uint8_t depth, const uint8_t root[SHA256_BYTES])
{
	struct entry_change c = {.number = next_number++, .n_ops = 2};
	struct change_op put = {.kind = CHANGE_PUT, .has_content = true, .node = first_node};
	struct change_op name = {.kind = CHANGE_LINK,
				 .node = first_node,
				 .parent = mine.dir,
				 .name = "stolen",
				 .name_len = 6};
	_cleanup_(buf_done) struct buf b = BUF_INIT(0);
	size_t at;

	put.attr = (struct node){.type = NODE_TYPE_FILE, .mode = 0644};
	put.attr.content.size_bytes = size;
	put.attr.content.depth = depth;
	memcpy(put.attr.content.sha256, hash, SHA256_BYTES);
	if (root)
		memcpy(put.attr.content.root, root, SHA256_BYTES);
	if (entry_begin(&b, ENTRY_CHANGE, &c, sizeof(c), &at) < 0 || entry_add_op(&b, &put) < 0 ||
	    entry_add_op(&b, &name) < 0 || entry_end(&b, at) < 0)
		_exit(1);
	pass(&b);
}

static void pull(void)
{
	struct entry_pull e = {.request = 7, .n = 200};
	uint64_t nodes[200];

	for (size_t i = 0; i < ARRAY_SIZE(nodes); i++)
		nodes[i] = i < 100 ? i : first_node + i - 100;
	tell(ENTRY_PULL, &e, sizeof(e), nodes, sizeof(nodes));
}

static void try_list(void)
{
	uint8_t list[40], root[SHA256_BYTES];

	memcpy(list, hash, SHA256_BYTES);
	put_le64(list + SHA256_BYTES, size);
	sha256(list, sizeof(list), root);
	store(FRAME_LIST, root, list, sizeof(list));
	name_it(1, root);
}

static void try_garbage(void)
{
	char *garbage = calloc(1, size);

	if (garbage)
		store(FRAME_CHUNK, hash, garbage, size);
	name_it(0, NULL);
}

/* limbd looks at several places at once; a name may not come before its own. */
static void try_early(void)
{
	uint8_t first[SHA256_BYTES];

	sha256("first", 5, first);
	sha256("second", 6, hash);
	size = 6;
	holds = true;
	store(FRAME_CHUNK, first, "first", 5);
	name_it(0, NULL);
	store(FRAME_CHUNK, hash, "second", 6);
	holds = false;
	pass(&held);
}

static void try_files(void)
{
	static const char *const paths[] = {"/etc/passwd", "/proc/self/environ", "."};

	int fd;

	for (size_t i = 0; i < ARRAY_SIZE(paths); i++) {
		fd = open(paths[i], O_RDONLY | O_CLOEXEC);
		if (fd >= 0)
			say_line("rogue: LEAK\n");
		if (fd >= 0)
			(void)close(fd);
	}
	say_line("rogue: refused\n");
	/* The pack is its own, but may be written only. */
	if (pack_fd >= 0 && pread(pack_fd, dir, sizeof(dir), 0) > 0)
		say_line("rogue: LEAK\n");
}

int main(int argc, char **argv)
{
	ssize_t n = readlink("/proc/self/exe", dir, sizeof(dir) - 1);
	uid_t uid = CONFINE_NO_UID;
	uint8_t warm[SHA256_BYTES];

	if (n <= 0)
		err(1, "/proc/self/exe");
	*strrchr(dir, '/') = '\0';
	if (argc > 1 && strcmp(argv[1], "--check") == 0)
		run_real(argv);
	if (!read_orders())
		run_real(argv);
	if (argc > 2 && strcmp(argv[1], "--uid") == 0)
		uid = (uid_t)strtoul(argv[2], NULL, 10);
	sha256("", 0, warm);
	if (confine(CONFINE_INGEST, uid, LIMBD + 1) < 0)
		return 1;
	begin_session();
	if (strcmp(how, "claim") == 0)
		name_it(0, NULL);
	else if (strcmp(how, "garbage") == 0)
		try_garbage();
	else if (strcmp(how, "list") == 0)
		try_list();
	else if (strcmp(how, "early") == 0)
		try_early();
	else if (strcmp(how, "files") == 0)
		try_files();
	hear_all(500);
	pull();
	say_line("rogue: tried\n");
	hear_all(2000);
	_exit(0);
}
