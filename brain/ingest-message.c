/* What an environment says of itself. */
#include "brain/ingest-parts.h"

#include <inttypes.h>

#include "base/beneath.h"
#include "base/ignore.h"
#include "wire/digest.h"
#include "wire/attr.h"

/* Tree entries are up to 20 times as long as their messages: a TREE_PART becomes several. */
#define TREE_PART_BYTES (512u << 10)

static int no_request(struct ingest *in, const struct wframe *f)
{
	return ingest_hostile(in, "%s: no request", wframe_type_name(f->type));
}

/* ---- the session ---- */

/* Exactly n bytes, or none at all (zeros then). */
static int fixed_bytes(struct ingest *in, const ProtobufCBinaryData *b, void *out, size_t n)
{
	if (b->len == 0)
		return 0;
	if (b->len != n)
		return ingest_hostile(in, "HELLO: a field of %zu bytes, not %zu", b->len, n);
	memcpy(out, b->data, n);
	return 0;
}

static void version_text(const char *version, char out[static 36])
{
	size_t n = strnlen(version, 35);

	for (size_t i = 0; i < n; i++)
		out[i] = version[i] > ' ' && version[i] < 0x7f ? version[i] : '?';
	out[n] = '\0';
}

int ingest_on_hello(struct ingest *in, const void *msg, const struct wframe *f)
{
	const Limbwire__Hello *m = msg;
	struct entry_hello e = {
		.protocol_min = m->protocol_min,
		.protocol_max = m->protocol_max,
		.capabilities = m->capabilities,
		.shadow_incarnation = m->shadow_incarnation,
		.shadow_number = m->shadow_number,
		.syncd_pid = m->syncd_pid,
		.unheld = m->unheld,
		.self_uid = m->self_uid,
		.self_gid = m->self_gid,
		.root_missing = m->root_missing,
		.root_empty = m->root_empty,
		.has_mark = m->mark.len > 0,
		.static_build = m->static_build,
	};
	int r;

	if (in->said_hello)
		return ingest_hostile(in, "HELLO: a second one");
	r = fixed_bytes(in, &m->syncd_sha256, e.syncd_sha256, sizeof(e.syncd_sha256));
	if (r >= 0)
		r = fixed_bytes(in, &m->environment_id, e.environment_id, sizeof(e.environment_id));
	if (r >= 0)
		r = fixed_bytes(in, &m->boot_id, e.boot_id, sizeof(e.boot_id));
	if (r < 0)
		return r;
	/* A mark of another length is somebody else's: it is there, and not ours. */
	if (m->mark.len == sizeof(e.mark))
		memcpy(e.mark, m->mark.data, sizeof(e.mark));
	version_text(m->syncd_version, e.syncd_version);
	in->said_hello = true;
	return entry_add(&in->held, ENTRY_HELLO, &e, sizeof(e), NULL, 0);
}

int ingest_on_ping(struct ingest *in, const void *msg, const struct wframe *f)
{
	/* A side that pings and does not read loses answers, not our memory. */
	(void)wframe_encode(&in->replies, WIRE_PONG, f->body, f->body_len, NULL, 0, false);
	return 0;
}

int ingest_on_pong(struct ingest *in, const void *msg, const struct wframe *f)
{
	const Limbwire__Ping *m = msg;
	struct entry_pong e = {.id = m->id};

	return entry_add(&in->held, ENTRY_PONG, &e, sizeof(e), NULL, 0);
}

int ingest_on_error(struct ingest *in, const void *msg, const struct wframe *f)
{
	const Limbwire__Error *m = msg;
	struct entry_text e = {
		.request = m->request,
		.error = m->error,
		.len = ingest_text_len(m->detail),
	};

	return entry_add(&in->held, ENTRY_ERROR, &e, sizeof(e), m->detail, e.len);
}

int ingest_on_bye(struct ingest *in, const void *msg, const struct wframe *f)
{
	const Limbwire__Bye *m = msg;
	struct entry_text e = {.len = ingest_text_len(m->reason)};

	in->said_bye = true;
	return entry_add(&in->held, ENTRY_BYE, &e, sizeof(e), m->reason, e.len);
}

/* ---- paths for people ---- */

static int check_path(struct ingest *in, const ProtobufCBinaryData *path)
{
	if (path->len > ENTRY_PATH_MAX)
		return ingest_hostile(in, "path too long");
	if (path->len && memchr(path->data, '\0', path->len))
		return ingest_hostile(in, "NUL in a path");
	return 0;
}

int ingest_add_unsettled(struct ingest *in, Limbwire__Unsettled *const *u, size_t n)
{
	int r;

	for (size_t i = 0; i < ingest_at_most(n, ENTRY_UNSETTLED_MAX); i++) {
		struct entry_unsettled e = {
			.len = (uint32_t)u[i]->path.len,
			.size_bytes = u[i]->size_bytes,
			.since_ns = u[i]->since_ns,
		};

		r = check_path(in, &u[i]->path);
		if (r >= 0)
			r = entry_add_part(&in->held, &e, sizeof(e), u[i]->path.data, e.len, NULL,
					   0);
		if (r < 0)
			return r;
	}
	return 0;
}

int ingest_on_barrier_done(struct ingest *in, const void *msg, const struct wframe *f)
{
	const Limbwire__BarrierDone *m = msg;
	struct entry_barrier_done e = {
		.request = m->request,
		.number = m->number,
		.quiet = m->quiet,
		.n_unsettled = ingest_at_most(m->n_unsettled, ENTRY_UNSETTLED_MAX),
	};
	size_t at;
	int r;

	if (m->request == 0)
		return no_request(in, f);
	r = entry_begin(&in->held, ENTRY_BARRIER_DONE, &e, sizeof(e), &at);
	if (r >= 0)
		r = ingest_add_unsettled(in, m->unsettled, m->n_unsettled);
	return r < 0 ? r : entry_end(&in->held, at);
}

static bool code_ok(const char *s, size_t max)
{
	size_t n = strspn(s, "abcdefghijklmnopqrstuvwxyz0123456789_-");

	return n > 0 && n <= max && s[n] == '\0';
}

static int add_reason(struct ingest *in, const Limbwire__Reason *m)
{
	struct entry_reason e = {
		.since_ns = m->since_ns,
		.detail_len = ingest_text_len(m->detail),
		.path_len = (uint32_t)m->path.len,
	};
	int r;

	if (!code_ok(m->code, sizeof(e.code) - 1))
		return ingest_hostile(in, "STATUS: wrong code of a reason");
	memcpy(e.code, m->code, strlen(m->code));
	r = check_path(in, &m->path);
	if (r < 0)
		return r;
	return entry_add_part(&in->held, &e, sizeof(e), m->detail, e.detail_len, m->path.data,
			      e.path_len);
}

int ingest_on_status(struct ingest *in, const void *msg, const struct wframe *f)
{
	const Limbwire__Status *m = msg;
	struct entry_status e = {
		.files = m->files,
		.directories = m->directories,
		.watches = m->watches,
		.polled_directories = m->polled_directories,
		.overflows = m->overflows,
		.rescans = m->rescans,
		.pending_changes = m->pending_changes,
		.pending_bytes = m->pending_bytes,
		.ignored_names = m->ignored_names,
		.ignored_bytes = m->ignored_bytes,
		.sweep_period_ms = m->sweep_period_ms,
		.audit_differences = m->audit_differences,
		.scanned_files = m->scanned_files,
		.scanned_bytes = m->scanned_bytes,
		.refused = m->refused,
		.scanning = m->scanning,
		.mount_changed = m->mount_changed,
		.halted = m->halted,
		.n_reasons = ingest_at_most(m->n_reasons, ENTRY_REASONS_MAX),
	};
	size_t at;
	int r;

	r = entry_begin(&in->held, ENTRY_STATUS, &e, sizeof(e), &at);
	for (size_t i = 0; i < e.n_reasons && r >= 0; i++)
		r = add_reason(in, m->reasons[i]);
	return r < 0 ? r : entry_end(&in->held, at);
}

int ingest_on_done(struct ingest *in, const void *msg, const struct wframe *f)
{
	const Limbwire__Done *m = msg;
	struct entry_done e = {
		.request = m->request,
		.number = m->number,
		.error = m->error,
		.len = ingest_text_len(m->detail),
	};

	if (m->request == 0)
		return no_request(in, f);
	return entry_add(&in->held, ENTRY_DONE, &e, sizeof(e), m->detail, e.len);
}

/* ---- trees ---- */

int ingest_on_tree_get(struct ingest *in, const void *msg, const struct wframe *f)
{
	const Limbwire__TreeGet *m = msg;
	struct entry_tree_get e = {
		.request = m->request,
		.n = f->bulk_len / DIGEST_BYTES,
		.by_content = m->by_content,
	};

	if (m->request == 0)
		return no_request(in, f);
	if (f->bulk_len % DIGEST_BYTES || e.n > DIGESTS_MAX)
		return ingest_hostile(in, "TREE_GET: %u bytes of hashes", f->bulk_len);
	return entry_add(&in->held, ENTRY_TREE_GET, &e, sizeof(e), f->bulk, f->bulk_len);
}

static int add_tree_entry(struct ingest *in, const Limbwire__TreeEntry *m)
{
	struct entry_tree_entry e = {
		.node = m->node,
		.parent = m->parent,
		.same_as = m->same_as,
		.error = m->error,
	};
	const char *why = NULL;
	struct node n = {0};
	int r;

	if (m->root ? m->name.len > 0 : !beneath_name_ok((char *)m->name.data, m->name.len))
		return ingest_hostile(in, "TREE_PART: wrong name");
	if (m->attr || !m->error) {
		buf_clear(&in->xattrs);
		r = wire_attr_parse(m->attr, m->content, &in->xattrs, &n, &why);
		if (r == -EBADMSG || r == -E2BIG)
			return ingest_hostile(in, "TREE_PART: %s", why);
		if (r < 0)
			return r;
	}
	return entry_add_tree(&in->held, &e, (char *)m->name.data, m->name.len, &n,
			      m->attr && m->content);
}

/* One of the entries that m becomes: from *i on, as many as fit. */
static int add_tree_part(struct ingest *in, const Limbwire__TreePart *m, size_t *i)
{
	struct entry_tree_part e = {.request = m->request}, *made;
	size_t at, first = *i;
	int r;

	r = entry_begin(&in->held, ENTRY_TREE_PART, &e, sizeof(e), &at);
	if (r < 0)
		return r;
	while (*i < m->n_entries && buf_len(&in->held) - at < TREE_PART_BYTES) {
		r = add_tree_entry(in, m->entries[*i]);
		if (r < 0)
			return r;
		(*i)++;
	}
	made = (struct entry_tree_part *)(in->held.mem + in->held.start + at);
	made->n = (uint32_t)(*i - first);
	made->last = m->last && *i == m->n_entries;
	return entry_end(&in->held, at);
}

int ingest_on_tree_part(struct ingest *in, const void *msg, const struct wframe *f)
{
	const Limbwire__TreePart *m = msg;
	Limbwire__TreePart *inner;
	size_t i = 0;
	int r;

	if (m->request == 0)
		return no_request(in, f);
	r = wframe_unpack_tree(m, f->bulk, f->bulk_len, &in->allocator, &inner);
	if (r < 0)
		return ingest_hostile(in, "TREE_PART: its entries are not in its bulk");
	if (inner)
		m = inner;
	do {
		r = add_tree_part(in, m, &i);
	} while (r >= 0 && i < m->n_entries);
	return r; /* the arena has the one inside */
}

int ingest_on_pull(struct ingest *in, const void *msg, const struct wframe *f)
{
	const Limbwire__Pull *m = msg;
	struct entry_pull e = {.request = m->request, .n = (uint32_t)m->n_nodes};
	struct entry_pull_node nodes[ENTRY_PULL_MAX];
	size_t base = 0;

	if (m->request == 0)
		return no_request(in, f);
	if (m->n_nodes > ENTRY_PULL_MAX)
		return ingest_hostile(in, "PULL: %zu nodes", m->n_nodes);
	/* Bases come in the order of their nodes. */
	for (size_t i = 0; i < m->n_nodes; i++) {
		nodes[i] = (struct entry_pull_node){.node = m->nodes[i]};
		if (base == m->n_bases || m->bases[base]->node != m->nodes[i])
			continue;
		if (m->bases[base]->sha256.len != SHA256_BYTES)
			return ingest_hostile(in, "PULL: a base without its SHA-256");
		nodes[i].has_base = true;
		memcpy(nodes[i].base, m->bases[base++]->sha256.data, SHA256_BYTES);
	}
	if (base < m->n_bases)
		return ingest_hostile(in, "PULL: a base of what is not asked for");
	return entry_add(&in->held, ENTRY_PULL, &e, sizeof(e), nodes,
			 m->n_nodes * sizeof(nodes[0]));
}

int ingest_on_ignores(struct ingest *in, const void *msg, const struct wframe *f)
{
	const Limbwire__Ignores *m = msg;
	struct entry_ignores e = {.n = (uint32_t)m->n_files};
	size_t at;
	int r;

	if (m->n_files > IGNORE_FILES_MAX)
		return ingest_hostile(in, "IGNORES: %zu files", m->n_files);
	r = entry_begin(&in->held, ENTRY_IGNORES, &e, sizeof(e), &at);
	for (size_t i = 0; i < e.n && r >= 0; i++) {
		const Limbwire__Ignores__File *file = m->files[i];
		struct entry_ignore_file part = {
			.dir_len = (uint32_t)file->dir.len,
			.text_len = (uint32_t)file->text.len,
			.person = file->person,
		};

		r = check_path(in, &file->dir);
		if (r >= 0 && file->text.len > IGNORE_TEXT_MAX)
			r = ingest_hostile(in, "IGNORES: a text of %zu bytes", file->text.len);
		if (r >= 0)
			r = entry_add_part(&in->held, &part, sizeof(part), file->dir.data,
					   part.dir_len, file->text.data, part.text_len);
	}
	return r < 0 ? r : entry_end(&in->held, at);
}

int ingest_on_restored(struct ingest *in, const void *msg, const struct wframe *f)
{
	const Limbwire__Restored *m = msg;
	struct entry_restored e = {
		.request = m->request,
		.files = m->files,
		.bytes = m->bytes,
		.error = m->error,
		.detail_len = ingest_text_len(m->detail),
		.n_unsupported = ingest_at_most(m->n_unsupported, ENTRY_UNSUPPORTED_MAX),
	};
	size_t at;
	int r;

	if (m->request == 0)
		return no_request(in, f);
	r = entry_begin(&in->held, ENTRY_RESTORED, &e, sizeof(e), &at);
	if (r >= 0)
		r = entry_add_part(&in->held, m->detail, e.detail_len, NULL, 0, NULL, 0);
	for (size_t i = 0; i < e.n_unsupported && r >= 0; i++) {
		const Limbwire__Restored__Unsupported *u = m->unsupported[i];
		struct entry_unsupported part = {
			.path_len = (uint32_t)u->path.len,
			.field_len = (uint16_t)ingest_text_len(u->field),
		};

		r = check_path(in, &u->path);
		if (r >= 0)
			r = entry_add_part(&in->held, &part, sizeof(part), u->path.data,
					   part.path_len, u->field, part.field_len);
	}
	return r < 0 ? r : entry_end(&in->held, at);
}
