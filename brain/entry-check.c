/*
 * Judging entries: one table row per type, one cursor that can only go forward
 * inside of the entry.  An entry is right when its parts fill it exactly, up to
 * the padding.
 */
#include "brain/entry.h"

#include "base/ignore.h"
#include "base/beneath.h"
#include "base/util.h"
#include "wire/frame.h"
#include "wire/digest.h"

struct span {
	const uint8_t *p;
	size_t n;
	const char *why; /* the first rule that was broken */
};

static bool refuse(struct span *s, const char *why)
{
	s->why = why;
	return false;
}

/* The next n bytes, or NULL. */
static const void *take(struct span *s, size_t n)
{
	const uint8_t *p = s->p;

	if (n > s->n) {
		s->why = "parts longer than the entry";
		return NULL;
	}
	s->p += n;
	s->n -= n;
	return p;
}

static const void *take_padded(struct span *s, size_t n)
{
	return n > ENTRY_MAX ? take(s, SIZE_MAX) : take(s, ALIGN_UP(n, (size_t)8));
}

static bool text_ok(const char *field, size_t size)
{
	return memchr(field, '\0', size) != NULL;
}

static bool job_ok(const char job[ENTRY_JOB_MAX + 1])
{
	return text_ok(job, ENTRY_JOB_MAX + 1);
}

static bool path_ok(const void *p, size_t n)
{
	return n <= ENTRY_PATH_MAX && (n == 0 || !memchr(p, '\0', n));
}

/* ---- limbd -> limb-ingest ---- */

static bool check_send(const struct entry_head *e, struct span *s)
{
	return take_padded(s, ((const struct entry_send *)e)->len) != NULL;
}

static bool check_seed(const struct entry_head *e, struct span *s)
{
	if (s->n % SHA256_BYTES || s->n / SHA256_BYTES > ENTRY_SEED_MAX)
		return refuse(s, "wrong number of hashes");
	s->n = 0;
	return true;
}

static bool check_pack(const struct entry_head *e, struct span *s)
{
	const struct entry_pack *pack = (const void *)e;

	if (pack->offset < PACK_HEADER_BYTES || pack->offset % 8)
		return refuse(s, "wrong offset in a pack");
	return true;
}

static bool check_base_data(const struct entry_head *e, struct span *s)
{
	const struct entry_base_data *d = (const void *)e;

	if (d->len > ENTRY_BASE_MAX || d->error < 0)
		return refuse(s, "wrong part of a base");
	return take_padded(s, d->len) != NULL;
}

static bool check_fixed(const struct entry_head *e, struct span *s)
{
	return true;
}

/* ---- limb-ingest -> limbd ---- */

static bool check_text(const struct entry_head *e, struct span *s)
{
	const struct entry_text *text = (const void *)e;

	if (text->len > ENTRY_TEXT_MAX)
		return refuse(s, "text too long");
	return take_padded(s, text->len) != NULL;
}

static bool check_hello(const struct entry_head *e, struct span *s)
{
	const struct entry_hello *h = (const void *)e;

	if (!text_ok(h->syncd_version, sizeof(h->syncd_version)))
		return refuse(s, "version without end");
	return true;
}

static bool check_places(const struct entry_head *e, struct span *s)
{
	const struct entry_places *places = (const void *)e;
	const struct entry_place *at;

	for (uint32_t i = 0; i < places->n; i++) {
		at = take(s, sizeof(*at));
		if (!at)
			return false;
		if (at->kind != FRAME_CHUNK && at->kind != FRAME_LIST)
			return refuse(s, "unknown kind of content");
		if (at->len == 0 || at->len > FRAME_RAW_MAX || at->offset < PACK_HEADER_BYTES ||
		    at->offset % 8 || at->offset >= places->pack_end)
			return refuse(s, "place outside of the pack");
	}
	return true;
}

static bool check_content(const struct entry_attr *a, struct span *s)
{
	if (a->type != NODE_TYPE_FILE)
		return refuse(s, "content of what is not a file");
	if (a->size_bytes > INT64_MAX || a->depth > CONTENT_DEPTH_MAX)
		return refuse(s, "content out of range");
	return true;
}

static bool check_attr(const struct entry_attr *a, struct span *s)
{
	const char *target;
	const uint8_t *xattrs;

	if (a->type < NODE_TYPE_FILE || a->type > NODE_TYPE_BLOCK)
		return refuse(s, "unknown type of node");
	if (a->mode > 07777)
		return refuse(s, "mode out of range");
	if (a->uid_kind > NODE_OWNER_NUMBER || a->gid_kind > NODE_OWNER_NUMBER)
		return refuse(s, "unknown kind of owner");
	if (a->has_content && !check_content(a, s))
		return false;
	if (a->target_len > NODE_TARGET_MAX ||
	    (a->target_len > 0) != (a->type == NODE_TYPE_SYMLINK))
		return refuse(s, "target out of range");
	target = take(s, a->target_len);
	if (!target)
		return false;
	if (memchr(target, '\0', a->target_len))
		return refuse(s, "NUL in a target");
	xattrs = take(s, a->xattrs_len);
	if (!xattrs)
		return false;
	if (!node_xattrs_ok(xattrs, a->xattrs_len))
		return refuse(s, "wrong list of extended attributes");
	return true;
}

static bool check_name(struct span *s, size_t n, bool wanted)
{
	const char *name = take(s, n);

	if (!name)
		return false;
	if (wanted ? !beneath_name_ok(name, n) : n > 0)
		return refuse(s, "wrong name");
	return true;
}

/* The parts of one op or tree entry, a span of their own. */
static bool begin_part(struct span *s, size_t size, uint32_t length, struct span *ret)
{
	const uint8_t *p;

	if (length < size || length % 8)
		return refuse(s, "wrong length of a part");
	p = take(s, length);
	if (!p)
		return false;
	*ret = (struct span){.p = p + size, .n = length - size};
	return true;
}

static bool end_part(struct span *s, const struct span *part, bool ok)
{
	if (!ok)
		return refuse(s, part->why);
	if (part->n >= 8)
		return refuse(s, "part longer than what is in it");
	return true;
}

static bool check_op_parts(const struct entry_op *op, struct span *s)
{
	bool link = op->kind == CHANGE_LINK, unlink = op->kind == CHANGE_UNLINK,
	     move = op->kind == CHANGE_MOVE, put = op->kind == CHANGE_PUT;

	if (!put && !link && !unlink && !move)
		return refuse(s, "unknown kind of operation");
	if (!check_name(s, op->name_len, !put) || !check_name(s, op->to_name_len, move))
		return false;
	if ((put || link) && op->node == 0)
		return refuse(s, "no node");
	if ((!put && op->parent == 0) || (move && op->to_parent == 0))
		return refuse(s, "no parent");
	if (link && op->node == NODE_ROOT)
		return refuse(s, "a name for the root");
	if (unlink && (op->evidence == EVIDENCE_NONE_ || op->evidence > EVIDENCE_ACCEPTED_))
		return refuse(s, "removal without evidence");
	return !put || check_attr(&op->attr, s);
}

static bool check_change(const struct entry_head *e, struct span *s)
{
	const struct entry_change *c = (const void *)e;

	if (c->n_ops == 0 || c->n_ops > CHANGE_OPS_MAX || c->number == 0)
		return refuse(s, "wrong number of operations");
	if (!job_ok(c->job))
		return refuse(s, "job without end");
	if (c->origin > ORIGIN_MERGE_)
		return refuse(s, "unknown origin");
	for (uint32_t i = 0; i < c->n_ops; i++) {
		const struct entry_op *op = (const void *)s->p;
		struct span part;

		if (s->n < sizeof(*op))
			return refuse(s, "parts longer than the entry");
		if (!begin_part(s, sizeof(*op), op->length, &part) ||
		    !end_part(s, &part, check_op_parts(op, &part)))
			return false;
	}
	return true;
}

static bool check_tree_parts(const struct entry_tree_entry *t, struct span *s)
{
	if (!check_name(s, t->name_len, t->name_len > 0))
		return false;
	if (t->attr.type == NODE_TYPE_NONE && (t->attr.target_len > 0 || t->attr.xattrs_len > 0))
		return refuse(s, "parts of an entry without attributes");
	if (t->attr.type == NODE_TYPE_NONE)
		return t->error || refuse(s, "no attributes");
	return check_attr(&t->attr, s);
}

static bool check_tree_part(const struct entry_head *e, struct span *s)
{
	const struct entry_tree_part *tree = (const void *)e;

	for (uint32_t i = 0; i < tree->n; i++) {
		const struct entry_tree_entry *t = (const void *)s->p;
		struct span part;

		if (s->n < sizeof(*t))
			return refuse(s, "parts longer than the entry");
		if (!begin_part(s, sizeof(*t), t->length, &part) ||
		    !end_part(s, &part, check_tree_parts(t, &part)))
			return false;
	}
	return true;
}

static bool check_unsettled(struct span *s, uint32_t n)
{
	if (n > ENTRY_UNSETTLED_MAX)
		return refuse(s, "too many unsettled files");
	for (uint32_t i = 0; i < n; i++) {
		const struct entry_unsettled *u = take(s, sizeof(*u));
		const void *path;

		path = u ? take_padded(s, u->len) : NULL;
		if (!path)
			return false;
		if (!path_ok(path, u->len))
			return refuse(s, "wrong path");
	}
	return true;
}

static bool check_barrier_done(const struct entry_head *e, struct span *s)
{
	return check_unsettled(s, ((const struct entry_barrier_done *)e)->n_unsettled);
}

static bool check_status(const struct entry_head *e, struct span *s)
{
	const struct entry_status *status = (const void *)e;

	if (status->n_reasons > ENTRY_REASONS_MAX)
		return refuse(s, "too many reasons");
	for (uint32_t i = 0; i < status->n_reasons; i++) {
		const struct entry_reason *reason = take(s, sizeof(*reason));
		const uint8_t *text;

		if (!reason)
			return false;
		if (!text_ok(reason->code, sizeof(reason->code)) ||
		    reason->detail_len > ENTRY_TEXT_MAX || reason->path_len > ENTRY_PATH_MAX)
			return refuse(s, "wrong reason");
		text = take_padded(s, (size_t)reason->detail_len + reason->path_len);
		if (!text)
			return false;
		if (!path_ok(text + reason->detail_len, reason->path_len))
			return refuse(s, "wrong path");
	}
	return true;
}

static bool check_done(const struct entry_head *e, struct span *s)
{
	const struct entry_done *done = (const void *)e;

	if (done->len > ENTRY_TEXT_MAX)
		return refuse(s, "text too long");
	return take_padded(s, done->len) != NULL;
}

static bool check_tree_get(const struct entry_head *e, struct span *s)
{
	const struct entry_tree_get *get = (const void *)e;

	if (get->n > DIGESTS_MAX)
		return refuse(s, "too many hashes");
	return take(s, get->n * (size_t)DIGEST_BYTES) != NULL;
}

static bool check_pull(const struct entry_head *e, struct span *s)
{
	const struct entry_pull *pull = (const void *)e;

	if (pull->n > ENTRY_PULL_MAX)
		return refuse(s, "too many nodes");
	return take(s, pull->n * sizeof(struct entry_pull_node)) != NULL;
}

static bool check_ignores(const struct entry_head *e, struct span *s)
{
	const struct entry_ignores *ignores = (const void *)e;

	if (ignores->n > IGNORE_FILES_MAX)
		return refuse(s, "too many files of rules");
	for (uint32_t i = 0; i < ignores->n; i++) {
		const struct entry_ignore_file *f = take(s, sizeof(*f));
		const void *dir;

		if (!f)
			return false;
		if (f->dir_len > ENTRY_PATH_MAX || f->text_len > IGNORE_TEXT_MAX)
			return refuse(s, "rules that are too long");
		dir = take_padded(s, (size_t)f->dir_len + f->text_len);
		if (!dir)
			return false;
		if (!path_ok(dir, f->dir_len))
			return refuse(s, "wrong path");
	}
	return true;
}

static bool check_restored(const struct entry_head *e, struct span *s)
{
	const struct entry_restored *restored = (const void *)e;

	if (restored->detail_len > ENTRY_TEXT_MAX ||
	    restored->n_unsupported > ENTRY_UNSUPPORTED_MAX)
		return refuse(s, "too long");
	if (!take_padded(s, restored->detail_len))
		return false;
	for (uint32_t i = 0; i < restored->n_unsupported; i++) {
		const struct entry_unsupported *u = take(s, sizeof(*u));
		const void *path;

		if (!u)
			return false;
		if (u->path_len > ENTRY_PATH_MAX)
			return refuse(s, "wrong path");
		path = take_padded(s, (size_t)u->path_len + u->field_len);
		if (!path)
			return false;
		if (!path_ok(path, u->path_len))
			return refuse(s, "wrong path");
	}
	return true;
}

static bool check_job(const struct entry_head *e, struct span *s)
{
	const struct entry_job *job = (const void *)e;

	if (!job_ok(job->job) || !text_ok(job->killed_by, sizeof(job->killed_by)))
		return refuse(s, "text without end");
	if (job->detail_len > ENTRY_TEXT_MAX)
		return refuse(s, "text too long");
	return take_padded(s, job->detail_len) && check_unsettled(s, job->n_unsettled);
}

static bool check_job_output(const struct entry_head *e, struct span *s)
{
	const struct entry_job_output *out = (const void *)e;

	if (!job_ok(out->job))
		return refuse(s, "text without end");
	if (out->stream != 1 && out->stream != 2)
		return refuse(s, "unknown stream");
	if (out->offset > INT64_MAX)
		return refuse(s, "offset out of range");
	return take_padded(s, out->len) != NULL;
}

static bool check_job_input(const struct entry_head *e, struct span *s)
{
	const struct entry_job_input *in = (const void *)e;

	if (!job_ok(in->job))
		return refuse(s, "text without end");
	return in->bytes <= INT64_MAX || refuse(s, "offset out of range");
}

static bool check_base(const struct entry_head *e, struct span *s)
{
	const struct entry_base *b = (const void *)e;

	return (b->node && b->len && b->len <= ENTRY_BASE_MAX && b->offset <= INT64_MAX) ||
	       refuse(s, "wrong part of a base");
}

static bool check_job_list(const struct entry_head *e, struct span *s)
{
	const struct entry_job_list *list = (const void *)e;

	if (list->n > ENTRY_JOBS_MAX)
		return refuse(s, "too many jobs");
	for (uint32_t i = 0; i < list->n; i++) {
		const struct entry_job_known *job = take(s, sizeof(*job));

		if (!job)
			return false;
		if (!job_ok(job->job))
			return refuse(s, "text without end");
	}
	return true;
}

static bool check_ps_done(const struct entry_head *e, struct span *s)
{
	const struct entry_ps_done *ps = (const void *)e;

	if (ps->n > ENTRY_PROCESSES_MAX)
		return refuse(s, "too many processes");
	for (uint32_t i = 0; i < ps->n; i++) {
		const struct entry_process *p = (const void *)s->p;
		struct span part;

		if (s->n < sizeof(*p))
			return refuse(s, "parts longer than the entry");
		if (!begin_part(s, sizeof(*p), p->length, &part) ||
		    !end_part(s, &part, take(&part, p->argv_len) != NULL))
			return false;
		if (!job_ok(p->job) || !text_ok(p->state, sizeof(p->state)))
			return refuse(s, "text without end");
		if (p->argv_len > ENTRY_ARGV_MAX ||
		    (p->argv_len > 0 && ((const char *)(p + 1))[p->argv_len - 1] != '\0'))
			return refuse(s, "wrong arguments");
	}
	return true;
}

static const struct {
	size_t size;
	bool (*check)(const struct entry_head *e, struct span *s);
} types[] = {
	[ENTRY_SEND] = {sizeof(struct entry_send), check_send},
	[ENTRY_PACK] = {sizeof(struct entry_pack), check_pack},
	[ENTRY_SEED] = {sizeof(struct entry_head), check_seed},
	[ENTRY_STOP] = {sizeof(struct entry_head), check_fixed},
	[ENTRY_START] = {sizeof(struct entry_start), check_fixed},
	[ENTRY_SEAL] = {sizeof(struct entry_head), check_fixed},
	[ENTRY_BASE_DATA] = {sizeof(struct entry_base_data), check_base_data},
	[ENTRY_HELLO] = {sizeof(struct entry_hello), check_hello},
	[ENTRY_PLACES] = {sizeof(struct entry_places), check_places},
	[ENTRY_CHANGE] = {sizeof(struct entry_change), check_change},
	[ENTRY_BARRIER_DONE] = {sizeof(struct entry_barrier_done), check_barrier_done},
	[ENTRY_STATUS] = {sizeof(struct entry_status), check_status},
	[ENTRY_TREE_GET] = {sizeof(struct entry_tree_get), check_tree_get},
	[ENTRY_TREE_PART] = {sizeof(struct entry_tree_part), check_tree_part},
	[ENTRY_DONE] = {sizeof(struct entry_done), check_done},
	[ENTRY_PULL] = {sizeof(struct entry_pull), check_pull},
	[ENTRY_IGNORES] = {sizeof(struct entry_ignores), check_ignores},
	[ENTRY_RESTORED] = {sizeof(struct entry_restored), check_restored},
	[ENTRY_JOB_STARTED] = {sizeof(struct entry_job), check_job},
	[ENTRY_JOB_OUTPUT] = {sizeof(struct entry_job_output), check_job_output},
	[ENTRY_JOB_EXIT] = {sizeof(struct entry_job), check_job},
	[ENTRY_JOB_LIST] = {sizeof(struct entry_job_list), check_job_list},
	[ENTRY_PS_DONE] = {sizeof(struct entry_ps_done), check_ps_done},
	[ENTRY_ERROR] = {sizeof(struct entry_text), check_text},
	[ENTRY_BYE] = {sizeof(struct entry_text), check_text},
	[ENTRY_PACK_FULL] = {sizeof(struct entry_pack_full), check_fixed},
	[ENTRY_HOSTILE] = {sizeof(struct entry_text), check_text},
	[ENTRY_PONG] = {sizeof(struct entry_pong), check_fixed},
	[ENTRY_JOB_INPUT] = {sizeof(struct entry_job_input), check_job_input},
	[ENTRY_BASE] = {sizeof(struct entry_base), check_base},
};

ssize_t entry_whole(const void *p, size_t n)
{
	const struct entry_head *e = p;

	if (n < sizeof(*e))
		return 0;
	if (e->length < sizeof(*e) || e->length > ENTRY_MAX || e->length % 8)
		return -EBADMSG;
	return e->length <= n ? (ssize_t)e->length : 0;
}

int entry_check(const struct entry_head *e, const char **ret_why)
{
	struct span s;
	bool ok;

	if (e->type >= ARRAY_SIZE(types) || !types[e->type].check) {
		*ret_why = "unknown type of entry";
		return -EBADMSG;
	}
	if (e->length < types[e->type].size) {
		*ret_why = "entry too short";
		return -EBADMSG;
	}
	s = (struct span){
		.p = (const uint8_t *)e + types[e->type].size,
		.n = e->length - types[e->type].size,
	};
	ok = types[e->type].check(e, &s);
	if (ok && s.n > 0)
		ok = refuse(&s, "entry longer than what is in it");
	if (ok)
		return 0;
	*ret_why = s.why;
	return -EBADMSG;
}
