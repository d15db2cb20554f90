#include "tests/functional/hostile/hostile.h"

#include <fcntl.h>

#include "base/io.h"
#include "base/text.h"

struct known known;
Limbwire__Welcome *welcome;
uint64_t number, node;

static const char *state_path;
static const struct lie *lie;
static uint8_t env_id[16];
static struct wframe_decoder decoder;

/* ---- saying ---- */

void say_bytes(const void *p, size_t n)
{
	if (io_write_full(1, p, n, "hostile") < 0)
		exit(0); /* cut off */
}

void say_raw(uint8_t type, const void *body, size_t body_len, const void *bulk, size_t n)
{
	_cleanup_(buf_done) struct buf out = BUF_INIT(0);

	if (wframe_encode(&out, type, body, body_len, bulk, n, false) < 0)
		errx(1, "cannot encode");
	say_bytes(buf_data(&out), buf_len(&out));
}

void say(uint8_t type, const ProtobufCMessage *m, const void *bulk, size_t n)
{
	size_t len = protobuf_c_message_get_packed_size(m);
	uint8_t *body = malloc(len + 1);

	if (!body)
		err(1, "malloc");
	(void)protobuf_c_message_pack(m, body);
	say_raw(type, body, len, bulk, n);
	free(body);
}

void say_head(uint8_t type, uint8_t flags, uint32_t body, uint32_t bulk, uint32_t reserved)
{
	uint8_t h[WIRE_HEADER_BYTES] = {type, flags};

	put_le32(h + 4, body);
	put_le32(h + 8, bulk);
	put_le32(h + 12, reserved);
	say_bytes(h, sizeof(h));
}

/* ---- changes ---- */

struct said *begin(void)
{
	struct said *c = calloc(1, sizeof(*c));

	if (!c)
		err(1, "calloc");
	limbwire__wire_change__init(&c->m);
	c->m.number = ++number;
	c->m.ops = c->ptrs;
	return c;
}

Limb__Op *add(struct said *c, Limb__OpKind kind)
{
	size_t i = c->m.n_ops++;

	limbwire__wire_op__init(&c->wops[i]);
	limb__op__init(&c->ops[i]);
	limb__attr__init(&c->attrs[i]);
	limb__content__init(&c->contents[i]);
	c->ptrs[i] = &c->wops[i];
	c->wops[i].op = &c->ops[i];
	c->ops[i].kind = kind;
	return &c->ops[i];
}

Limb__Op *put(struct said *c, uint64_t id, Limb__NodeType type)
{
	Limb__Op *op = add(c, LIMB__OP_KIND__OP_PUT);

	op->node = id;
	op->attr = &c->attrs[c->m.n_ops - 1];
	op->attr->type = type;
	op->attr->mode = type == LIMB__NODE_TYPE__NODE_DIRECTORY ? 0755 : 0644;
	return op;
}

Limb__Op *put_file(struct said *c, uint64_t id, const void *data, size_t n)
{
	Limb__Op *op = put(c, id, LIMB__NODE_TYPE__NODE_FILE);
	size_t i = c->m.n_ops - 1;

	op->content = &c->contents[i];
	op->content->size_bytes = n;
	sha256(data, n, c->hashes[i]);
	set_bytes(&op->content->sha256, c->hashes[i], SHA256_BYTES);
	if (buf_add(&c->bulk, data, n) < 0)
		err(1, "buf_add");
	return op;
}

Limb__Op *link_name(struct said *c, uint64_t parent, const void *name, size_t n, uint64_t id)
{
	Limb__Op *op = add(c, LIMB__OP_KIND__OP_LINK);

	op->parent = parent;
	op->node = id;
	set_bytes(&op->name, name, n);
	return op;
}

Limb__Op *move_name(struct said *c, uint64_t parent, const char *name, uint64_t to,
		    const char *to_name)
{
	Limb__Op *op = add(c, LIMB__OP_KIND__OP_MOVE);

	op->parent = parent;
	op->to_parent = to;
	set_bytes(&op->name, name, strlen(name));
	set_bytes(&op->to_name, to_name, strlen(to_name));
	return op;
}

void end(struct said *c)
{
	say(WIRE_CHANGE, &c->m.base, buf_data(&c->bulk), buf_len(&c->bulk));
	buf_done(&c->bulk);
	free(c);
}

/* ---- the truth ---- */

void say_hello(void)
{
	Limbwire__Hello m = LIMBWIRE__HELLO__INIT;

	m.protocol_min = m.protocol_max = WIRE_PROTOCOL_VERSION;
	m.syncd_version = (char *)"0.1.0";
	set_bytes(&m.environment_id, env_id, sizeof(env_id));
	m.shadow_incarnation = known.incarnation;
	m.shadow_number = known.incarnation ? 1 : 0;
	if (known.incarnation)
		set_bytes(&m.mark, known.mark, sizeof(known.mark));
	m.static_build = true;
	m.root = (char *)"/root";
	say(WIRE_HELLO, &m.base, NULL, 0);
}

void say_barrier_done(uint64_t request, uint64_t up_to)
{
	Limbwire__BarrierDone m = LIMBWIRE__BARRIER_DONE__INIT;

	m.request = request;
	m.number = up_to;
	say(WIRE_BARRIER_DONE, &m.base, NULL, 0);
}

static void say_status(void)
{
	Limbwire__Status m = LIMBWIRE__STATUS__INIT;

	m.files = 1;
	m.directories = 1;
	say(WIRE_STATUS, &m.base, NULL, 0);
}

static void say_tree(void)
{
	static const char target[] = "/etc";
	struct said *c = begin();
	Limb__Op *op;

	known.dir = node++;
	known.file = node++;
	known.link = node++;
	(void)put(c, 1, LIMB__NODE_TYPE__NODE_DIRECTORY);
	(void)put(c, known.dir, LIMB__NODE_TYPE__NODE_DIRECTORY);
	(void)link_name(c, 1, "d", 1, known.dir);
	(void)put_file(c, known.file, "file\n", 5);
	(void)link_name(c, known.dir, "f", 1, known.file);
	op = put(c, known.link, LIMB__NODE_TYPE__NODE_SYMLINK);
	set_bytes(&op->attr->target, target, strlen(target));
	(void)link_name(c, known.dir, "l", 1, known.link);
	end(c);
}

static void save(void)
{
	int fd = open(state_path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

	if (fd < 0 || io_write_full(fd, &known, sizeof(known), "hostile") < 0)
		err(1, "%s", state_path);
	(void)close(fd);
}

static void load(void)
{
	int fd = open(state_path, O_RDONLY | O_CLOEXEC);

	if (fd >= 0 && io_pread_full(fd, &known, sizeof(known), 0, "hostile") != sizeof(known))
		errx(1, "%s: damaged", state_path);
	if (fd >= 0)
		(void)close(fd);
}

static void on_welcome(const struct wframe *f)
{
	Limbwire__Welcome *w = limbwire__welcome__unpack(NULL, f->body_len, f->body);

	if (!w || w->mark.len != sizeof(known.mark))
		errx(1, "bad WELCOME");
	welcome = w;
	number = w->durable_number;
	node = w->node_first;
	memcpy(known.mark, w->mark.data, sizeof(known.mark));
	known.incarnation = w->incarnation;
	if (number == 0 && w->mode == LIMBWIRE__WELCOME__MODE__MODE_SYNC && !known.dir)
		say_tree();
	save();
	say_status();
	if (lie->tell)
		lie->tell();
}

static void say_done(uint8_t type, uint64_t request)
{
	Limbwire__Done m = LIMBWIRE__DONE__INIT;

	m.request = request;
	m.error = EPERM;
	say(type, &m.base, NULL, 0);
}

static void say_restored(uint64_t request)
{
	Limbwire__Restored m = LIMBWIRE__RESTORED__INIT;

	m.request = request;
	say(WIRE_RESTORED, &m.base, NULL, 0);
}

static void say_no_tree(uint64_t request)
{
	Limbwire__TreePart m = LIMBWIRE__TREE_PART__INIT;

	m.request = request;
	m.last = true;
	say(WIRE_TREE_PART, &m.base, NULL, 0);
}

static void say_no_processes(uint64_t request)
{
	Limbwire__PsDone m = LIMBWIRE__PS_DONE__INIT;

	m.request = request;
	say(WIRE_PS_DONE, &m.base, NULL, 0);
}

static void on_job(const struct wframe *f)
{
	Limbwire__JobStart *j = limbwire__job_start__unpack(NULL, f->body_len, f->body);
	Limbwire__JobStarted m = LIMBWIRE__JOB_STARTED__INIT;
	Limbwire__JobExit x = LIMBWIRE__JOB_EXIT__INIT;

	m.request = j->request;
	m.job = x.job = j->job;
	m.pid = 7;
	say(WIRE_JOB_STARTED, &m.base, NULL, 0);
	x.number = number;
	say(WIRE_JOB_EXIT, &x.base, NULL, 0);
	limbwire__job_start__free_unpacked(j, NULL);
}

/* The request is field 1 of all of these. */
static uint64_t request_of(const struct wframe *f)
{
	Limbwire__Ping *m = limbwire__ping__unpack(NULL, f->body_len, f->body);
	uint64_t request = m ? m->id : 0;

	if (m)
		limbwire__ping__free_unpacked(m, NULL);
	return request;
}

static void on_frame(const struct wframe *f)
{
	uint64_t request = request_of(f);

	if (lie->answer &&
	    (f->type == WIRE_BARRIER || f->type == WIRE_PS || f->type == WIRE_TREE_GET ||
	     f->type == WIRE_APPLY || f->type == WIRE_RESTORE || f->type == WIRE_JOB_START)) {
		lie->answer(f->type, request);
		return;
	}
	switch (f->type) {
	case WIRE_WELCOME: on_welcome(f); break;
	case WIRE_PING: say_raw(WIRE_PONG, f->body, f->body_len, NULL, 0); break;
	case WIRE_BARRIER: say_barrier_done(request, number); break;
	case WIRE_APPLY: say_done(WIRE_APPLIED, request); break;
	case WIRE_ACCEPT: say_done(WIRE_ACCEPTED, request); break;
	case WIRE_FREEZE: say_done(WIRE_FROZEN, request); break;
	case WIRE_RESTORE: say_restored(request); break;
	case WIRE_TREE_GET: say_no_tree(request); break;
	case WIRE_PS: say_no_processes(request); break;
	case WIRE_JOB_START: on_job(f); break;
	default: break;
	}
}

static const struct lie *find(const struct lie *l, const char *name)
{
	while (l->name && strcmp(l->name, name) != 0)
		l++;
	return l->name ? l : NULL;
}

int main(int argc, char **argv)
{
	struct wframe f;
	uint8_t *p;
	ssize_t n;

	if (argc != 4 || text_unhex(env_id, sizeof(env_id), argv[3]) < 0)
		errx(2, "usage: hostile STATE LIE ENVIRONMENT");
	state_path = argv[1];
	lie = find(lies_of_trees, argv[2]);
	if (!lie)
		lie = find(lies_of_wire, argv[2]);
	if (!lie)
		errx(2, "no lie '%s'", argv[2]);
	load();
	if (lie->hello) {
		lie->hello();
	} else {
		say_bytes(WIRE_START, WIRE_START_BYTES);
		say_hello();
	}
	wframe_decoder_init(&decoder);
	for (;;) {
		if (wframe_decoder_reserve(&decoder, WIRE_READ_MAX, &p) < 0)
			errx(1, "out of memory");
		n = io_read_some(0, p, WIRE_READ_MAX, "hostile");
		if (n <= 0)
			return 0;
		wframe_decoder_commit(&decoder, (size_t)n);
		while (wframe_decoder_next(&decoder, &f) > 0)
			on_frame(&f);
	}
}
