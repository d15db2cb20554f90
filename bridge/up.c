#include "bridge/up.h"

#include <fcntl.h>
#include <linux/close_range.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/io.h"
#include "base/text.h"
#include "bridge/client.h"
#include "bridge/failure.h"

enum {
	ANSWER_MS = 60000, /* a long log may have to be read first */
	LOST_RACE_MS = 2000,
	POLL_MS = 10,
	DOWN_MS = 120000,
	LOG_TAIL_BYTES = 4096,
};

static const char log_name[] = "limbd.log";

static json_t *cannot(int r, const char *what, const char *path)
{
	char shown[256];

	text_escape_into(shown, sizeof(shown), path, strlen(path));
	return failure_new(failure_code_of_errno(r), "choose another --state DIR",
			   "cannot %s '%s': %s", what, shown, strerror(-r));
}

static void sleep_ms(unsigned ms)
{
	(void)poll(NULL, 0, (int)ms);
}

/* Lock of STATE/up.lock, waited for while another `limb up` starts limbd. */
static json_t *take_lock(const struct places *places, int state_fd, int *ret_fd)
{
	uint64_t end = clock_mono_ms() + ANSWER_MS;
	int r;

	for (;;) {
		r = file_lock(state_fd, "up.lock", ret_fd);
		if (r >= 0)
			return NULL;
		if (r != -EAGAIN)
			return cannot(r, "lock up.lock in", places->state);
		if (clock_mono_ms() >= end)
			return failure_new("timed_out", NULL,
					   "another `limb up` has been starting limbd for %d s",
					   ANSWER_MS / 1000);
		sleep_ms(POLL_MS);
	}
}

/* In the child: what limbd begins with. */
static _Noreturn void become_limbd(const char *path, const struct places *places, int log_fd,
				   bool foreground, pid_t parent)
{
	char *argv[] = {(char *)"limbd",
			(char *)"--state",
			places->state,
			(char *)"--mount",
			places->mount,
			foreground ? (char *)"--foreground" : NULL,
			NULL};
	int null = open("/dev/null", O_RDWR | O_CLOEXEC);
	sigset_t none;

	sigemptyset(&none);
	(void)sigprocmask(SIG_SETMASK, &none, NULL);
	(void)signal(SIGPIPE, SIG_DFL);
	if (foreground) {
		(void)prctl(PR_SET_PDEATHSIG, SIGTERM);
		if (getppid() != parent)
			_exit(EXIT_COULD_NOT);
	} else {
		(void)setsid();
		(void)dup2(log_fd, STDERR_FILENO);
	}
	/* A relative one is meant from here, and limbd works in "/". */
	if (getenv("LIMB_SOCKET") && setenv("LIMB_SOCKET", places->socket, 1) < 0)
		_exit(EXIT_COULD_NOT);
	/* stdout is the result's, and a pipe that somebody reads to its end. */
	if (null < 0 || dup2(null, STDIN_FILENO) < 0 || dup2(STDERR_FILENO, STDOUT_FILENO) < 0 ||
	    chdir("/") < 0)
		_exit(EXIT_COULD_NOT);
	(void)syscall(SYS_close_range, 3, ~0U, CLOSE_RANGE_CLOEXEC);
	(void)execv(path, argv);
	_exit(EXIT_COULD_NOT);
}

/* The last line that limbd wrote since `from`, without its prefix. */
static void log_tail(int log_fd, off_t from, char *out, size_t size)
{
	char text[LOG_TAIL_BYTES];
	off_t end = lseek(log_fd, 0, SEEK_END);
	char *line = text, *p;
	ssize_t n;

	out[0] = '\0';
	if (end - from >= (off_t)sizeof(text))
		from = end - (off_t)sizeof(text) + 1;
	n = io_pread_full(log_fd, text, sizeof(text) - 1, (uint64_t)from, "up.log");
	while (n > 0 && text[n - 1] == '\n')
		n--;
	if (n <= 0)
		return;
	text[n] = '\0';
	p = strrchr(text, '\n');
	if (p)
		line = p + 1;
	if (strncmp(line, "limbd: ", 7) == 0)
		line += 7;
	if (strncmp(line, "error: ", 7) == 0)
		line += 7;
	text_escape_into(out, size, line, strlen(line));
}

static json_t *limbd_ended(int status, const char *tail, const struct places *places)
{
	struct statvfs fs;
	char shown[256];

	if (tail[0])
		return failure_new("daemon_unreachable", NULL, "limbd did not start: %s", tail);
	/* It could not even write why. */
	if (statvfs(places->state, &fs) == 0 &&
	    (uint64_t)fs.f_bavail * fs.f_frsize < LOG_TAIL_BYTES)
		return failure_new("no_space", "free space there, then run: limb up",
				   "limbd did not start: the disk of '%s' is full",
				   text_escape_into(shown, sizeof(shown), places->state,
						    strlen(places->state)));
	if (WIFSIGNALED(status))
		return failure_new("daemon_unreachable", "see limbd.log in the state directory",
				   "limbd was ended by signal %d", WTERMSIG(status));
	return failure_new("daemon_unreachable", "see limbd.log in the state directory",
			   "limbd ended with status %d", WEXITSTATUS(status));
}

static json_t *ask_up(struct client *c, json_t **ret_result)
{
	json_t *params = json_object(), *answer = NULL;
	const struct client_call call = {.method = "up",
					 .params = params,
					 .in_fd = -1,
					 .out_fd = -1,
					 .err_fd = STDERR_FILENO,
					 .deadline_ms = ANSWER_MS};
	enum client_outcome outcome = client_call(c, &call, &answer);

	json_decref(params);
	if (outcome == CLIENT_RESULT) {
		*ret_result = answer;
		return NULL;
	}
	return outcome == CLIENT_FAILED
		       ? answer
		       : json_pack("{s:s, s:s, s:i}", "error", "internal", "detail", "interrupted",
				   "exit", EXIT_INTERRUPTED);
}

/* Until limbd answers, or has ended. A limbd that forks itself away ends with 0. */
static json_t *wait_answer(const struct places *places, pid_t pid, int log_fd, off_t log_from,
			   json_t **ret_result)
{
	uint64_t end = clock_mono_ms() + ANSWER_MS;
	bool ended = false;
	int status = 0;

	for (;;) {
		struct client *c = NULL;
		json_t *failure = client_connect(places, &c);

		if (!failure) {
			failure = ask_up(c, ret_result);
			client_free(c);
			if (!failure || !client_is_unreachable(failure))
				return failure;
		} else if (!client_is_unreachable(failure)) {
			return failure;
		}
		json_decref(failure);
		if (!ended && waitpid(pid, &status, WNOHANG) == pid) {
			ended = true;
			if (status != 0)
				end = clock_mono_ms() + LOST_RACE_MS;
		}
		if (clock_mono_ms() >= end)
			break;
		sleep_ms(POLL_MS);
	}
	if (ended && status != 0) {
		char tail[512];

		log_tail(log_fd, log_from, tail, sizeof(tail));
		return limbd_ended(status, tail, places);
	}
	(void)kill(pid, SIGTERM);
	return failure_new("timed_out", "see limbd.log in the state directory",
			   "limbd did not answer within %d s", ANSWER_MS / 1000);
}

static json_t *start(const struct places *places, int state_fd, bool foreground,
		     json_t **ret_result, pid_t *ret_pid)
{
	cleanup_free char *program = places_program("limbd", "brain");
	cleanup_close int log_fd = -1;
	pid_t pid, self = getpid();
	json_t *failure;
	off_t from;

	if (!program)
		return failure_new("internal", "install limbfs again", "limbd is not installed");
	log_fd = openat(state_fd, log_name, O_RDWR | O_APPEND | O_CREAT | O_CLOEXEC | O_NOFOLLOW,
			0600);
	if (log_fd < 0)
		return cannot(-errno, "write limbd.log in", places->state);
	from = lseek(log_fd, 0, SEEK_END);
	pid = fork();
	if (pid < 0)
		return failure_new("internal", NULL, "cannot start limbd: %s", strerror(errno));
	if (pid == 0)
		become_limbd(program, places, log_fd, foreground, self);
	failure = wait_answer(places, pid, log_fd, from, ret_result);
	if (!failure)
		*ret_pid = foreground ? pid : 0;
	return failure;
}

static bool is_beneath(const char *path, const char *dir)
{
	size_t n = strlen(dir);

	return strncmp(path, dir, n) == 0 && (path[n] == '/' || path[n] == '\0');
}

static json_t *bad_mount(const struct places *places, const char *why)
{
	char shown[256];

	text_escape_into(shown, sizeof(shown), places->mount, strlen(places->mount));
	return failure_new("invalid_path", "choose another: limb up --mount DIR",
			   "the view cannot be mounted below '%s': %s", shown, why);
}

/* Environments are mounted below it by their names, so it must not hold what is ours. */
static json_t *open_mount(const struct places *places)
{
	static const char *const parts[] = {"brain", "envs", "store", "past"};
	cleanup_free char *mount = NULL, *state = realpath(places->state, NULL);
	int r = file_make_dirs(places->mount);

	if (r == -EEXIST || r == -ENOTDIR)
		return bad_mount(places, "that is not a directory");
	if (r < 0)
		return bad_mount(places, strerror(-r));
	mount = realpath(places->mount, NULL);
	if (!mount || !state)
		return bad_mount(places, strerror(errno));
	if (strcmp(mount, "/") == 0)
		return bad_mount(places,
				 "environments would stand beside the system's directories");
	if (is_beneath(state, mount))
		return bad_mount(places, "the state directory lies in it");
	for (size_t i = 0; i < ARRAY_SIZE(parts); i++) {
		cleanup_free char *part = NULL;

		if (asprintf(&part, "%s/%s", state, parts[i]) < 0)
			return failure_new("internal", NULL, "out of memory");
		if (is_beneath(mount, part))
			return bad_mount(places, "it lies among limbfs's own files");
	}
	return NULL;
}

/* LIMB_SOCKET may lead to the limbd of another state. */
static json_t *other_state(const struct places *places, const json_t *result)
{
	const char *theirs = json_string_value(json_object_get(result, "state_dir"));
	cleanup_free char *a = theirs ? realpath(theirs, NULL) : NULL,
			  *b = realpath(places->state, NULL);
	char shown[256], other[256];

	if (!a || !b || strcmp(a, b) == 0)
		return NULL;
	text_escape_into(shown, sizeof(shown), places->socket, strlen(places->socket));
	text_escape_into(other, sizeof(other), a, strlen(a));
	return failure_new("conflict", "choose another with LIMB_SOCKET",
			   "the limbd at '%s' has another state directory, '%s'", shown, other);
}

static json_t *open_state(const struct places *places, int *ret_fd)
{
	json_t *failure = places_check_socket(places);
	int r;

	if (!failure)
		failure = places_check_owner(places);
	if (failure)
		return failure;
	if (strcmp(places->state, "/") == 0)
		return failure_new("invalid_path", "choose another --state DIR",
				   "the state directory cannot be '/': it would stand among the "
				   "system's directories");
	r = file_make_dirs(places->state);
	if (r < 0)
		return cannot(r, "make the state directory", places->state);
	r = file_open_dir(AT_FDCWD, places->state);
	if (r < 0)
		return cannot(r, "open the state directory", places->state);
	*ret_fd = r;
	return NULL;
}

/* limbd answers before it ends; what it held is free when it is gone. */
static json_t *wait_end(pid_t pid, int pidfd)
{
	struct pollfd p = {.fd = pidfd, .events = POLLIN};

	if (pidfd >= 0 && TEMP_FAILURE_RETRY(poll(&p, 1, DOWN_MS)) != 0)
		return NULL;
	for (uint64_t end = clock_mono_ms() + DOWN_MS; pidfd < 0 && clock_mono_ms() < end;) {
		if (kill(pid, 0) < 0)
			return NULL;
		sleep_ms(POLL_MS);
	}
	return failure_new("timed_out", "see limbd.log in the state directory",
			   "limbd (process %d) has not ended within %d s", (int)pid,
			   DOWN_MS / 1000);
}

json_t *up_run(const struct places *places, bool foreground, json_t **ret_result, pid_t *ret_pid)
{
	cleanup_close int state_fd = -1, lock_fd = -1;
	struct client *c = NULL;
	json_t *failure;

	*ret_pid = 0;
	failure = open_state(places, &state_fd);
	if (!failure)
		failure = take_lock(places, state_fd, &lock_fd);
	if (failure)
		return failure;
	failure = client_connect(places, &c);
	if (!failure) {
		pid_t pid = client_peer_pid(c);
		cleanup_close int pidfd = (int)syscall(SYS_pidfd_open, pid, 0);

		failure = ask_up(c, ret_result);
		client_free(c);
		if (!failure) {
			failure = other_state(places, *ret_result);
			if (failure)
				json_decref(take_ptr(ret_result));
			else
				(void)json_object_set_new(*ret_result, "started", json_false());
			return failure;
		}
		/* One that is just dying took the connection, and has the lock for a moment more. */
		if (failure && client_is_unreachable(failure))
			json_decref(wait_end(pid, pidfd));
	}
	if (!client_is_unreachable(failure))
		return failure;
	json_decref(failure);
	failure = open_mount(places);
	if (!failure)
		failure = start(places, state_fd, foreground, ret_result, ret_pid);
	if (!failure)
		(void)json_object_set_new(*ret_result, "started", json_true());
	return failure;
}

static volatile sig_atomic_t forward_pid;

static void forward(int sig)
{
	(void)kill((pid_t)forward_pid, sig);
}

int up_wait(pid_t pid)
{
	static const int signals[] = {SIGTERM, SIGINT, SIGHUP};
	struct sigaction sa = {.sa_handler = forward, .sa_flags = SA_RESTART};
	int status;

	forward_pid = pid;
	for (size_t i = 0; i < ARRAY_SIZE(signals); i++)
		(void)sigaction(signals[i], &sa, NULL);
	if (TEMP_FAILURE_RETRY(waitpid(pid, &status, 0)) < 0)
		return EXIT_COULD_NOT;
	return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

json_t *down_run(const struct places *places, const json_t *params, json_t **ret_result)
{
	cleanup_close int pidfd = -1;
	struct client *c = NULL;
	json_t *answer = NULL, *failure = client_connect(places, &c);
	struct client_call call = {.method = "down",
				   .params = (json_t *)params,
				   .in_fd = -1,
				   .out_fd = -1,
				   .err_fd = STDERR_FILENO};
	enum client_outcome outcome;
	pid_t pid;

	if (failure) {
		if (!client_is_unreachable(failure))
			return failure;
		json_decref(failure);
		*ret_result = json_pack("{s:b, s:[], s:i}", "stopped", 0, "environments_running",
					"pending_bytes", 0);
		return NULL;
	}
	pid = client_peer_pid(c);
	pidfd = (int)syscall(SYS_pidfd_open, pid, 0);
	outcome = client_call(c, &call, &answer);
	client_free(c);
	if (outcome == CLIENT_FAILED)
		return answer;
	if (outcome != CLIENT_RESULT)
		return json_pack("{s:s, s:s, s:i}", "error", "internal", "detail", "interrupted",
				 "exit", EXIT_INTERRUPTED);
	failure = wait_end(pid, pidfd);
	if (failure) {
		json_decref(answer);
		return failure;
	}
	*ret_result = answer;
	return NULL;
}
