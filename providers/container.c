/*
 * container - a provider by podman or docker, whichever is there.
 *
 * The target is an image, or, with podman, an absolute directory that is a root
 * file system; nothing is written to that.  The container has the root as /w,
 * limb-syncd's private directory and limb-syncd itself; its first process is
 * limb-syncd init.  Without a word in the spec it has no network.
 *
 * Everything is asked of the container engine anew each time: its names and
 * labels are the record.
 */
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/io.h"
#include "base/text.h"
#include "providers/provider.h"
#include "providers/sandbox.h"
#include "providers/words.h"

enum {
	SAID_MAX = 64 << 10,
	PIDS_DEFAULT = 4096,
	STOP_S = 10, /* as limb-syncd init needs for jobs that do not want to end */
};

struct engine {
	const char *name; /* NULL: none is there */
	bool podman;
};

static bool is_there(const char *program)
{
	const char *path = getenv("PATH"), *end;
	char file[4096];

	for (path = path ? path : "/usr/bin:/bin"; *path; path = *end ? end + 1 : end) {
		end = path + strcspn(path, ":");
		if ((size_t)snprintf(file, sizeof(file), "%.*s/%s", (int)(end - path), path,
				     program) < sizeof(file) &&
		    access(file, X_OK) == 0)
			return true;
	}
	return false;
}

static struct engine find_engine(void)
{
	if (is_there("podman"))
		return (struct engine){"podman", true};
	if (is_there("docker"))
		return (struct engine){"docker", false};
	return (struct engine){0};
}

static json_t *no_engine(void)
{
	return provider_failure("unsupported", "install podman",
				"neither podman nor docker is in PATH");
}

static json_t *info(const struct provider_call *call, json_t **ret)
{
	*ret = json_pack("{s:i, s:s, s:s, s:[s,s,s,s,s,s,s,s,s,s], s:[s,s],"
			 " s:{s:s, s:s, s:s, s:s, s:s}, s:{s:s, s:s}}",
			 "protocol", 1, "name", "container", "version", PACKAGE_VERSION, "verbs",
			 "info", "create", "start", "stop", "delete", "status", "command", "list",
			 "pause", "resume", "isolation", "container", "no new privileges",
			 "enforces", "cpu", "kernel", "memory", "kernel", "pids", "kernel", "disk",
			 "none", "network", "kernel", "keeps", "stop", "files", "pause",
			 "processes");
	/* An account without a cgroup of its own is given none. */
	if (geteuid() == 0)
		(void)json_object_set_new(*ret, "limits", json_pack("{s:i}", "pids", PIDS_DEFAULT));
	return NULL;
}

/* ---- one run of the engine ---- */

struct said {
	struct buf out, err;
	int status;
};

static void said_done(struct said *s)
{
	buf_done(&s->out);
	buf_done(&s->err);
}

/* True while there may be more. What is too much is dropped. */
static bool read_some(int fd, struct buf *b)
{
	char room[4096];
	ssize_t n = io_read_some(fd, room, sizeof(room), "container.read");

	if (n == -EAGAIN)
		return true;
	if (n > 0)
		(void)buf_add(b, room, (size_t)n);
	return n > 0;
}

static int run(const struct provider_call *call, char **argv, struct said *s)
{
	int out[2], err[2], null, status = 0, r = 0;
	struct pollfd p[2] = {{.events = POLLIN}, {.events = POLLIN}};
	pid_t pid;

	buf_init(&s->out, SAID_MAX);
	buf_init(&s->err, SAID_MAX);
	null = open("/dev/null", O_RDONLY | O_CLOEXEC);
	if (null < 0 || pipe2(out, O_CLOEXEC) < 0 || pipe2(err, O_CLOEXEC) < 0 ||
	    (pid = fork()) < 0)
		return -errno;
	if (pid == 0) {
		(void)prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
		if (dup2(null, 0) < 0 || dup2(out[1], 1) < 0 || dup2(err[1], 2) < 0)
			_exit(127);
		(void)execvp(argv[0], argv);
		_exit(127);
	}
	(void)close(null);
	(void)close(out[1]);
	(void)close(err[1]);
	p[0].fd = out[0];
	p[1].fd = err[0];
	/* Until it has ended: what it leaves behind may hold its streams. */
	while (r >= 0 && waitpid(pid, &status, WNOHANG) == 0) {
		if (clock_mono_ms() >= call->end_ms)
			r = -ETIMEDOUT;
		else if (poll(p, 2, 20) > 0)
			for (size_t i = 0; i < 2; i++)
				if (p[i].revents && !read_some(p[i].fd, i ? &s->err : &s->out))
					p[i].fd = -1;
	}
	if (r < 0) {
		(void)kill(pid, SIGKILL);
		(void)waitpid(pid, &status, 0);
	}
	while (poll(p, 2, 0) > 0)
		for (size_t i = 0; i < 2; i++)
			if (p[i].revents && !read_some(p[i].fd, i ? &s->err : &s->out))
				p[i].fd = -1;
	(void)close(out[0]);
	(void)close(err[0]);
	s->status = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
	(void)buf_add(&s->out, "", 1);
	(void)buf_add(&s->err, "", 1);
	return r;
}

/* The engine's own words, the last line: there stands what went wrong. */
static json_t *failed(const struct engine *e, const char *what, int r, const struct said *s)
{
	const char *text = s->err.cap ? (const char *)buf_data(&s->err) : "", *line;
	size_t n = strlen(text);
	char shown[400];

	if (r == -ETIMEDOUT)
		return provider_failure("timed_out", NULL, "%s did not %s in time", e->name, what);
	if (r < 0)
		return provider_failure_errno(r, what);
	while (n > 0 && text[n - 1] == '\n')
		n--;
	for (line = text + n; line > text && line[-1] != '\n'; line--)
		;
	n -= (size_t)(line - text);
	return provider_failure(strstr(text, "o space left") ? "no_space" : "io_error", NULL,
				"%s cannot %s: %s", e->name, what,
				n ? text_escape_into(shown, sizeof(shown), line, n)
				  : "it does not say why");
}

static const char *container_name(const struct provider_call *call)
{
	static char name[80];

	(void)snprintf(name, sizeof(name), "limb-%s", call->id);
	return name;
}

/* ENGINE WORDS... NAME */
static json_t *tell(const struct provider_call *call, const struct engine *e, const char *what,
		    const char *words)
{
	_cleanup_(words_done) struct words w = {0};
	_cleanup_(said_done) struct said s = {0};
	int r = words_add(&w, e->name);

	if (r >= 0)
		r = words_split(&w, words);
	if (r >= 0)
		r = words_add(&w, container_name(call));
	if (r >= 0)
		r = run(call, w.v, &s);
	return r < 0 || s.status ? failed(e, what, r, &s) : NULL;
}

/* ---- what there is ---- */

struct state {
	bool exists, running, paused;
	int pid;
};

static json_t *look(const struct provider_call *call, const struct engine *e, struct state *ret)
{
	char *argv[] = {(char *)e->name,
			(char *)"container",
			(char *)"inspect",
			(char *)"--format",
			(char *)"{{.State.Status}} {{.State.Pid}}",
			(char *)container_name(call),
			NULL};
	_cleanup_(said_done) struct said s = {0};
	char word[32] = "";
	int r = run(call, argv, &s);

	*ret = (struct state){0};
	if (r < 0)
		return failed(e, "say what runs", r, &s);
	if (s.status) {
		/* "no such container", in the words of each engine and version */
		if (strcasestr((const char *)buf_data(&s.err), "no such") ||
		    strcasestr((const char *)buf_data(&s.err), "no container"))
			return NULL;
		return failed(e, "say what runs", 0, &s);
	}
	ret->exists = true;
	if (sscanf((const char *)buf_data(&s.out), "%31s %d", word, &ret->pid) < 1)
		ret->pid = 0;
	ret->paused = strcmp(word, "paused") == 0;
	ret->running = ret->paused || strcmp(word, "running") == 0;
	return NULL;
}

static json_t *state_answer(const struct state *st)
{
	if (!st->exists)
		return provider_status("NotFound", 0);
	if (!st->running)
		return provider_status("Stopped", 0);
	return provider_status(st->paused ? "Paused" : "Running", st->pid);
}

/* Every verb begins with the engine and what it has. */
static json_t *begin(const struct provider_call *call, struct engine *e, struct state *st)
{
	*e = find_engine();
	return e->name ? look(call, e, st) : no_engine();
}

/* ---- create ---- */

static json_t *add_limits(const struct provider_call *call, struct words *w)
{
	json_t *limits = json_object_get(call->spec, "limits"), *value;
	long long pids = PIDS_DEFAULT;
	const char *key;
	char text[64];
	int r = 0;

	json_object_foreach(limits, key, value)
	{
		double number = json_number_value(value);

		if (number <= 0)
			return provider_failure("usage", NULL, "the limit '%s' is no number", key);
		if (strcmp(key, "pids") == 0) {
			pids = (long long)number;
			continue;
		}
		if (strcmp(key, "cpu") == 0)
			(void)snprintf(text, sizeof(text), "--cpus=%g", number);
		else if (strcmp(key, "memory_bytes") == 0)
			(void)snprintf(text, sizeof(text), "--memory=%lld", (long long)number);
		else
			return provider_failure("unsupported", NULL,
						"containers cannot keep the limit '%s'; they know "
						"cpu, memory_bytes, pids",
						key);
		r = words_add(w, text);
		/* Else as much again may be swapped out. */
		if (r >= 0 && strcmp(key, "memory_bytes") == 0) {
			(void)snprintf(text, sizeof(text), "--memory-swap=%lld", (long long)number);
			r = words_add(w, text);
		}
		if (r < 0)
			return provider_failure_errno(r, "limits");
	}
	(void)snprintf(text, sizeof(text), "--pids-limit=%lld", pids);
	r = words_add(w, text);
	return r < 0 ? provider_failure_errno(r, "limits") : NULL;
}

static json_t *add_network(const struct provider_call *call, struct words *w)
{
	json_t *network = json_object_get(call->spec, "network");
	const char *name = json_string_value(network);
	cleanup_free char *text = NULL;

	if (json_is_true(network)) /* what the engine gives by default */
		return NULL;
	if (network && !json_is_false(network) && !(name && words_plain(name)))
		return provider_failure("usage", NULL,
					"network is true, false or a network's name");
	if (asprintf(&text, "--network=%s", name ? name : "none") < 0)
		text = NULL;
	return !text || words_add(w, text) < 0 ? provider_failure("internal", NULL, "out of memory")
					       : NULL;
}

static json_t *add_mount(struct words *w, const char *from, const char *to, const char *mode)
{
	cleanup_free char *text = NULL;

	if (strchr(from, ':'))
		return provider_failure("invalid_path", "limb --state DIR",
					"a container cannot be given '%s': there is a colon in it",
					from);
	if (asprintf(&text, "--volume=%s:%s%s", from, to, mode) < 0)
		text = NULL;
	return !text || words_add(w, text) < 0 ? provider_failure("internal", NULL, "out of memory")
					       : NULL;
}

/* The image's name, or the directory of the root file system. */
static json_t *add_image(const struct provider_call *call, const struct engine *e, struct words *w)
{
	const char *image = json_string_value(json_object_get(call->spec, "target"));
	cleanup_free char *over = NULL;
	char shown[200];
	int r;

	if (!image)
		image = json_string_value(json_object_get(call->spec, "image"));
	if (!image || !*image)
		return provider_failure("usage", "limb create NAME --provider container:IMAGE",
					"a container needs an image, or a directory with a root "
					"file system: container:IMAGE or container:/DIR");
	text_escape_into(shown, sizeof(shown), image, strlen(image));
	if (image[0] == '-' || !words_plain(image))
		return provider_failure("usage", NULL, "'%s' names no image", shown);
	if (image[0] != '/') {
		r = words_add(w, image);
		return r < 0 ? provider_failure_errno(r, "the image") : NULL;
	}
	if (!e->podman)
		return provider_failure("unsupported", "install podman",
					"docker takes images only, not the directory '%s'", shown);
	if (access(image, F_OK) < 0)
		return provider_failure("file_not_found", NULL, "the root file system '%s': %s",
					shown, strerror(errno));
	/* What is written goes to a layer of the container's. */
	if (asprintf(&over, "%s:O", image) < 0)
		over = NULL;
	r = words_add(w, "--rootfs");
	if (r >= 0)
		r = over ? words_add(w, over) : -ENOMEM;
	return r < 0 ? provider_failure_errno(r, "the root file system") : NULL;
}

static json_t *make_argv(const struct provider_call *call, const struct engine *e, struct words *w)
{
	cleanup_free char *labels = NULL, *private = NULL;
	json_t *failure = NULL;
	int r;

	if (asprintf(&labels, "%s create --name %s --label limb.id=%s --label limb.brain=%s",
		     e->name, container_name(call), call->id, call->brain ? call->brain : "-") < 0)
		labels = NULL;
	if (asprintf(&private, "%s/" SANDBOX_RUN, call->dir) < 0)
	private = NULL;
	if (!labels || !private)
		return provider_failure("internal", NULL, "out of memory");
	r = words_split(w, labels);
	if (r >= 0)
		r = words_split(w, "--security-opt no-new-privileges --security-opt label=disable "
				   "--entrypoint " SANDBOX_SYNCD);
	/* What a process there says must not fill this machine's disk. */
	if (r >= 0)
		r = words_split(w, e->podman ? "--log-driver k8s-file --log-opt max-size=1mb"
					     : "--log-driver json-file --log-opt max-size=1m");
	if (r < 0)
		return provider_failure_errno(r, "create");
	failure = add_limits(call, w);
	if (!failure)
		failure = add_network(call, w);
	if (!failure)
		failure = add_mount(w, call->root, SANDBOX_ROOT, "");
	if (!failure)
		failure = add_mount(w, private, SANDBOX_DIR, "");
	if (!failure)
		failure = add_mount(w, call->syncd, SANDBOX_SYNCD, ":ro");
	if (!failure)
		failure = add_image(call, e, w);
	if (failure)
		return failure;
	r = words_split(w, "init --dir " SANDBOX_DIR " --root " SANDBOX_ROOT " --env");
	if (r >= 0)
		r = words_add(w, call->id);
	return r < 0 ? provider_failure_errno(r, "create") : NULL;
}

/* For an account without a cgroup of its own podman leaves limits out, and makes the container
 * all the same. */
static json_t *check_limits(const struct provider_call *call, const struct engine *e)
{
	json_t *limits = json_object_get(call->spec, "limits"), *value;
	char *argv[] = {(char *)e->name,
			(char *)"container",
			(char *)"inspect",
			(char *)"--format",
			(char *)"{{.HostConfig.Memory}} {{.HostConfig.NanoCpus}} "
				"{{.HostConfig.PidsLimit}}",
			(char *)container_name(call),
			NULL};
	_cleanup_(said_done) struct said s = {0};
	long long memory = 0, cpu = 0, pids = 0;
	const char *key;
	int r;

	if (!json_object_size(limits))
		return NULL;
	r = run(call, argv, &s);
	if (r < 0 || s.status)
		return failed(e, "say what limits it keeps", r, &s);
	/* Words that are no numbers are limits that are not set. */
	(void)sscanf((const char *)buf_data(&s.out), "%lld %lld %lld", &memory, &cpu, &pids);
	json_object_foreach(limits, key, value) if (
		strcmp(key, "memory_bytes") == 0 ? memory <= 0
		: strcmp(key, "cpu") == 0
			? cpu <= 0
			: pids <= 0) return provider_failure("unsupported", "limb help create",
							     "%s does not keep the limit '%s' for "
							     "this account, which has no "
							     "cgroup of its own; leave it out of "
							     "the spec, or run limbd as "
							     "root or by: systemd-run --user "
							     "--scope -p Delegate=yes limb up",
							     e->name, key);
	return NULL;
}

static json_t *create(const struct provider_call *call, json_t **ret)
{
	_cleanup_(words_done) struct words w = {0};
	_cleanup_(said_done) struct said s = {0};
	json_t *failure = provider_check_root(call, true);
	struct state st = {0};
	struct engine e;
	int r;

	if (!failure && !call->syncd)
		failure = provider_failure("usage", NULL, "spec.syncd is missing");
	if (!failure)
		failure = begin(call, &e, &st);
	if (!failure)
		failure = make_argv(call, &e, &w);
	/* A new life begins with the image as it is. */
	if (!failure && st.exists && json_is_true(json_object_get(call->in, "fresh"))) {
		failure = tell(call, &e, "remove its container", "rm -f -v");
		st.exists = false;
	}
	if (failure)
		return failure;
	if (!st.exists) {
		r = file_make_dir(call->dir_fd, SANDBOX_RUN);
		if (r < 0)
			return provider_failure_errno(r, "cannot make the private directory");
		r = run(call, w.v, &s);
		if (r < 0 || s.status)
			return failed(&e, "make the container", r, &s);
		failure = check_limits(call, &e);
		if (failure) {
			json_decref(tell(call, &e, "remove its container", "rm -f -v"));
			return failure;
		}
	}
	*ret = json_pack("{s:s, s:s, s:s, s:s, s:s}", "handle", container_name(call), "root",
			 SANDBOX_ROOT, "host_root", call->root, "dir", SANDBOX_DIR, "syncd",
			 SANDBOX_SYNCD);
	return NULL;
}

/* ---- life ---- */

static json_t *answer_now(const struct provider_call *call, const struct engine *e, json_t **ret)
{
	struct state st;
	json_t *failure = look(call, e, &st);

	if (!failure)
		*ret = state_answer(&st);
	return failure;
}

static json_t *start(const struct provider_call *call, json_t **ret)
{
	struct state st;
	struct engine e;
	json_t *failure = begin(call, &e, &st);

	if (failure)
		return failure;
	if (!st.exists)
		return provider_failure("file_not_found", "limb rebuild NAME",
					"its container is gone");
	if (!st.running) {
		failure = provider_check_root(call, false);
		if (!failure)
			failure = tell(call, &e, "start the container", "start");
	}
	return failure ? failure : answer_now(call, &e, ret);
}

static json_t *stop(const struct provider_call *call, json_t **ret)
{
	struct state st;
	struct engine e;
	json_t *failure = begin(call, &e, &st);
	char words[32];

	(void)snprintf(words, sizeof(words), "stop -t %d", STOP_S);
	if (!failure && st.paused)
		failure = tell(call, &e, "resume the container", "unpause");
	if (!failure && st.running)
		failure = tell(call, &e, "stop the container", words);
	return failure ? failure : answer_now(call, &e, ret);
}

static json_t *delete (const struct provider_call *call, json_t **ret)
{
	struct state st = {0};
	struct engine e = find_engine();
	json_t *failure = e.name ? look(call, &e, &st) : NULL;

	if (!failure && st.exists)
		failure = tell(call, &e, "remove its container", "rm -f -v");
	if (!failure)
		*ret = provider_status("NotFound", 0);
	return failure;
}

static json_t *status(const struct provider_call *call, json_t **ret)
{
	struct state st;
	struct engine e;
	json_t *failure = begin(call, &e, &st);

	if (!failure)
		*ret = state_answer(&st);
	return failure;
}

static json_t *pause_it(const struct provider_call *call, json_t **ret)
{
	struct state st;
	struct engine e;
	json_t *failure = begin(call, &e, &st);

	if (!failure && st.running && !st.paused)
		failure = tell(call, &e, "pause the container", "pause");
	return failure ? failure : answer_now(call, &e, ret);
}

static json_t *resume(const struct provider_call *call, json_t **ret)
{
	struct state st;
	struct engine e;
	json_t *failure = begin(call, &e, &st);

	if (!failure && st.paused)
		failure = tell(call, &e, "resume the container", "unpause");
	return failure ? failure : answer_now(call, &e, ret);
}

static json_t *command(const struct provider_call *call, json_t **ret)
{
	json_t *argv = json_object_get(call->in, "argv"), *list, *word;
	struct engine e = find_engine();
	size_t i;

	if (!e.name)
		return no_engine();
	if (!json_is_array(argv) || json_array_size(argv) == 0)
		return provider_failure("usage", NULL, "argv is missing");
	list = json_pack("[s,s,s,s]", e.name, "exec", "-i", container_name(call));
	json_array_foreach(argv, i, word)(void) json_array_append(list, word);
	*ret = json_pack("{s:o}", "argv", list);
	return NULL;
}

static json_t *list(const struct provider_call *call, json_t **ret)
{
	struct engine e = find_engine();
	const char *format =
		e.podman ? "{{index .Labels \"limb.id\"}} {{index .Labels \"limb.brain\"}}"
			 : "{{.Label \"limb.id\"}} {{.Label \"limb.brain\"}}";
	char *argv[] = {(char *)e.name,
			(char *)"ps",
			(char *)"--filter",
			(char *)"label=limb.id",
			(char *)"--format",
			(char *)format,
			NULL};
	_cleanup_(said_done) struct said s = {0};
	json_t *array = json_array();
	char *line, *save = NULL;
	int r = e.name ? run(call, argv, &s) : 0;

	if (e.name && (r < 0 || s.status)) {
		json_decref(array);
		return failed(&e, "list containers", r, &s);
	}
	line = e.name ? strtok_r((char *)buf_data(&s.out), "\n", &save) : NULL;
	for (; line; line = strtok_r(NULL, "\n", &save)) {
		char id[65], brain[65], name[80];

		if (sscanf(line, "%64[0-9a-fA-F-] %64[0-9a-f-]", id, brain) != 2)
			continue;
		(void)snprintf(name, sizeof(name), "limb-%s", id);
		(void)json_array_append_new(array, json_pack("{s:s, s:s, s:s}", "id", id, "handle",
							     name, "brain", brain));
	}
	*ret = json_pack("{s:o}", "environments", array);
	return NULL;
}

static const struct provider_verb verbs[] = {
	{"info", info, false},	    {"create", create, true}, {"start", start, true},
	{"stop", stop, true},	    {"delete", delete, true}, {"status", status, true},
	{"command", command, true}, {"list", list, false},    {"pause", pause_it, true},
	{"resume", resume, true},
};

int main(int argc, char **argv)
{
	return provider_main("container", argc, argv, verbs, ARRAY_SIZE(verbs));
}
