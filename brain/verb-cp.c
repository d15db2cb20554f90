/*
 * cp: files into an environment (APPLY with bytes by PUSH), or out of its journal.
 *
 * Into: a helper thread reads the host's files a piece at a time and makes the
 * frames; one file is under way at a time, its answer awaited before the next.
 * Into one that is away, or behind what waits for it: cp-queue.c.
 * Out: after a barrier a helper thread writes what the journal has; nothing is
 * asked of the environment.  "-" is the client's stdin or stdout.
 */
#include "brain/cp-impl.h"

#include <sys/stat.h>

#include "base/text.h"
#include "brain/link.h"
#include "brain/point.h"
#include "brain/want.h"

static void pause_closed(uv_handle_t *h)
{
	free(container_of((uv_timer_t *)h, struct copy, pause));
}

static void copy_free(struct copy *c)
{
	if (c->into)
		c->env->applying[ORIGIN_BRAIN_]--;
	for (size_t i = 0; i < c->n_items; i++)
		free(c->items[i].path);
	free(c->items);
	if (c->fd >= 0)
		(void)close(c->fd);
	buf_done(&c->frames);
	cp_things_free(c);
	free(c->host);
	free(c->inner);
	if (c->pause_made)
		uv_close((uv_handle_t *)&c->pause, pause_closed);
	else
		free(c);
}

static void copy_detach(struct copy *c)
{
	c->call->op = NULL;
	c->call->on_stdin = NULL;
	c->call->on_drained = NULL;
}

void copy_fail(struct copy *c, int r, const char *what)
{
	copy_detach(c);
	call_fail(c->call, verb_code(r), c->env->name, NULL, "environment '%s': %s: %s",
		  c->env->name, c->problem[0] ? c->problem : what,
		  r == -ETIMEDOUT ? "no answer before its deadline" : strerror(-r));
	copy_free(c);
}

void copy_fail_inner(struct copy *c, int r)
{
	copy_detach(c);
	verb_fail_path(c->call, c->env, r, c->inner, "cannot be copied");
	copy_free(c);
}

void copy_problem(struct copy *c, const char *what, const char *path)
{
	char shown[256];

	(void)snprintf(c->problem, sizeof(c->problem), "cannot %s '%s'", what,
		       text_escape_into(shown, sizeof(shown), path, strlen(path)));
}

void copy_ok(struct copy *c, uint64_t seq)
{
	json_t *o = json_pack("{s:s, s:I, s:I, s:I}", "environment", c->env->name, "files",
			      (json_int_t)c->files, "bytes", (json_int_t)c->bytes, "seq",
			      (json_int_t)seq);

	if (c->unsynced)
		(void)json_object_set_new(o, "unsynced", json_true());
	if (c->changing)
		(void)json_object_set_new(o, "changing", json_integer((json_int_t)c->changing));
	copy_detach(c);
	call_ok(c->call, o);
	copy_free(c);
}

void copy_queued(struct copy *c, uint64_t seq)
{
	json_t *o = json_pack("{s:s, s:I, s:I, s:I, s:b}", "environment", c->env->name, "files",
			      (json_int_t)c->files, "bytes", (json_int_t)c->bytes, "seq",
			      (json_int_t)seq, "pending", 1);

	copy_detach(c);
	call_ok(c->call, o);
	copy_free(c);
}

char *cp_join(const char *a, const char *b)
{
	char *s;

	return asprintf(&s, "%s%s%s", a, *a && *b ? "/" : "", b) < 0 ? NULL : s;
}

/* DST that is a directory takes SRC under its own name. */
static int into_directory(char **dst, const char *src, bool is_dir)
{
	const char *base = strrchr(src, '/');
	char *joined;

	if (!is_dir)
		return 0;
	base = base ? base + 1 : src;
	joined = cp_join(*dst, base);
	if (!joined)
		return -ENOMEM;
	free(*dst);
	*dst = joined;
	return 0;
}

static bool inner_is_dir(struct env *env, const char *path)
{
	struct index_txn *t;
	struct index_node n;
	uint64_t node;
	bool dir = false;

	if (env_read_begin(env, &t) < 0)
		return false;
	if (index_lookup_path(t, path, strlen(path), INDEX_NOW, &node) == 0 &&
	    index_get_node(t, node, INDEX_NOW, &n) == 0)
		dir = n.n.type == NODE_TYPE_DIRECTORY;
	index_read_end(t);
	return dir;
}

static int copy_into(struct copy *c, const char *src)
{
	/* What waits already goes first. */
	bool queue = want_is_away(c->env) || !queue_is_empty(c->env);
	struct queue_entry e;
	int r = 0;

	c->from_stdin = strcmp(src, "-") == 0;
	if (!c->from_stdin)
		r = into_directory(&c->inner, c->host,
				   queue ? queue_seen(c->env, c->inner, &e, NULL) == 0 &&
						   e.n.type == NODE_TYPE_DIRECTORY
					 : inner_is_dir(c->env, c->inner));
	if (r < 0)
		return r;
	return queue ? cp_queue_begin(c) : cp_in_begin(c);
}

static int copy_out(struct copy *c, const char *dst)
{
	struct stat st;
	int r;

	c->to_stdout = strcmp(dst, "-") == 0;
	if (!c->to_stdout) {
		r = into_directory(&c->host, c->inner,
				   stat(c->host, &st) == 0 && S_ISDIR(st.st_mode));
		if (r < 0)
			return r;
	}
	cp_out_begin(c);
	return 0;
}

void verb_cp(struct call *call)
{
	const char *src = call_str(call, "src"), *dst = call_str(call, "dst"), *name, *colon;
	struct env *env = verb_env(call);
	struct copy *c;
	bool into;
	int r;

	if (!env)
		return;
	name = env->name;
	into = !src || strncmp(src, name, strlen(name)) != 0 || src[strlen(name)] != ':';
	if (!src || !dst ||
	    (into && (strncmp(dst, name, strlen(name)) != 0 || dst[strlen(name)] != ':'))) {
		call_fail(call, "usage", name, "limb help cp",
			  "cp wants SRC and NAME:PATH, or NAME[@POINT]:PATH and DST");
		return;
	}
	if (into && !link_up(env) && !want_is_away(env)) {
		(void)verb_live_env(call);
		return;
	}
	if (into && env->full) {
		verb_fail_full(call, env);
		return;
	}
	c = calloc(1, sizeof(*c));
	if (!c) {
		call_fail(call, "internal", name, NULL, "out of memory");
		return;
	}
	c->call = call;
	c->env = env;
	c->fd = -1;
	buf_init(&c->frames, 4 << 20);
	colon = into ? dst + strlen(name) + 1 : src + strlen(name) + 1;
	c->host = strdup(into ? src : dst);
	c->inner = verb_path(call, env, colon);
	if (!c->inner) {
		copy_free(c);
		return; /* answered */
	}
	if (!point_of_call(call, env, "point", &c->point)) {
		copy_free(c);
		return;
	}
	call->op = c;
	r = !c->host ? -ENOMEM : into ? copy_into(c, src) : copy_out(c, dst);
	if (r < 0)
		copy_fail(c, r, "cannot begin");
}
