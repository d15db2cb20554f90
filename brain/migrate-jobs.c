/* What becomes of the jobs that run when their environment moves. */
#include "brain/migrate-impl.h"

#include <signal.h>

#include "base/clock.h"
#include "brain/job-impl.h"
#include "brain/link.h"

enum {
	LOOK_MS = 20,
	TERM_MS = 5000, /* then KILL */
	KILL_MS = 30000,
};

struct move_again {
	struct move_again *next;
	char *id;
	char **argv, **env;
	char *cwd, *principal, *key, *shell;
	uint64_t timeout_ms;
	bool tty;
	json_t *said; /* its entry in jobs_done; borrowed */
};

static void strv_free(char **v)
{
	for (char **p = v; p && *p; p++)
		free(*p);
	free(v);
}

/* Without LIMB_JOB: the new one has its own. */
static char **strv_copy(char **v)
{
	size_t n = 0, k = 0;
	char **c;

	while (v && v[n])
		n++;
	c = calloc(n + 1, sizeof(*c));
	for (size_t i = 0; c && i < n; i++)
		if (strncmp(v[i], "LIMB_JOB=", 9) != 0)
			c[k++] = strdup(v[i]);
	return c;
}

void move_jobs_done(struct move *m)
{
	struct move_again *a;

	while ((a = m->again)) {
		m->again = a->next;
		free(a->id);
		strv_free(a->argv);
		strv_free(a->env);
		free(a->cwd);
		free(a->principal);
		free(a->key);
		free(a->shell);
		free(a);
	}
}

static json_t *say(struct move *m, const struct job *j, const char *action)
{
	json_t *o = json_pack("{s:s, s:s}", "job_id", j->id, "action", action);

	(void)json_array_append_new(m->jobs_done, o);
	return o;
}

/* What an earlier limbd started is known by its files only; it cannot be started anew. */
static void remember(struct move *m, const struct job *j)
{
	struct move_again *a = j->argv && j->envp ? calloc(1, sizeof(*a)) : NULL;

	if (!a) {
		(void)say(m, j, "stopped");
		return;
	}
	a->id = strdup(j->id);
	a->argv = strv_copy(j->argv);
	a->env = strv_copy(j->envp);
	a->cwd = strdup(j->cwd);
	a->principal = j->principal ? strdup(j->principal) : NULL;
	a->key = j->key ? strdup(j->key) : NULL;
	a->shell = j->shell ? strdup(j->shell) : NULL;
	a->timeout_ms = j->timeout_ms;
	a->tty = j->tty;
	a->said = say(m, j, "restarted");
	a->next = m->again;
	m->again = a;
}

static void signal_all(struct move *m, int signo)
{
	for (struct job *j = m->env->brain->jobs; j; j = j->next)
		if (j->env == m->env && !j->ended)
			(void)job_signal(j, signo, "limbfs");
}

static void look(uv_timer_t *t)
{
	struct move *m = container_of(t, struct move, timer);
	uint64_t ms = clock_mono_ms() - m->jobs_since_ms;
	unsigned n = jobs_running_in(m->env);

	if (!link_up(m->env) || !link_up(m->guest)) {
		(void)uv_timer_stop(t);
		move_fail(m, "env_unreachable", "the line to its %s place fell",
			  link_up(m->env) ? "new" : "present");
		return;
	}
	if (n == 0) {
		(void)uv_timer_stop(t);
		m->jobs_over(m);
		return;
	}
	if (m->jobs == MOVE_JOBS_WAIT) {
		if (m->l->call && m->jobs_step++ % 50 == 0)
			call_progress(m->l->call, "waiting for jobs", 0, 0, n, 0);
		return;
	}
	if (ms > TERM_MS && m->jobs_step == 0) {
		m->jobs_step = 1;
		signal_all(m, SIGKILL);
	}
	if (ms > KILL_MS) {
		(void)uv_timer_stop(t);
		move_fail(m, "timed_out", "%u of its jobs cannot be ended", n);
	}
}

void move_jobs(struct move *m, void (*over)(struct move *m))
{
	m->jobs_over = over;
	m->env->no_jobs = true;
	m->jobs_since_ms = clock_mono_ms();
	for (struct job *j = m->env->brain->jobs; j; j = j->next) {
		if (j->env != m->env || j->ended)
			continue;
		if (m->jobs == MOVE_JOBS_RESTART)
			remember(m, j);
		else
			(void)say(m, j, m->jobs == MOVE_JOBS_WAIT ? "waited" : "stopped");
	}
	if (jobs_running_in(m->env) == 0) {
		over(m);
		return;
	}
	if (m->jobs != MOVE_JOBS_WAIT)
		signal_all(m, SIGTERM);
	if (!m->timer_made)
		(void)uv_timer_init(m->env->brain->loop, &m->timer);
	m->timer_made = true;
	(void)uv_timer_start(&m->timer, look, LOOK_MS, LOOK_MS);
}

void move_jobs_again(struct move *m)
{
	for (struct move_again *a = m->again; a; a = a->next) {
		struct job_spec spec = {.argv = a->argv,
					.env = a->env,
					.cwd = a->cwd,
					.principal = a->principal,
					.key = a->key,
					.shell = a->shell,
					.restart_of = a->id,
					.timeout_ms = a->timeout_ms,
					.tty = a->tty};
		struct job *j;
		int r = a->argv && a->env && a->cwd ? job_start(m->env, &spec, &j) : -ENOMEM;

		if (r == 0)
			(void)json_object_set_new(a->said, "restarted_as", json_string(job_id(j)));
		else
			(void)json_object_set_new(a->said, "action", json_string("stopped"));
	}
	move_jobs_done(m);
}
