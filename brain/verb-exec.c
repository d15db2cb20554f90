/* exec: a job, its streams and its end, for one client. */
#include <fcntl.h>
#include <signal.h>

#include "base/clock.h"
#include "base/io.h"
#include "brain/env.h"
#include "brain/job.h"
#include "brain/link.h"
#include "brain/verb.h"

enum {
	PIECE = 128 << 10,
	KILL_MS = 3000,
	MAX_OUTPUT = 1 << 20,
	PATIENCE_MS = 4000, /* for an environment that is away; the contract allows 5 s */
	PATIENCE_STEP_MS = 20,
};

struct exec {
	struct call *call;
	struct job *job;
	bool json, cancelled, over;
	uint64_t max;
	uint64_t sent[2];
	uv_timer_t timer;
	bool timer_made;
};

static void exec_closed(uv_handle_t *h)
{
	free(container_of((uv_timer_t *)h, struct exec, timer));
}

static void exec_free(struct exec *x)
{
	if (x->timer_made)
		uv_close((uv_handle_t *)&x->timer, exec_closed);
	else
		free(x);
}

/* Sends what lies in the output files and the client has room for; true: all of it. */
static bool exec_pump(struct exec *x)
{
	static uint8_t piece[PIECE];

	if (x->json)
		return true;
	for (int s = 0; s < 2; s++) {
		int fd = job_output_fd(x->job, s + 1);

		while (fd >= 0 && x->sent[s] < job_output_bytes(x->job, s + 1)) {
			uint64_t left = job_output_bytes(x->job, s + 1) - x->sent[s];
			ssize_t n = io_pread_full(fd, piece, (size_t)MIN(left, (uint64_t)PIECE),
						  x->sent[s], "exec.read");

			if (n <= 0)
				break;
			x->sent[s] += (uint64_t)n;
			if (!call_bytes(x->call, s ? RPC_STDERR : RPC_STDOUT, piece, (size_t)n))
				return false;
		}
	}
	return true;
}

static void exec_finish(struct exec *x)
{
	struct call *call = x->call;
	json_t *result = job_json_exec(x->job, x->max, x->json);

	job_unwatch(x->job);
	call->op = NULL;
	call->on_cancel = NULL;
	call->on_stdin = NULL;
	call->on_drained = NULL;
	exec_free(x);
	call_ok(call, result);
}

static void exec_watch(struct job *job, bool over, void *userdata)
{
	struct exec *x = userdata;

	(void)job;
	x->over |= over;
	if (exec_pump(x) && x->over)
		exec_finish(x);
}

static void exec_drained(struct call *call)
{
	struct exec *x = call->op;

	if (x && exec_pump(x) && x->over)
		exec_finish(x);
}

static void exec_stdin(struct call *call, const void *data, size_t n, bool eof)
{
	struct exec *x = call->op;

	if (x)
		job_input(x->job, data, n, eof);
}

static void exec_kill(uv_timer_t *t)
{
	struct exec *x = container_of(t, struct exec, timer);

	job_signal(x->job, SIGKILL, "its client left");
}

static void exec_cancel(struct call *call)
{
	struct exec *x = call->op;

	if (!x || x->cancelled)
		return;
	x->cancelled = true;
	job_signal(x->job, SIGTERM, "its client left");
	(void)uv_timer_init(call->brain->loop, &x->timer);
	x->timer_made = true;
	(void)uv_timer_start(&x->timer, exec_kill, KILL_MS, 0);
}

/* ---- the request ---- */

static bool env_append(char ***v, size_t *n, char *entry)
{
	char **p = entry ? reallocarray(*v, *n + 2, sizeof(*p)) : NULL;

	if (!p) {
		free(entry);
		return false;
	}
	*v = p;
	p[(*n)++] = entry;
	p[*n] = NULL;
	return true;
}

static char *assignment(const char *name, const char *value)
{
	char *s;

	return asprintf(&s, "%s=%s", name, value) < 0 ? NULL : s;
}

/* The whole environment of the command: a later name takes the place of an earlier one. */
static char **exec_env(struct env *env, char **user)
{
	static const char *const fixed[] = {
		"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
		"LANG=C.UTF-8",
		"PAGER=cat",
		"GIT_PAGER=cat",
		"MANPAGER=cat",
	};
	char **v = NULL;
	size_t n = 0;
	bool ok = true;

	for (size_t i = 0; i < ARRAY_SIZE(fixed); i++)
		ok = ok && env_append(&v, &n, strdup(fixed[i]));
	ok = ok && env_append(&v, &n, assignment("HOME", env->root));
	ok = ok && env_append(&v, &n, strdup(env->self_uid == 0 ? "USER=root" : "USER=user"));
	ok = ok && env_append(&v, &n, assignment("LIMB_ENVIRONMENT", env->name));
	for (char **u = user; ok && u && *u; u++) {
		size_t len = strcspn(*u, "="), i;

		for (i = 0; i < n; i++)
			if (strncmp(v[i], *u, len + 1) == 0)
				break;
		if (i < n) {
			free(v[i]);
			v[i] = strdup(*u);
			ok = v[i] != NULL;
		} else {
			ok = env_append(&v, &n, strdup(*u));
		}
	}
	if (!ok) {
		call_strv_free(v);
		return NULL;
	}
	return v;
}

static bool exec_refuse(struct call *call, struct env *env, char **argv, char **user)
{
	for (char **u = user; u && *u; u++) {
		if (strncmp(*u, "LIMB_", 5) == 0 || !strchr(*u, '=') || **u == '=') {
			call_fail(call, "usage", env->name, NULL,
				  "a variable is NAME=VALUE, and names that begin with LIMB_ are "
				  "limbfs's own");
			return true;
		}
	}
	if (!argv || !argv[0] || !user) {
		call_fail(call, "usage", env->name, "limb help exec",
			  "the command is missing, or an argument holds a NUL byte");
		return true;
	}
	if (call_bool(call, "tty") || call_str(call, "shell")) {
		call_fail(
			call, "unsupported", env->name, NULL,
			"this limbfs runs commands without a terminal; leave -t and --shell away");
		return true;
	}
	return false;
}

static void exec_now(struct call *call)
{
	struct env *env = verb_live_env(call);
	char **argv = NULL, **user = NULL;
	struct job_spec spec = {0};
	struct exec *x;
	bool detach;
	int r;

	if (!env)
		return;
	argv = call_strv(call, "argv");
	user = call_strv(call, "env");
	if (exec_refuse(call, env, argv, user))
		goto out;
	x = calloc(1, sizeof(*x));
	spec.argv = argv;
	spec.env = exec_env(env, user);
	if (!x || !spec.env) {
		free(x);
		call_fail(call, "internal", env->name, NULL, "out of memory");
		goto out;
	}
	detach = call_bool(call, "detach");
	spec.cwd = call_str(call, "cwd") ? call_str(call, "cwd") : "";
	spec.key = call_str(call, "key");
	spec.timeout_ms = (uint64_t)MAX((int64_t)0, call_int(call, "timeout_ms", 0));
	spec.stdin_open = call_bool(call, "stdin") && !detach;
	x->call = call;
	x->json = call_bool(call, "json");
	x->max = (uint64_t)MAX((int64_t)2, call_int(call, "max_output_bytes", MAX_OUTPUT));
	r = job_start(env, &spec, detach ? NULL : exec_watch, x, &x->job);
	call_strv_free(spec.env);
	if (r < 0) {
		free(x);
		verb_fail_errno(call, env, r, "the job cannot be recorded");
		goto out;
	}
	if (detach) {
		call_ok(call, job_json_exec(x->job, 0, false));
		free(x);
		goto out;
	}
	call->op = x;
	call->on_cancel = exec_cancel;
	call->on_stdin = exec_stdin;
	call->on_drained = exec_drained;
out:
	call_strv_free(argv);
	call_strv_free(user);
}

/* ---- an environment that is just coming back ---- */

struct patience {
	struct call *call;
	uv_timer_t timer;
	uint64_t end_ms;
};

static void patience_closed(uv_handle_t *h)
{
	free(container_of((uv_timer_t *)h, struct patience, timer));
}

static bool coming_back(struct call *call)
{
	const char *name = call_str(call, "name");
	struct env *env = name ? env_find(call->brain, name) : NULL;

	return env && env->wanted && !link_up(env) && !env->halted && !env->failed &&
	       !env->hostile && !env->lost;
}

static void patience_tick(uv_timer_t *t)
{
	struct patience *p = container_of(t, struct patience, timer);
	struct call *call = p->call;

	if (coming_back(call) && clock_mono_ms() < p->end_ms && !call->brain->stopping)
		return;
	uv_close((uv_handle_t *)t, patience_closed);
	exec_now(call);
}

void verb_exec(struct call *call)
{
	struct patience *p = coming_back(call) ? calloc(1, sizeof(*p)) : NULL;

	if (!p) {
		exec_now(call);
		return;
	}
	p->call = call;
	p->end_ms = clock_mono_ms() + PATIENCE_MS;
	(void)uv_timer_init(call->brain->loop, &p->timer);
	(void)uv_timer_start(&p->timer, patience_tick, PATIENCE_STEP_MS, PATIENCE_STEP_MS);
}
