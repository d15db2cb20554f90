#include "journal/segment.h"

#include <ctype.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <sys/stat.h>

#include "base/file.h"
#include "base/io.h"
#include "base/util.h"

enum {
	WINDOW_BYTES = 256 << 10,
	LIST_MAX = 1 << 20,
	NAME_LEN = 20, /* 16 digits and ".log" */
};

static const char temp_name[] = "segment.tmp";

void segment_name(char out[SEGMENT_NAME_BYTES], uint64_t first_seq)
{
	(void)snprintf(out, SEGMENT_NAME_BYTES, "%016" PRIx64 ".log", first_seq);
}

/* 0: not the name of a segment. */
static uint64_t parse_name(const char *name)
{
	uint64_t first = 0;

	if (strlen(name) != NAME_LEN || strcmp(name + 16, ".log") != 0)
		return 0;
	for (int i = 0; i < 16; i++) {
		if (!isxdigit((unsigned char)name[i]) || isupper((unsigned char)name[i]))
			return 0;
		first = first << 4 |
			(uint64_t)(isdigit((unsigned char)name[i]) ? name[i] - '0'
								   : name[i] - 'a' + 10);
	}
	return first;
}

int segment_list(int dir_fd, uint64_t **ret_firsts, size_t *ret_n)
{
	uint64_t *firsts;
	char **names;
	size_t n_names, n = 0;
	int r;

	r = file_list(dir_fd, ".", LIST_MAX, &names, &n_names);
	if (r < 0)
		return r;
	firsts = calloc(n_names + 1, sizeof(*firsts));
	for (size_t i = 0; firsts && i < n_names; i++) {
		uint64_t first = parse_name(names[i]);

		if (first > 0)
			firsts[n++] = first; /* fixed width: sorted names are sorted numbers */
	}
	file_names_free(names, n_names);
	if (!firsts)
		return -ENOMEM;
	*ret_firsts = firsts;
	*ret_n = n;
	return 0;
}

int segment_open(int dir_fd, uint64_t first_seq, int flags, struct segment_header *ret_header,
		 int *ret_fd)
{
	uint8_t bytes[SEGMENT_HEADER_BYTES];
	char name[SEGMENT_NAME_BYTES];
	cleanup_close int fd = -1;
	ssize_t k;
	int r;

	segment_name(name, first_seq);
	fd = openat(dir_fd, name, flags | O_CLOEXEC | O_NOFOLLOW);
	if (fd < 0)
		return -errno;
	k = io_pread_full(fd, bytes, sizeof(bytes), 0, "log.read");
	if (k < 0)
		return (int)k;
	if ((size_t)k < sizeof(bytes))
		return -EBADMSG;
	r = segment_header_parse(bytes, ret_header);
	if (r < 0)
		return r;
	*ret_fd = take_fd(&fd);
	return 0;
}

static int create_temp(int dir_fd, const struct segment_header *h, uint64_t fill_bytes)
{
	uint8_t bytes[SEGMENT_HEADER_BYTES];
	cleanup_close int fd = -1;
	int r;

	fd = openat(dir_fd, temp_name, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (fd < 0)
		return -errno;
	segment_header_seal(h, bytes);
	r = io_pwrite_full(fd, bytes, sizeof(bytes), 0, "log.segment.write");
	if (r < 0)
		return r;
	r = io_fill_zeros(fd, sizeof(bytes), MAX(fill_bytes, (uint64_t)sizeof(bytes)),
			  "log.segment.fill");
	if (r < 0)
		return r;
	r = io_fsync(fd, "log.segment.sync");
	if (r < 0)
		return r;
	return take_fd(&fd);
}

int segment_create(int dir_fd, const struct segment_header *h, uint64_t fill_bytes, int *ret_fd,
		   bool *ret_named)
{
	char name[SEGMENT_NAME_BYTES];
	cleanup_close int fd = -1;
	int r;

	*ret_named = false;
	fd = create_temp(dir_fd, h, fill_bytes);
	if (fd < 0) {
		(void)unlinkat(dir_fd, temp_name, 0);
		return fd;
	}
	segment_name(name, h->first_seq);
	r = io_renameat(dir_fd, temp_name, dir_fd, name, "log.segment.rename");
	if (r < 0)
		/* It may have been renamed all the same. */
		*ret_named = unlinkat(dir_fd, temp_name, 0) < 0;
	if (r >= 0) {
		*ret_named = true;
		r = io_fsync(dir_fd, "log.dir.sync");
	}
	if (r < 0)
		return r;
	*ret_fd = take_fd(&fd);
	return 0;
}

int segment_clean(int dir_fd)
{
	int r = io_unlinkat(dir_fd, temp_name, 0, "log.segment.unlink");

	return r == -ENOENT ? 0 : r;
}

void segment_scan_init(struct segment_scan *s, int fd, uint64_t tag)
{
	*s = (struct segment_scan){.fd = fd, .tag = tag, .offset = SEGMENT_HEADER_BYTES};
}

void segment_scan_done(struct segment_scan *s)
{
	free(s->window);
	*s = (struct segment_scan){.fd = -1};
}

void segment_scan_reread(struct segment_scan *s)
{
	s->window_len = 0;
}

static int window_grow(struct segment_scan *s, size_t n)
{
	uint8_t *p;

	if (n <= s->window_cap)
		return 0;
	p = realloc(s->window, n);
	if (!p)
		return -ENOMEM;
	s->window = p;
	s->window_cap = n;
	return 0;
}

/* Points *ret at the bytes from offset on; returns how many of n there are. */
static ssize_t window_get(struct segment_scan *s, uint64_t offset, size_t n, const uint8_t **ret)
{
	uint64_t end = s->window_offset + s->window_len;
	ssize_t k;
	int r;

	if (s->window_len == 0 || offset < s->window_offset || offset + n > end) {
		r = window_grow(s, MAX(n, (size_t)WINDOW_BYTES));
		if (r < 0)
			return r;
		s->window_len = 0;
		k = io_pread_full(s->fd, s->window, MAX(n, (size_t)WINDOW_BYTES), offset,
				  "log.read");
		if (k < 0)
			return k;
		s->window_offset = offset;
		s->window_len = (size_t)k;
	}
	*ret = s->window + (offset - s->window_offset);
	return (ssize_t)MIN((uint64_t)n, s->window_offset + s->window_len - offset);
}

static bool all_zero(const uint8_t *p, size_t n)
{
	return n == 0 || (p[0] == 0 && memcmp(p, p + 1, n - 1) == 0);
}

/* The file must be long enough before memory for a body is taken. */
static int has_bytes(const struct segment_scan *s, uint64_t end)
{
	struct stat st;

	if (fstat(s->fd, &st) < 0)
		return -errno;
	return (uint64_t)st.st_size >= end;
}

static int judge_body(struct segment_scan *s, struct segment_record *rec)
{
	size_t body_len = rec->h.body_len;
	const uint8_t *p;
	ssize_t k;

	k = window_get(s, rec->offset, rec->size, &p);
	if (k < 0)
		return (int)k;
	if ((size_t)k < rec->size)
		return SEGMENT_CUT;
	p += RECORD_HEADER_BYTES;
	rec->salted = p;
	if (all_zero(p, rec->size - RECORD_HEADER_BYTES)) {
		rec->blank = true;
		return SEGMENT_RECORD;
	}
	if (!all_zero(p + body_len, rec->size - RECORD_HEADER_BYTES - body_len) ||
	    !record_body_ok(&rec->h, p))
		return SEGMENT_BAD_BODY;
	return SEGMENT_RECORD;
}

int segment_scan_next(struct segment_scan *s, bool with_body, struct segment_record *ret)
{
	const uint8_t *p;
	ssize_t k;
	int r;

	*ret = (struct segment_record){.offset = s->offset};
	k = window_get(s, s->offset, RECORD_HEADER_BYTES, &p);
	if (k < 0)
		return (int)k;
	if (k < 4)
		return all_zero(p, (size_t)k) ? SEGMENT_END : SEGMENT_CUT;
	if (get_le32(p) == 0)
		return SEGMENT_END;
	if (k < RECORD_HEADER_BYTES)
		return SEGMENT_CUT;

	switch (record_header_parse(p, &ret->h)) {
	case RECORD_OK: break;
	case RECORD_NEWER: return SEGMENT_NEWER;
	case RECORD_END:
	case RECORD_DAMAGED: ret->h = (struct record_header){0}; return SEGMENT_BAD_HEADER;
	}
	ret->size = record_size(ret->h.body_len);
	if (ret->h.tag != s->tag)
		return SEGMENT_FOREIGN;
	r = has_bytes(s, s->offset + ret->size);
	if (r <= 0)
		return r < 0 ? r : SEGMENT_CUT;
	return with_body ? judge_body(s, ret) : SEGMENT_RECORD;
}

void segment_scan_skip(struct segment_scan *s, const struct segment_record *rec)
{
	s->offset = rec->offset + rec->size;
}

int segment_scan_find(struct segment_scan *s, uint64_t from, bool any_tag, uint64_t *ret_offset,
		      struct record_header *ret)
{
	const uint8_t *p;
	ssize_t k;

	for (from = ALIGN_UP(from, 8);;) {
		size_t i, n;

		k = window_get(s, from, RECORD_HEADER_BYTES, &p);
		if (k < RECORD_HEADER_BYTES)
			return k < 0 ? (int)k : 0;
		n = (size_t)(s->window_offset + s->window_len - from);
		for (i = 0; i + RECORD_HEADER_BYTES <= n; i += 8) {
			struct record_header h;

			if (!record_magic_ok(p + i) || record_header_parse(p + i, &h) != RECORD_OK)
				continue;
			if (!any_tag && h.tag != s->tag)
				continue;
			*ret_offset = from + i;
			*ret = h;
			return 1;
		}
		from += i;
	}
}

int segment_scan_used(struct segment_scan *s, uint64_t *ret_end)
{
	uint64_t end = s->offset;
	const uint8_t *p;
	ssize_t k;

	for (uint64_t at = s->offset;; at += (uint64_t)k) {
		k = window_get(s, at, WINDOW_BYTES, &p);
		if (k < 0)
			return (int)k;
		if (k == 0)
			break;
		if (all_zero(p, (size_t)k))
			continue;
		for (size_t i = (size_t)k; i > 0; i--) {
			if (p[i - 1] != 0) {
				end = at + i;
				break;
			}
		}
	}
	*ret_end = end;
	return 0;
}

/* Whether a header behind s->offset tells that record `expect` was durable, or
 * that this is no place where a crash may leave one. */
static int evidence_behind(struct segment_scan *s, uint64_t expect,
			   const uint8_t chain[SHA256_BYTES])
{
	struct record_header h;
	uint64_t at;
	int r;

	for (at = s->offset;; at += 8) {
		r = segment_scan_find(s, at, false, &at, &h);
		if (r <= 0)
			return r;
		if (h.durable_seq >= expect)
			return 1;
		/* The record itself, its body torn; else nothing but what was written
		 * behind it, and not known to follow on it directly, may be there. */
		if (at == s->offset ? h.seq != expect || !record_chain_ok(&h, chain)
				    : h.seq <= expect)
			return 1;
	}
}

int segment_scan_torn(struct segment_scan *s, uint64_t expect, const uint8_t chain[SHA256_BYTES],
		      uint64_t durable_seq, uint64_t *ret_bytes)
{
	uint64_t end;
	int r;

	r = segment_scan_used(s, &end);
	if (r < 0)
		return r;
	if (end > s->offset) {
		if (durable_seq >= expect)
			return 0;
		r = evidence_behind(s, expect, chain);
		if (r != 0)
			return r < 0 ? r : 0;
	}
	*ret_bytes = end - s->offset;
	return 1;
}
