/*
 * file_write, file_edit: one file made anew in the environment, by APPLY as `limb cp`
 * does, then durable.
 *
 * A helper thread resolves the path in the journal's tree and makes the new content; an
 * edit is made from the content that the journal has and is applied only over that one
 * (APPLY's base_sha256).  If the environment had a newer one that the journal did not
 * know yet, the edit is made again from that, once.  For one that is away, or behind
 * changes that wait for it, the same content is kept and queued (want.h).
 */
#include "brain/file-impl.h"

#include <stdio.h>

#include "base/text.h"
#include "brain/barrier.h"
#include "brain/keep.h"
#include "brain/link.h"
#include "brain/want.h"
#include "wire/wire.pb-c.h"

enum {
	PIECE = 256 << 10,
	ASK_MS = 60000,
	SYNC_MS = 60000,
	EDITS_MAX = 1000,
};

struct edit {
	const char *old_text, *new_text; /* in the call's params */
	size_t old_len, new_len;
	bool all;
};

struct rewrite {
	struct edit *edits; /* NULL: written whole */
	size_t n_edits, replaced;
	const char *text; /* written whole: in the params */
	size_t text_len;
	bool exists, no_replace, based, again;
	uint8_t wanted[SHA256_BYTES]; /* what the caller has seen; valid if given */
	bool given;

	struct buf path, content, spare;
	uint8_t base[SHA256_BYTES];
	uint64_t request;

	/* It is queued: */
	bool queued, has_over;
	struct content_ref used; /* from which the edit was made */
	struct content_ref over; /* what an earlier change that waits puts there */
	struct content_ref kept;
};

/* ---- in the thread ---- */

static void shorten(char *out, size_t size, const char *s, size_t n)
{
	char shown[80];

	(void)snprintf(out, size, "%s", text_escape_into(shown, sizeof(shown), s, n));
}

static int make_edit(struct file_call *f, struct rewrite *c, size_t i)
{
	const struct edit *e = &c->edits[i];
	const uint8_t *p = buf_data(&c->content), *end = p + buf_len(&c->content), *hit;
	size_t hits = 0;
	char shown[80];
	int r = 0;

	for (const uint8_t *q = p; (hit = memmem(q, (size_t)(end - q), e->old_text, e->old_len));
	     q = hit + e->old_len)
		hits++;
	shorten(shown, sizeof(shown), e->old_text, e->old_len);
	if (hits == 0) {
		f->code = "conflict";
		(void)snprintf(
			f->problem, sizeof(f->problem),
			"edit %zu: the file does not contain '%s'; read it again and copy the "
			"text exactly",
			i + 1, shown);
		return -ESTALE;
	}
	if (hits > 1 && !e->all) {
		f->code = "usage";
		(void)snprintf(f->problem, sizeof(f->problem),
			       "edit %zu: '%s' is there %zu times; give more of what stands around "
			       "it, or set replace_all",
			       i + 1, shown, hits);
		return -EINVAL;
	}
	buf_clear(&c->spare);
	while (r == 0 && (hit = memmem(p, (size_t)(end - p), e->old_text, e->old_len))) {
		r = buf_add(&c->spare, p, (size_t)(hit - p));
		if (r == 0)
			r = buf_add(&c->spare, e->new_text, e->new_len);
		p = hit + e->old_len;
	}
	if (r == 0)
		r = buf_add(&c->spare, p, (size_t)(end - p));
	if (r == 0) {
		struct buf b = c->content;

		c->content = c->spare;
		c->spare = b;
		c->replaced += hits;
	}
	return r == -E2BIG ? -EFBIG : r;
}

static int make_content(struct file_call *f, struct rewrite *c, const struct index_node *n)
{
	int r = 0;

	buf_clear(&c->content);
	if (!c->edits)
		return buf_add(&c->content, c->text, c->text_len);
	if (n->n.content.size_bytes > FILE_EDIT_MAX)
		return -EFBIG;
	while (r == 0 && buf_len(&c->content) < n->n.content.size_bytes) {
		size_t had = buf_len(&c->content);

		r = content_read(&n->n.content, had, (size_t)n->n.content.size_bytes - had,
				 store_fetch_fn, f->env->brain->store, &c->content);
		if (r == 0 && buf_len(&c->content) == had)
			r = -EBADMSG;
	}
	for (size_t i = 0; r == 0 && i < c->n_edits; i++)
		r = make_edit(f, c, i);
	return r;
}

static int change_run(struct file_call *f)
{
	struct rewrite *c = f->priv;
	struct index_node n = {0};
	struct index_txn *t;
	int r;

	f->code = NULL;
	f->problem[0] = 0;
	c->replaced = 0;
	buf_clear(&c->path);
	if (c->has_over) {
		n.n.type = NODE_TYPE_FILE;
		n.n.content = c->over;
		r = buf_add(&c->path, f->path, strlen(f->path));
		c->exists = true;
	} else {
		r = env_read_begin(f->env, &t);
		if (r < 0)
			return r;
		r = file_find(f, t, true, &c->path, &n);
		c->exists = r == 0;
		if (r == -ENOENT && !c->edits && buf_len(&c->path))
			r = 0;
		index_read_end(t);
	}
	if (r < 0)
		return r;
	c->used = n.n.content;
	if (c->exists && n.n.type != NODE_TYPE_FILE)
		return n.n.type == NODE_TYPE_DIRECTORY ? -EISDIR : -EINVAL;
	if (c->exists && c->no_replace) {
		f->code = "conflict";
		(void)snprintf(f->problem, sizeof(f->problem), "it is there already");
		return -EEXIST;
	}
	if (c->given && (!c->exists || memcmp(c->wanted, n.n.content.sha256, SHA256_BYTES) != 0))
		return -ESTALE;
	c->based = c->given || c->edits;
	if (c->based)
		memcpy(c->base, n.n.content.sha256, SHA256_BYTES);
	return make_content(f, c, &n);
}

/* ---- in the loop ---- */

static void change_fail(struct file_call *f, int r, const char *what)
{
	(void)snprintf(f->problem, sizeof(f->problem), "%s: %s", what,
		       r == -ETIMEDOUT ? "no answer before its deadline" : strerror(-r));
	file_call_fail(f, r);
}

/* f->result has the rest of it. */
static void change_ok(struct file_call *f)
{
	struct rewrite *c = f->priv;
	uint8_t hash[SHA256_BYTES];
	json_t *o = f->result;

	sha256(buf_data(&c->content), buf_len(&c->content), hash);
	verb_put_bytes(o, "path", buf_data(&c->path), buf_len(&c->path));
	(void)json_object_set_new(o, "size_bytes", json_integer((json_int_t)buf_len(&c->content)));
	verb_put_hash(o, "sha256", hash);
	if (c->edits)
		(void)json_object_set_new(o, "replacements", json_integer((json_int_t)c->replaced));
	else
		(void)json_object_set_new(o, "created", json_boolean(!c->exists));
	file_call_ok(f);
}

static const char not_durable[] = "it is written there, but cannot be made durable";

static void change_synced(struct env *env, const struct barrier_result *res, void *userdata)
{
	struct file_call *f = userdata;
	struct rewrite *c = f->priv;
	cleanup_free char *path = strndup((const char *)buf_data(&c->path), buf_len(&c->path));
	int r = res->r == 0 && barrier_left_out(res, path) ? -ETIMEDOUT : res->r;

	if (r < 0) {
		change_fail(f, r, not_durable);
		return;
	}
	f->result = json_pack("{s:s, s:I}", "environment", env->name, "seq", (json_int_t)res->seq);
	change_ok(f);
}

static void change_caught_up(struct env *env, const struct barrier_result *res, void *userdata)
{
	struct file_call *f = userdata;

	(void)env;
	if (res->r < 0)
		file_call_fail(f, -ESTALE);
	else
		file_call_go(f);
}

static void change_applied(struct env *env, int r, const struct entry_head *e, void *userdata)
{
	const struct entry_done *d = (const struct entry_done *)e;
	struct file_call *f = userdata;
	struct rewrite *c = f->priv;

	if (r == 0 && d->error)
		r = -d->error;
	if (r == -ESTALE && !c->again && !c->given) {
		c->again = true;
		if (barrier_run_past(env, SYNC_MS, change_caught_up, f) == 0)
			return;
	}
	if (r < 0 && !e) {
		change_fail(f, r, "whether it was written there is not known");
		return;
	}
	if (r < 0) {
		file_call_fail(f, r);
		return;
	}
	r = barrier_run_past(env, SYNC_MS, change_synced, f);
	if (r < 0)
		change_fail(f, r, not_durable);
}

static int send_content(struct env *env, struct rewrite *c, uint32_t push)
{
	size_t at = 0, n;
	int r;

	do {
		Limbwire__Push p = LIMBWIRE__PUSH__INIT;

		n = MIN(buf_len(&c->content) - at, (size_t)PIECE);
		p.push = push;
		p.offset = at;
		p.last = at + n == buf_len(&c->content);
		r = link_send(env, WIRE_PUSH, &p.base, buf_data(&c->content) + at, n);
		at += n;
	} while (r == 0 && at < buf_len(&c->content));
	return r;
}

static int send_apply(struct env *env, struct rewrite *c, uint32_t push)
{
	Limbwire__Apply m = LIMBWIRE__APPLY__INIT;
	Limb__Attr attr = LIMB__ATTR__INIT;
	Limb__Content content = LIMB__CONTENT__INIT;

	m.request = c->request;
	m.kind = LIMBWIRE__APPLY__KIND__PUT;
	m.path = (ProtobufCBinaryData){buf_len(&c->path), (uint8_t *)buf_data(&c->path)};
	m.attr = &attr;
	m.attr_defaults = m.keep_attr = m.make_parents = true;
	m.no_replace = c->no_replace;
	m.origin = LIMB__ORIGIN__ORIGIN_BRAIN;
	m.deadline_ms = ASK_MS - 1000;
	m.content = &content;
	m.push = push;
	attr.mode = 0644;
	attr.type = LIMB__NODE_TYPE__NODE_FILE;
	content.size_bytes = buf_len(&c->content);
	if (c->based)
		m.base_sha256 = (ProtobufCBinaryData){SHA256_BYTES, c->base};
	return link_send(env, WIRE_APPLY, &m.base, NULL, 0);
}

/* ---- queued ---- */

static void change_queued(int r, uint64_t seq, void *userdata)
{
	struct file_call *f = userdata;

	if (r < 0) {
		change_fail(f, r, "it cannot be kept for the environment");
		return;
	}
	f->result = json_pack("{s:s, s:I, s:b}", "environment", f->env->name, "seq",
			      (json_int_t)seq, "pending", 1);
	change_ok(f);
}

/* In the thread. */
static int change_keep(struct file_call *f)
{
	struct rewrite *c = f->priv;
	_cleanup_(keep_dropp) struct keep *k = NULL;
	int r;

	r = keep_begin(f->env->brain, f->env->id, &k);
	if (r < 0)
		return r;
	keep_file_begin(k);
	r = keep_data(k, buf_data(&c->content), buf_len(&c->content));
	if (r == 0)
		r = keep_file_end(k, &c->kept);
	return r < 0 ? r : keep_end(k);
}

static void change_kept(struct file_call *f, int r)
{
	struct rewrite *c = f->priv;
	struct node n = {.type = NODE_TYPE_FILE, .mode = 0644, .content = c->kept};
	cleanup_free char *path = NULL;

	if (r == 0)
		r = buf_to_str(&c->path, &path);
	if (r == 0)
		r = want_put(f->env, path, &n, WANT_PARENTS | (c->no_replace ? WANT_NO_REPLACE : 0),
			     change_queued, f);
	if (r == -EALREADY)
		change_queued(0, env_seq(f->env), f);
	else if (r < 0)
		file_call_fail(f, r);
}

/* What waits already is newer than the journal's tree: then it is made again, from that. */
static bool change_is_behind(struct file_call *f)
{
	struct rewrite *c = f->priv;
	cleanup_free char *path = NULL;
	struct queue_entry e;

	if (c->has_over || buf_to_str(&c->path, &path) < 0)
		return false;
	if (queue_seen(f->env, *path ? path : f->path, &e, NULL) < 0 || !e.node ||
	    e.n.type != NODE_TYPE_FILE ||
	    (c->exists && memcmp(&e.n.content, &c->used, sizeof(c->used)) == 0))
		return false;
	if (*path) {
		free(f->path);
		f->path = take_ptr(&path);
	}
	c->over = e.n.content;
	c->has_over = true;
	return true;
}

static void change_queue(struct file_call *f, int r)
{
	if (change_is_behind(f)) {
		file_call_go(f);
		return;
	}
	if (r < 0) {
		file_call_fail(f, r);
		return;
	}
	f->run = change_keep;
	f->then = change_kept;
	file_call_go(f);
}

static void change_made(struct file_call *f, int r)
{
	struct rewrite *c = f->priv;
	uint32_t push = link_push_number();

	if (c->queued) {
		change_queue(f, r);
		return;
	}
	if (r == 0)
		r = link_expect(f->env, ENTRY_DONE, ASK_MS, change_applied, f, &c->request);
	if (r < 0) {
		file_call_fail(f, r);
		return;
	}
	r = send_content(f->env, c, push);
	if (r == 0)
		r = send_apply(f->env, c, push);
	if (r < 0) {
		link_forget(f->env, c->request);
		file_call_fail(f, r);
	}
}

static void change_done(struct file_call *f)
{
	struct rewrite *c = f->priv;

	f->env->applying[ORIGIN_BRAIN_]--;
	free(c->edits);
	buf_done(&c->path);
	buf_done(&c->content);
	buf_done(&c->spare);
	free(c);
}

/* ---- the calls ---- */

static bool take_base(struct call *call, struct rewrite *c)
{
	const json_t *v = json_object_get(call->params, "base_sha256");
	const char *text = call_str(call, "base_sha256");

	c->given = v && !json_is_null(v);
	return !c->given || (text && strncmp(text, "sha256:", 7) == 0 &&
			     text_unhex(c->wanted, sizeof(c->wanted), text + 7) == 0);
}

static struct file_call *change_new(struct call *call)
{
	struct env *env = verb_env(call);
	struct file_call *f;
	struct rewrite *c;
	bool queued = env && (want_is_away(env) || (link_up(env) && !queue_is_empty(env)));

	if (!env || (!queued && !verb_live_env(call)))
		return NULL;
	f = file_call_new(call, change_run);
	if (!f)
		return NULL;
	c = calloc(1, sizeof(*c));
	if (!c) {
		file_call_fail(f, -ENOMEM);
		return NULL;
	}
	c->queued = queued;
	f->priv = c;
	f->done = change_done;
	f->env->applying[ORIGIN_BRAIN_]++;
	f->then = change_made;
	buf_init(&c->path, INDEX_PATH_MAX);
	buf_init(&c->content, FILE_EDIT_MAX + FRAME_RAW_MAX);
	buf_init(&c->spare, FILE_EDIT_MAX + FRAME_RAW_MAX);
	f->code = !take_base(call, c) ? "usage" : NULL;
	if (f->code || f->at != INDEX_NOW || !*f->path) {
		(void)snprintf(f->problem, sizeof(f->problem), "%s",
			       f->code	  ? "base_sha256 is written sha256: and 64 hex digits"
			       : *f->path ? "the past cannot be changed; leave the point away"
					  : "it is the root directory");
		file_call_fail(f, -EINVAL);
		return NULL;
	}
	return f;
}

void verb_file_write(struct call *call)
{
	struct file_call *f = change_new(call);
	const char *base64;
	struct rewrite *c;
	json_t *content;
	int r = 0;

	if (!f)
		return; /* and the call is gone */
	c = f->priv;
	content = json_object_get(call->params, "content");
	base64 = json_string_value(json_object_get(call->params, "content_base64"));
	c->no_replace = call_bool(call, "no_replace");
	c->text = json_string_value(content);
	c->text_len = json_string_length(content);
	if (json_is_object(content)) /* text that JSON cannot carry */
		base64 = json_string_value(json_object_get(content, "base64"));
	content = json_is_string(content) ? content : NULL;
	if (base64) {
		r = text_unbase64(&c->spare, base64, strlen(base64));
		c->text = (const char *)buf_data(&c->spare);
		c->text_len = buf_len(&c->spare);
	}
	if (r == -E2BIG || c->text_len > FILE_EDIT_MAX) {
		f->code = "too_large";
		(void)snprintf(f->problem, sizeof(f->problem),
			       "one call writes at most %d MiB; use limb cp", FILE_EDIT_MAX >> 20);
	} else if (r < 0 || (base64 && content) || (!base64 && !content)) {
		f->code = "usage";
		(void)snprintf(f->problem, sizeof(f->problem),
			       "give the whole content as text, or its bytes as content_base64");
	}
	if (f->code)
		file_call_fail(f, -EINVAL);
	else
		file_call_go(f);
}

static bool take_edit(const json_t *o, struct edit *e)
{
	const json_t *old_text = json_object_get(o, "old_text");
	const json_t *new_text = json_object_get(o, "new_text");

	e->old_text = json_string_value(old_text);
	e->old_len = json_string_length(old_text);
	e->new_text = json_string_value(new_text);
	e->new_len = json_string_length(new_text);
	e->all = json_is_true(json_object_get(o, "replace_all"));
	return e->old_text && e->old_len && e->new_text;
}

void verb_file_edit(struct call *call)
{
	struct file_call *f = change_new(call);
	struct rewrite *c;
	json_t *edits;
	size_t n;
	bool ok;

	if (!f)
		return; /* and the call is gone */
	c = f->priv;
	edits = json_object_get(call->params, "edits");
	n = json_array_size(edits);
	ok = n > 0 && n <= EDITS_MAX;
	c->edits = ok ? calloc(n, sizeof(*c->edits)) : NULL;
	ok = ok && c->edits;
	for (c->n_edits = 0; ok && c->n_edits < n; c->n_edits++)
		ok = take_edit(json_array_get(edits, c->n_edits), &c->edits[c->n_edits]);
	if (ok) {
		file_call_go(f);
		return;
	}
	f->code = "usage";
	(void)snprintf(f->problem, sizeof(f->problem),
		       "edits is a list of 1 to %d objects {old_text, new_text, replace_all?}, and "
		       "old_text is not empty",
		       EDITS_MAX);
	file_call_fail(f, -EINVAL);
}
