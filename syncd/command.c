#include "syncd/command.h"

#include <fcntl.h>
#include <linux/openat2.h>
#include <signal.h>
#include <stdio.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "base/beneath.h"
#include "base/util.h"

#define DEFAULT_PATH "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

/* What the child needs, made before it exists: it shares our memory until exec. */
struct launch {
	char **argv, **envp;
	char **candidates; /* absolute or relative names to try in order */
	int cwd, stdio[3];
	int report; /* pipe: struct failure, or closed by exec */
	bool tty;
};

struct failure {
	int error;
	char what[8];
};

/* ---- preparation ---- */

static int open_cwd(const char *root, const char *path)
{
	struct open_how how = {
		.flags = O_PATH | O_DIRECTORY | O_CLOEXEC,
		.resolve = RESOLVE_BENEATH | RESOLVE_NO_MAGICLINKS,
	};
	const char *walk = getenv("LIMB_NO_OPENAT2");
	cleanup_close int root_fd = -1;
	long r;

	root_fd = open(root, O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (root_fd < 0)
		return -errno;
	if (*path == 0)
		path = ".";
	if (!walk || strcmp(walk, "1") != 0) {
		r = TEMP_FAILURE_RETRY(syscall(SYS_openat2, root_fd, path, &how, sizeof(how)));
		if (r >= 0)
			return (int)r;
		if (errno != ENOSYS && errno != EPERM && errno != ENAMETOOLONG)
			return -errno;
	}
	return beneath_open(root_fd, path, O_PATH | O_DIRECTORY, 0);
}

static bool has_nul(const ProtobufCBinaryData *b)
{
	return b->len > 0 && memchr(b->data, 0, b->len);
}

/* A NULL-ended array of C strings; a NUL inside is refused. */
static int strings_of(const ProtobufCBinaryData *list, size_t n, char ***ret)
{
	char **out = calloc(n + 1, sizeof(*out));

	if (!out)
		return -ENOMEM;
	for (size_t i = 0; i < n; i++) {
		if (has_nul(&list[i])) {
			for (size_t k = 0; k < i; k++)
				free(out[k]);
			free(out);
			return -EINVAL;
		}
		out[i] = strndup(list[i].len > 0 ? (const char *)list[i].data : "", list[i].len);
		if (!out[i])
			abort();
	}
	*ret = out;
	return 0;
}

static void strings_free(char **list)
{
	for (char **p = list; p && *p; p++)
		free(*p);
	free(list);
}

static const char *path_of(char **envp)
{
	for (; *envp; envp++) {
		if (strncmp(*envp, "PATH=", 5) == 0)
			return *envp + 5;
	}
	return DEFAULT_PATH;
}

/* As execvp(3) looks for a name without a slash, by the PATH of the job. */
static int find_candidates(struct launch *l)
{
	const char *name = l->argv[0], *p;
	size_t n = 2, k = 0;

	if (strchr(name, '/') || *name == 0) {
		l->candidates = calloc(2, sizeof(char *));
		if (!l->candidates)
			return -ENOMEM;
		l->candidates[0] = strdup(name);
		return l->candidates[0] ? 0 : -ENOMEM;
	}
	for (p = path_of(l->envp); *p; p++)
		n += *p == ':';
	l->candidates = calloc(n + 1, sizeof(char *));
	if (!l->candidates)
		return -ENOMEM;
	for (p = path_of(l->envp);; p++) {
		int len = (int)strcspn(p, ":");

		if (asprintf(&l->candidates[k++], "%.*s%s%s", len, p, len > 0 ? "/" : "", name) < 0)
			return -ENOMEM;
		p += len;
		if (!*p)
			return 0;
	}
}

static int open_pipes(const Limbwire__JobStart *job, struct launch *l, struct command *c)
{
	int p[2];

	for (unsigned i = 0; i < 2; i++) {
		if (pipe2(p, O_CLOEXEC) < 0)
			return -errno;
		c->out[i] = p[0];
		l->stdio[1 + i] = p[1];
		if (fcntl(p[0], F_SETFL, O_NONBLOCK) < 0)
			return -errno;
	}
	if (!job->stdin_open) {
		l->stdio[0] = open("/dev/null", O_RDONLY | O_CLOEXEC);
		if (l->stdio[0] >= 0)
			return 0;
		/* A root without /dev: a pipe that nobody writes reads the same. */
	}
	if (pipe2(p, O_CLOEXEC) < 0)
		return -errno;
	l->stdio[0] = p[0];
	c->in = p[1];
	if (fcntl(p[1], F_SETFL, O_NONBLOCK) < 0)
		return -errno;
	if (!job->stdin_open) {
		(void)close(c->in);
		c->in = -1;
	}
	return 0;
}

static int open_terminal(const Limbwire__JobStart *job, struct launch *l, struct command *c)
{
	struct winsize ws = {
		.ws_row = (unsigned short)(job->rows ? job->rows : 24),
		.ws_col = (unsigned short)(job->cols ? job->cols : 80),
	};
	int off = 0;

	c->in = open("/dev/ptmx", O_RDWR | O_NOCTTY | O_CLOEXEC | O_NONBLOCK);
	if (c->in < 0)
		return -errno;
	c->out[0] = fcntl(c->in, F_DUPFD_CLOEXEC, 3);
	if (c->out[0] < 0 || ioctl(c->in, TIOCSPTLCK, &off) < 0 ||
	    ioctl(c->in, TIOCSWINSZ, &ws) < 0)
		return -errno;
	l->stdio[0] = ioctl(c->in, TIOCGPTPEER, O_RDWR | O_NOCTTY | O_CLOEXEC);
	if (l->stdio[0] < 0)
		return -errno;
	l->stdio[1] = l->stdio[2] = l->stdio[0];
	return 0;
}

/* ---- the child ---- */

static const char *const failures[] = {"stdio", "tty", "cwd", "exec"};

_Noreturn static void child_fails(const struct launch *l, const char *what)
{
	struct failure f = {.error = -errno};

	memcpy(f.what, what, strnlen(what, sizeof(f.what) - 1));
	(void)TEMP_FAILURE_RETRY(write(l->report, &f, sizeof(f)));
	_exit(127);
}

/* Closes all that is not the command's, but keeps the report until exec. */
static void child_close(const struct launch *l)
{
	if (close_range(3, (unsigned)l->report - 1, 0) == 0 &&
	    close_range((unsigned)l->report + 1, ~0u, 0) == 0)
		return;
	for (int fd = 3; fd < 1024; fd++) {
		if (fd != l->report)
			(void)close(fd);
	}
}

/* Between vfork and exec: system calls only, and nothing of the parent's is changed. */
_Noreturn static void child(const struct launch *l)
{
	const unsigned long dfl[8] = {0}; /* the kernel's struct sigaction: SIG_DFL */
	sigset_t none;
	int kept = -ENOENT;

	(void)setsid();
	for (int i = 0; i < 3; i++) {
		/* 0 to 2 are open in every process of ours, so these are above. */
		if (dup2(l->stdio[i], i) < 0)
			child_fails(l, "stdio");
	}
	if (l->tty && ioctl(0, TIOCSCTTY, 0) < 0)
		child_fails(l, "tty");
	if (fchdir(l->cwd) < 0)
		child_fails(l, "cwd");
	child_close(l);
	/* Not by sigaction(3), which refuses those that glibc keeps for itself. */
	for (int sig = 1; sig < NSIG; sig++)
		(void)syscall(SYS_rt_sigaction, sig, dfl, NULL, (size_t)NSIG / 8);
	(void)sigemptyset(&none);
	(void)sigprocmask(SIG_SETMASK, &none, NULL);

	for (char **p = l->candidates; *p; p++) {
		(void)execve(*p, l->argv, l->envp);
		if (errno == ENOENT || errno == ENOTDIR)
			continue;
		kept = -errno;
		if (errno != EACCES)
			break;
	}
	errno = -kept;
	child_fails(l, "exec");
}

/* vfork: no copy of page tables. */
__attribute__((noinline)) static pid_t fork_child(const struct launch *l)
{
	pid_t pid = vfork();

	if (pid == 0)
		child(l);
	return pid;
}

static int launch(struct launch *l, struct command *c)
{
	struct failure f = {0};
	int p[2];
	ssize_t n;

	c->failed = "fork";
	if (pipe2(p, O_CLOEXEC) < 0)
		return -errno;
	l->report = p[1];
	c->pid = fork_child(l);
	(void)close(p[1]);
	n = c->pid < 0 ? -1 : TEMP_FAILURE_RETRY(read(p[0], &f, sizeof(f)));
	(void)close(p[0]);
	if (c->pid < 0)
		return -EAGAIN;
	if (n != (ssize_t)sizeof(f))
		return 0;
	(void)TEMP_FAILURE_RETRY(waitpid(c->pid, NULL, 0));
	for (size_t i = 0; i < ARRAY_SIZE(failures); i++) {
		if (strncmp(f.what, failures[i], sizeof(f.what)) == 0)
			c->failed = failures[i];
	}
	return f.error < 0 ? f.error : -EIO;
}

static int launch_prepare(const Limbwire__JobStart *job, const char *root, struct launch *l,
			  struct command *c)
{
	cleanup_free char *cwd = NULL;
	int r;

	c->failed = "arguments";
	if (job->n_argv == 0 || has_nul(&job->cwd))
		return -EINVAL;
	r = strings_of(job->argv, job->n_argv, &l->argv);
	if (r == 0)
		r = strings_of(job->env, job->n_env, &l->envp);
	if (r == 0)
		r = find_candidates(l);
	if (r < 0)
		return r;
	c->failed = "cwd";
	cwd = strndup(job->cwd.len > 0 ? (const char *)job->cwd.data : "", job->cwd.len);
	if (!cwd)
		return -ENOMEM;
	l->cwd = open_cwd(root, cwd);
	if (l->cwd < 0)
		return l->cwd;
	c->failed = job->tty ? "tty" : "pipes";
	l->tty = job->tty;
	return job->tty ? open_terminal(job, l, c) : open_pipes(job, l, c);
}

static void launch_done(struct launch *l)
{
	strings_free(l->argv);
	strings_free(l->envp);
	strings_free(l->candidates);
	if (l->cwd >= 0)
		(void)close(l->cwd);
	for (unsigned i = 0; i < (l->tty ? 1 : 3); i++) {
		if (l->stdio[i] >= 0)
			(void)close(l->stdio[i]);
	}
}

static void command_close(struct command *c)
{
	if (c->in >= 0)
		(void)close(c->in);
	for (unsigned i = 0; i < 2; i++) {
		if (c->out[i] >= 0)
			(void)close(c->out[i]);
	}
}

int command_start(const Limbwire__JobStart *job, const char *root, struct command *ret)
{
	struct launch l = {.cwd = -1, .stdio = {-1, -1, -1}, .report = -1};
	struct command c = {.in = -1, .out = {-1, -1}};
	int r;

	r = launch_prepare(job, root, &l, &c);
	if (r == 0)
		r = launch(&l, &c);
	launch_done(&l);
	if (r < 0) {
		ret->failed = c.failed;
		command_close(&c);
		return r;
	}
	*ret = c;
	return 0;
}
