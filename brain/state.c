#include "brain/state.h"

#include <fcntl.h>
#include <sys/stat.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "base/sha256.h"
#include "base/text.h"
#include "brain/env.h"
#include "journal/record.pb-c.h"

static int say(char **ret_why, int r, const char *fmt, ...) _printf_(3, 4);
static int say(char **ret_why, int r, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	if (vasprintf(ret_why, fmt, ap) < 0)
		*ret_why = NULL;
	va_end(ap);
	return r;
}

/* In a build tree each program lies in the directory of its library. */
static const char *build_dir_of(const char *name)
{
	static const struct {
		const char *name, *dir;
	} dirs[] = {
		{"limb-copy", "bridge/"},     {"limb-fs", "fs/"},	{"limb-ingest", "brain/"},
		{"limb-journal", "journal/"}, {"limb-syncd", "syncd/"},
	};

	for (size_t i = 0; i < ARRAY_SIZE(dirs); i++)
		if (strcmp(dirs[i].name, name) == 0)
			return dirs[i].dir;
	return ""; /* providers/NAME has its directory in its name */
}

char *brain_helper(const struct brain *b, const char *name)
{
	char *path;

	return asprintf(&path, "%s/%s%s", b->helper_dir, b->in_build_tree ? build_dir_of(name) : "",
			name) < 0
		       ? NULL
		       : path;
}

static const char *why_not(int r)
{
	return r == -EBADMSG ? "it is damaged" : strerror(-r);
}

static const char *remedy(int r)
{
	switch (-r) {
	case ENOSPC:
	case EDQUOT: return "free space there, or choose another with --state";
	case EACCES:
	case EPERM:
	case EROFS: return "have it made writable, or choose another with --state";
	default: return "put a copy of it back, or choose another with --state";
	}
}

/* The brain's id and term: a file that is made once; the term is raised by hand-over only. */
static int load_identity(struct brain *b, int brain_fd)
{
	_cleanup_(buf_done) struct buf buf = BUF_INIT(64);
	int r;

	r = file_read(brain_fd, "id", &buf);
	if (r == 0 && buf_len(&buf) == 24) {
		memcpy(b->id, buf_data(&buf), 16);
		b->term = get_le64(buf_data(&buf) + 16);
		return 0;
	}
	if (r != -ENOENT)
		return r < 0 ? r : -EBADMSG;
	uint8_t bytes[24];

	random_bytes(bytes, 16);
	put_le64(bytes + 16, 1);
	r = file_replace(brain_fd, "id", bytes, sizeof(bytes));
	memcpy(b->id, bytes, 16);
	b->term = 1;
	return r;
}

/* ---- the registry: ENVIRONMENT records of the brain's log ---- */

struct listed {
	uint8_t id[16];
	char name[80];
	bool kept; /* removed, but for its journal */
};

struct listing {
	struct listed *envs;
	size_t n;
};

static int listing_apply(struct listing *l, const Limb__EnvironmentEvent *e)
{
	bool kept = e->keep_journal || strcmp(e->what, "kept") == 0;
	size_t i = 0;

	if (e->id.len != 16 || strlen(e->name) >= sizeof(l->envs[0].name))
		return -EBADMSG;
	while (i < l->n && memcmp(l->envs[i].id, e->id.data, 16) != 0)
		i++;
	if (kept || strcmp(e->what, "removed") == 0) {
		if (i < l->n && kept)
			l->envs[i].kept = true;
		else if (i < l->n)
			l->envs[i] = l->envs[--l->n];
		return 0;
	}
	if (i == l->n) {
		struct listed *p = reallocarray(l->envs, l->n + 1, sizeof(*p));

		if (!p)
			return -ENOMEM;
		l->envs = p;
		l->envs[l->n++].kept = false;
	}
	memcpy(l->envs[i].id, e->id.data, 16);
	(void)snprintf(l->envs[i].name, sizeof(l->envs[i].name), "%s", e->name);
	return 0;
}

static int listing_read(int log_fd, struct listing *l)
{
	_cleanup_(log_reader_freep) struct log_reader *rd = NULL;
	struct log_record rec;
	int r;

	r = log_reader_open(log_fd, 0, &rd);
	if (r < 0)
		return r;
	while ((r = log_reader_next(rd, &rec)) > 0) {
		Limb__Record *m;

		if (rec.type != RECORD_ENVIRONMENT || !rec.body)
			continue;
		m = limb__record__unpack(NULL, rec.n, rec.body);
		r = m && m->body_case == LIMB__RECORD__BODY_ENVIRONMENT
			    ? listing_apply(l, m->environment)
			    : -EBADMSG;
		if (m)
			limb__record__free_unpacked(m, NULL);
		if (r < 0)
			return r;
	}
	return r;
}

/* Directories of environments that were never recorded, or are removed: what a crash left. Of
 * those whose journal was kept they stay. */
static void sweep_envs(struct brain *b, const struct listing *l)
{
	char **names;
	size_t n;

	if (file_list(b->envs_fd, ".", 1 << 20, &names, &n) < 0)
		return;
	for (size_t i = 0; i < n; i++) {
		char hex[33];
		bool found = false;

		for (size_t k = 0; k < l->n && !found; k++) {
			text_hex(hex, l->envs[k].id, 16);
			found = strcmp(hex, names[i]) == 0;
		}
		if (!found)
			(void)file_remove_tree(b->envs_fd, names[i]);
	}
	file_names_free(names, n);
}

static int load_envs(struct brain *b, int log_fd)
{
	struct listing l = {0};
	int r;

	r = listing_read(log_fd, &l);
	if (r < 0)
		goto out;
	sweep_envs(b, &l);
	for (size_t i = 0; i < l.n; i++) {
		struct env *env;
		int q;

		if (l.envs[i].kept)
			continue;
		q = env_load(b, l.envs[i].id, l.envs[i].name, &env);

		if (q < 0) {
			(void)log_error_errno(
				q,
				"environment '%s' cannot be read; its files are left as they are",
				l.envs[i].name);
			if (env_new_unread(b, l.envs[i].id, l.envs[i].name, &env) < 0)
				continue;
			(void)env_set_reason(env, "unreadable",
					     "'%s/env.json' cannot be read: %s; put a copy of it "
					     "back, then run: limb down && limb up",
					     env->dir, why_not(q));
			env_link_in(env);
			continue;
		}
		q = env_open(env, true);
		if (q == 0)
			q = env_resume(env);
		if (q < 0) {
			/* Listed, halted, and left as it is until a person has looked at it. */
			(void)log_error_errno(q, "environment '%s': its journal cannot be opened",
					      env->name);
			env_close(env);
			env->failed = true;
			env->wanted = false;
			if (q == -ENOSPC || q == -EDQUOT) {
				/* What its index has can be read all the same. */
				(void)index_open(env->dir_fd, INDEX_READ, -1, NULL, NULL,
						 &env->index);
				(void)env_set_reason(env, "no_space",
						     "its journal cannot be opened: %s; free "
						     "space in '%s': limbd then goes on by itself",
						     strerror(-q), b->state_dir);
			} else {
				(void)env_set_reason(env, "unreadable",
						     "its journal cannot be opened: %s; look at "
						     "it with: limb journal verify %s",
						     why_not(q), env->name);
			}
		}
		env_link_in(env);
	}
	r = 0;
out:
	free(l.envs);
	return r;
}

int state_record_env(struct brain *b, const struct env *env, const char *what)
{
	Limb__Record rec = LIMB__RECORD__INIT;
	Limb__EnvironmentEvent e = LIMB__ENVIRONMENT_EVENT__INIT;
	cleanup_free uint8_t *body = NULL;
	uint64_t seq;
	size_t n;
	int r;

	e.keep_journal = strcmp(what, "kept") == 0;
	e.what = e.keep_journal ? (char *)"removed" : (char *)what;
	e.id = (ProtobufCBinaryData){sizeof(env->id), (uint8_t *)env->id};
	e.name = env->name;
	e.owner = (char *)"main";
	rec.origin = LIMB__ORIGIN__ORIGIN_BRAIN;
	rec.body_case = LIMB__RECORD__BODY_ENVIRONMENT;
	rec.environment = &e;
	n = limb__record__get_packed_size(&rec);
	body = malloc(n);
	if (!body)
		return -ENOMEM;
	(void)limb__record__pack(&rec, body);
	r = log_append(b->log, RECORD_ENVIRONMENT, body, n, 0, &seq);
	return r < 0 ? r : log_sync(b->log);
}

/* ---- opening ---- */

static int open_dirs(struct brain *b, char **ret_why)
{
	struct stat st;
	int r;

	r = file_make_dirs(b->state_dir);
	if (r < 0)
		return say(ret_why, r,
			   "cannot make the state directory '%s': %s; choose another with --state",
			   b->state_dir, strerror(-r));
	b->state_fd = file_open_dir(AT_FDCWD, b->state_dir);
	if (b->state_fd < 0)
		return say(ret_why, b->state_fd, "cannot open the state directory '%s': %s",
			   b->state_dir, strerror(-b->state_fd));
	if (fstat(b->state_fd, &st) < 0)
		return -errno;
	if (st.st_uid != geteuid())
		return say(ret_why, -EPERM,
			   "the state directory '%s' belongs to uid %u, and this is uid %u; run "
			   "limb as "
			   "that user, or choose another with --state",
			   b->state_dir, st.st_uid, geteuid());
	r = file_lock(b->state_fd, "limbd.lock", &b->lock_fd);
	if (r == -EAGAIN)
		return say(ret_why, r,
			   "another limbd runs on the state directory '%s'; use it, or end it "
			   "with: limb down",
			   b->state_dir);
	if (r < 0)
		return say(ret_why, r, "cannot lock the state directory '%s': %s", b->state_dir,
			   strerror(-r));
	return 0;
}

static int make_open(int dir, const char *name, int *ret_fd)
{
	int r = file_make_dir(dir, name);

	if (r < 0)
		return r;
	*ret_fd = file_open_dir(dir, name);
	return *ret_fd < 0 ? *ret_fd : 0;
}

static int open_journal(struct brain *b, char **ret_why)
{
	cleanup_close int brain_fd = -1, log_fd = -1, stores = -1, main_store = -1;
	struct log_ids ids = {0};
	int r;

	r = make_open(b->state_fd, "brain", &brain_fd);
	if (r == 0)
		r = make_open(brain_fd, "log", &log_fd);
	if (r == 0)
		r = make_open(b->state_fd, "envs", &b->envs_fd);
	if (r == 0)
		r = make_open(b->state_fd, "store", &stores);
	if (r == 0)
		r = make_open(stores, "main", &main_store);
	if (r == 0)
		r = load_identity(b, brain_fd);
	if (r < 0)
		return say(ret_why, r, "cannot prepare the state directory '%s': %s; %s",
			   b->state_dir, why_not(r), remedy(r));
	memcpy(ids.log_id, b->id, 16);
	memcpy(ids.brain_id, b->id, 16);
	ids.term = b->term;
	r = log_open(log_fd, &ids, LOG_CREATE, &b->log, NULL);
	if (r < 0)
		return say(ret_why, r, "cannot open the brain's log '%s/brain/log': %s; %s",
			   b->state_dir, why_not(r), remedy(r));
	r = store_open(main_store, STORE_WRITE, &b->store);
	if (r < 0)
		return say(ret_why, r, "cannot open the store in '%s': %s; %s", b->state_dir,
			   why_not(r), remedy(r));
	r = load_envs(b, log_fd);
	if (r < 0)
		return say(ret_why, r, "cannot read the brain's log in '%s': %s", b->state_dir,
			   strerror(-r));
	return 0;
}

int state_open(struct brain *b, const char *state_dir, const char *mount_dir, char **ret_why)
{
	const char *sock = getenv("LIMB_SOCKET");
	int r;

	*ret_why = NULL;
	b->state_fd = b->envs_fd = b->lock_fd = -1;
	b->state_dir = strdup(state_dir);
	b->mount_dir = strdup(mount_dir);
	r = sock && *sock ? (b->socket_path = strdup(sock)) ? 0 : -1
			  : asprintf(&b->socket_path, "%s/limbd.sock", state_dir);
	if (r < 0 || !b->state_dir || !b->mount_dir)
		return -ENOMEM;
	b->started_ns = clock_real_ns();
	r = open_dirs(b, ret_why);
	return r < 0 ? r : open_journal(b, ret_why);
}

void state_close(struct brain *b)
{
	struct env *env;

	while ((env = b->envs)) {
		b->envs = env->next;
		env_free(env);
	}
	store_close(b->store);
	log_close(b->log);
	b->store = NULL;
	b->log = NULL;
	if (b->envs_fd >= 0)
		(void)close(b->envs_fd);
	if (b->state_fd >= 0)
		(void)close(b->state_fd);
	if (b->lock_fd >= 0)
		(void)close(b->lock_fd);
	free(b->state_dir);
	free(b->mount_dir);
	free(b->socket_path);
}
