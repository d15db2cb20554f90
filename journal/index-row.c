#include "journal/index-impl.h"

/* ---- keys ---- */

static void key_bytes(struct key *k, const void *p, size_t n)
{
	if (n)
		memcpy(k->b + k->len, p, n);
	k->len += n;
}

static void key_add(struct key *k, uint64_t v)
{
	put_be64(k->b + k->len, v);
	k->len += 8;
}

void key_u64(struct key *k, uint64_t a)
{
	k->len = 0;
	key_add(k, a);
}

void key_u64_pair(struct key *k, uint64_t a, uint64_t b)
{
	k->len = 0;
	key_add(k, a);
	key_add(k, b);
}

void key_dirent(struct key *k, uint64_t parent, const char *name, size_t len)
{
	k->len = 0;
	key_add(k, parent);
	key_bytes(k, name, len);
}

void key_name(struct key *k, uint64_t node, uint64_t parent, const char *name, size_t len)
{
	k->len = 0;
	key_add(k, node);
	key_add(k, parent);
	key_bytes(k, name, len);
}

void key_past_dirent(struct key *k, uint64_t parent, const char *name, size_t len, uint64_t died)
{
	key_dirent(k, parent, name, len);
	k->b[k->len++] = 0;
	key_add(k, died);
}

/* ---- rows of `node` ----
 *
 *	born u64, version u64, links u32, type u8, owner kinds u8 (uid | gid << 4),
 *	mode u16, parts u16, uid u32, gid u32, mtime i64, ctime i64, inode u64
 * and then the parts that are not zero, in the order of their bits.
 */
enum {
	ROW_FIXED_BYTES = 58,

	PART_GENERATION = 1 << 0, /* u64 */
	PART_DEVICE = 1 << 1,	  /* u64 */
	PART_RDEV = 1 << 2,	  /* u32, u32 */
	PART_UNHELD = 1 << 3,	  /* u32 */
	PART_CONTENT = 1 << 4,	  /* size u64, allocated u64, sha256 */
	PART_LIST = 1 << 5,	  /* depth u8, root */
	PART_TARGET = 1 << 6,	  /* u16, bytes */
	PART_XATTRS = 1 << 7,	  /* u32, bytes */
	PART_TORN = 1 << 8,	  /* nothing */
	PART_HOLES = 1 << 9,	  /* nothing */
};

static unsigned parts_of(const struct node *n)
{
	unsigned parts = 0;

	parts |= n->generation ? PART_GENERATION : 0;
	parts |= n->device ? PART_DEVICE : 0;
	parts |= n->rdev_major || n->rdev_minor ? PART_RDEV : 0;
	parts |= n->unheld ? PART_UNHELD : 0;
	parts |= n->type == NODE_TYPE_FILE ? PART_CONTENT : 0;
	parts |= n->content.depth ? PART_LIST : 0;
	parts |= n->target_len ? PART_TARGET : 0;
	parts |= n->xattrs_len ? PART_XATTRS : 0;
	parts |= n->torn ? PART_TORN : 0;
	parts |= n->content.holes ? PART_HOLES : 0;
	return parts;
}

static uint8_t *put_u64(uint8_t *p, uint64_t v)
{
	put_le64(p, v);
	return p + 8;
}

static uint8_t *put_u32(uint8_t *p, uint32_t v)
{
	put_le32(p, v);
	return p + 4;
}

static uint8_t *put_bytes(uint8_t *p, const void *data, size_t n)
{
	memcpy(p, data, n);
	return p + n;
}

int node_row_pack(struct buf *b, uint64_t born, uint64_t version, uint32_t links,
		  const struct node *n)
{
	unsigned parts = parts_of(n);
	uint8_t *start, *p;
	int r;

	r = buf_reserve(b, ROW_FIXED_BYTES + 150 + n->target_len + n->xattrs_len, &start);
	if (r < 0)
		return r;
	p = put_u64(start, born);
	p = put_u64(p, version);
	p = put_u32(p, links);
	*p++ = n->type;
	*p++ = (uint8_t)(n->uid_kind | n->gid_kind << 4);
	put_le16(p, (uint16_t)n->mode);
	put_le16(p + 2, (uint16_t)parts);
	p = put_u32(p + 4, n->uid);
	p = put_u32(p, n->gid);
	p = put_u64(p, (uint64_t)n->mtime_ns);
	p = put_u64(p, (uint64_t)n->ctime_ns);
	p = put_u64(p, n->inode);
	if (parts & PART_GENERATION)
		p = put_u64(p, n->generation);
	if (parts & PART_DEVICE)
		p = put_u64(p, n->device);
	if (parts & PART_RDEV) {
		p = put_u32(p, n->rdev_major);
		p = put_u32(p, n->rdev_minor);
	}
	if (parts & PART_UNHELD)
		p = put_u32(p, n->unheld);
	if (parts & PART_CONTENT) {
		p = put_u64(p, n->content.size_bytes);
		p = put_u64(p, n->allocated_bytes);
		p = put_bytes(p, n->content.sha256, SHA256_BYTES);
	}
	if (parts & PART_LIST) {
		*p++ = n->content.depth;
		p = put_bytes(p, n->content.root, SHA256_BYTES);
	}
	if (parts & PART_TARGET) {
		put_le16(p, (uint16_t)n->target_len);
		p = put_bytes(p + 2, n->target, n->target_len);
	}
	if (parts & PART_XATTRS) {
		p = put_u32(p, n->xattrs_len);
		p = put_bytes(p, n->xattrs, n->xattrs_len);
	}
	buf_commit(b, (size_t)(p - start));
	return 0;
}

void node_row_set(void *p, uint64_t born, uint32_t links)
{
	put_le64(p, born);
	put_le32((uint8_t *)p + 16, links);
}

int node_row_head(const void *p, size_t len, struct node_row *ret)
{
	if (len < ROW_FIXED_BYTES)
		return -EBADMSG;
	ret->born = get_le64(p);
	ret->version = get_le64((const uint8_t *)p + 8);
	ret->links = get_le32((const uint8_t *)p + 16);
	ret->type = ((const uint8_t *)p)[20];
	return 0;
}

/* A place in a row: reading beyond its end gives zeros and is remembered. */
struct row_reader {
	const uint8_t *p, *end;
	bool short_;
};

static const uint8_t *take(struct row_reader *rd, size_t n)
{
	static const uint8_t zeros[SHA256_BYTES];
	const uint8_t *p = rd->p;

	if ((size_t)(rd->end - p) < n) {
		rd->short_ = true;
		return n <= sizeof(zeros) ? zeros : NULL;
	}
	rd->p += n;
	return p;
}

static void parse_content(struct row_reader *rd, unsigned parts, struct node *n)
{
	if (parts & PART_CONTENT) {
		n->content.size_bytes = get_le64(take(rd, 8));
		n->allocated_bytes = get_le64(take(rd, 8));
		memcpy(n->content.sha256, take(rd, SHA256_BYTES), SHA256_BYTES);
	}
	if (parts & PART_LIST) {
		n->content.depth = *take(rd, 1);
		memcpy(n->content.root, take(rd, SHA256_BYTES), SHA256_BYTES);
	}
	n->torn = parts & PART_TORN;
	n->content.holes = parts & PART_HOLES;
}

static void parse_node(struct row_reader *rd, struct node *n)
{
	const uint8_t *p = take(rd, ROW_FIXED_BYTES - 20);
	unsigned parts = get_le16(p + 4);

	memset(n, 0, sizeof(*n));
	n->type = p[0];
	n->uid_kind = p[1] & 0xf;
	n->gid_kind = p[1] >> 4;
	n->mode = get_le16(p + 2);
	n->uid = get_le32(p + 6);
	n->gid = get_le32(p + 10);
	n->mtime_ns = (int64_t)get_le64(p + 14);
	n->ctime_ns = (int64_t)get_le64(p + 22);
	n->inode = get_le64(p + 30);
	if (parts & PART_GENERATION)
		n->generation = get_le64(take(rd, 8));
	if (parts & PART_DEVICE)
		n->device = get_le64(take(rd, 8));
	if (parts & PART_RDEV) {
		n->rdev_major = get_le32(take(rd, 4));
		n->rdev_minor = get_le32(take(rd, 4));
	}
	if (parts & PART_UNHELD)
		n->unheld = get_le32(take(rd, 4));
	parse_content(rd, parts, n);
	if (parts & PART_TARGET) {
		n->target_len = get_le16(take(rd, 2));
		n->target = take(rd, n->target_len);
	}
	if (parts & PART_XATTRS) {
		n->xattrs_len = get_le32(take(rd, 4));
		n->xattrs = take(rd, n->xattrs_len);
	}
}

int node_row_parse(const void *p, size_t len, uint64_t *ret_born, struct index_node *ret)
{
	struct row_reader rd = {.p = p, .end = (const uint8_t *)p + len};
	struct node_row head;
	int r;

	r = node_row_head(p, len, &head);
	if (r < 0)
		return r;
	rd.p += 20;
	parse_node(&rd, &ret->n);
	if (rd.short_)
		return -EBADMSG;
	ret->version = head.version;
	ret->links = head.links;
	*ret_born = head.born;
	return 0;
}

/* ---- rows of `dirent` ---- */

void dirent_row_pack(uint8_t out[DIRENT_ROW_BYTES], uint64_t node, uint64_t born)
{
	put_le64(out, node);
	put_le64(out + 8, born);
}

int dirent_row_parse(const MDB_val *v, uint64_t *ret_node, uint64_t *ret_born)
{
	if (v->mv_size != DIRENT_ROW_BYTES)
		return -EBADMSG;
	*ret_node = get_le64(v->mv_data);
	*ret_born = get_le64((const uint8_t *)v->mv_data + 8);
	return 0;
}

/* ---- the state ---- */

void state_row_pack(uint8_t out[STATE_ROW_BYTES], const struct index_state *s)
{
	uint8_t *p = out;

	p = put_u64(p, s->seq);
	p = put_u64(p, (uint64_t)s->time_ns);
	p = put_bytes(p, s->chain, SHA256_BYTES);
	p = put_bytes(p, s->log_id, 16);
	p = put_u64(p, s->next_used);
	p = put_u64(p, s->granted_end);
	p = put_u64(p, s->incarnation);
	p = put_u64(p, s->recent_floor);
	p = put_u64(p, s->refused);
	p = put_u64(p, s->counts.files);
	p = put_u64(p, s->counts.directories);
	p = put_u64(p, s->counts.symlinks);
	p = put_u64(p, s->counts.others);
	p = put_u64(p, s->counts.bytes);
	(void)put_u32(p, (s->chain_known ? 1 : 0) | (s->purged ? 2 : 0));
}

int state_row_parse(const MDB_val *v, struct index_state *ret)
{
	struct row_reader rd = {.p = v->mv_data, .end = (const uint8_t *)v->mv_data + v->mv_size};
	struct index_state s = {0};
	uint32_t flags;

	if (v->mv_size != STATE_ROW_BYTES)
		return -EBADMSG;
	s.seq = get_le64(take(&rd, 8));
	s.time_ns = (int64_t)get_le64(take(&rd, 8));
	memcpy(s.chain, take(&rd, SHA256_BYTES), SHA256_BYTES);
	memcpy(s.log_id, take(&rd, 16), 16);
	s.next_used = get_le64(take(&rd, 8));
	s.granted_end = get_le64(take(&rd, 8));
	s.incarnation = get_le64(take(&rd, 8));
	s.recent_floor = get_le64(take(&rd, 8));
	s.refused = get_le64(take(&rd, 8));
	s.counts.files = get_le64(take(&rd, 8));
	s.counts.directories = get_le64(take(&rd, 8));
	s.counts.symlinks = get_le64(take(&rd, 8));
	s.counts.others = get_le64(take(&rd, 8));
	s.counts.bytes = get_le64(take(&rd, 8));
	flags = get_le32(take(&rd, 4));
	s.chain_known = flags & 1;
	s.purged = flags & 2;
	*ret = s;
	return 0;
}
