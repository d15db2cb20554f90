#include "journal/store-walk.h"

#include <fcntl.h>
#include <sys/stat.h>

#include "base/file.h"
#include "base/io.h"
#include "base/text.h"
#include "journal/pack.h"

#define BLOCK_BYTES (256u << 10)
#define FRAME_ALIGN 8
#define FILES_MAX 1000000

struct state {
	const struct store_walk *walk;
	int fd;
	bool compare;
	uint64_t end;
	struct store_place places[FRAME_MEMBERS_MAX];
	size_t n;
	struct buf held; /* places in frames good in part, until a good one follows */
};

static void add_place(struct state *s, uint64_t offset, const struct frame_member *m)
{
	struct store_place *p = &s->places[s->n++];

	memcpy(p->hash, m->hash, SHA256_BYTES);
	memcpy(p->pack_id, s->walk->pack_id, sizeof(p->pack_id));
	p->offset = offset;
	p->len = m->len;
	p->kind = m->kind;
}

static void tell(const struct state *s, uint64_t offset, const uint8_t *hash, int error)
{
	if (s->walk->bad)
		s->walk->bad(offset, hash, error, s->walk->userdata);
}

/* Gathers the members whose bytes have their hash. */
static int compare_members(struct state *s, uint64_t offset)
{
	_cleanup_(buf_done) struct buf raw = BUF_INIT(FRAME_RAW_MAX);
	cleanup_free struct frame_member *members = NULL;
	uint8_t actual[SHA256_BYTES];
	const uint8_t *data;
	size_t n;
	int r;

	r = frame_read(s->fd, offset, &raw, &members, &n);
	if (r < 0)
		return r;
	data = buf_data(&raw);
	for (size_t i = 0; i < n; data += members[i++].len) {
		sha256(data, members[i].len, actual);
		if (memcmp(actual, members[i].hash, SHA256_BYTES) == 0)
			add_place(s, offset, &members[i]);
		else
			tell(s, offset, members[i].hash, -EBADMSG);
	}
	return 0;
}

static int give(struct state *s, const struct store_place *places, size_t n)
{
	return s->walk->add ? s->walk->add(places, n, s->walk->userdata) : 0;
}

static int give_held(struct state *s)
{
	size_t n;
	int r;

	while ((n = buf_len(&s->held)) > 0) {
		n = MIN(n, sizeof(s->places));
		r = give(s, (const void *)buf_data(&s->held), n / sizeof(s->places[0]));
		if (r != 0)
			return r;
		buf_consume(&s->held, n);
	}
	return 0;
}

static int each_frame(uint64_t offset, const struct frame_info *info,
		      const struct frame_member *members, size_t n, void *userdata)
{
	struct state *s = userdata;
	int r;

	s->n = 0;
	if (s->compare) {
		r = compare_members(s, offset);
		if (r < 0)
			return r;
		if (s->n == 0)
			return -EBADMSG;
		if (s->n < n && s->walk->torn_tail)
			return buf_add(&s->held, s->places, s->n * sizeof(s->places[0]));
	} else {
		for (size_t i = 0; i < n; i++)
			add_place(s, offset, &members[i]);
	}
	r = give_held(s);
	if (r != 0)
		return r;
	s->end = offset + info->total;
	return give(s, s->places, s->n);
}

struct gap {
	uint64_t next; /* the frame behind it; 0: none */
	bool zeros;    /* nothing else in it */
};

/* Looks for what may be a frame in a block; returns its length when there is none. */
static size_t scan_block(const uint8_t *block, size_t n, bool *zeros)
{
	struct frame_info info;
	size_t at;

	for (at = 0; at + FRAME_HEADER_BYTES <= n; at += FRAME_ALIGN) {
		if (get_le64(block + at) == 0)
			continue;
		if (memcmp(block + at, "LFRM", 4) == 0 &&
		    frame_header_parse(block + at, &info) == 0)
			return at;
		*zeros = false;
	}
	for (size_t i = at; i < n; i++)
		if (block[i] != 0)
			*zeros = false;
	return n;
}

/* What lies between `from`, where no frame is, and the next one. */
static int find_gap(int fd, uint64_t from, struct gap *ret)
{
	cleanup_free uint8_t *block = malloc(BLOCK_BYTES);
	struct gap gap = {.zeros = true};
	size_t at;
	ssize_t n;

	if (!block)
		return -ENOMEM;
	/* The header at `from` may parse well: what it promises is not there. */
	for (bool first = true;; first = false) {
		n = io_pread_full(fd, block, BLOCK_BYTES, from, "pack.read");
		if (n < 0)
			return (int)n;
		if (first && n >= FRAME_ALIGN) {
			gap.zeros = get_le64(block) == 0;
			memset(block, 0, FRAME_ALIGN);
		}
		at = scan_block(block, (size_t)n, &gap.zeros);
		if (at < (size_t)n) {
			gap.next = from + at;
			break;
		}
		if (n < (ssize_t)BLOCK_BYTES)
			break;
		/* A header may lie across the end of the block. */
		from += BLOCK_BYTES - ALIGN_UP((size_t)FRAME_HEADER_BYTES, FRAME_ALIGN);
	}
	*ret = gap;
	return 0;
}

static int pass_gap(struct state *s, uint64_t from, struct gap *ret)
{
	int r;

	r = find_gap(s->fd, from, ret);
	if (r < 0 || ret->next == 0 || ret->zeros)
		return r;
	tell(s, from, NULL, -EBADMSG);
	if (!s->walk->mend)
		return 0;
	return io_fill_zeros(s->fd, from, ret->next, "pack.mend");
}

static int walk(struct state *s, uint64_t offset)
{
	struct gap gap = {0};
	bool damaged;
	int r;

	for (;;) {
		r = pack_walk(s->fd, offset, each_frame, s, &offset, &damaged);
		if (r != 0 && r != -EBADMSG)
			return r;
		r = pass_gap(s, offset, &gap);
		if (r < 0)
			return r;
		if (gap.next == 0)
			return 0;
		s->compare = true;
		offset = gap.next;
	}
}

int store_walk_pack(const struct store_walk *w, int fd, uint64_t from, uint64_t *ret_end)
{
	cleanup_free struct state *s = malloc(sizeof(*s));
	int r;

	if (!s)
		return -ENOMEM;
	s->walk = w;
	s->fd = fd;
	s->compare = w->compare;
	s->end = from;
	buf_init(&s->held, 0);
	r = walk(s, from);
	buf_done(&s->held);
	*ret_end = s->end;
	return r;
}

/* ---- the files of a store ---- */

static bool parse_name(const char *name, uint8_t id[16])
{
	char hex[33];

	if (strlen(name) != 37 || strcmp(name + 32, ".pack") != 0)
		return false;
	memcpy(hex, name, 32);
	hex[32] = '\0';
	return text_unhex(id, 16, hex) == 0;
}

static int compare_files(const void *a, const void *b)
{
	const struct store_file *x = a, *y = b;

	if (x->sealed != y->sealed)
		return x->sealed ? -1 : 1;
	return memcmp(x->pack_id, y->pack_id, sizeof(x->pack_id));
}

int store_walk_files(int packs_fd, struct store_file **ret, size_t *ret_n)
{
	struct store_file *files;
	size_t n_names, n = 0;
	char **names;
	int r;

	r = file_list(packs_fd, ".", FILES_MAX, &names, &n_names);
	if (r < 0)
		return r;
	files = calloc(n_names + 1, sizeof(*files));
	for (size_t i = 0; files && i < n_names; i++) {
		struct stat st;

		if (!parse_name(names[i], files[n].pack_id) ||
		    fstatat(packs_fd, names[i], &st, AT_SYMLINK_NOFOLLOW) < 0 ||
		    !S_ISREG(st.st_mode))
			continue;
		files[n].size_bytes = (uint64_t)st.st_size;
		files[n++].sealed = (st.st_mode & 0222) == 0;
	}
	file_names_free(names, n_names);
	if (!files)
		return -ENOMEM;
	qsort(files, n, sizeof(*files), compare_files);
	*ret = files;
	*ret_n = n;
	return 0;
}
