/* Why an environment is as it is: limbd's own reasons. */
#include <stdarg.h>
#include <stdio.h>

#include "base/clock.h"
#include "base/log.h"
#include "brain/env.h"

void env_reason_done(struct env_reason *r)
{
	free(r->detail);
	free(r->path);
	*r = (struct env_reason){0};
}

static int set_reason(struct env *env, const char *code, const char *fmt, va_list ap)
{
	struct env_reason *r = NULL;
	char *detail;

	if (vasprintf(&detail, fmt, ap) < 0)
		return -ENOMEM;
	for (size_t i = 0; i < env->n_reasons && !r; i++)
		if (strcmp(env->reasons[i].code, code) == 0)
			r = &env->reasons[i];
	if (r) {
		free(r->detail);
		r->detail = detail;
		return 0;
	}
	if (env->n_reasons == ENV_REASONS_MAX) {
		free(detail);
		return -E2BIG;
	}
	r = &env->reasons[env->n_reasons++];
	(void)snprintf(r->code, sizeof(r->code), "%s", code);
	r->detail = detail;
	r->since_ns = clock_real_ns();
	return 0;
}

int env_set_reason(struct env *env, const char *code, const char *fmt, ...)
{
	va_list ap;
	int r;

	va_start(ap, fmt);
	r = set_reason(env, code, fmt, ap);
	va_end(ap);
	return r;
}

void env_halt(struct env *env, const char *code, const char *fmt, ...)
{
	va_list ap;

	env->halted = true;
	env_clear_reason(env, "line_down");
	env_clear_reason(env, "process_died");
	va_start(ap, fmt);
	(void)set_reason(env, code, fmt, ap);
	va_end(ap);
}

void env_lied(struct env *env, const char *fmt, ...)
{
	char what[200];
	va_list ap;

	va_start(ap, fmt);
	(void)vsnprintf(what, sizeof(what), fmt, ap);
	va_end(ap);
	env->hostile = true;
	(void)env_set_reason(env, "lies", "it sent %s; look at it, then run: limb start %s", what,
			     env->name);
	log_warning("environment '%s' sent %s, and is cut off", env->name, what);
}

bool env_has_reason(const struct env *env, const char *code)
{
	for (size_t i = 0; i < env->n_reasons; i++)
		if (strcmp(env->reasons[i].code, code) == 0)
			return true;
	return false;
}

void env_clear_reason(struct env *env, const char *code)
{
	size_t kept = 0;

	for (size_t i = 0; i < env->n_reasons; i++) {
		if (code && strcmp(env->reasons[i].code, code) != 0) {
			env->reasons[kept++] = env->reasons[i];
			continue;
		}
		env_reason_done(&env->reasons[i]);
	}
	env->n_reasons = kept;
}
