#include "providers/remote.h"

#include <stdio.h>

#include "base/file.h"
#include "base/text.h"
#include "base/util.h"
#include "providers/remote-call.h"

/* {"base", "bin"}: where limbfs's things are there. Written before anything is made there, so
 * that what a call leaves behind is found again. */
static const char record[] = "remote.json";

enum { PATH_BYTES = 4096 };

/* What the script answered. */
struct answer {
	const struct provider_call *call;
	char *base, *bin, *root, *dir, *status, *fail;
	json_t *list;
};

static void answer_done(struct answer *a)
{
	free(a->base);
	free(a->bin);
	free(a->root);
	free(a->dir);
	free(a->status);
	free(a->fail);
	json_decref(a->list);
}

/* ---- the record ---- */

static void record_load(const struct provider_call *call, struct answer *a)
{
	_cleanup_(buf_done) struct buf b = BUF_INIT(64 << 10);
	const char *s;
	json_t *o;

	if (call->dir_fd < 0 || file_read(call->dir_fd, record, &b) < 0)
		return;
	o = json_loadb((const char *)buf_data(&b), buf_len(&b), 0, NULL);
	if ((s = json_string_value(json_object_get(o, "base"))))
		a->base = strdup(s);
	if ((s = json_string_value(json_object_get(o, "bin"))))
		a->bin = strdup(s);
	json_decref(o);
}

static int record_save(const struct provider_call *call, const struct answer *a)
{
	json_t *o = json_pack("{s:s, s:s}", "base", a->base, "bin", a->bin ? a->bin : "");
	cleanup_free char *text = o ? json_dumps(o, JSON_COMPACT) : NULL;

	json_decref(o);
	return text ? file_replace(call->dir_fd, record, text, strlen(text)) : -EINVAL;
}

/* ---- lines ---- */

static bool path_ok(const char *s)
{
	return s[0] == '/' && strlen(s) < PATH_BYTES && words_plain(s) &&
	       text_utf8_ok(s, strlen(s));
}

static void take_path(char **to, const char *path)
{
	if (!path_ok(path))
		return;
	free(*to);
	*to = strdup(path);
}

static void take_text(char **to, const char *text)
{
	free(*to);
	*to = strdup(text);
}

/* "PROVIDER BRAIN ID" */
static void take_environment(struct answer *a, const char *mark)
{
	char provider[32], brain[64], id[64];

	if (sscanf(mark, "%31[a-z] %63[0-9a-f-] %63[0-9a-f-]", provider, brain, id) != 3 ||
	    strcmp(provider, a->call->provider) != 0)
		return;
	if (!a->list)
		a->list = json_array();
	(void)json_array_append_new(
		a->list, json_pack("{s:s, s:s, s:s}", "id", id, "handle", id, "brain", brain));
}

static void on_line(const char *line, void *userdata)
{
	struct answer *a = userdata;
	const char *value = strchr(line, ' ');
	size_t n = value ? (size_t)(value - line) : 0;

	if (!value++)
		return;
#define IS(key) (n == strlen(key) && strncmp(line, key, n) == 0)
	if (IS("at")) {
		take_path(&a->base, value);
		if (a->base)
			(void)record_save(a->call, a);
	} else if (IS("bin")) {
		take_path(&a->bin, value);
	} else if (IS("root")) {
		take_path(&a->root, value);
	} else if (IS("dir")) {
		take_path(&a->dir, value);
	} else if (IS("status")) {
		take_text(&a->status, value);
	} else if (IS("fail")) {
		take_text(&a->fail, value);
	} else if (IS("has")) {
		take_environment(a, value);
	}
#undef IS
}

/* ---- failures ---- */

static const char *last_line(const char *said, char *out, size_t size)
{
	size_t n = strlen(said), from;

	while (n > 0 && strchr("\r\n", said[n - 1]))
		n--;
	for (from = n; from > 0 && said[from - 1] != '\n';)
		from--;
	if (n == from)
		return "it said nothing";
	return text_escape_into(out, size, said + from, n - from);
}

/* What a person can try without us, with what is special to a shell in quotes. */
static char *to_try(const struct remote *rm)
{
	_cleanup_(buf_done) struct buf b = BUF_INIT(4096);
	int r = buf_add_str(&b, "make this work first:");

	for (size_t i = 0; r >= 0 && i < rm->argv.n; i++) {
		const char *word = rm->argv.v[i];

		r = *word && !strpbrk(word, " \t\n'\"\\$`*?[]{}()<>|&;~#!")
			    ? buf_printf(&b, " %s", word)
			    : buf_printf(&b, " '%s'", word);
	}
	if (r >= 0)
		r = buf_add_str(&b, " sh -c true");
	if (r >= 0)
		r = buf_add(&b, "", 1);
	return r < 0 ? NULL : strdup((const char *)buf_data(&b));
}

static json_t *failure_of_call(const struct remote *rm, const struct remote_end *end)
{
	cleanup_free char *step = NULL;
	char said[300];
	json_t *failure;

	if (end->failed < 0)
		return provider_failure_errno(end->failed, "cannot begin");
	failure = rm->explain ? rm->explain(rm, end) : NULL;
	if (failure)
		return failure;
	if (end->noisy)
		return provider_failure("io_error", "make its shell start-up files print less",
					"%s prints more than 16 MiB before a command runs there",
					rm->where);
	if (end->late)
		return provider_failure("timed_out", NULL, "%s did not answer in time", rm->where);
	if (!end->began) {
		step = to_try(rm);
		return provider_failure("unsupported", step, "%s started no sh (status %d): %s",
					rm->where, end->status,
					last_line(end->said, said, sizeof(said)));
	}
	return provider_failure("env_unreachable", NULL, "the line to %s broke (status %d): %s",
				rm->where, end->status, last_line(end->said, said, sizeof(said)));
}

/* "CODE TEXT"; the code is one of ours, whatever the other side says. */
static json_t *failure_of_script(const struct remote *rm, const char *fail)
{
	static const char *const codes[] = {"conflict",		 "file_not_found", "invalid_path",
					    "io_error",		 "no_space",	   "not_directory",
					    "permission_denied", "unsupported"};
	const char *text = strchr(fail, ' ');
	char shown[600];

	for (size_t i = 0; text && i < ARRAY_SIZE(codes); i++)
		if (strncmp(fail, codes[i], (size_t)(text - fail)) == 0 &&
		    strlen(codes[i]) == (size_t)(text - fail)) {
			(void)text_escape_into(shown, sizeof(shown), text + 1, strlen(text + 1));
			return provider_failure(codes[i], NULL, "%s: %s", rm->where, shown);
		}
	return provider_failure("io_error", NULL, "%s failed without a reason", rm->where);
}

static json_t *ask(const struct remote *rm, const char *verb, bool sends, struct answer *a)
{
	struct remote_call c = {.verb = verb, .syncd = sends ? rm->call->syncd : NULL};
	struct remote_end end;
	json_t *failure = NULL;
	int r;

	a->call = rm->call;
	if (sends && !c.syncd)
		return provider_failure("usage", NULL, "spec.syncd is missing");
	if (!a->base)
		record_load(rm->call, a);
	c.base = a->base ? a->base : "";
	c.bin = a->bin ? a->bin : "";
	r = remote_call_run(rm, &c, on_line, a, &end);
	if (a->fail)
		failure = failure_of_script(rm, a->fail);
	else if (r < 0)
		failure = failure_of_call(rm, &end);
	buf_done(&c.lines);
	return failure;
}

/* ---- verbs ---- */

json_t *remote_check_path(const char *path)
{
	char shown[256];
	const char *p;

	text_escape_into(shown, sizeof(shown), path, strlen(path));
	if (path[0] != '/' || !path_ok(path) || path[strspn(path, "/")] == '\0')
		return provider_failure("invalid_path", NULL,
					"'%s' is no absolute path below '/', in UTF-8", shown);
	for (p = path; (p = strstr(p, "/..")); p += 3)
		if (p[3] == '/' || p[3] == '\0')
			return provider_failure("invalid_path", NULL, "'%s' has '..' in it", shown);
	return NULL;
}

json_t *remote_create(const struct remote *rm, json_t **ret)
{
	_cleanup_(answer_done) struct answer a = {0};
	json_t *failure = rm->root ? remote_check_path(rm->root) : NULL;
	int r;

	if (!failure)
		failure = ask(rm, "create", true, &a);
	if (failure)
		return failure;
	if (!a.base || !a.bin || !a.root || !a.dir)
		return provider_failure("io_error", NULL, "%s answered what makes no sense",
					rm->where);
	r = record_save(rm->call, &a);
	if (r < 0)
		return provider_failure_errno(r, "cannot write the record");
	*ret = json_pack("{s:s, s:s, s:s, s:s}", "handle", a.dir, "root", a.root, "dir", a.dir,
			 "syncd", a.bin);
	return NULL;
}

/* Without a record nothing was ever made there. */
static bool unmade(const struct remote *rm, struct answer *a, json_t **ret)
{
	record_load(rm->call, a);
	if (a->base)
		return false;
	*ret = provider_status("NotFound", 0);
	return true;
}

static json_t *status_of(const struct remote *rm, const struct answer *a, json_t **ret)
{
	static const char *const all[] = {"Running", "Stopped", "NotFound"};

	for (size_t i = 0; a->status && i < ARRAY_SIZE(all); i++)
		if (strcmp(a->status, all[i]) == 0) {
			*ret = provider_status(all[i], 0);
			return NULL;
		}
	return provider_failure("io_error", NULL, "%s answered what makes no sense", rm->where);
}

json_t *remote_start(const struct remote *rm, json_t **ret)
{
	_cleanup_(answer_done) struct answer a = {0};
	json_t *failure;
	int r;

	record_load(rm->call, &a);
	if (!a.base)
		return provider_failure("file_not_found", "limb rebuild NAME",
					"nothing was made for it at %s", rm->where);
	failure = ask(rm, "start", true, &a);
	if (failure)
		return failure;
	r = record_save(rm->call, &a);
	if (r < 0)
		return provider_failure_errno(r, "cannot write the record");
	return status_of(rm, &a, ret);
}

json_t *remote_status(const struct remote *rm, json_t **ret)
{
	_cleanup_(answer_done) struct answer a = {0};
	json_t *failure;

	if (unmade(rm, &a, ret))
		return NULL;
	failure = ask(rm, "status", false, &a);
	return failure ? failure : status_of(rm, &a, ret);
}

json_t *remote_stop(const struct remote *rm, json_t **ret)
{
	_cleanup_(answer_done) struct answer a = {0};
	json_t *failure;

	if (unmade(rm, &a, ret))
		return NULL;
	failure = ask(rm, "stop", false, &a);
	return failure ? failure : status_of(rm, &a, ret);
}

json_t *remote_delete(const struct remote *rm, json_t **ret)
{
	_cleanup_(answer_done) struct answer a = {0};
	json_t *failure;

	if (unmade(rm, &a, ret))
		return NULL;
	failure = ask(rm, "delete", false, &a);
	if (!failure && unlinkat(rm->call->dir_fd, record, 0) < 0 && errno != ENOENT)
		failure = provider_failure_errno(-errno, "cannot remove the record");
	return failure ? failure : status_of(rm, &a, ret);
}

json_t *remote_list(const struct remote *rm, json_t **ret)
{
	_cleanup_(answer_done) struct answer a = {0};
	json_t *failure = ask(rm, "list", false, &a);

	if (!failure)
		*ret = json_pack("{s:O}", "environments", a.list ? a.list : json_array());
	return failure;
}

/* argv with limb-syncd's place of today; no shell there but the one that sshd starts. */
static int command_argv(const struct remote *rm, const struct answer *a, json_t *argv,
			struct words *out)
{
	_cleanup_(buf_done) struct buf line = BUF_INIT(256 << 10);
	json_t *word;
	size_t i;
	int r = 0;

	for (i = 0; i < rm->argv.n && r >= 0; i++)
		r = words_add(out, rm->argv.v[i]);
	if (r >= 0 && rm->by_shell)
		r = buf_add_str(&line, "exec sh -c 'exec");
	json_array_foreach(argv, i, word)
	{
		const char *s = i == 0 ? a->bin : json_string_value(word);

		if (r < 0)
			break;
		if (!s)
			return -EINVAL;
		/* Here start has waited for it; where it has died since, start is the way. */
		if (strcmp(s, "--wait") == 0)
			s = "--running";
		if (!rm->by_shell) {
			r = words_add(out, s);
			continue;
		}
		r = buf_add_str(&line, " ");
		if (r >= 0)
			r = words_quote(&line, s);
	}
	if (r >= 0 && rm->by_shell) {
		r = buf_add(&line, "'", 2);
		if (r >= 0)
			r = words_add(out, (const char *)buf_data(&line));
	}
	return r;
}

json_t *remote_command(const struct remote *rm, json_t **ret)
{
	_cleanup_(answer_done) struct answer a = {0};
	_cleanup_(words_done) struct words out = {0};
	json_t *argv = json_object_get(rm->call->in, "argv"), *list;
	int r;

	record_load(rm->call, &a);
	if (!a.base || !a.bin || !a.bin[0])
		return provider_failure("file_not_found", "limb rebuild NAME",
					"nothing was made for it at %s", rm->where);
	if (!json_is_array(argv) || json_array_size(argv) == 0)
		return provider_failure("usage", NULL, "argv is missing");
	r = command_argv(rm, &a, argv, &out);
	if (r < 0)
		return provider_failure_errno(r, "its arguments cannot be passed on");
	list = json_array();
	for (size_t i = 0; i < out.n; i++)
		(void)json_array_append_new(list, json_string(out.v[i]));
	*ret = json_pack("{s:o}", "argv", list);
	return NULL;
}
