#include "bridge/render.h"

#include <string.h>

#include "base/log.h"
#include "base/util.h"

static json_int_t integer(const json_t *object, const char *field)
{
	return json_integer_value(json_object_get(object, field));
}

static void titled(const struct render *r, const char *title, const json_t *object,
		   const char *field)
{
	(void)fputs(title, r->out);
	render_text(r, object, field);
	(void)fputc('\n', r->out);
}

void render_up(const struct render *r, const json_t *result)
{
	static const struct column c[] = {
		{"state", "state_dir", CELL_NAME, false},
		{"view", "mount", CELL_NAME, false},
		{"limbd", "limbd_pid", CELL_INTEGER, false},
	};

	(void)fprintf(r->out, "limbd %s\n",
		      json_is_true(json_object_get(result, "started")) ? "started"
								       : "was up already");
	render_fields(r, result, c, ARRAY_SIZE(c));
}

void render_down(const struct render *r, const json_t *result)
{
	const json_t *running = json_object_get(result, "environments_running");
	static const struct column c[] = {
		{"still running", "environments_running", CELL_COMMAS, false},
	};
	json_int_t waits = json_integer_value(json_object_get(result, "pending_changes"));

	(void)fputs(json_is_true(json_object_get(result, "stopped")) ? "limbd ended\n"
								     : "limbd was not up\n",
		    r->out);
	if (waits)
		(void)fprintf(r->out,
			      "%lld changes wait for their environments; they go there after: limb "
			      "up\n",
			      (long long)waits);
	if (json_array_size(running))
		render_fields(r, result, c, ARRAY_SIZE(c));
}

/* Whether an earlier reason has that step, too. */
static bool said_before(const json_t *reasons, size_t before, const json_t *step)
{
	const json_t *reason, *other;
	size_t i, k;

	json_array_foreach(reasons, i, reason)
	{
		if (i == before)
			break;
		json_array_foreach(json_object_get(reason, "next_steps"), k, other)
		{
			if (json_equal(other, step))
				return true;
		}
	}
	return false;
}

/* One line each that says what to do. */
static void remedies(const struct render *r, const json_t *reasons)
{
	const json_t *reason, *step;
	size_t i, k;

	json_array_foreach(reasons, i, reason)
	{
		json_array_foreach(json_object_get(reason, "next_steps"), k, step)
		{
			json_t *o = said_before(reasons, i, step)
					    ? NULL
					    : json_pack("{s:O}", "step", step);

			if (!o)
				continue;
			titled(r, "  remedy: ", o, "step");
			json_decref(o);
		}
	}
}

/* Its view is in mode work, and what tools of this machine obey is no longer what it was. */
static void warnings(const struct render *r, const json_t *env)
{
	const json_t *w, *all = json_object_get(env, "warned");
	size_t i;

	json_array_foreach(all, i, w)
	{
		render_text(r, env, "environment");
		(void)fputs(": warning: it changed ", r->out);
		render_text(r, w, "path");
		(void)fputs(", which is obeyed in the view by ", r->out);
		render_text(r, w, "by");
		(void)fputc('\n', r->out);
	}
	if (json_array_size(all) == 0)
		return;
	(void)fputs("  remedy: look at it; then: limb trust ", r->out);
	render_text(r, env, "environment");
	(void)fputc('\n', r->out);
}

/* A slow look at everything, whatever was announced: in a healthy system it finds nothing. */
static void sweep_line(const struct render *r, const json_t *env, const json_t *counts)
{
	char period[RENDER_SHORT_MAX];

	if (integer(counts, "sweep_period_ms") <= 0)
		return;
	render_text(r, env, "environment");
	(void)fprintf(r->out, ": the sweep looks at all within %s; it found %lld differences\n",
		      render_ms_text(period, (double)integer(counts, "sweep_period_ms")),
		      (long long)integer(counts, "audit_differences"));
}

void render_status(const struct render *r, const json_t *result)
{
	static const struct column c[] = {
		{"ENVIRONMENT", "environment", CELL_TEXT, false},
		{"STATE", "state", CELL_TEXT, false},
		{"VIEW", "view", CELL_TEXT, false},
		{"INCARNATION", "incarnation", CELL_INTEGER, true},
		{"SEQ", "seq", CELL_INTEGER, true},
		{"HEARD", "age_ms", CELL_MS, true},
		{"REASON", "reasons", CELL_REASONS, false},
	};
	const json_t *env, *environments = json_object_get(result, "environments");
	size_t i;

	if (json_array_size(environments) == 0)
		(void)fputs("no environments; make one: limb create NAME\n", r->out);
	render_table(r, environments, c, ARRAY_SIZE(c));
	json_array_foreach(environments, i, env)
	{
		static const struct {
			const char *field, *text;
		} counts[] = {
			{"conflicts", "conflicts"},
			{"unapplied", "changes that the environment refused"},
			{"pending_changes", "changes on their way"},
			{"polled_directories", "directories polled for want of watches"},
			{"ignored_names", "names left out by rules (.limbignore, spec)"},
		};
		const json_t *n = json_object_get(env, "counts");

		remedies(r, json_object_get(env, "reasons"));
		warnings(r, env);
		sweep_line(r, env, n);
		for (size_t k = 0; k < ARRAY_SIZE(counts); k++) {
			if (integer(n, counts[k].field) <= 0)
				continue;
			render_text(r, env, "environment");
			(void)fprintf(r->out, ": %lld %s\n", (long long)integer(n, counts[k].field),
				      counts[k].text);
		}
	}
}

void render_inspect(const struct render *r, const json_t *result)
{
	static const struct column c[] = {
		{"environment", "environment", CELL_TEXT, false},
		{"id", "id", CELL_TEXT, false},
		{"provider", "provider", CELL_TEXT, false},
		{"state", "state", CELL_TEXT, false},
		{"reasons", "reasons", CELL_REASONS, false},
		{"incarnation", "incarnation", CELL_INTEGER, false},
		{"created", "created_at", CELL_TEXT, false},
		{"root inside", "root", CELL_NAME, false},
		{"root here", "host_root", CELL_NAME, false},
		{"view", "view", CELL_NAME, false},
		{"mode", "mode", CELL_TEXT, false},
		{"class", "class", CELL_TEXT, false},
		{"seq", "seq", CELL_INTEGER, false},
		{"isolation", "isolation", CELL_COMMAS, false},
	};
	static const struct column journal[] = {
		{"journal", "path", CELL_NAME, false},
		{"  bytes", "bytes", CELL_BYTES, false},
		{"  records", "records", CELL_INTEGER, false},
	};
	static const struct column tree[] = {
		{"files", "files", CELL_INTEGER, false},
		{"directories", "directories", CELL_INTEGER, false},
		{"bytes", "bytes", CELL_BYTES, false},
		{"content", "content_hash", CELL_TEXT, false},
		{"full", "full_hash", CELL_TEXT, false},
	};
	static const struct column limits[] = {
		{"LIMIT", "name", CELL_TEXT, false},
		{"VALUE", "value", CELL_TEXT, false},
		{"ENFORCED BY", "enforced", CELL_TEXT, false},
	};

	render_fields(r, result, c, ARRAY_SIZE(c));
	render_fields(r, json_object_get(result, "journal"), journal, ARRAY_SIZE(journal));
	render_fields(r, json_object_get(result, "tree"), tree, ARRAY_SIZE(tree));
	render_table(r, json_object_get(result, "limits"), limits, ARRAY_SIZE(limits));
}

void render_create(const struct render *r, const json_t *result)
{
	static const struct column c[] = {
		{"environment", "environment", CELL_TEXT, false},
		{"state", "state", CELL_TEXT, false},
		{"view", "view", CELL_NAME, false},
		{"files", "files", CELL_INTEGER, false},
		{"bytes", "bytes", CELL_BYTES, false},
		{"took", "duration_ms", CELL_MS, false},
	};

	render_fields(r, result, c, ARRAY_SIZE(c));
	if (json_object_get(result, "left_out"))
		log_warning("%lld entries of --from are left out (mounts, and what may not be "
			    "read); limbd.log names them",
			    (long long)json_integer_value(json_object_get(result, "left_out")));
}

void render_merge(const struct render *r, const json_t *result)
{
	static const struct column c[] = {
		{"environment", "environment", CELL_TEXT, false},
		{"from", "from", CELL_TEXT, false},
		{"applied", "applied", CELL_INTEGER, false},
		{"conflicts", "conflicts", CELL_INTEGER, false},
	};
	static const struct column waits[] = {
		{"waiting", "pending_changes", CELL_INTEGER, false},
	};
	static const struct column refused[] = {
		{"refused", "unapplied", CELL_INTEGER, false},
	};

	render_fields(r, result, c, ARRAY_SIZE(c));
	if (json_object_get(result, "pending"))
		render_fields(r, result, waits, ARRAY_SIZE(waits));
	if (json_object_get(result, "unapplied"))
		render_fields(r, result, refused, ARRAY_SIZE(refused));
}

void render_state(const struct render *r, const json_t *result)
{
	render_text(r, result, "environment");
	titled(r, ": ", result, "state");
}

static void ls_environments(const struct render *r, const json_t *result)
{
	static const struct column c[] = {
		{"ENVIRONMENT", "environment", CELL_TEXT, false},
		{"PROVIDER", "provider", CELL_TEXT, false},
		{"STATE", "state", CELL_TEXT, false},
		{"INCARNATION", "incarnation", CELL_INTEGER, true},
		{"SEQ", "seq", CELL_INTEGER, true},
		{"HEARD", "age_ms", CELL_MS, true},
		{"VIEW", "view", CELL_NAME, false},
	};
	const json_t *environments = json_object_get(result, "environments"), *env;
	size_t i;

	if (!r->nul) {
		render_table(r, environments, c, ARRAY_SIZE(c));
		return;
	}
	json_array_foreach(environments, i, env) render_name(r, env, "environment");
}

void render_ls(const struct render *r, const json_t *result)
{
	static const struct column c[] = {
		{"MODE", "mode", CELL_TEXT, false},
		{"TYPE", "type", CELL_TEXT, false},
		{"OWNER", "owner", CELL_TEXT, false},
		{"SIZE", "size_bytes", CELL_INTEGER, true},
		{"MODIFIED", "modified_at", CELL_TEXT, false},
		{"NAME", "name", CELL_NAME, false},
	};
	const json_t *entries = json_object_get(result, "entries"), *entry;
	size_t i;

	if (!entries) {
		ls_environments(r, result);
		return;
	}
	if (r->nul)
		json_array_foreach(entries, i, entry) render_name(r, entry, "name");
	else
		render_table(r, entries, c, ARRAY_SIZE(c));
	if (json_is_true(json_object_get(result, "truncated")) && !r->nul)
		(void)fprintf(r->out, "%zu of %lld are shown\n", json_array_size(entries),
			      (long long)integer(result, "total"));
}

void render_sync(const struct render *r, const json_t *result)
{
	static const struct column c[] = {
		{"not seen yet by", "mounts_behind", CELL_COMMAS, false},
	};
	char took[RENDER_SHORT_MAX];

	render_text(r, result, "environment");
	(void)fprintf(r->out, ": durable at %lld%s, %s\n", (long long)integer(result, "seq"),
		      json_is_true(json_object_get(result, "consistent")) ? " (consistent)" : "",
		      render_ms_text(took, (double)integer(result, "duration_ms")));
	render_fields(r, result, c, ARRAY_SIZE(c));
}

void render_verify(const struct render *r, const json_t *result)
{
	static const struct column c[] = {
		{"PATH", "path", CELL_NAME, false},
		{"FIELD", "field", CELL_TEXT, false},
		{"JOURNAL", "journal", CELL_TEXT, false},
		{"ENVIRONMENT", "environment", CELL_TEXT, false},
	};
	static const struct column unsupported[] = {
		{"NOT HELD HERE", "path", CELL_NAME, false},
		{"FIELD", "field", CELL_TEXT, false},
	};
	const json_t *differences = json_object_get(result, "differences");
	char bytes[RENDER_SHORT_MAX];

	titled(r, "journal      ", json_object_get(result, "journal"), "content");
	titled(r, "environment  ", json_object_get(result, "environment_side"), "content");
	if (json_is_true(json_object_get(result, "equal")))
		(void)fprintf(r->out, "equal\n");
	else
		(void)fprintf(r->out, "differ: %zu%s\n", json_array_size(differences),
			      json_is_true(json_object_get(result, "truncated")) ? " and more"
										 : "");
	(void)fprintf(r->out, "%lld files, %lld directories, %s\n",
		      (long long)integer(result, "files"),
		      (long long)integer(result, "directories"),
		      render_bytes_text(bytes, (double)integer(result, "bytes")));
	render_table(r, differences, c, ARRAY_SIZE(c));
	render_table(r, json_object_get(result, "unsupported"), unsupported,
		     ARRAY_SIZE(unsupported));
}

void render_rebuild(const struct render *r, const json_t *result)
{
	char took[RENDER_SHORT_MAX];

	render_text(r, result, "environment");
	(void)fprintf(r->out, ": incarnation %lld after %lld, %s\n",
		      (long long)integer(result, "incarnation"),
		      (long long)integer(result, "previous_incarnation"),
		      render_ms_text(took, (double)integer(result, "duration_ms")));
	if (json_object_get(result, "restored_seq"))
		(void)fprintf(r->out, "as it was at %lld\n",
			      (long long)integer(result, "restored_seq"));
	render_verify(r, result);
}

void render_restore(const struct render *r, const json_t *result)
{
	static const struct column c[] = {
		{"ACTION", "action", CELL_TEXT, false},
		{"PATH", "path", CELL_NAME, false},
		{"FROM", "from_path", CELL_NAME, false},
	};
	const json_t *changes = json_object_get(result, "changes");
	bool dry = json_is_true(json_object_get(result, "dry_run"));

	render_text(r, result, "environment");
	if (json_array_size(changes) == 0) {
		(void)fprintf(r->out, ": nothing differs from %lld\n",
			      (long long)integer(result, "to_seq"));
		return;
	}
	(void)fprintf(r->out, dry ? ": would go back to %lld" : ": as it was at %lld",
		      (long long)integer(result, "to_seq"));
	if (json_object_get(result, "label"))
		titled(r, "; before that: ", result, "label");
	else
		(void)fputc('\n', r->out);
	render_table(r, changes, c, ARRAY_SIZE(c));
	if (json_is_true(json_object_get(result, "truncated")))
		(void)fprintf(r->out, "(%lld in all)\n", (long long)integer(result, "total"));
}

void render_migrate(const struct render *r, const json_t *result)
{
	const json_t *from = json_object_get(result, "from"), *to = json_object_get(result, "to");
	char sent[RENDER_SHORT_MAX], frozen[RENDER_SHORT_MAX];

	render_text(r, result, "environment");
	(void)fputs(": from ", r->out);
	render_text(r, from, "provider");
	(void)fputs(" to ", r->out);
	render_text(r, to, "provider");
	(void)fprintf(r->out, ", incarnation %lld, %s sent, frozen for %s\n",
		      (long long)integer(to, "incarnation"),
		      render_bytes_text(sent, (double)integer(result, "bytes_sent")),
		      render_ms_text(frozen, (double)integer(result, "frozen_ms")));
	render_verify(r, result);
}

void render_seq(const struct render *r, const json_t *result)
{
	render_text(r, result, "environment");
	titled(r, ": done, at ", result, "seq");
}

void render_rm(const struct render *r, const json_t *result)
{
	if (!json_object_get(result, "removed")) {
		render_copied(r, result);
		return;
	}
	render_text(r, result, "environment");
	(void)fputs(json_is_true(json_object_get(result, "journal_kept"))
			    ? ": removed, its journal is kept\n"
			    : ": removed\n",
		    r->out);
}

void render_trust(const struct render *r, const json_t *result)
{
	render_text(r, result, "environment");
	titled(r, ": mode ", result, "mode");
}

void render_ps(const struct render *r, const json_t *result)
{
	static const struct column c[] = {
		{"PID", "pid", CELL_INTEGER, true},    {"PPID", "ppid", CELL_INTEGER, true},
		{"STATE", "state", CELL_TEXT, false},  {"MEMORY", "memory_bytes", CELL_BYTES, true},
		{"JOB", "job_id", CELL_TEXT, false},   {"STARTED", "started_at", CELL_TEXT, false},
		{"COMMAND", "argv", CELL_LIST, false},
	};

	render_table(r, json_object_get(result, "processes"), c, ARRAY_SIZE(c));
}

void render_copied(const struct render *r, const json_t *result)
{
	char bytes[RENDER_SHORT_MAX];

	render_text(r, result, "environment");
	(void)fprintf(r->out, ": %lld files, %s, at %lld%s\n", (long long)integer(result, "files"),
		      render_bytes_text(bytes, (double)integer(result, "bytes")),
		      (long long)integer(result, "seq"),
		      json_is_true(json_object_get(result, "pending"))
			      ? ", queued until the environment takes it"
			      : "");
}

void render_conflicts(const struct render *r, const json_t *result)
{
	static const struct column c[] = {
		{"ENVIRONMENT", "environment", CELL_TEXT, false},
		{"PATH", "path", CELL_NAME, false},
		{"KIND", "kind", CELL_TEXT, false},
		{"WINNER", "winner", CELL_TEXT, false},
		{"SINCE", "since_at", CELL_TEXT, false},
		{"VERSIONS", "shown", CELL_TEXT, false},
	};
	json_t *list = json_deep_copy(json_object_get(result, "conflicts"));
	json_t *o, *v;
	size_t i, k;

	json_array_foreach(list, i, o)
	{
		char text[120] = "";

		json_array_foreach(json_object_get(o, "versions"), k, v)(void)
			snprintf(text + strlen(text), sizeof(text) - strlen(text), "%s%s %s",
				 k ? ", " : "", json_string_value(json_object_get(v, "side")),
				 json_string_value(json_object_get(v, "version")));
		(void)json_object_set_new(o, "shown", json_string(text));
	}
	render_table(r, list, c, ARRAY_SIZE(c));
	json_decref(list);
}

void render_why(const struct render *r, const json_t *result)
{
	static const struct column c[] = {
		{"  origin", "origin", CELL_TEXT, false},
		{"  seq", "seq", CELL_INTEGER, false},
		{"  age", "age_ms", CELL_MS, false},
		{"  durability", "durability", CELL_TEXT, false},
		{"  conflict", "conflict_id", CELL_TEXT, false},
		{"  job", "job_id", CELL_TEXT, false},
		{"  is now", "now_path", CELL_NAME, false},
		{"  reason", "reasons", CELL_REASONS, false},
	};
	struct render line = *r;

	render_text(r, result, "environment");
	(void)fputs(": ", r->out);
	render_text(r, result, "state");
	(void)fputs("  ", r->out);
	line.nul = false;
	render_name(&line, result, "path");
	render_fields(r, result, c, ARRAY_SIZE(c));
	remedies(r, json_object_get(result, "reasons"));
}

void render_points(const struct render *r, const json_t *result)
{
	static const struct column c[] = {
		{"SEQ", "seq", CELL_INTEGER, true},  {"AT", "at", CELL_TEXT, false},
		{"KIND", "kind", CELL_TEXT, false},  {"LABEL", "label", CELL_TEXT, false},
		{"JOB", "job_id", CELL_TEXT, false},
	};

	render_table(r, json_object_get(result, "points"), c, ARRAY_SIZE(c));
	if (json_is_true(json_object_get(result, "truncated")))
		(void)fprintf(r->out, "(%lld in all; see -n)\n",
			      (long long)integer(result, "total"));
}

void render_jobs(const struct render *r, const json_t *result)
{
	static const struct column c[] = {
		{"JOB", "job_id", CELL_TEXT, false},
		{"ENVIRONMENT", "environment", CELL_TEXT, false},
		{"STATE", "state", CELL_TEXT, false},
		{"EXIT", "exit_code", CELL_INTEGER, true},
		{"TOOK", "duration_ms", CELL_MS, true},
		{"STDOUT", "stdout_bytes", CELL_BYTES, true},
		{"STDERR", "stderr_bytes", CELL_BYTES, true},
		{"STARTED", "started_at", CELL_TEXT, false},
		{"COMMAND", "argv", CELL_LIST, false},
	};

	render_table(r, json_object_get(result, "jobs"), c, ARRAY_SIZE(c));
	if (json_is_true(json_object_get(result, "truncated")))
		(void)fputs("there are more\n", r->out);
}

void render_input(const struct render *r, const json_t *result)
{
	render_text(r, result, "job_id");
	(void)fprintf(r->out, ": %lld bytes\n", (long long)integer(result, "accepted_bytes"));
}

void render_signal(const struct render *r, const json_t *result)
{
	render_text(r, result, "job_id");
	titled(r, ": ", result, "signal");
}
