#include "brain/ingest-parts.h"

#include <assert.h>
#include <stdarg.h>
#include <stdio.h>

/* What a message of 1 MiB may become in memory: twice what a change of 64 operations or
 * a tree of 10,000 entries takes, and a bound for a body made of empty messages. */
#define UNPACK_BYTES_MAX (64u << 20)
/* Entries of one message, and of the messages since the last frame of the pack. */
#define QUEUE_BYTES_MAX (48u << 20)
#define HELD_HIGH_BYTES (512u << 10)
#define REPLIES_BYTES_MAX (1u << 20)

typedef int (*handler_fn)(struct ingest *in, const void *msg, const struct wframe *f);

enum {
	MAY_BULK = 1 << 0,  /* bytes may travel beside it */
	MAY_STORE = 1 << 1, /* it may bring content */
};

/* What an environment may say. */
static const struct {
	const ProtobufCMessageDescriptor *message;
	handler_fn handle;
	unsigned may;
} messages[] = {
	[WIRE_HELLO] = {&limbwire__hello__descriptor, ingest_on_hello, 0},
	[WIRE_PING] = {&limbwire__ping__descriptor, ingest_on_ping, 0},
	[WIRE_PONG] = {&limbwire__ping__descriptor, ingest_on_pong, 0},
	[WIRE_ERROR] = {&limbwire__error__descriptor, ingest_on_error, 0},
	[WIRE_BYE] = {&limbwire__bye__descriptor, ingest_on_bye, 0},
	[WIRE_CHANGE] = {&limbwire__wire_change__descriptor, ingest_on_change,
			 MAY_BULK | MAY_STORE},
	[WIRE_DATA] = {&limbwire__data__descriptor, ingest_on_data, MAY_BULK | MAY_STORE},
	[WIRE_BARRIER_DONE] = {&limbwire__barrier_done__descriptor, ingest_on_barrier_done, 0},
	[WIRE_STATUS] = {&limbwire__status__descriptor, ingest_on_status, 0},
	[WIRE_TREE_GET] = {&limbwire__tree_get__descriptor, ingest_on_tree_get, MAY_BULK},
	[WIRE_TREE_PART] = {&limbwire__tree_part__descriptor, ingest_on_tree_part, MAY_BULK},
	[WIRE_ACCEPTED] = {&limbwire__done__descriptor, ingest_on_done, 0},
	[WIRE_APPLIED] = {&limbwire__done__descriptor, ingest_on_done, 0},
	[WIRE_PULL] = {&limbwire__pull__descriptor, ingest_on_pull, 0},
	[WIRE_IGNORES] = {&limbwire__ignores__descriptor, ingest_on_ignores, 0},
	[WIRE_RESTORED] = {&limbwire__restored__descriptor, ingest_on_restored, 0},
	[WIRE_JOB_STARTED] = {&limbwire__job_started__descriptor, ingest_on_job_started, 0},
	[WIRE_JOB_OUTPUT] = {&limbwire__job_output__descriptor, ingest_on_job_output, MAY_BULK},
	[WIRE_JOB_EXIT] = {&limbwire__job_exit__descriptor, ingest_on_job_exit, 0},
	[WIRE_JOB_LIST] = {&limbwire__job_list__descriptor, ingest_on_job_list, 0},
	[WIRE_PS_DONE] = {&limbwire__ps_done__descriptor, ingest_on_ps_done, 0},
	[WIRE_FROZEN] = {&limbwire__done__descriptor, ingest_on_done, 0},
	[WIRE_JOB_INPUT_HAD] = {&limbwire__job_input_had__descriptor, ingest_on_job_input, 0},
};

static void *unpack_alloc(void *arena, size_t n)
{
	return arena_alloc(arena, n);
}

static void unpack_free(void *arena, void *p)
{
	/* the arena gives everything back at once */
}

int ingest_new(ingest_write_fn write, void *userdata, struct ingest **ret)
{
	struct ingest *in = calloc(1, sizeof(*in));

	if (!in)
		return -ENOMEM;
	ingest_store_init(&in->store, write, userdata, &in->held, &in->out);
	buf_init(&in->out, QUEUE_BYTES_MAX);
	buf_init(&in->held, QUEUE_BYTES_MAX);
	buf_init(&in->replies, REPLIES_BYTES_MAX);
	buf_init(&in->xattrs, 2 * WIRE_BODY_MAX);
	in->arena = (struct arena)ARENA_INIT(UNPACK_BYTES_MAX);
	in->allocator = (ProtobufCAllocator){
		.alloc = unpack_alloc,
		.free = unpack_free,
		.allocator_data = &in->arena,
	};
	*ret = in;
	return 0;
}

void ingest_free(struct ingest *in)
{
	if (!in)
		return;
	streams_done(&in->streams);
	content_writer_free(in->writer);
	ingest_store_done(&in->store);
	buf_done(&in->out);
	buf_done(&in->held);
	buf_done(&in->replies);
	buf_done(&in->xattrs);
	arena_done(&in->arena);
	free(in);
}

int ingest_hostile(struct ingest *in, const char *fmt, ...)
{
	va_list ap;

	if (in->why[0] == '\0') {
		va_start(ap, fmt);
		(void)vsnprintf(in->why, sizeof(in->why), fmt, ap);
		va_end(ap);
	}
	return -EPROTO;
}

int ingest_content_error(struct ingest *in, int r)
{
	if (in->store.failed || r != -EFBIG)
		return r;
	return ingest_hostile(in, "content too large");
}

const char *ingest_why(const struct ingest *in)
{
	return in->why;
}

bool ingest_bye(const struct ingest *in)
{
	return in->said_bye;
}

struct buf *ingest_out(struct ingest *in)
{
	return &in->out;
}

struct buf *ingest_replies(struct ingest *in)
{
	return &in->replies;
}

void ingest_start(struct ingest *in, uint64_t durable_number)
{
	/* Of what came since, it may not know yet. */
	if (!in->started || durable_number >= in->next_number)
		in->next_number = durable_number + 1;
	in->started = true;
}

void ingest_seed(struct ingest *in, const uint8_t (*hashes)[SHA256_BYTES], size_t n)
{
	/* Without memory for the table contents are stored again. */
	for (size_t i = 0; i < n; i++)
		(void)ingest_store_seed(&in->store, hashes[i]);
}

int ingest_flush(struct ingest *in)
{
	return ingest_store_pending(&in->store) ? ingest_store_flush(&in->store)
						: ingest_store_release(&in->store);
}

bool ingest_pending(const struct ingest *in)
{
	return ingest_store_pending(&in->store) || buf_len(&in->held) > 0;
}

int ingest_set_pack(struct ingest *in, const struct entry_pack *pack)
{
	if (in->store.has_pack)
		return -EBUSY;
	ingest_store_set_pack(&in->store, pack);
	return 0;
}

bool ingest_has_pack(const struct ingest *in)
{
	return in->store.has_pack;
}

static int seal_pack(struct ingest *in)
{
	struct entry_pack_full full;
	int r;

	r = ingest_flush(in);
	if (r < 0)
		return r;
	in->store.has_pack = false;
	full = (struct entry_pack_full){.length = in->store.end};
	return entry_add(&in->out, ENTRY_PACK_FULL, &full, sizeof(full), NULL, 0);
}

int ingest_seal(struct ingest *in)
{
	return in->store.has_pack && !in->streams.hole ? seal_pack(in) : 0;
}

/* After each step: what need not be held goes out. */
static int settle(struct ingest *in)
{
	/* What a hole becomes needs a pack at any time. */
	if (in->store.has_pack && in->store.end >= in->store.seal_bytes && !in->streams.hole)
		return seal_pack(in);
	if (!ingest_store_pending(&in->store))
		return ingest_store_release(&in->store);
	if (buf_len(&in->held) >= HELD_HIGH_BYTES)
		return ingest_flush(in);
	return 0;
}

bool ingest_needs_pack(const struct ingest *in, const struct wframe *f)
{
	return !in->store.has_pack && f->type < ARRAY_SIZE(messages) &&
	       messages[f->type].may & MAY_STORE;
}

static int dispatch(struct ingest *in, const struct wframe *f)
{
	const char *name = wframe_type_name(f->type);
	const void *msg;

	if (f->type >= ARRAY_SIZE(messages) || !messages[f->type].handle)
		return ingest_hostile(in, "%s: not for an environment to say", name);
	if (!in->said_hello && f->type != WIRE_HELLO)
		return ingest_hostile(in, "%s: before HELLO", name);
	if (f->bulk_len && !(messages[f->type].may & MAY_BULK))
		return ingest_hostile(in, "%s: bytes beside it", name);
	arena_reset(&in->arena);
	msg = protobuf_c_message_unpack(messages[f->type].message, &in->allocator, f->body_len,
					f->body);
	if (!msg)
		return ingest_hostile(in, "%s: body is damaged or takes too much memory", name);
	return messages[f->type].handle(in, msg, f);
}

int ingest_frame(struct ingest *in, const struct wframe *f)
{
	size_t before = buf_len(&in->held);
	int r;

	assert(!in->streams.hole && !in->said_bye && !ingest_needs_pack(in, f));
	r = dispatch(in, f);
	if (r < 0) {
		/* Whole entries may have gone out meanwhile. */
		if (buf_len(&in->held) > before)
			entry_drop(&in->held, before);
		return r;
	}
	return settle(in);
}

int ingest_work(struct ingest *in)
{
	int r;

	r = streams_work(in);
	if (r != 0)
		return r;
	return settle(in);
}

void ingest_rest(struct ingest *in)
{
	if (ingest_pending(in))
		return;
	ingest_store_rest(&in->store);
	streams_rest(&in->streams);
	content_writer_free(in->writer);
	in->writer = NULL;
	arena_done(&in->arena);
	buf_done(&in->xattrs);
	buf_done(&in->held);
	if (buf_len(&in->out) == 0)
		buf_done(&in->out);
	if (buf_len(&in->replies) == 0)
		buf_done(&in->replies);
}
