#include "base/fault.h"

#ifdef LIMB_FAULTS

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <sys/mman.h>

#include "base/util.h"

struct rule {
	const char *name;
	unsigned long count;
	enum fault_kind kind;
	int err;
	atomic_ulong visits;
};

/* Plans that were replaced stay allocated: a thread may still be in one. */
struct plan {
	struct plan *previous;
	char *text;
	size_t n_rules;
	struct rule rules[];
};

struct seen {
	struct seen *next;
	char name[];
};

static _Atomic(struct plan *) current;
static struct plan *plans;
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static const char *trace_path;
static struct seen *seen;

static const struct {
	const char *name;
	int err;
} errno_names[] = {
	{"EACCES", EACCES}, {"EAGAIN", EAGAIN},		{"EBADF", EBADF},
	{"EBUSY", EBUSY},   {"ECONNRESET", ECONNRESET}, {"EDQUOT", EDQUOT},
	{"EEXIST", EEXIST}, {"EFBIG", EFBIG},		{"EIO", EIO},
	{"EMFILE", EMFILE}, {"ENFILE", ENFILE},		{"ENODEV", ENODEV},
	{"ENOENT", ENOENT}, {"ENOTEMPTY", ENOTEMPTY},	{"ENOMEM", ENOMEM},
	{"ENOSPC", ENOSPC}, {"EPERM", EPERM},		{"EPIPE", EPIPE},
	{"EROFS", EROFS},   {"ESTALE", ESTALE},		{"ETIMEDOUT", ETIMEDOUT},
};

static int parse_errno(const char *s, int *ret_err)
{
	for (size_t i = 0; i < ARRAY_SIZE(errno_names); i++) {
		if (strcmp(s, errno_names[i].name) == 0) {
			*ret_err = errno_names[i].err;
			return 0;
		}
	}
	return -EINVAL;
}

static int parse_kind(char *s, struct rule *rule)
{
	char *err = strchr(s, '=');

	if (err)
		*err++ = '\0';
	if (strcmp(s, "error") == 0)
		rule->kind = FAULT_ERROR;
	else if (strcmp(s, "cut") == 0)
		rule->kind = FAULT_CUT;
	else if (strcmp(s, "kill") == 0)
		rule->kind = FAULT_KILL;
	else
		return -EINVAL;

	rule->err = EIO;
	return err ? parse_errno(err, &rule->err) : 0;
}

/* name:count:kind, cut into its parts in place. */
static int parse_rule(char *s, struct rule *rule)
{
	char *count, *kind, *end;

	count = strchr(s, ':');
	if (!count || count == s)
		return -EINVAL;
	*count++ = '\0';
	kind = strchr(count, ':');
	if (!kind)
		return -EINVAL;
	*kind++ = '\0';

	if (*count < '0' || *count > '9')
		return -EINVAL;
	rule->name = s;
	rule->count = strtoul(count, &end, 10);
	if (*end || rule->count == 0)
		return -EINVAL;
	return parse_kind(kind, rule);
}

static void plan_free(struct plan *p)
{
	if (!p)
		return;
	free(p->text);
	free(p);
}
DEFINE_CLEANUP(struct plan, plan_free);

static int plan_new(const char *text, struct plan **ret_plan)
{
	_cleanup_(plan_freep) struct plan *p = NULL;
	size_t n = 1;
	char *rest, *s;
	int r;

	for (const char *c = text; *c; c++)
		n += *c == ',';
	p = calloc(1, sizeof(*p) + n * sizeof(p->rules[0]));
	if (!p)
		return -ENOMEM;
	p->text = strdup(text);
	if (!p->text)
		return -ENOMEM;

	rest = p->text;
	while ((s = strsep(&rest, ",")) != NULL) {
		r = parse_rule(s, &p->rules[p->n_rules++]);
		if (r < 0)
			return r;
	}
	*ret_plan = take_ptr(&p);
	return 0;
}

static int install(const char *text)
{
	struct plan *p = NULL;
	int r;

	if (text && *text) {
		r = plan_new(text, &p);
		if (r < 0)
			return r;
	}
	(void)pthread_mutex_lock(&mutex);
	if (p) {
		p->previous = plans;
		plans = p;
	}
	atomic_store(&current, p);
	(void)pthread_mutex_unlock(&mutex);
	return 0;
}

/* A plan that cannot be read would make a test pass that tested nothing. */
static void read_environment(void)
{
	const char *text = getenv("LIMB_FAULT");

	trace_path = getenv("LIMB_FAULT_TRACE");
	if (install(text) < 0) {
		(void)dprintf(STDERR_FILENO, "cannot understand LIMB_FAULT '%s'\n", text);
		abort();
	}
}

static void trace_write(const char *name)
{
	cleanup_close int fd = -1;

	fd = open(trace_path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600);
	if (fd < 0 || dprintf(fd, "%s\n", name) < 0) {
		(void)dprintf(STDERR_FILENO, "cannot append to LIMB_FAULT_TRACE '%s': %m\n",
			      trace_path);
		abort();
	}
}

static void trace(const char *name)
{
	struct seen *s;

	(void)pthread_mutex_lock(&mutex);
	for (s = seen; s; s = s->next)
		if (strcmp(s->name, name) == 0)
			break;
	if (!s) {
		trace_write(name);
		s = malloc(sizeof(*s) + strlen(name) + 1);
		if (!s)
			abort();
		memcpy(s->name, name, strlen(name) + 1);
		s->next = seen;
		seen = s;
	}
	(void)pthread_mutex_unlock(&mutex);
}

/* ---- LIMB_FAULT_NOW ---- */

static const char *now; /* FAULT_NOW_BYTES that others write */

/* Before anything is confined. */
__attribute__((constructor)) static void now_map(void)
{
	const char *path = getenv("LIMB_FAULT_NOW");
	cleanup_close int fd = -1;
	void *p;

	if (!path)
		return;
	fd = open(path, O_RDONLY | O_CLOEXEC);
	p = fd < 0 ? MAP_FAILED : mmap(NULL, FAULT_NOW_BYTES, PROT_READ, MAP_SHARED, fd, 0);
	if (p == MAP_FAILED) {
		(void)dprintf(STDERR_FILENO, "cannot map LIMB_FAULT_NOW '%s': %m\n", path);
		abort();
	}
	now = p;
}

/* What stands behind "NAME:", up to the next space. */
static bool now_says(const char *name, char *out, size_t size)
{
	char text[FAULT_NOW_BYTES + 1], *rest = text, *word;
	size_t n = strlen(name);

	if (!now)
		return false;
	memcpy(text, now, FAULT_NOW_BYTES);
	text[FAULT_NOW_BYTES] = 0;
	while ((word = strsep(&rest, " \n")) != NULL) {
		if (strncmp(word, name, n) != 0 || word[n] != ':')
			continue;
		(void)snprintf(out, size, "%s", word + n + 1);
		return true;
	}
	return false;
}

static enum fault_kind now_kind(const char *name, int *ret_errno)
{
	struct rule rule = {.kind = FAULT_NONE};
	char said[40];

	if (!now_says(name, said, sizeof(said)) || parse_kind(said, &rule) < 0)
		return FAULT_NONE;
	*ret_errno = rule.err;
	return rule.kind;
}

int64_t fault_clock_ns(void)
{
	char said[40];

	return now_says("clock", said, sizeof(said)) ? strtoll(said, NULL, 10) * 1000000000 : 0;
}

enum fault_kind fault_visit(const char *name, int *ret_errno)
{
	enum fault_kind kind;
	struct plan *p;

	(void)pthread_once(&once, read_environment);
	if (trace_path)
		trace(name);
	kind = now_kind(name, ret_errno);
	if (kind != FAULT_NONE)
		return kind;
	p = atomic_load(&current);
	if (!p)
		return FAULT_NONE;

	/* Each rule counts, also when an earlier one has already decided. */
	for (size_t i = 0; i < p->n_rules; i++) {
		struct rule *rule = &p->rules[i];

		if (strcmp(rule->name, "*") != 0 && strcmp(rule->name, name) != 0)
			continue;
		if (atomic_fetch_add(&rule->visits, 1) + 1 != rule->count || kind != FAULT_NONE)
			continue;
		kind = rule->kind;
		*ret_errno = rule->err;
	}
	return kind;
}

_Noreturn void fault_die(void)
{
	(void)kill(getpid(), SIGKILL);
	for (;;)
		(void)pause();
}

int fault_set(const char *plan)
{
	(void)pthread_once(&once, read_environment);
	return install(plan);
}

#endif
