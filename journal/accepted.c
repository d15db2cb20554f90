#include "journal/accepted.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>

#include "base/file.h"
#include "base/io.h"

enum {
	MAGIC = 0x3145494c, /* "LIE1" */
	LOG_VERSION = 1,
	CHECK_BYTES = 8,
	LOGS_MAX = 100000,
	READ_BYTES = 64 << 10,
};

static const uint8_t header_magic[8] = {'L', 'I', 'M', 'B', 'I', 'N', 'T', '\n'};

static void check_of(uint64_t epoch, uint64_t number, const void *body, size_t n,
		     uint8_t out[CHECK_BYTES])
{
	struct sha256_ctx *ctx = sha256_new();
	uint8_t head[20], hash[SHA256_BYTES];

	put_le64(head, epoch);
	put_le64(head + 8, number);
	put_le32(head + 16, (uint32_t)n);
	sha256_update(ctx, head, sizeof(head));
	sha256_update(ctx, body, n);
	sha256_final(ctx, hash);
	sha256_free(ctx);
	memcpy(out, hash, CHECK_BYTES);
}

/* ---- one entry ---- */

struct cursor {
	const uint8_t *p;
	size_t n;
	bool bad;
};

static uint64_t take(struct cursor *c, size_t n)
{
	uint64_t v = 0;

	if (c->n < n) {
		c->bad = true;
		return 0;
	}
	for (size_t i = 0; i < n; i++)
		v |= (uint64_t)c->p[i] << (8 * i);
	c->p += n;
	c->n -= n;
	return v;
}

static const uint8_t *take_bytes(struct cursor *c, size_t n)
{
	const uint8_t *p = c->p;

	if (c->n < n) {
		c->bad = true;
		return NULL;
	}
	c->p += n;
	c->n -= n;
	return p;
}

/* Its NUL is in the log, and nowhere else. */
static const char *take_text(struct cursor *c)
{
	size_t n = (size_t)take(c, 4);
	const uint8_t *p = take_bytes(c, n + 1);

	if (!p || p[n] != 0 || memchr(p, 0, n)) {
		c->bad = true;
		return "";
	}
	return (const char *)p;
}

static int put(struct buf *b, uint64_t v, size_t n)
{
	uint8_t p[8];

	put_le64(p, v);
	return buf_add(b, p, n);
}

static int put_text(struct buf *b, const char *s)
{
	size_t n = s ? strlen(s) : 0;
	int r = put(b, n, 4);

	return r < 0 ? r : buf_add(b, s ? s : "", n + 1);
}

static int put_content(struct buf *b, const struct content_ref *c)
{
	int r = put(b, c->size_bytes, 8);

	return r < 0 ? r : buf_add(b, c->sha256, SHA256_BYTES);
}

static void take_content(struct cursor *c, struct content_ref *ret)
{
	const uint8_t *hash;

	ret->size_bytes = take(c, 8);
	hash = take_bytes(c, SHA256_BYTES);
	if (hash)
		memcpy(ret->sha256, hash, SHA256_BYTES);
}

static int put_body(struct buf *b, const struct accepted *e)
{
	const uint64_t numbers[][2] = {
		{e->kind, 1},	      {e->has_base, 1},
		{e->node, 8},	      {e->journal, 8},
		{e->base_seq, 8},     {e->done, 8},
		{e->fields, 4},	      {e->n.type, 1},
		{e->n.uid_kind, 1},   {e->n.gid_kind, 1},
		{e->n.mode, 4},	      {e->n.uid, 4},
		{e->n.gid, 4},	      {(uint64_t)e->n.mtime_ns, 8},
		{e->n.target_len, 4},
	};
	int r = 0;

	for (size_t i = 0; r >= 0 && i < ARRAY_SIZE(numbers); i++)
		r = put(b, numbers[i][0], numbers[i][1]);
	if (r >= 0)
		r = buf_add(b, e->n.target, e->n.target_len);
	if (r >= 0)
		r = put_content(b, &e->n.content);
	if (r >= 0)
		r = put_content(b, &e->base);
	if (r >= 0)
		r = put_text(b, e->path);
	if (r >= 0)
		r = put_text(b, e->to_path);
	if (r < 0 || !(e->fields & NODE_FIELD_XATTR))
		return r;
	r = put(b, e->n.xattrs_len, 4);
	return r < 0 ? r : buf_add(b, e->n.xattrs, e->n.xattrs_len);
}

int accepted_encode(const struct accepted *e, uint64_t epoch, struct buf *out)
{
	_cleanup_(buf_done) struct buf body = BUF_INIT(ACCEPTED_BODY_MAX);
	uint8_t head[ACCEPTED_ENTRY_HEADER_BYTES];
	int r = put_body(&body, e);

	if (r < 0)
		return r;
	put_le32(head, MAGIC);
	put_le32(head + 4, (uint32_t)buf_len(&body));
	put_le64(head + 8, e->number);
	check_of(epoch, e->number, buf_data(&body), buf_len(&body), head + 16);
	r = buf_add(out, head, sizeof(head));
	return r < 0 ? r : buf_add(out, buf_data(&body), buf_len(&body));
}

static bool take_body(struct cursor *c, struct accepted *e)
{
	e->kind = (uint8_t)take(c, 1);
	e->has_base = take(c, 1) != 0;
	e->node = take(c, 8);
	e->journal = take(c, 8);
	e->base_seq = take(c, 8);
	e->done = take(c, 8);
	e->fields = (uint32_t)take(c, 4);
	e->n.type = (uint8_t)take(c, 1);
	e->n.uid_kind = (uint8_t)take(c, 1);
	e->n.gid_kind = (uint8_t)take(c, 1);
	e->n.mode = (uint32_t)take(c, 4);
	e->n.uid = (uint32_t)take(c, 4);
	e->n.gid = (uint32_t)take(c, 4);
	e->n.mtime_ns = (int64_t)take(c, 8);
	e->n.target_len = (uint32_t)take(c, 4);
	e->n.target = take_bytes(c, e->n.target_len);
	take_content(c, &e->n.content);
	take_content(c, &e->base);
	e->path = take_text(c);
	e->to_path = take_text(c);
	if (e->fields & NODE_FIELD_XATTR) {
		e->n.xattrs_len = (uint32_t)take(c, 4);
		e->n.xattrs = take_bytes(c, e->n.xattrs_len);
		c->bad = c->bad || !node_xattrs_ok(e->n.xattrs, e->n.xattrs_len);
	}
	return !c->bad && c->n == 0 && e->kind > 0 && e->kind < ACCEPTED_KINDS;
}

int accepted_decode(const uint8_t *p, size_t n, uint64_t epoch, struct accepted *ret)
{
	struct accepted e = {0};
	uint8_t check[CHECK_BYTES];
	struct cursor c;
	uint32_t len;

	if (n < ACCEPTED_ENTRY_HEADER_BYTES)
		return 0;
	len = get_le32(p + 4);
	if (get_le32(p) != MAGIC || len > ACCEPTED_BODY_MAX)
		return -EBADMSG;
	if (n - ACCEPTED_ENTRY_HEADER_BYTES < len)
		return 0;
	e.number = get_le64(p + 8);
	c = (struct cursor){p + ACCEPTED_ENTRY_HEADER_BYTES, len, false};
	check_of(epoch, e.number, c.p, len, check);
	if (memcmp(check, p + 16, sizeof(check)) != 0 || !take_body(&c, &e))
		return -EBADMSG;
	*ret = e;
	return (int)(ACCEPTED_ENTRY_HEADER_BYTES + len);
}

/* ---- files ---- */

void accepted_header(uint64_t epoch, uint64_t first, uint8_t out[ACCEPTED_HEADER_BYTES])
{
	memcpy(out, header_magic, sizeof(header_magic));
	put_le64(out + 8, LOG_VERSION);
	put_le64(out + 16, epoch);
	put_le64(out + 24, first);
	check_of(epoch, first, out, 32, out + 32);
}

int accepted_header_parse(const uint8_t in[ACCEPTED_HEADER_BYTES], uint64_t *ret_epoch,
			  uint64_t *ret_first)
{
	uint8_t want[ACCEPTED_HEADER_BYTES];

	accepted_header(get_le64(in + 16), get_le64(in + 24), want);
	if (memcmp(want, in, sizeof(want)) != 0)
		return -EBADMSG;
	*ret_epoch = get_le64(in + 16);
	*ret_first = get_le64(in + 24);
	return 0;
}

static void name_of(const char *kind, uint64_t number, char out[32])
{
	(void)snprintf(out, 32, "%s.%016" PRIx64, kind, number);
}

void accepted_log_name(uint64_t first, char out[32])
{
	name_of("log", first, out);
}

void accepted_stage_name(uint64_t node, char out[32])
{
	name_of("stage", node, out);
}

void accepted_data_name(uint64_t number, char out[32])
{
	name_of("data", number, out);
}

int accepted_logs(int dir_fd, uint64_t **ret, size_t *ret_n)
{
	uint64_t *firsts;
	char **names, want[32];
	size_t n, k = 0;
	int r = file_list(dir_fd, ".", LOGS_MAX, &names, &n);

	if (r < 0)
		return r;
	firsts = malloc((n + 1) * sizeof(*firsts));
	for (size_t i = 0; firsts && i < n; i++) {
		if (strncmp(names[i], "log.", 4) != 0)
			continue;
		firsts[k] = strtoull(names[i] + 4, NULL, 16);
		accepted_log_name(firsts[k], want);
		k += strcmp(want, names[i]) == 0;
	}
	file_names_free(names, n);
	if (!firsts)
		return -ENOMEM;
	*ret = firsts;
	*ret_n = k;
	return 0;
}

/* ---- reading ---- */

struct accepted_reader {
	int dir_fd, fd;
	uint64_t epoch, first, offset; /* of the log that is open; behind the last entry */
	uint64_t after, last;	       /* last: number of the entry before the next one */
	struct buf in;
	size_t used; /* of in: given out */
};

static int open_log(struct accepted_reader *r, uint64_t first)
{
	uint8_t head[ACCEPTED_HEADER_BYTES];
	cleanup_close int fd = -1;
	uint64_t epoch, number;
	char name[32];
	ssize_t n;

	accepted_log_name(first, name);
	fd = openat(r->dir_fd, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
	if (fd < 0)
		return -errno;
	n = io_pread_full(fd, head, sizeof(head), 0, "accepted.read");
	if (n < 0)
		return (int)n;
	if (n < (ssize_t)sizeof(head) || accepted_header_parse(head, &epoch, &number) < 0 ||
	    number != first)
		return -EBADMSG;
	if (r->fd >= 0)
		(void)close(r->fd);
	r->fd = take_fd(&fd);
	r->epoch = epoch;
	r->first = first;
	r->offset = sizeof(head);
	r->last = first - 1;
	buf_clear(&r->in);
	r->used = 0;
	return 0;
}

int accepted_reader_open(int dir_fd, uint64_t epoch, uint64_t after, struct accepted_reader **ret)
{
	_cleanup_(accepted_reader_closep) struct accepted_reader *r = calloc(1, sizeof(*r));
	cleanup_free uint64_t *firsts = NULL;
	size_t n, at = 0;
	int e;

	if (!r)
		return -ENOMEM;
	r->dir_fd = dir_fd;
	r->fd = -1;
	buf_init(&r->in, ACCEPTED_ENTRY_HEADER_BYTES + ACCEPTED_BODY_MAX);
	e = accepted_logs(dir_fd, &firsts, &n);
	if (e < 0)
		return e;
	if (n == 0)
		return -ENOENT;
	e = open_log(r, firsts[0]);
	if (e < 0)
		return e;
	if (r->epoch == epoch) {
		while (at + 1 < n && firsts[at + 1] <= after + 1)
			at++;
		e = at ? open_log(r, firsts[at]) : 0;
		r->after = after;
	}
	if (e < 0)
		return e;
	*ret = take_ptr(&r);
	return 0;
}

void accepted_reader_close(struct accepted_reader *r)
{
	if (!r)
		return;
	if (r->fd >= 0)
		(void)close(r->fd);
	buf_done(&r->in);
	free(r);
}

uint64_t accepted_reader_epoch(const struct accepted_reader *r)
{
	return r->epoch;
}

void accepted_reader_place(const struct accepted_reader *r, uint64_t *ret_first,
			   uint64_t *ret_offset, uint64_t *ret_last)
{
	*ret_first = r->first;
	*ret_offset = r->offset;
	*ret_last = r->last;
}

static ssize_t fill(struct accepted_reader *r, size_t n_bytes)
{
	uint8_t *p;
	ssize_t n;
	int e;

	buf_clear(&r->in);
	r->used = 0;
	e = buf_reserve(&r->in, n_bytes, &p);
	if (e < 0)
		return e;
	n = io_pread_full(r->fd, p, n_bytes, r->offset, "accepted.read");
	if (n > 0)
		buf_commit(&r->in, (size_t)n);
	return n;
}

/* What was half written when it was read may be whole by now, so before an end is believed
 * it is read again, at last so much that any entry is in it. */
static int next_here(struct accepted_reader *r, struct accepted *ret)
{
	static const size_t sizes[] = {0, READ_BYTES,
				       ACCEPTED_ENTRY_HEADER_BYTES + ACCEPTED_BODY_MAX};

	for (size_t i = 0; i < ARRAY_SIZE(sizes); i++) {
		ssize_t got = i ? fill(r, sizes[i]) : 0;
		int n;

		if (got < 0)
			return (int)got;
		n = accepted_decode(buf_data(&r->in) + r->used, buf_len(&r->in) - r->used, r->epoch,
				    ret);
		if (n > 0 && ret->number == r->last + 1) {
			r->used += (size_t)n;
			r->offset += (size_t)n;
			r->last = ret->number;
			return 1;
		}
	}
	return 0;
}

int accepted_next(struct accepted_reader *r, struct accepted *ret)
{
	int n;

	for (;;) {
		n = next_here(r, ret);
		if (n == 0) {
			/* The next log begins where this one ended. */
			if (r->last + 1 == r->first || open_log(r, r->last + 1) < 0)
				return 0;
			continue;
		}
		if (n < 0 || ret->number > r->after)
			return n;
	}
}
