/* up, status, ls, inspect: what is known, without asking anybody. */
#include <grp.h>
#include <pwd.h>
#include <stdio.h>

#include "base/clock.h"
#include "base/text.h"
#include "brain/env.h"
#include "brain/link.h"
#include "brain/past.h"
#include "brain/point.h"
#include "brain/quota.h"
#include "brain/resolve.h"
#include "brain/verb.h"
#include "brain/view.h"

enum { LS_MAX = 10000 };

static void set(json_t *o, const char *key, json_t *v)
{
	(void)json_object_set_new(o, key, v);
}

static json_t *number(uint64_t n)
{
	return json_integer((json_int_t)n);
}

struct env *verb_env(struct call *call)
{
	const char *name = call_str(call, "name");
	struct env *env = name ? env_find(call->brain, name) : NULL;

	if (!name)
		call_fail(call, "usage", NULL, "limb help", "the environment's name is missing");
	else if (!env)
		call_fail(call, "environment_not_found", name, "limb ls",
			  "there is no environment '%s'", name);
	return env;
}

/* Its journal is not to be had: no verb of limbd's can mend that. */
static void verb_failed(struct call *call, struct env *env)
{
	const char *code = env->n_reasons ? env->reasons[0].code : "unreadable";

	call_fail(call, "halted", env->name,
		  strcmp(code, "no_space") == 0 ? "limb doctor" : "limb journal verify NAME",
		  "environment '%s' is halted: %s", env->name,
		  env->n_reasons ? env->reasons[0].detail : "its journal cannot be opened");
}

void verb_fail_full(struct call *call, struct env *env)
{
	bool disk = env->quota == QUOTA_FINE;

	call_fail(call, "halted", env->name,
		  disk ? "free space on the disk of the state directory"
		       : "limb set NAME quota=BYTES",
		  disk ? "environment '%s' is halted: there is almost no space left for its journal"
		       : "environment '%s' is halted: its journal has what its quota allows",
		  env->name);
}

struct env *verb_live_env(struct call *call)
{
	struct env *env = verb_attached_env(call);

	if (!env || !env->full)
		return env;
	verb_fail_full(call, env);
	return NULL;
}

/* Since its last word; after a restart of limbd, since its journal's last record. */
static uint64_t known_age_ms(struct env *env)
{
	int64_t at_ns = 0, now_ns = clock_real_ns();
	_cleanup_(buf_done) struct buf body = BUF_INIT(RECORD_BODY_MAX);
	uint16_t type;

	if (env->last_word_ms)
		return clock_mono_ms() - env->last_word_ms;
	if (env->log_fd < 0 || log_read_one(env->log_fd, env_seq(env), &type, &at_ns, &body) < 0)
		return 0;
	return at_ns < now_ns ? (uint64_t)(now_ns - at_ns) / 1000000 : 0;
}

static void fail_away(struct call *call, struct env *env, const char *why)
{
	uint64_t age_ms = known_age_ms(env);

	call_fail_with(call, "env_unreachable", json_pack("{s:I}", "age_ms", (json_int_t)age_ms),
		       env->name, "limb status",
		       "environment '%s' is away: %s; what is known of it is %llu s old", env->name,
		       why, (unsigned long long)age_ms / 1000);
}

struct env *verb_attached_env(struct call *call)
{
	struct env *env = verb_env(call);
	const char *why;

	if (env && env->failed) {
		verb_failed(call, env);
		return NULL;
	}
	if (!env || link_up(env)) {
		if (env && env->halted) {
			why = env->n_reasons ? env->reasons[0].detail : "see limb status";
			call_fail(call, "halted", env->name, "limb rebuild NAME",
				  "environment '%s' is halted: %s", env->name, why);
			return NULL;
		}
		return env;
	}
	why = env->n_reasons ? env->reasons[0].detail : NULL;
	if (env->hostile)
		call_fail(call, "hostile", env->name, "limb start NAME",
			  "environment '%s' is cut off: %s", env->name,
			  why ? why : "it broke a rule");
	else if (env->halted)
		call_fail(call, "halted", env->name, "limb rebuild NAME",
			  "environment '%s' is halted: %s", env->name,
			  why ? why : "see limb status");
	else if (!env->wanted)
		call_fail(call, "not_running", env->name, "limb start NAME",
			  "environment '%s' is stopped; start it with: limb start %s", env->name,
			  env->name);
	else
		fail_away(call, env, why ? why : "its line is being made");
	return NULL;
}

const char *verb_code(int r)
{
	switch (-r) {
	case ENOENT: return "file_not_found";
	case ENOTDIR: return "not_directory";
	case EISDIR: return "is_directory";
	case EACCES:
	case EPERM:
	case EROFS: return "permission_denied";
	case ELOOP:
	case EXDEV:
	case EINVAL:
	case ENAMETOOLONG: return "invalid_path";
	case ENOSPC:
	case EDQUOT: return "no_space";
	case ETIMEDOUT: return "timed_out";
	case ENOTCONN: return "env_unreachable";
	case EEXIST:
	case ENOTEMPTY:
	case EBUSY: return "conflict";
	case E2BIG:
	case EFBIG: return "too_large";
	default: return "io_error";
	}
}

void verb_fail_errno(struct call *call, struct env *env, int r, const char *what)
{
	if (env->failed) {
		verb_failed(call, env);
		return;
	}
	if (r == -EDQUOT && env->full) {
		verb_fail_full(call, env);
		return;
	}
	call_fail(call, verb_code(r), env->name, "limb status", "environment '%s': %s: %s",
		  env->name, what,
		  r == -ETIMEDOUT ? "no answer before its deadline" : strerror(-r));
}

void verb_fail_path(struct call *call, struct env *env, int r, const char *path, const char *what)
{
	json_t *fields;
	char shown[512];

	if (env->failed) {
		verb_failed(call, env);
		return;
	}
	fields = json_object();
	verb_put_bytes(fields, "path", path, strlen(path));
	(void)text_escape_into(shown, sizeof(shown), path, strlen(path));
	if (r == -ENOENT || r == -ENOTDIR)
		call_fail_with(call, verb_code(r), fields, env->name,
			       "limb ls NAME:", "there is no '%s' in environment '%s'%s", shown,
			       env->name,
			       r == -ENOTDIR ? "; what is above it is no directory" : "");
	else
		call_fail_with(call, verb_code(r), fields, env->name,
			       r == -ETIMEDOUT ? "limb status" : "limb ls NAME:",
			       "environment '%s': '%s' %s: %s", env->name, shown, what,
			       r == -ETIMEDOUT ? "no answer before its deadline"
			       : r == -EXDEV   ? "a link on the way leads out of the root"
					       : strerror(-r));
}

char *verb_path(struct call *call, struct env *env, const char *path)
{
	size_t root = env->root ? strlen(env->root) : 0, n = 0;
	const char *given = path;
	char *out, shown[512];

	if (path[0] == '/') {
		if (!root || strncmp(path, env->root, root) != 0 ||
		    (path[root] && path[root] != '/')) {
			call_fail(call, "invalid_path", env->name, "give it relative to the root",
				  "the path '%s' lies outside the root '%s' of environment '%s'",
				  text_escape_into(shown, sizeof(shown), given, strlen(given)),
				  env->root ? env->root : "", env->name);
			return NULL;
		}
		path += root;
	}
	out = calloc(1, strlen(path) + 1);
	if (!out) {
		call_fail(call, "internal", env->name, NULL, "out of memory");
		return NULL;
	}
	while (*path) {
		size_t len = strcspn(path, "/");

		if (len == 2 && memcmp(path, "..", 2) == 0) {
			if (n == 0) {
				free(out);
				call_fail(call, "invalid_path", env->name,
					  "give it relative to the root",
					  "the path '%s' leaves the root of environment '%s' by "
					  "'..'",
					  text_escape_into(shown, sizeof(shown), given,
							   strlen(given)),
					  env->name);
				return NULL;
			}
			while (n && out[n - 1] != '/')
				n--;
			n -= n > 0;
		} else if (len && !(len == 1 && *path == '.')) {
			if (n)
				out[n++] = '/';
			memcpy(out + n, path, len);
			n += len;
		}
		path += len;
		path += *path == '/';
	}
	out[n] = 0;
	return out;
}

struct up {
	struct call *call;
	unsigned pending;
};

static void up_answer(struct up *up)
{
	struct brain *b = up->call->brain;

	if (--up->pending)
		return;
	call_ok(up->call, json_pack("{s:s, s:s, s:s, s:s, s:i}", "version", PACKAGE_VERSION,
				    "state_dir", b->state_dir, "socket", b->socket_path, "mount",
				    b->mount_dir, "limbd_pid", (int)getpid()));
	free(up);
}

static void up_past_mounted(void *userdata)
{
	up_answer(userdata);
}

static void up_view_seen(struct env *env, bool behind, void *userdata)
{
	(void)env;
	(void)behind;
	up_answer(userdata);
}

/* What is said to be up can be looked at: nothing that a killed limb-fs left is there still. */
void verb_up(struct call *call)
{
	struct brain *b = call->brain;
	struct up *up = calloc(1, sizeof(*up));

	if (!up) {
		call_fail(call, "internal", NULL, NULL, "out of memory");
		return;
	}
	*up = (struct up){.call = call, .pending = 1};
	for (struct env *env = b->envs; env; env = env->next) {
		up->pending++;
		view_wait_connected(env, up_view_seen, up);
	}
	past_wait(b, up_past_mounted, up);
}

static uint64_t own_anon_bytes(void)
{
	FILE *f = fopen("/proc/self/status", "re");
	unsigned long long kb = 0;
	char line[128];

	if (!f)
		return 0;
	while (fgets(line, sizeof(line), f))
		if (sscanf(line, "RssAnon: %llu kB", &kb) == 1)
			break;
	(void)fclose(f);
	return (uint64_t)kb * 1024;
}

void verb_status(struct call *call)
{
	struct brain *b = call->brain;
	const char *name = call_str(call, "name");
	json_t *list = json_array(), *o = json_object();
	char when[CLOCK_TEXT_MAX];
	bool ok = true;

	if (name && !env_find(b, name)) {
		json_decref(list);
		json_decref(o);
		(void)verb_env(call);
		return;
	}
	for (struct env *env = b->envs; env; env = env->next) {
		enum env_state s = env_state(env);

		if (name && strcmp(name, env->name) != 0)
			continue;
		if (s != ENV_LIVE && s != ENV_PAUSED && s != ENV_STOPPED)
			ok = false;
		(void)json_array_append_new(list, env_json_status(env));
	}
	set(o, "version", json_string(PACKAGE_VERSION));
	set(o, "ok", json_boolean(ok));
	set(o, "limbd",
	    json_pack("{s:i, s:s, s:I}", "pid", (int)getpid(), "started_at",
		      clock_format(when, b->started_ns), "memory_bytes",
		      (json_int_t)own_anon_bytes()));
	set(o, "mount", json_pack("{s:s}", "path", b->mount_dir));
	set(o, "environments", list);
	call_ok(call, o);
}

void verb_inspect(struct call *call)
{
	struct env *env = verb_env(call);

	if (env)
		call_ok(call, env_json_inspect(env));
}

/* ---- ls ---- */

static void ls_environments(struct call *call)
{
	json_t *list = json_array();
	uint64_t now = clock_mono_ms();

	for (struct env *env = call->brain->envs; env; env = env->next)
		(void)json_array_append_new(
			list,
			json_pack("{s:s, s:s, s:s, s:I, s:I, s:I, s:s, s:o}", "environment",
				  env->name, "provider", env->provider, "state",
				  env_state_name(env_state(env)), "incarnation",
				  (json_int_t)env->incarnation, "seq", (json_int_t)env_seq(env),
				  "age_ms",
				  (json_int_t)(env->last_word_ms ? now - env->last_word_ms : 0),
				  "root", env->root ? env->root : "", "view",
				  json_sprintf("%s/%s", call->brain->mount_dir, env->name)));
	call_ok(call, json_pack("{s:o}", "environments", list));
}

void verb_put_bytes(json_t *o, const char *key, const void *data, size_t n)
{
	_cleanup_(buf_done) struct buf b = BUF_INIT(0);
	char key64[64];

	if (n == 0 || text_utf8_ok(data, n)) {
		set(o, key, json_stringn(n ? data : "", n));
		return;
	}
	if (text_utf8_replace(&b, data, n) == 0)
		set(o, key, json_stringn((const char *)buf_data(&b), buf_len(&b)));
	buf_clear(&b);
	(void)snprintf(key64, sizeof(key64), "%s_base64", key);
	if (text_base64(&b, data, n) == 0)
		set(o, key64, json_stringn((const char *)buf_data(&b), buf_len(&b)));
}

static uint32_t owner_number(struct env *env, uint8_t kind, uint32_t raw, bool group)
{
	if (kind == NODE_OWNER_SELF)
		return group ? env->self_gid : env->self_uid;
	return kind == NODE_OWNER_ROOT ? 0 : raw;
}

void verb_put_hash(json_t *o, const char *key, const uint8_t sha256[SHA256_BYTES])
{
	char hash[8 + 2 * SHA256_BYTES];

	memcpy(hash, "sha256:", 7);
	text_hex(hash + 7, sha256, SHA256_BYTES);
	set(o, key, json_string(hash));
}

json_t *verb_entry_json(struct env *env, const char *dir, const char *name, size_t len,
			const struct index_node *n)
{
	_cleanup_(buf_done) struct buf path = BUF_INIT(0);
	char text[CLOCK_TEXT_MAX];
	uint32_t uid = owner_number(env, n->n.uid_kind, n->n.uid, false);
	uint32_t gid = owner_number(env, n->n.gid_kind, n->n.gid, true);
	json_t *o = json_object();

	(void)buf_add_str(&path, dir);
	if (*dir && len)
		(void)buf_add_u8(&path, '/');
	(void)buf_add(&path, name, len);
	verb_put_bytes(o, "name", name, len);
	verb_put_bytes(o, "path", buf_data(&path), buf_len(&path));
	set(o, "type", json_string(node_type_name(n->n.type)));
	set(o, "size_bytes",
	    number(n->n.type == NODE_TYPE_SYMLINK ? n->n.target_len : n->n.content.size_bytes));
	set(o, "mode", json_sprintf("%04o", n->n.mode));
	set(o, "uid", number(uid));
	set(o, "gid", number(gid));
	set(o, "owner",
	    n->n.uid_kind == NODE_OWNER_SELF ? json_string("self")
	    : uid == 0			     ? json_string("root")
					     : json_sprintf("%u", uid));
	set(o, "group",
	    n->n.gid_kind == NODE_OWNER_SELF ? json_string("self")
	    : gid == 0			     ? json_string("root")
					     : json_sprintf("%u", gid));
	set(o, "modified_at", json_string(clock_format(text, n->n.mtime_ns)));
	set(o, "inode", number(n->n.inode));
	set(o, "links", number(n->links));
	if (n->n.type == NODE_TYPE_FILE)
		verb_put_hash(o, "sha256", n->n.content.sha256);
	if (n->n.type == NODE_TYPE_SYMLINK)
		verb_put_bytes(o, "symlink_target", n->n.target, n->n.target_len);
	return o;
}

struct lister {
	struct env *env;
	struct index_txn *t;
	const char *dir;
	uint64_t at;
	json_t *entries;
	uint64_t total, limit;
};

static int ls_entry(const char *name, size_t len, uint64_t node, void *userdata)
{
	struct lister *l = userdata;
	struct index_node n;

	l->total++;
	if (l->total <= l->limit && index_get_node(l->t, node, l->at, &n) == 0)
		(void)json_array_append_new(l->entries,
					    verb_entry_json(l->env, l->dir, name, len, &n));
	return 0;
}

static void ls_path(struct call *call, struct env *env, const char *path, uint64_t at)
{
	_cleanup_(buf_done) struct buf resolved = BUF_INIT(INDEX_PATH_MAX);
	struct lister l = {.env = env, .at = at, .entries = json_array()};
	cleanup_free char *whole = NULL;
	struct index_node n;
	const char *name;
	uint64_t node = 0;
	json_t *o;
	int r;

	l.limit = (uint64_t)MIN(MAX((int64_t)1, call_int(call, "limit", LS_MAX)), (int64_t)LS_MAX);
	r = env_read_begin(env, &l.t);
	if (r == 0) {
		r = resolve_path(env->root ? env->root : "", l.t, at, path,
				 call_bool(call, "follow"), &resolved, &node);
		if (r == 0)
			r = node ? buf_to_str(&resolved, &whole) : -ENOENT;
		path = l.dir = whole ? whole : path;
		if (r == 0)
			r = index_get_node(l.t, node, at, &n);
		if (r == 0 && n.n.type == NODE_TYPE_DIRECTORY) {
			r = index_list(l.t, node, NULL, 0, at, ls_entry, &l);
		} else if (r == 0) {
			char dir[4097];

			name = strrchr(path, '/');
			name = name ? name + 1 : path;
			(void)snprintf(dir, sizeof(dir), "%.*s",
				       (int)MAX((ptrdiff_t)0, name - path - 1), path);
			l.total = 1;
			(void)json_array_append_new(
				l.entries, verb_entry_json(env, dir, name, strlen(name), &n));
		}
		index_read_end(l.t);
	}
	if (r < 0) {
		json_decref(l.entries);
		verb_fail_path(call, env, r, path, "cannot be listed");
		return;
	}
	o = json_object();
	set(o, "environment", json_string(env->name));
	set(o, "seq", number(at == INDEX_NOW ? env_seq(env) : at));
	verb_put_bytes(o, "path", path, strlen(path));
	set(o, "entries", l.entries);
	set(o, "truncated", json_boolean(l.total > l.limit));
	set(o, "total", number(l.total));
	call_ok(call, o);
}

void verb_ls(struct call *call)
{
	cleanup_free char *path = NULL;
	struct env *env;
	uint64_t at;

	if (!call_str(call, "name")) {
		ls_environments(call);
		return;
	}
	env = verb_env(call);
	if (!env)
		return;
	if (!point_of_call(call, env, "point", &at))
		return;
	path = verb_path(call, env, call_str(call, "path") ? call_str(call, "path") : "");
	if (path)
		ls_path(call, env, path, at);
}
