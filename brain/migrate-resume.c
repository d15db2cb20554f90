/* A move that limbd did not live to end: judged, and dropped, when the next one starts. */
#include "brain/migrate-impl.h"

#include "base/log.h"
#include "base/text.h"
#include "brain/link.h"

static bool was_handed_over(struct env *env)
{
	const char *mark = json_string_value(json_object_get(env->migration, "mark"));
	char text[2 * sizeof(env->mark) + 1];

	text_hex(text, env->mark, sizeof(env->mark));
	return mark && strcmp(mark, text) == 0;
}

void migrate_recover(struct env *env)
{
	struct env *guest = NULL;

	if (!env->migration || !was_handed_over(env))
		return;
	if (old_guest(env, json_object_get(env->migration, "to"), &guest) < 0)
		return;
	log_info("environment '%s' had moved when limbd ended", env->name);
	/* What env_resume() read is the new incarnation's; the swap must not take it away. */
	guest->incarnation = env->incarnation;
	guest->last_number = env->last_number;
	guest->unheld = env->unheld;
	guest->grant_first = env->grant_first;
	guest->grant_end = env->grant_end;
	guest->node_used = env->node_used;
	memcpy(guest->mark, env->mark, sizeof(guest->mark));
	(void)move_switch(env, guest);
	env->last_number = env->taken_number = guest->last_number;
	(void)env_save(env);
	guest_free(guest);
}

struct resumed {
	struct env *env, *guest;
	struct life *l, *gl;
};

static void resumed_stopped(struct life *gl, const struct provider_error *err)
{
	struct resumed *q = gl->extra;

	if (err)
		log_warning("environment '%s': the place it was about to move to: %s", q->env->name,
			    err->detail);
	life_done(q->gl, NULL);
	guest_free(q->guest);
	life_done(q->l, NULL); /* its line is tried now */
	free(q);
}

void migrate_resume(struct env *env)
{
	struct resumed *q;

	guest_remove_rest(env);
	if (!env->migration || env->busy)
		return;
	log_info("environment '%s' was about to move when limbd ended; it is where it was, go on "
		 "with: limb migrate %s --resume",
		 env->name, env->name);
	q = calloc(1, sizeof(*q));
	if (!q || old_guest(env, json_object_get(env->migration, "to"), &q->guest) < 0) {
		free(q);
		return;
	}
	q->env = env;
	q->l = life_new(env, NULL, "migrate");
	q->gl = life_new(q->guest, NULL, "migrate");
	if (!q->l || !q->gl)
		return;
	q->gl->extra = q;
	life_provider_stop(q->gl, "stop", resumed_stopped);
}
