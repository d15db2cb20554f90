#include "brain/rules.h"

#include <stdio.h>

#include "base/log.h"
#include "base/sha256.h"
#include "base/text.h"
#include "brain/commit.h"
#include "brain/verb.h"

enum { LINES_MAX = 1000 };

const char *rules_judge(const json_t *spec)
{
	const json_t *ignore = json_object_get(spec, "ignore"), *v;
	const json_t *audit = json_object_get(spec, "audit");
	size_t i;

	if (audit && (!json_is_string(audit) || strcmp(json_string_value(audit), "full") != 0))
		return "the spec's `audit` is \"full\", or left out";
	if (!ignore)
		return NULL;
	if (!json_is_array(ignore) || json_array_size(ignore) > LINES_MAX)
		return "the spec's `ignore` is a list of at most 1000 patterns";
	json_array_foreach(ignore, i, v)
	{
		size_t n = json_string_length(v);

		if (!json_is_string(v) || n >= IGNORE_PATTERN_MAX ||
		    strcspn(json_string_value(v), "\n") != n)
			return "a pattern of the spec's `ignore` is one line of at most 511 bytes";
	}
	return NULL;
}

void rules_welcome(struct env *env, Limbwire__Welcome *w, ProtobufCBinaryData **ret_lines)
{
	const json_t *ignore = json_object_get(env->spec, "ignore"), *v;
	ProtobufCBinaryData *lines = calloc(json_array_size(ignore) + 1, sizeof(*lines));
	size_t i;

	*ret_lines = lines;
	w->no_ignore_files = json_object_get(env->spec, "audit") != NULL;
	if (!lines)
		return;
	json_array_foreach(ignore, i, v) lines[w->n_ignore++] =
		(ProtobufCBinaryData){json_string_length(v), (uint8_t *)json_string_value(v)};
	w->ignore = lines;
}

/* ---- the record ---- */

/* The line as it was written. */
static char *line_of(const struct ignore_rule *r)
{
	char *s;

	if (asprintf(&s, "%s%s%.*s%s", r->negative ? "!" : "",
		     r->anchored && !memchr(r->pattern, '/', r->len) ? "/" : "", (int)r->len,
		     r->pattern, r->dir_only ? "/" : "") < 0)
		return NULL;
	return s;
}

static char *file_name(const struct ignore_file *f)
{
	char *s;

	if (f->person)
		return strdup("");
	return asprintf(&s, "%s%s.limbignore", f->dir, *f->dir ? "/" : "") < 0 ? NULL : s;
}

json_t *rules_hit_json(const struct ignore_hit *hit)
{
	cleanup_free char *file = file_name(hit->file), *line = line_of(hit->rule);
	json_t *o = json_object();

	if (hit->file->person)
		(void)json_object_set_new(o, "file", json_string("spec"));
	else if (file)
		verb_put_bytes(o, "file", file, strlen(file));
	(void)json_object_set_new(o, "line", json_integer(hit->rule->line));
	if (line)
		verb_put_bytes(o, "pattern", line, strlen(line));
	return o;
}

static int record(struct env *env)
{
	const struct ignore *ig = &env->ignore;
	Limb__Record rec = LIMB__RECORD__INIT;
	Limb__Ignore body = LIMB__IGNORE__INIT;
	Limb__IgnoreRule *rules = calloc(ig->n_rules + 1, sizeof(*rules));
	Limb__IgnoreRule **ptrs = calloc(ig->n_rules + 1, sizeof(*ptrs));
	int r = rules && ptrs ? 0 : -ENOMEM;

	for (size_t i = 0; r == 0 && i < ig->n_files; i++) {
		for (size_t k = 0; r == 0 && k < ig->files[i].n; k++) {
			Limb__IgnoreRule *m = &rules[body.n_rules];
			char *file = file_name(&ig->files[i]);
			char *line = line_of(&ig->files[i].rules[k]);

			limb__ignore_rule__init(m);
			m->file = (ProtobufCBinaryData){file ? strlen(file) : 0, (uint8_t *)file};
			m->line = ig->files[i].rules[k].line;
			m->pattern =
				(ProtobufCBinaryData){line ? strlen(line) : 0, (uint8_t *)line};
			ptrs[body.n_rules++] = m;
			r = file && line ? 0 : -ENOMEM;
		}
	}
	body.rules = ptrs;
	rec.origin = LIMB__ORIGIN__ORIGIN_ENVIRONMENT;
	rec.body_case = LIMB__RECORD__BODY_IGNORE;
	rec.ignore = &body;
	if (r == 0)
		r = commit_submit(env, RECORD_IGNORE, &rec, NULL, NULL);
	for (size_t i = 0; i < body.n_rules; i++) {
		free(rules[i].file.data);
		free(rules[i].pattern.data);
	}
	free(rules);
	free(ptrs);
	return r;
}

static void hash_of(const struct ignore *ig, char out[65])
{
	struct sha256_ctx *ctx = sha256_new();
	uint8_t hash[SHA256_BYTES];

	for (size_t i = 0; i < ig->n_files; i++) {
		const struct ignore_file *f = &ig->files[i];

		sha256_update(ctx, f->person ? "p" : "f", 1);
		sha256_update(ctx, f->dir, strlen(f->dir) + 1);
		sha256_update(ctx, f->text, strlen(f->text) + 1);
	}
	sha256_final(ctx, hash);
	sha256_free(ctx);
	text_hex(out, hash, sizeof(hash));
	out[64] = 0;
}

int rules_on_ignores(struct env *env, const struct entry_head *e)
{
	const struct entry_ignore_file *f;
	const char *dir, *text;
	struct entry_cursor c;
	char hash[65];
	int r;

	ignore_done(&env->ignore);
	entry_cursor_init(&c, e);
	while (entry_next_ignore(&c, &f, &dir, &text)) {
		cleanup_free char *path = strndup(dir, f->dir_len);

		/* What it holds to be in force, and would not be here, is as little as it says. */
		if (path)
			(void)ignore_add(&env->ignore, f->person ? NULL : path, text, f->text_len);
	}
	hash_of(&env->ignore, hash);
	if (env->guest_of || (env->ignored_hash && strcmp(env->ignored_hash, hash) == 0) ||
	    (!env->ignored_hash && !env->ignore.n_rules))
		return 0;
	r = record(env);
	if (r < 0)
		return r;
	free(env->ignored_hash);
	env->ignored_hash = strdup(hash);
	r = env_save(env);
	if (r < 0)
		log_warning("environment '%s': its rules of names to leave out are recorded again "
			    "after a restart: %s",
			    env->name, strerror(-r));
	return 0;
}
