#include "brain/file-impl.h"

#include <stdio.h>

#include "base/text.h"
#include "brain/point.h"
#include "brain/resolve.h"

static void file_call_free(struct file_call *f)
{
	if (f->done)
		f->done(f);
	json_decref(f->result);
	free(f->path);
	free(f->root);
	free(f);
}

struct file_call *file_call_new(struct call *call, int (*run)(struct file_call *f))
{
	struct env *env = verb_env(call);
	const char *path;
	struct file_call *f;
	uint64_t at;

	if (!env || !point_of_call(call, env, "point", &at))
		return NULL;
	path = call_str(call, "path");
	if (!path && json_object_get(call->params, "path")) {
		call_fail(call, "invalid_path", env->name, NULL,
			  "the path is no text, or holds a NUL byte");
		return NULL;
	}
	f = calloc(1, sizeof(*f));
	if (!f) {
		call_fail(call, "internal", env->name, NULL, "out of memory");
		return NULL;
	}
	f->root = strdup(env->root ? env->root : "");
	f->path = f->root ? verb_path(call, env, path ? path : "") : NULL;
	if (!f->path) {
		if (!f->root)
			call_fail(call, "internal", env->name, NULL, "out of memory");
		free(f->root);
		free(f);
		return NULL;
	}
	f->call = call;
	f->env = env;
	f->at = at;
	f->run = run;
	return f;
}

/* Commits and transports have the same helper threads: files never take them all. */
enum { WORKING_MAX = 8 };

static struct file_call *waiting; /* in order of arrival */
static unsigned working;

static void work(uv_work_t *w)
{
	struct file_call *f = container_of(w, struct file_call, work);
	int r = f->run(f);

	f->work.data = (void *)(intptr_t)r;
}

static void work_next(void);

static void worked(uv_work_t *w, int status)
{
	struct file_call *f = container_of(w, struct file_call, work);
	int r = (int)(intptr_t)f->work.data;

	(void)status;
	f->env->threads--;
	working--;
	work_next();
	if (f->then)
		f->then(f, r);
	else if (r < 0)
		file_call_fail(f, r);
	else
		file_call_ok(f);
}

static void work_next(void)
{
	while (waiting && working < WORKING_MAX) {
		struct file_call *f = waiting;
		int r;

		waiting = f->next;
		r = uv_queue_work(f->env->brain->loop, &f->work, work, worked);
		if (r < 0) {
			f->env->threads--;
			file_call_fail(f, r);
		} else {
			working++;
		}
	}
}

void file_call_go(struct file_call *f)
{
	struct file_call **p = &waiting;

	f->env->threads++;
	f->next = NULL;
	while (*p)
		p = &(*p)->next;
	*p = f;
	work_next();
}

static const char *sentence(int r)
{
	switch (-r) {
	case ENOENT: return "there is no such file";
	case EXDEV: return "a link on the way leads out of the root";
	case ELOOP: return "there are too many links on the way, or one that was just made";
	case EISDIR: return "it is a directory";
	case ENOTDIR: return "what should be a directory is none";
	case EINVAL: return "it is neither file nor directory";
	case ESTALE: return "the file was changed meanwhile";
	case ETIMEDOUT: return "no answer before its deadline";
	case EFBIG: return "it is too large for one call";
	default: return strerror(-r);
	}
}

void file_call_fail(struct file_call *f, int r)
{
	const char *code = f->code ? f->code : r == -ESTALE ? "conflict" : verb_code(r);
	json_t *fields;
	char shown[300];

	if (f->env->failed) {
		verb_fail_errno(f->call, f->env, r, "");
		file_call_free(f);
		return;
	}
	fields = json_object();
	verb_put_bytes(fields, "path", f->path, strlen(f->path));
	call_fail_with(f->call, code, fields, f->env->name,
		       r == -ENOENT   ? "list the directory, and look at the spelling"
		       : r == -ESTALE ? "read the file again, then repeat the change"
				      : NULL,
		       "'%s' in environment '%s': %s",
		       text_escape_into(shown, sizeof(shown), f->path, strlen(f->path)),
		       f->env->name, f->problem[0] ? f->problem : sentence(r));
	file_call_free(f);
}

void file_call_ok(struct file_call *f)
{
	call_ok(f->call, take_ptr(&f->result));
	file_call_free(f);
}

int file_find(struct file_call *f, struct index_txn *t, bool follow, struct buf *path,
	      struct index_node *ret)
{
	uint64_t node = 0;
	int r = resolve_path(f->root, t, f->at, f->path, follow, path, &node);

	if (r == 0 && !node)
		r = -ENOENT;
	return r < 0 ? r : index_get_node(t, node, f->at, ret);
}

json_t *file_answer(struct file_call *f, struct index_txn *t, const struct buf *path)
{
	json_t *o = json_pack("{s:s, s:I}", "environment", f->env->name, "seq",
			      (json_int_t)(f->at == INDEX_NOW ? index_seq(t) : f->at));

	verb_put_bytes(o, "path", buf_data(path), buf_len(path));
	return o;
}
