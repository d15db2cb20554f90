#include "providers/provider.h"

#include <fcntl.h>
#include <linux/close_range.h>
#include <poll.h>
#include <pwd.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/io.h"
#include "base/log.h"
#include "base/text.h"
#include "providers/process.h"

enum {
	INPUT_MAX = 1 << 20,
	DEADLINE_DEFAULT_MS = 30000,
	INPUT_MS = 5000, /* for the input, which is ready when limbd starts us */
	DEADLINE_MAX_MS = 600000,
	GRACE_MS = 200, /* for a failure of the verb's own, before the timer's */
	LOCK_PAUSE_MS = 10,
	LOG_TAIL_BYTES = 4096,
	DESCRIPTORS_MAX = 65536,
};

static json_t *text(const char *s)
{
	_cleanup_(buf_done) struct buf b = BUF_INIT(0);

	if (text_utf8_replace(&b, s, strlen(s)) < 0)
		return NULL;
	return json_stringn((const char *)buf_data(&b), buf_len(&b));
}

json_t *provider_failure(const char *code, const char *step, const char *fmt, ...)
{
	cleanup_free char *detail = NULL;
	json_t *steps = json_array();
	va_list ap;

	va_start(ap, fmt);
	if (vasprintf(&detail, fmt, ap) < 0)
		detail = NULL;
	va_end(ap);
	if (step)
		(void)json_array_append_new(steps, text(step));
	return json_pack("{s:s, s:o, s:o}", "error", code, "detail", text(detail ? detail : code),
			 "next_steps", steps);
}

json_t *provider_failure_errno(int r, const char *what)
{
	const char *code = "io_error";

	if (r == -ETIMEDOUT)
		code = "timed_out";
	else if (r == -EACCES || r == -EPERM)
		code = "permission_denied";
	else if (r == -ENOSPC || r == -EDQUOT)
		code = "no_space";
	return provider_failure(code, NULL, "%s: %s", what, strerror(-r));
}

json_t *provider_status(const char *status, pid_t init_pid)
{
	json_t *o = json_pack("{s:s}", "status", status);

	if (init_pid > 0)
		(void)json_object_set_new(o, "init_pid", json_integer(init_pid));
	return o;
}

json_t *provider_check_root(const struct provider_call *call, bool make)
{
	char shown[256];
	struct stat st;
	int r;

	if (!call->root || call->root[0] != '/' || call->root[1] == '\0')
		return provider_failure("invalid_path", NULL,
					"spec.root is not an absolute path below '/'");
	text_escape_into(shown, sizeof(shown), call->root, strlen(call->root));
	if (make && (r = file_make_dirs(call->root)) < 0)
		return provider_failure("io_error", "make it, or choose another --root DIR",
					"cannot make the root '%s': %s", shown, strerror(-r));
	if (stat(call->root, &st) < 0)
		return provider_failure("file_not_found", "limb rebuild NAME", "the root '%s': %s",
					shown, strerror(errno));
	if (!S_ISDIR(st.st_mode))
		return provider_failure("not_directory", "choose another --root DIR",
					"the root '%s' is not a directory", shown);
	return NULL;
}

/* ---- starting things ---- */

void provider_strv_free(char **v)
{
	for (char **p = v; p && *p; p++)
		free(*p);
	free(v);
}

/* Of our own variables: what tests and people set for the hands' sake; never where
 * the brain is. */
static bool passes(const char *kv)
{
	static const char *const kept_back[] = {
		"LIMB_STATE=",	     "LIMB_SOCKET=", "LIMB_MOUNT=",
		"LIMB_ENVIRONMENT=", "LIMB_JOB=",    PROCESS_MARK "="};

	for (size_t i = 0; i < ARRAY_SIZE(kept_back); i++)
		if (strncmp(kv, kept_back[i], strlen(kept_back[i])) == 0)
			return false;
	return strncmp(kv, "LIMB_", 5) == 0 || strncmp(kv, "ASAN_OPTIONS=", 13) == 0 ||
	       strncmp(kv, "UBSAN_OPTIONS=", 14) == 0;
}

static void set_variable(char **v, size_t *n, const char *name, const char *value)
{
	if (value && asprintf(&v[*n], "%s=%s", name, value) >= 0)
		(*n)++;
	v[*n] = NULL;
}

char **provider_environment(const struct provider_call *call, const char *home)
{
	const struct passwd *pw = getpwuid(geteuid());
	size_t n = 0, count = 0;
	char **v;

	while (environ[count])
		count++;
	v = calloc(count + 8, sizeof(*v));
	if (!v)
		return NULL;
	set_variable(v, &n, "PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin");
	set_variable(v, &n, "HOME", home);
	set_variable(v, &n, "USER", pw ? pw->pw_name : NULL);
	set_variable(v, &n, "LANG", "C.UTF-8");
	set_variable(v, &n, PROCESS_MARK, call->mark);
	for (size_t i = 0; i < count; i++)
		if (passes(environ[i]) && (v[n] = strdup(environ[i])))
			n++;
	v[n] = NULL;
	return v;
}

int provider_detach(const struct provider_call *call)
{
	int null, log_fd;

	(void)setsid();
	if (fchdir(call->dir_fd) < 0)
		return -errno;
	log_fd = openat(call->dir_fd, "log", O_WRONLY | O_APPEND | O_CREAT | O_NOFOLLOW | O_CLOEXEC,
			0600);
	null = open("/dev/null", O_RDWR | O_CLOEXEC);
	if (log_fd < 0 || null < 0 || dup2(null, 0) < 0 || dup2(log_fd, 1) < 0 ||
	    dup2(log_fd, 2) < 0)
		return -errno;
	(void)syscall(SYS_close_range, 3, ~0U, CLOSE_RANGE_CLOEXEC);
	return 0;
}

const char *provider_log_tail(const struct provider_call *call, char *out, size_t size)
{
	cleanup_close int fd = openat(call->dir_fd, "log", O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
	char tail[LOG_TAIL_BYTES], *line = tail, *p;
	struct stat st;
	ssize_t n = 0;

	if (fd >= 0 && fstat(fd, &st) == 0)
		n = io_pread_full(fd, tail, sizeof(tail) - 1,
				  (uint64_t)MAX(st.st_size - (off_t)sizeof(tail) + 1, (off_t)0),
				  "provider.log");
	while (n > 0 && tail[n - 1] == '\n')
		n--;
	if (n <= 0)
		return text_escape_into(out, size, "it said nothing", 15);
	tail[n] = '\0';
	p = strrchr(tail, '\n');
	if (p)
		line = p + 1;
	return text_escape_into(out, size, line, strlen(line));
}

void provider_set_limits(unsigned processes)
{
	struct rlimit l;

	if (getrlimit(RLIMIT_NOFILE, &l) == 0) {
		l.rlim_cur = MIN(l.rlim_max, (rlim_t)DESCRIPTORS_MAX);
		(void)setrlimit(RLIMIT_NOFILE, &l);
	}
	if (processes && getrlimit(RLIMIT_NPROC, &l) == 0) {
		l.rlim_max = MIN(l.rlim_max, (rlim_t)processes);
		l.rlim_cur = l.rlim_max;
		(void)setrlimit(RLIMIT_NPROC, &l);
	}
}

/* ---- one call ---- */

static void on_deadline(int sig)
{
	static const char said[] = "{\"error\":\"timed_out\",\"detail\":\"the provider did not "
				   "finish by its deadline\",\"next_steps\":[]}\n";

	(void)sig;
	if (write(STDOUT_FILENO, said, sizeof(said) - 1) < 0)
		_exit(2);
	_exit(1);
}

static void set_deadline(struct provider_call *call, json_int_t ms)
{
	struct itimerval timer = {0};

	if (ms <= 0)
		ms = DEADLINE_DEFAULT_MS;
	ms = MIN(ms, (json_int_t)DEADLINE_MAX_MS);
	call->end_ms = clock_mono_ms() + (uint64_t)ms;
	ms += GRACE_MS;
	timer.it_value.tv_sec = ms / 1000;
	timer.it_value.tv_usec = ms % 1000 * 1000;
	(void)signal(SIGALRM, on_deadline);
	(void)setitimer(ITIMER_REAL, &timer, NULL);
}

static json_t *read_input(json_t **ret)
{
	_cleanup_(buf_done) struct buf b = BUF_INIT(INPUT_MAX);
	json_error_t e;
	ssize_t n = 1;
	uint8_t *p;

	while (n > 0) {
		if (buf_reserve(&b, 4096, &p) < 0)
			return provider_failure("too_large", NULL, "more than 1 MiB on stdin");
		n = io_read_some(STDIN_FILENO, p, 4096, "provider.stdin");
		if (n < 0)
			return provider_failure_errno((int)n, "cannot read stdin");
		buf_commit(&b, (size_t)n);
	}
	*ret = json_loadb((const char *)buf_data(&b), buf_len(&b), JSON_REJECT_DUPLICATES, &e);
	if (!json_is_object(*ret))
		return provider_failure("usage", NULL, "stdin is no JSON object: %s", e.text);
	return NULL;
}

static const char *field(const json_t *object, const char *name)
{
	return json_string_value(json_object_get(object, name));
}

static bool id_ok(const char *s)
{
	size_t n = s ? strspn(s, "0123456789abcdefABCDEF-") : 0;

	return n > 0 && n <= 64 && s[n] == '\0';
}

static json_t *open_dir(struct provider_call *call, int *ret_lock)
{
	char suffix[24] = "";
	json_int_t place;
	int r;

	if (!id_ok(call->id) || !call->dir || call->dir[0] != '/')
		return provider_failure("usage", NULL, "id and an absolute dir are needed");
	r = file_make_dirs(call->dir);
	if (r >= 0)
		r = file_open_dir(AT_FDCWD, call->dir);
	if (r < 0)
		return provider_failure_errno(r, "cannot open the private directory");
	call->dir_fd = r;
	/* Two places of one environment can be alive on one machine, while it moves. */
	place = json_integer_value(json_object_get(call->in, "place"));
	if (place > 0)
		(void)snprintf(suffix, sizeof(suffix), " %lld", (long long)place);
	if (asprintf(&call->mark, "%s %s %s%s", call->provider, call->brain ? call->brain : "-",
		     call->id, suffix) < 0) {
		call->mark = NULL;
		return provider_failure("internal", NULL, "out of memory");
	}
	while ((r = file_lock(call->dir_fd, "provider.lock", ret_lock)) == -EAGAIN &&
	       clock_mono_ms() < call->end_ms)
		(void)poll(NULL, 0, LOCK_PAUSE_MS);
	if (r == -EAGAIN)
		return provider_failure("timed_out", NULL,
					"another verb on this environment has not ended");
	return r < 0 ? provider_failure_errno(r, "cannot lock the private directory") : NULL;
}

static json_t *run_verb(struct provider_call *call, const struct provider_verb *verb,
			json_t **ret_answer)
{
	cleanup_close int lock = -1;
	json_t *failure;

	set_deadline(call, INPUT_MS);
	failure = read_input(&call->in);
	if (failure)
		return failure;
	set_deadline(call, json_integer_value(json_object_get(call->in, "deadline_ms")));
	call->environment = field(call->in, "environment");
	call->id = field(call->in, "id");
	call->brain = field(call->in, "brain");
	call->handle = field(call->in, "handle");
	call->dir = field(call->in, "dir");
	call->spec = json_object_get(call->in, "spec");
	call->root = field(call->spec, "root");
	call->syncd = field(call->spec, "syncd");
	if (verb->needs_dir)
		failure = open_dir(call, &lock);
	return failure ? failure : verb->fn(call, ret_answer);
}

static int print(json_t *o)
{
	if (!o || json_dumpf(o, stdout, JSON_COMPACT) < 0 || fputc('\n', stdout) == EOF ||
	    fflush(stdout) != 0)
		return -EIO;
	json_decref(o);
	return 0;
}

int provider_main(const char *provider, int argc, char **argv, const struct provider_verb *verbs,
		  size_t n)
{
	struct provider_call call = {.provider = provider, .dir_fd = -1};
	json_t *answer = NULL, *failure = NULL;

	log_init(provider);
	for (size_t i = 0; argc == 2 && i < n; i++) {
		if (strcmp(verbs[i].name, argv[1]) != 0)
			continue;
		failure = run_verb(&call, &verbs[i], &answer);
		if (failure) {
			log_error("%s: %s", argv[1], field(failure, "detail"));
			(void)print(failure);
		} else if (print(answer) < 0) {
			failure = answer;
		}
		free(call.mark);
		json_decref(call.in);
		if (call.dir_fd >= 0)
			(void)close(call.dir_fd);
		return failure ? 1 : 0;
	}
	(void)print(provider_failure("unsupported", NULL, "'%s' has no verb '%s'", provider,
				     argc > 1 ? argv[1] : ""));
	return 2;
}
