#include "brain/quota.h"

#include <sys/statvfs.h>

#include "base/log.h"
#include "brain/link.h"
#include "brain/queue.h"
#include "wire/wire.pb-c.h"

enum {
	RESERVE_PART = 16,
	RESERVE_MIN = 256 << 10,
	RESERVE_MAX = 64 << 20,
	FLOOR_MAX = 64 << 20, /* of the disk, and as little as ... */
	FLOOR_PART = 16,
	/* What was sent before the word reached it: queues on both sides, and a pack's worth. */
	AFTER_MAX = 128 << 20,
	DISK_MS = 2000,
	SWEEP_MAX_S = 30 * 86400,
};

/* ---- arithmetic ---- */

uint64_t quota_reserve(uint64_t limit)
{
	return MIN(MAX(limit / RESERVE_PART, (uint64_t)RESERVE_MIN), (uint64_t)RESERVE_MAX);
}

enum quota_verdict quota_judge(uint64_t limit, uint64_t used, uint64_t since_full)
{
	if (!limit || used <= limit)
		return QUOTA_FINE;
	return since_full <= quota_reserve(limit) ? QUOTA_FULL : QUOTA_SPENT;
}

bool quota_disk_is_full(uint64_t free_bytes, uint64_t total_bytes, bool full)
{
	uint64_t low = MIN((uint64_t)FLOOR_MAX, total_bytes / FLOOR_PART);

	/* Twice as much ends it, else it would begin anew with the first file. */
	return free_bytes < (full ? 2 * low : low);
}

/* ---- the spec ---- */

static uint64_t setting(const json_t *spec, const char *key)
{
	return (uint64_t)json_integer_value(json_object_get(spec, key));
}

const char *quota_judge_spec(const json_t *spec)
{
	static const struct {
		const char *key, *why;
		json_int_t max;
	} settings[] = {
		{"quota_bytes", "the spec's `quota_bytes` is a number of bytes; 0 is no limit",
		 (json_int_t)1 << 53},
		{"rate_bytes", "the spec's `rate_bytes` is bytes a second; 0 is no limit",
		 (json_int_t)1 << 53},
		{"sweep_s", "the spec's `sweep_s` is 1 to 2592000 seconds; 0 is the default",
		 SWEEP_MAX_S},
	};

	for (size_t i = 0; i < ARRAY_SIZE(settings); i++) {
		const json_t *v = json_object_get(spec, settings[i].key);

		if (v && !(json_is_integer(v) && json_integer_value(v) >= 0 &&
			   json_integer_value(v) <= settings[i].max))
			return settings[i].why;
	}
	return NULL;
}

/* ---- an environment ---- */

uint64_t quota_used(const struct env *env)
{
	return (env->log ? log_bytes(env->log) : 0) + env->content_bytes;
}

void quota_say(struct env *env)
{
	Limbwire__Settings m = LIMBWIRE__SETTINGS__INIT;

	if (!link_up(env) || !env->settings)
		return;
	m.sweep_period_s = (uint32_t)setting(env->spec, "sweep_s");
	m.rate_bytes = setting(env->spec, "rate_bytes");
	m.full = env->full;
	(void)link_send(env, WIRE_SETTINGS, &m.base, NULL, 0);
}

static void disk_tick(uv_timer_t *t);

/* Looked at after each round, and while there is too little. */
static bool disk_is_full(struct brain *b)
{
	struct statvfs st;
	bool full;

	if (fstatvfs(b->state_fd, &st) < 0)
		return b->disk_full;
	full = quota_disk_is_full((uint64_t)st.f_bavail * st.f_frsize,
				  (uint64_t)st.f_blocks * st.f_frsize, b->disk_full);
	if (full && !uv_is_active((uv_handle_t *)&b->disk_timer))
		(void)uv_timer_start(&b->disk_timer, disk_tick, DISK_MS, DISK_MS);
	b->disk_full = full;
	return full;
}

/* The count outlives limbd; after its death it may lack what came since it was saved. */
static void save_count(struct env *env, uint64_t limit)
{
	uint64_t step = limit ? MAX(limit / 64, (uint64_t)64 << 10) : 64 << 20;

	if (env->content_bytes - env->content_saved < MIN(step, (uint64_t)64 << 20))
		return;
	(void)env_save(env);
}

static void reason(struct env *env, uint64_t limit)
{
	if (env->quota == QUOTA_FINE)
		env_clear_reason(env, "journal_quota");
	else if (!env_has_reason(env, "journal_quota"))
		(void)env_set_reason(
			env, "journal_quota",
			"its journal has %llu bytes and may have %llu: no change is captured until "
			"it may have more; what it has is kept",
			(unsigned long long)quota_used(env), (unsigned long long)limit);
	if (env->failed)
		return; /* the reason is that of a round that failed */
	if (!env->brain->disk_full)
		env_clear_reason(env, "no_space");
	else if (!env_has_reason(env, "no_space"))
		(void)env_set_reason(env, "no_space",
				     "the disk of '%s' is almost full: no change is captured until "
				     "there is room again; what the journal has is kept",
				     env->brain->state_dir);
}

/* Where the reserve begins, also for the next limbd. */
static void remember(struct env *env)
{
	bool above = env->quota != QUOTA_FINE;

	if (above == (env->full_at != 0))
		return;
	env->full_at = above ? log_bytes(env->log) : 0;
	(void)env_save(env);
}

void quota_look(struct env *env)
{
	uint64_t limit = setting(env->spec, "quota_bytes"), since = 0;
	bool full;

	if (!env->log || env->guest_of)
		return;
	if (env->full_at && log_bytes(env->log) > env->full_at)
		since = log_bytes(env->log) - env->full_at;
	env->quota = quota_judge(limit, quota_used(env), since);
	remember(env);
	full = disk_is_full(env->brain) || env->quota != QUOTA_FINE;
	reason(env, limit);
	save_count(env, limit);
	if (full == env->full)
		return;
	env->full = full;
	env->full_bytes = 0;
	log_info("environment '%s': %s", env->name,
		 full ? "full; no change is captured" : "there is room again");
	quota_say(env);
	if (!full)
		queue_kick(env);
}

int quota_took(struct env *env, uint64_t bytes)
{
	if (!env->full)
		return 0;
	env->full_bytes += bytes;
	if (env->full_bytes <= AFTER_MAX)
		return 0;
	env_lied(env, "more, long after it was told that its journal is full");
	return -EPROTO;
}

static void disk_tick(uv_timer_t *t)
{
	struct brain *b = t->data;

	for (struct env *env = b->envs; env; env = env->next)
		quota_look(env);
	if (!b->disk_full)
		(void)uv_timer_stop(t);
}

void quota_start(struct brain *b)
{
	(void)uv_timer_init(b->loop, &b->disk_timer);
	b->disk_timer.data = b;
	uv_unref((uv_handle_t *)&b->disk_timer);
}
