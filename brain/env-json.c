/* The contract's objects of an environment: `inspect` and its part of `status`. */
#include "base/clock.h"
#include "base/text.h"
#include "brain/env.h"
#include "brain/job.h"
#include "brain/link.h"
#include "brain/queue.h"
#include "brain/quota.h"
#include "brain/verb.h"
#include "brain/view.h"

static json_t *number(uint64_t n)
{
	return json_integer((json_int_t)n);
}

static void set(json_t *o, const char *key, json_t *v)
{
	(void)json_object_set_new(o, key, v);
}

static json_t *hash_text(const uint8_t hash[SHA256_BYTES])
{
	char text[8 + 2 * SHA256_BYTES];

	memcpy(text, "sha256:", 7);
	text_hex(text + 7, hash, SHA256_BYTES);
	return json_string(text);
}

/* What to do about a reason; NAME stands for the environment. The first one that its code begins
 * with. */
static const struct {
	const char *code, *step;
} remedies[] = {
	{"audit_difference", "limb verify NAME"},
	{"instance_limit", "sysctl fs.inotify.max_user_instances=1024"},
	{"journal_quota", "limb set NAME quota=BYTES"},
	{"lies", "limb start NAME"},
	{"line_down", "limb start NAME"},
	{"mass_delete", "limb points NAME"},
	{"mount_changed", "limb accept NAME PATH"},
	{"no_space", "free space on the disk of the state directory"},
	{"process_died", "limb start NAME"},
	{"root_", "limb rebuild NAME"},
	{"unreadable", "limb why NAME PATH"},
	{"watch_limit", "sysctl fs.inotify.max_user_watches=1048576"},
	{"", "limb inspect NAME"},
};

static json_t *remedy(const char *code, const char *name)
{
	const char *step, *at;
	size_t i = 0;

	while (strncmp(code, remedies[i].code, strlen(remedies[i].code)) != 0)
		i++;
	step = remedies[i].step;
	at = strstr(step, "NAME");
	if (!at)
		return json_string(step);
	return json_sprintf("%.*s%s%s", (int)(at - step), step, name, at + 4);
}

static void add_reasons(json_t *list, const struct env *env, const struct env_reason *rs, size_t n)
{
	char when[CLOCK_TEXT_MAX];

	for (size_t i = 0; i < n; i++) {
		json_t *o = json_pack("{s:s, s:s, s:[o], s:s}", "code", rs[i].code, "detail",
				      rs[i].detail ? rs[i].detail : "", "next_steps",
				      remedy(rs[i].code, env->name), "since_at",
				      clock_format(when, rs[i].since_ns));

		if (o && rs[i].path)
			verb_put_bytes(o, "path", rs[i].path, strlen(rs[i].path));
		(void)json_array_append_new(list, o);
	}
}

json_t *env_json_reasons(const struct env *env)
{
	json_t *list = json_array();

	add_reasons(list, env, env->reasons, env->n_reasons);
	add_reasons(list, env, env->said, env->n_said);
	return list;
}

static json_t *pids(const struct env *env)
{
	json_t *o = json_object();
	int transport = link_transport_pid(env), ingest = link_ingest_pid(env), fs = view_pid(env);

	if (env->init_pid > 0)
		set(o, "init", json_integer(env->init_pid));
	if (env->syncd_host_pid > 0)
		set(o, "syncd", json_integer(env->syncd_host_pid));
	if (transport)
		set(o, "transport", json_integer(transport));
	if (ingest)
		set(o, "ingest", json_integer(ingest));
	if (fs)
		set(o, "fs", json_integer(fs));
	return o;
}

static json_t *tree(struct env *env)
{
	json_t *o = json_object();
	struct index_counts c = {0};
	struct index_txn *t;
	uint8_t content[SHA256_BYTES], full[SHA256_BYTES];

	if (env_read_begin(env, &t) < 0)
		return o;
	(void)index_counts(t, &c);
	set(o, "files", number(c.files));
	set(o, "directories", number(c.directories));
	set(o, "symlinks", number(c.symlinks));
	set(o, "others", number(c.others));
	set(o, "bytes", number(c.bytes));
	if (index_tree_hash(t, INDEX_NOW, env->unheld, content, full) == 0) {
		set(o, "content_hash", hash_text(content));
		set(o, "full_hash", hash_text(full));
	}
	index_read_end(t);
	return o;
}

static void add_limit(json_t *list, const char *name, json_t *value, const char *enforced)
{
	(void)json_array_append_new(list, json_pack("{s:s, s:O, s:s}", "name", name, "value", value,
						    "enforced", enforced));
}

/* Of each that was asked for, or that the provider sets by itself, who keeps it. */
static json_t *limits(const struct env *env)
{
	json_t *list = json_array(), *asked = json_object_get(env->spec, "limits"), *value;
	const char *key, *says;
	char what[16];

	json_object_foreach(asked, key, value)
	{
		/* memory_bytes: "memory" */
		(void)snprintf(what, sizeof(what), "%.*s", (int)strcspn(key, "_"), key);
		says = json_string_value(json_object_get(env->enforces, what));
		add_limit(list, key, value, says && strcmp(says, "kernel") == 0 ? says : "none");
	}
	json_object_foreach(env->defaults, key, value) if (!json_object_get(asked, key))
		add_limit(list, key, value, "kernel");
	value = json_object_get(env->spec, "quota_bytes");
	if (json_integer_value(value) > 0)
		add_limit(list, "journal_bytes", value, "limbfs");
	value = json_object_get(env->spec, "rate_bytes");
	if (json_integer_value(value) > 0)
		add_limit(list, "journal_bytes_per_second", value, "limbfs");
	value = json_object_get(env->spec, "watch_limit");
	if (json_integer_value(value) > 0)
		add_limit(list, "watches", value, "limbfs");
	return list;
}

json_t *env_json_inspect(struct env *env)
{
	json_t *o = json_object(), *syncd = json_object(), *journal = json_object();
	char when[CLOCK_TEXT_MAX], uuid[37], sha[65];
	const char *h = env->id_hex;
	uint64_t seq = env_seq(env);

	(void)snprintf(uuid, sizeof(uuid), "%.8s-%.4s-%.4s-%.4s-%.12s", h, h + 8, h + 12, h + 16,
		       h + 20);
	set(o, "environment", json_string(env->name));
	set(o, "id", json_string(uuid));
	set(o, "provider", json_string(env->provider));
	set(o, "state", json_string(env_state_name(env_state(env))));
	set(o, "reasons", env_json_reasons(env));
	set(o, "incarnation", number(env->incarnation));
	set(o, "created_at", json_string(clock_format(when, env->created_ns)));
	set(o, "root", json_string(env->root ? env->root : ""));
	if (env->host_root)
		set(o, "host_root", json_string(env->host_root));
	set(o, "view", json_sprintf("%s/%s", env->brain->mount_dir, env->name));
	set(o, "seq", number(seq));
	set(o, "class", json_string(env->class));
	set(o, "mode", json_string(env->work_mode ? "work" : "look"));
	set(o, "pids", pids(env));
	text_hex(sha, env->syncd_sha256, 32);
	set(syncd, "version", json_string(env->syncd_version));
	set(syncd, "sha256", json_sprintf("sha256:%s", sha));
	set(syncd, "static", json_boolean(env->syncd_static));
	set(o, "syncd", syncd);
	set(journal, "path", json_sprintf("%s/log", env->dir));
	set(journal, "bytes", number(env->log ? log_bytes(env->log) : 0));
	set(journal, "segments", number(env->log ? log_segments(env->log) : 0));
	set(journal, "records", number(seq));
	set(o, "journal", journal);
	set(journal, "content_bytes", number(env->content_bytes));
	set(o, "tree", tree(env));
	set(o, "isolation", env->isolation ? json_incref(env->isolation) : json_array());
	set(o, "limits", limits(env));
	if (env->handle)
		set(o, "provider_handle", json_string(env->handle));
	if (env->forked_from)
		set(o, "forked_from",
		    json_pack("{s:O, s:O}", "environment",
			      json_object_get(env->forked_from, "environment"), "seq",
			      json_object_get(env->forked_from, "seq")));
	set(o, "spec", env->spec ? json_incref(env->spec) : json_object());
	return o;
}

json_t *env_json_status(struct env *env)
{
	json_t *o = json_object(), *c = json_object();
	const struct entry_status *s = &env->status;
	uint64_t now = clock_mono_ms(), seq = env_seq(env);
	struct index_counts n = {0};
	struct queue_counts waits;
	struct index_txn *t;

	queue_counts(env, &waits);
	if (env_read_begin(env, &t) == 0) {
		(void)index_counts(t, &n);
		index_read_end(t);
	}
	set(o, "environment", json_string(env->name));
	set(o, "incarnation", number(env->incarnation));
	set(o, "state", json_string(env_state_name(env_state(env))));
	set(o, "view", json_string(view_state(env)));
	set(o, "reasons", env_json_reasons(env));
	set(o, "age_ms", number(env->last_word_ms ? now - env->last_word_ms : 0));
	set(o, "seq", number(seq));
	set(o, "environment_seq", number(seq));
	set(c, "files", number(n.files));
	set(c, "directories", number(n.directories));
	set(c, "watches", number(s->watches));
	set(c, "polled_directories", number(s->polled_directories));
	set(c, "overflows", number(s->overflows));
	set(c, "rescans", number(s->rescans));
	set(c, "conflicts", number(waits.conflicts));
	set(c, "pending_changes", number(s->pending_changes + waits.changes));
	set(c, "pending_bytes", number(s->pending_bytes + waits.bytes));
	set(c, "unapplied", number(waits.unapplied));
	set(c, "jobs_running", number(jobs_running_in(env)));
	set(c, "audit_differences", number(s->audit_differences));
	set(c, "ignored_names", number(s->ignored_names));
	set(c, "ignored_bytes", number(s->ignored_bytes));
	set(c, "sweep_period_ms", number(s->sweep_period_ms));
	set(c, "refused", number(s->refused));
	set(c, "journal_bytes", number(quota_used(env)));
	set(o, "counts", c);
	if (env->warned)
		set(o, "warned", json_deep_copy(env->warned));
	return o;
}
