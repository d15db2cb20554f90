#include "brain/provider.h"

#include <signal.h>
#include <stdio.h>
#include <sys/stat.h>

#include "base/buf.h"
#include "base/log.h"
#include "base/text.h"

enum { ANSWER_MAX = 1 << 20 };

struct run {
	struct env *env;
	const char *verb;
	provider_fn fn;
	void *userdata;
	uv_process_t process;
	uv_pipe_t in, out;
	uv_timer_t timer;
	uv_write_t write;
	uv_shutdown_t shutdown; /* the end of its stdin, behind the request */
	char *request;
	struct buf answer;
	bool exited, ended, late, too_large;
	int64_t status;
	int sig;
	unsigned handles;
};

char **provider_argv(json_t *array)
{
	size_t n = json_array_size(array);
	char **argv;

	if (n == 0 || !(argv = calloc(n + 1, sizeof(*argv))))
		return NULL;
	for (size_t i = 0; i < n; i++) {
		argv[i] = (char *)json_string_value(json_array_get(array, i));
		if (!argv[i]) {
			free(argv);
			return NULL;
		}
	}
	return argv;
}

char **provider_env(json_t *array)
{
	return provider_argv(array);
}

static void run_closed(uv_handle_t *h)
{
	struct run *run = h->data;

	if (--run->handles)
		return;
	run->env->runs--;
	buf_done(&run->answer);
	free(run->request);
	free(run);
}

static void run_tell(struct run *run)
{
	struct env *env = run->env;
	_cleanup_(buf_done) struct buf text = BUF_INIT(4096);
	struct provider_error err = {.code = "io_error"};
	json_t *answer = NULL;
	json_error_t e;

	answer = json_loadb((const char *)buf_data(&run->answer), buf_len(&run->answer),
			    JSON_REJECT_DUPLICATES, &e);
	if (run->late) {
		err.code = "timed_out";
		(void)buf_printf(&text, "provider '%s' did not end `%s` by its deadline",
				 env->provider, run->verb);
	} else if (run->too_large) {
		(void)buf_printf(&text, "provider '%s' answered `%s` with more than 1 MiB",
				 env->provider, run->verb);
	} else if (run->status || run->sig) {
		const char *detail = json_string_value(json_object_get(answer, "detail"));
		const char *code = json_string_value(json_object_get(answer, "error"));

		if (code)
			err.code = code;
		err.next_steps = json_object_get(answer, "next_steps");
		if (detail)
			(void)buf_printf(&text, "%s", detail);
		else
			(void)buf_printf(&text,
					 "provider '%s' failed at `%s` (%s %d); see limbd.log",
					 env->provider, run->verb, run->sig ? "signal" : "status",
					 run->sig ? run->sig : (int)run->status);
	} else if (!json_is_object(answer)) {
		(void)buf_printf(&text, "provider '%s' answered `%s` with what is no JSON object",
				 env->provider, run->verb);
	}
	if (buf_len(&text)) {
		(void)buf_add_u8(&text, 0);
		err.detail = (const char *)buf_data(&text);
		run->fn(env, &err, NULL, run->userdata);
	} else {
		run->fn(env, NULL, answer, run->userdata);
	}
	json_decref(answer);
}

static void run_close(struct run *run)
{
	uv_handle_t *hs[] = {(uv_handle_t *)&run->process, (uv_handle_t *)&run->in,
			     (uv_handle_t *)&run->out, (uv_handle_t *)&run->timer};

	run->handles = ARRAY_SIZE(hs);
	for (size_t i = 0; i < ARRAY_SIZE(hs); i++) {
		hs[i]->data = run;
		if (!uv_is_closing(hs[i]))
			uv_close(hs[i], run_closed);
	}
}

/* Over when the process has exited and its output has ended; a child that it left behind
 * with our pipe does not hold us. */
static void run_maybe_end(struct run *run)
{
	if (!run->exited || run->ended)
		return;
	run->ended = true;
	run_tell(run);
	run_close(run);
}

static void run_exit(uv_process_t *p, int64_t status, int sig)
{
	struct run *run = container_of(p, struct run, process);
	char tmp[4096];
	uv_os_fd_t fd;
	ssize_t n;

	run->exited = true;
	run->status = status;
	run->sig = sig;
	/* What it wrote is in the pipe by now. */
	if (uv_fileno((uv_handle_t *)&run->out, &fd) == 0) {
		while (!run->too_large && (n = read(fd, tmp, sizeof(tmp))) > 0)
			if (buf_add(&run->answer, tmp, (size_t)n) < 0)
				run->too_large = true;
	}
	run_maybe_end(run);
}

static void run_late(uv_timer_t *t)
{
	struct run *run = container_of(t, struct run, timer);

	run->late = true;
	(void)uv_process_kill(&run->process, SIGKILL);
}

static void run_alloc(uv_handle_t *h, size_t n, uv_buf_t *b)
{
	static char room[65536]; /* used up before the next callback */

	(void)h;
	(void)n;
	*b = uv_buf_init(room, sizeof(room));
}

static void run_read(uv_stream_t *s, ssize_t n, const uv_buf_t *b)
{
	struct run *run = container_of((uv_pipe_t *)s, struct run, out);

	if (n > 0) {
		if (buf_add(&run->answer, b->base, (size_t)n) < 0) {
			run->too_large = true;
			(void)uv_process_kill(&run->process, SIGKILL);
		}
		return;
	}
	if (n < 0)
		(void)uv_read_stop(s);
}

static char *provider_file(const struct brain *b, const char *provider)
{
	char name[80];

	if (strchr(provider, '/'))
		return strdup(provider);
	(void)snprintf(name, sizeof(name), "providers/%s", provider);
	return brain_helper(b, name);
}

char *provider_judge(const struct brain *b, const char *provider)
{
	cleanup_free char *file = provider_file(b, provider);
	char shown[256], *why = NULL;
	struct stat st;
	int r = 0;

	if (!file)
		return strdup("out of memory");
	if (stat(file, &st) < 0 || access(file, X_OK) < 0)
		r = -errno;
	else if (!S_ISREG(st.st_mode))
		r = -EISDIR;
	if (r == 0)
		return NULL;
	(void)text_escape_into(shown, sizeof(shown), provider, strlen(provider));
	if (strchr(provider, '/'))
		r = asprintf(
			&why,
			"the provider '%s' cannot be run (%s); it has to be an executable, see "
			"limb-provider(7)",
			shown, r == -EISDIR ? "not a file" : strerror(-r));
	else
		r = asprintf(
			&why,
			"there is no provider '%s'; there are bwrap, local, container, ssh and "
			"command, and others by the path of their executable",
			shown);
	return r < 0 ? strdup("out of memory") : why;
}

bool provider_is_here(const char *provider)
{
	return strcmp(provider, "local") == 0 || strcmp(provider, "bwrap") == 0;
}

static json_t *provider_request(struct env *env, json_t *extra, uint64_t deadline_ms)
{
	cleanup_free char *hands = NULL;
	char brain_hex[33];
	json_t *o, *spec;

	hands = env_hands_dir(env);
	if (!hands)
		return NULL;
	for (size_t i = 0; i < 16; i++)
		(void)snprintf(brain_hex + 2 * i, 3, "%02x", env->brain->id[i]);
	spec = env->spec ? json_deep_copy(env->spec) : json_object();
	(void)json_object_set_new(spec, "provider", json_string(env->provider));
	if (env->target)
		(void)json_object_set_new(spec, "target", json_string(env->target));
	(void)json_object_set_new(spec, "syncd", json_string(env->brain->syncd_path));
	if (env->user_root) {
		(void)json_object_set_new(spec, "root", json_string(env->user_root));
	} else {
		cleanup_free char *root = env_own_root(env);

		if (root)
			(void)json_object_set_new(spec, "root", json_string(root));
	}
	o = json_pack("{s:i, s:s, s:s, s:I, s:s, s:s, s:o, s:I}", "protocol", 1, "environment",
		      env->name, "id", env->wire_hex, "incarnation", (json_int_t)env->incarnation,
		      "brain", brain_hex, "dir", hands, "spec", spec, "deadline_ms",
		      (json_int_t)deadline_ms);
	if (o && env->place)
		(void)json_object_set_new(o, "place", json_integer((json_int_t)env->place));
	if (o && env->handle)
		(void)json_object_set_new(o, "handle", json_string(env->handle));
	if (o && extra)
		(void)json_object_update(o, extra);
	return o;
}

static int run_spawn(struct run *run, const char *file)
{
	char *argv[] = {(char *)file, (char *)run->verb, NULL};
	uv_stdio_container_t io[3] = {
		{.flags = UV_CREATE_PIPE | UV_READABLE_PIPE,
		 .data.stream = (uv_stream_t *)&run->in},
		{.flags = UV_CREATE_PIPE | UV_WRITABLE_PIPE,
		 .data.stream = (uv_stream_t *)&run->out},
		{.flags = UV_INHERIT_FD, .data.fd = STDERR_FILENO},
	};
	uv_process_options_t o = {
		.file = file,
		.args = argv,
		.cwd = "/",
		.exit_cb = run_exit,
		.stdio = io,
		.stdio_count = 3,
	};
	/* What is started there makes files as the user would. (All that limbd itself makes
	 * has its mode said.) */
	mode_t own = umask(run->env->brain->umask);
	int r = uv_spawn(run->env->brain->loop, &run->process, &o);

	(void)umask(own);
	return r;
}

int provider_run(struct env *env, const char *verb, json_t *extra, uint64_t deadline_ms,
		 provider_fn fn, void *userdata)
{
	cleanup_free char *file = provider_file(env->brain, env->provider);
	json_t *request = provider_request(env, extra, deadline_ms);
	struct run *run = calloc(1, sizeof(*run));
	uv_buf_t b;
	int r;

	if (!file || !request || !run || !(run->request = json_dumps(request, JSON_COMPACT))) {
		json_decref(request);
		json_decref(extra);
		free(run);
		return -ENOMEM;
	}
	json_decref(request);
	json_decref(extra);
	run->env = env;
	env->runs++;
	run->verb = verb;
	run->fn = fn;
	run->userdata = userdata;
	buf_init(&run->answer, ANSWER_MAX);
	(void)uv_pipe_init(env->brain->loop, &run->in, 0);
	(void)uv_pipe_init(env->brain->loop, &run->out, 0);
	(void)uv_timer_init(env->brain->loop, &run->timer);
	r = run_spawn(run, file);
	if (r < 0) {
		log_warning_errno(r, "cannot start provider '%s'", file);
		run->ended = true;
		run_close(run);
		return r;
	}
	(void)uv_timer_start(&run->timer, run_late, deadline_ms + 500, 0);
	(void)uv_read_start((uv_stream_t *)&run->out, run_alloc, run_read);
	b = uv_buf_init(run->request, (unsigned)strlen(run->request));
	(void)uv_write(&run->write, (uv_stream_t *)&run->in, &b, 1, NULL);
	(void)uv_shutdown(&run->shutdown, (uv_stream_t *)&run->in, NULL);
	return 0;
}
