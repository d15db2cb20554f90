#include "brain/warned.h"

#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/obeyed.h"
#include "base/text.h"
#include "brain/job.h"

/* One that is known, made the newest of its path; NULL: it is not known. */
static json_t *known(struct env *env, const struct buf *path)
{
	_cleanup_(buf_done) struct buf text = BUF_INIT(0);
	const char *there;
	json_t *w;
	size_t i;

	if (text_utf8_replace(&text, buf_data(path), buf_len(path)) < 0 ||
	    buf_add(&text, "", 1) < 0)
		return NULL;
	json_array_foreach(env->warned, i, w)
	{
		there = json_string_value(json_object_get(w, "path"));
		if (there && strcmp(there, (const char *)buf_data(&text)) == 0)
			return w;
	}
	return NULL;
}

static void warn(struct env *env, const struct buf *path, const char *by, uint64_t seq)
{
	json_t *w = known(env, path);
	char when[CLOCK_TEXT_MAX], shown[200];
	bool fresh = !w;

	if (fresh && json_array_size(env->warned) >= WARNED_MAX)
		return;
	if (fresh) {
		w = json_object();
		if (!env->warned)
			env->warned = json_array();
		job_put_text(w, "path", buf_data(path), buf_len(path));
		if (json_array_append_new(env->warned, w) < 0)
			return;
		log_info("environment '%s': it changed '%s', which %s obeys in its view", env->name,
			 text_escape_into(shown, sizeof(shown), buf_data(path), buf_len(path)), by);
	}
	(void)json_object_set_new(w, "by", json_string(by));
	(void)json_object_set_new(w, "seq", json_integer((json_int_t)seq));
	(void)json_object_set_new(w, "at", json_string(clock_format(when, clock_real_ns())));
	/* A newer change of one that is known only moves its numbers: not worth a write of env.json. */
	if (fresh)
		(void)env_save(env);
}

void warned_look(struct env *env, const struct change *c, uint64_t seq)
{
	struct index_txn *t = index_writer_txn(env->index);

	if (!env->work_mode || !env->first_sync_done || c->origin != ORIGIN_ENVIRONMENT_ || !t)
		return;
	for (size_t i = 0; i < c->n_ops; i++) {
		const struct change_op *op = &c->ops[i];
		_cleanup_(buf_done) struct buf path = BUF_INIT(0);
		struct index_node n;
		const char *by;

		/* A directory that is made is empty: it is warned of what comes into it. */
		if (op->kind == CHANGE_UNLINK || index_get_node(t, op->node, INDEX_NOW, &n) < 0 ||
		    (op->kind != CHANGE_MOVE && n.n.type == NODE_TYPE_DIRECTORY) ||
		    index_path(t, op->node, &path) < 0)
			continue;
		by = obeyed_by((const char *)buf_data(&path), buf_len(&path));
		if (by)
			warn(env, &path, by, seq);
	}
}

void warned_clear(struct env *env)
{
	json_decref(env->warned);
	env->warned = NULL;
}
