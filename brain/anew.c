#include "brain/anew.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/statvfs.h>

#include "base/backoff.h"
#include "base/clock.h"
#include "base/log.h"
#include "brain/env.h"
#include "brain/quota.h"

enum {
	FIRST_MS = 2000,
	MAX_MS = 300 * 1000,
	STEADY_MS = 600 * 1000, /* so long without a failure: the next one is a first one */
};

static unsigned count; /* limbds before this one that began anew in a row */
static uint64_t began_ms;

/* Twice what quota.h calls full: it shall not fail again at once. */
static bool has_room(const struct brain *b)
{
	struct statvfs st;

	return fstatvfs(b->state_fd, &st) == 0 &&
	       !quota_disk_is_full((uint64_t)st.f_bavail * st.f_frsize,
				   (uint64_t)st.f_blocks * st.f_frsize, true);
}

/* What a person has begun comes to its end first. */
static bool busy(const struct brain *b)
{
	for (const struct env *env = b->envs; env; env = env->next)
		if (env->busy || env->life || env->restore)
			return true;
	return false;
}

static void tick(uv_timer_t *t)
{
	struct brain *b = t->data;

	if (b->stopping || busy(b) || !has_room(b))
		return;
	(void)uv_timer_stop(t);
	log_info("there is space again: limbd begins anew");
	b->anew = true;
	b->stopped(b);
}

static uint64_t first_ms(void)
{
	const char *text = getenv("LIMB_ANEW_MS");
	unsigned long ms = text ? strtoul(text, NULL, 10) : 0;

	return ms > 0 ? ms : FIRST_MS;
}

void anew_want(struct brain *b)
{
	uint64_t ms;

	if (b->stopping || uv_is_active((uv_handle_t *)&b->anew_timer))
		return;
	if (clock_mono_ms() - began_ms > STEADY_MS)
		count = 0;
	ms = backoff_ms(count, first_ms(), MAX_MS);
	(void)uv_timer_start(&b->anew_timer, tick, ms, first_ms());
}

void anew_start(struct brain *b)
{
	const char *text = getenv("LIMBD_ANEW");

	count = text ? (unsigned)strtoul(text, NULL, 10) : 0;
	(void)unsetenv("LIMBD_ANEW"); /* of nobody else */
	began_ms = clock_mono_ms();
	(void)uv_timer_init(b->loop, &b->anew_timer);
	b->anew_timer.data = b;
	uv_unref((uv_handle_t *)&b->anew_timer);
	for (const struct env *env = b->envs; env; env = env->next) {
		if (env->failed && env_has_reason(env, "no_space")) {
			anew_want(b);
			return;
		}
	}
}

void anew_exec(const struct brain *b, char **argv)
{
	char text[16];

	if (!b->anew)
		return;
	(void)snprintf(text, sizeof(text), "%u", count < 100 ? count + 1 : count);
	(void)setenv("LIMBD_ANEW", text, 1);
	(void)umask(b->umask);
	(void)execv("/proc/self/exe", argv);
	(void)log_error_errno(-errno, "cannot begin anew; run: limb up");
}
