#include "providers/remote-call.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "base/clock.h"
#include "base/io.h"
#include "base/sha256.h"
#include "base/text.h"
#include "base/util.h"
#include "providers/remote-script.h"

enum {
	NOISE_MAX = 16 << 20, /* as limb-ingest skips before a stream's mark */
	LINES_MAX = 256 << 10,
	READ_BYTES = 64 << 10,
	END_MS = 500, /* for a transport that was told to end */
};

struct flow {
	const struct remote *rm;
	struct remote_call *c;
	void (*on_line)(const char *line, void *userdata);
	void *userdata;
	struct remote_end *end;

	pid_t pid;
	int in, out, err; /* our ends; -1: closed */
	char mark[48];	  /* before the script's first line */
	struct buf ask;	  /* script and arguments, then: */
	const uint8_t *binary;
	size_t binary_done, matched, noise, line;
	bool wanted, over;
	size_t said_n;
};

/* ---- the other side's program ---- */

/* What the login shell gets is one word that is the same in sh, csh and fish: no newline, no
 * backslash but before digits, no '!'. It reads the script by lines and runs it. The mark
 * comes in two parts, so that a command line which is shown does not pass for it. */
static int bootstrap(struct buf *b, const char *nonce)
{
	return buf_printf(b,
			  "printf \"%%s%%s\" LIMB- %s-; n=$(printf %%b \"\\0012x\"); n=${n%%x}; "
			  "s=; while IFS= read -r l; do case $l in END-%s) break;; esac; "
			  "s=\"$s$l$n\"; done; eval \"$s\"",
			  nonce, nonce);
}

static int make_argv(struct flow *f, struct words *argv, const char *nonce)
{
	_cleanup_(buf_done) struct buf script = BUF_INIT(4096), word = BUF_INIT(8192);
	int r;

	for (size_t i = 0; i < f->rm->argv.n; i++)
		if ((r = words_add(argv, f->rm->argv.v[i])) < 0)
			return r;
	r = bootstrap(&script, nonce);
	if (r >= 0)
		r = buf_add(&script, "", 1);
	if (r < 0)
		return r;
	if (f->rm->by_shell) {
		r = buf_printf(&word, "exec sh -c '%s'", (const char *)buf_data(&script));
		if (r >= 0)
			r = buf_add(&word, "", 1);
		return r < 0 ? r : words_add(argv, (const char *)buf_data(&word));
	}
	r = words_add(argv, "sh");
	if (r >= 0)
		r = words_add(argv, "-c");
	return r < 0 ? r : words_add(argv, (const char *)buf_data(&script));
}

static int make_ask(struct flow *f, const char *nonce)
{
	const struct provider_call *call = f->rm->call;
	const struct remote_call *c = f->c;
	bool keep = json_is_true(json_object_get(call->spec, "in_place"));
	bool fresh = json_is_true(json_object_get(call->in, "fresh"));
	long long incarnation = json_integer_value(json_object_get(call->in, "incarnation"));

	return buf_printf(&f->ask, "%sEND-%s\n%s\n%s\n%s\n%s\n%llu\n%s\n%s\n%s\n%lld\n%s\n%s\n",
			  remote_script, nonce, c->verb, call->id ? call->id : "",
			  call->mark ? call->mark : "", c->hash, (unsigned long long)c->size_bytes,
			  f->rm->root ? f->rm->root : "", keep ? "1" : "", fresh ? "1" : "",
			  incarnation, c->base, c->bin);
}

static int spawn(struct flow *f, char **argv)
{
	int in[2] = {-1, -1}, out[2] = {-1, -1}, err[2] = {-1, -1};

	if (pipe2(in, O_CLOEXEC) < 0 || pipe2(out, O_CLOEXEC) < 0 || pipe2(err, O_CLOEXEC) < 0)
		return -errno; /* the process ends with that */
	f->pid = fork();
	if (f->pid < 0)
		return -errno;
	if (f->pid == 0) {
		(void)prctl(PR_SET_PDEATHSIG, SIGTERM, 0, 0, 0);
		(void)signal(SIGPIPE, SIG_DFL);
		if (dup2(in[0], 0) < 0 || dup2(out[1], 1) < 0 || dup2(err[1], 2) < 0)
			_exit(127);
		(void)execvp(argv[0], argv);
		(void)dprintf(2, "%s\n", strerror(errno));
		_exit(127);
	}
	(void)close(in[0]);
	(void)close(out[1]);
	(void)close(err[1]);
	f->in = in[1];
	f->out = out[0];
	f->err = err[0];
	(void)fcntl(f->in, F_SETFL, O_NONBLOCK);
	return 0;
}

/* ---- bytes ---- */

static void close_in(struct flow *f)
{
	if (f->in >= 0)
		(void)close(f->in);
	f->in = -1;
}

static bool has_more(const struct flow *f)
{
	return buf_len(&f->ask) > 0 || (f->wanted && f->binary_done < f->c->size_bytes);
}

/* A stream that takes no more is told by its other end. */
static void send_some(struct flow *f)
{
	bool ask = buf_len(&f->ask) > 0;
	const uint8_t *p = ask ? buf_data(&f->ask) : f->binary + f->binary_done;
	size_t n = ask ? buf_len(&f->ask) : (size_t)f->c->size_bytes - f->binary_done;
	ssize_t done = io_write_some(f->in, p, n, "remote.write");

	if (done == -EAGAIN)
		return;
	if (done < 0)
		close_in(f);
	else if (ask)
		buf_consume(&f->ask, (size_t)done);
	else
		f->binary_done += (size_t)done;
	if (f->wanted && !has_more(f))
		close_in(f);
}

static void take_line(struct flow *f, char *line)
{
	if (strcmp(line, "want") == 0 && f->binary)
		f->wanted = true;
	else if (strcmp(line, "over") == 0)
		f->over = true;
	else
		f->on_line(line, f->userdata);
}

/* The mark's first byte is nowhere else in it, so a plain comparison finds it. */
static size_t skip_noise(struct flow *f, const char *p, size_t n)
{
	size_t i;

	for (i = 0; i < n && f->mark[f->matched]; i++) {
		if (p[i] == f->mark[f->matched])
			f->matched++;
		else
			f->matched = p[i] == f->mark[0];
	}
	f->noise += i;
	f->end->began = f->mark[f->matched] == '\0';
	if (!f->end->began && f->noise > NOISE_MAX)
		f->end->noisy = true;
	return i;
}

static int take_output(struct flow *f, const char *p, size_t n)
{
	struct buf *b = &f->c->lines;
	size_t skipped = 0;
	uint8_t *end;
	int r;

	if (!f->end->began)
		skipped = skip_noise(f, p, n);
	if (f->end->noisy)
		return -E2BIG;
	r = buf_add(b, p + skipped, n - skipped);
	while (r >= 0 && !f->over && buf_len(b) > f->line &&
	       (end = memchr(buf_data(b) + f->line, '\n', buf_len(b) - f->line))) {
		char *line = (char *)buf_data(b) + f->line;

		*end = '\0';
		f->line = (size_t)(end + 1 - buf_data(b));
		take_line(f, line);
	}
	return r;
}

/* The last part is kept: there stands why. */
static void take_said(struct flow *f, const char *p, size_t n)
{
	size_t room = sizeof(f->c->said) - 1;

	if (n > room) {
		p += n - room;
		n = room;
	}
	if (f->said_n + n > room) {
		size_t gone = f->said_n + n - room;

		memmove(f->c->said, f->c->said + gone, f->said_n - gone);
		f->said_n -= gone;
	}
	memcpy(f->c->said + f->said_n, p, n);
	f->said_n += n;
	f->c->said[f->said_n] = '\0';
}

static int receive(struct flow *f, int *fd, bool said)
{
	static char room[READ_BYTES];
	ssize_t n = io_read_some(*fd, room, sizeof(room), "remote.read");

	if (n == -EAGAIN)
		return 0;
	if (n <= 0) {
		(void)close(*fd);
		*fd = -1;
		return 0;
	}
	if (said) {
		take_said(f, room, (size_t)n);
		return 0;
	}
	return take_output(f, room, (size_t)n);
}

static void converse(struct flow *f)
{
	uint64_t end_ms = f->rm->call->end_ms, quiet_ms = UINT64_MAX, now;
	int r = 0;

	while (!f->over && r >= 0 && (f->out >= 0 || f->err >= 0)) {
		struct pollfd p[3] = {{f->out, POLLIN, 0},
				      {f->err, POLLIN, 0},
				      {has_more(f) ? f->in : -1, POLLOUT, 0}};

		now = clock_mono_ms();
		if (now >= end_ms) {
			f->end->late = true;
			return;
		}
		/* Why it ended is read, but what it left behind may hold stderr for ever. */
		if (f->out < 0 && quiet_ms == UINT64_MAX)
			quiet_ms = now + END_MS;
		if (now >= quiet_ms)
			return;
		if (poll(p, 3, (int)MIN(MIN(end_ms, quiet_ms) - now, (uint64_t)60000)) < 0)
			continue;
		if (p[1].revents)
			r = receive(f, &f->err, true);
		if (p[0].revents)
			r = receive(f, &f->out, false);
		if (p[2].revents && f->in >= 0)
			send_some(f);
	}
}

/* It ends by itself when its stream does; else it is made to. */
static int wait_end(struct flow *f)
{
	uint64_t patience = clock_mono_ms() + (f->end->late ? 0 : END_MS);
	int status = 0, sig = SIGTERM;
	pid_t r;

	close_in(f);
	while ((r = waitpid(f->pid, &status, WNOHANG)) == 0) {
		if (clock_mono_ms() >= patience) {
			(void)kill(f->pid, sig);
			sig = SIGKILL;
			patience = clock_mono_ms() + END_MS;
		}
		(void)poll(NULL, 0, 2);
	}
	if (r < 0)
		return 127;
	return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

/* ---- limb-syncd's bytes ---- */

static int map_binary(struct flow *f)
{
	cleanup_close int fd = -1;
	uint8_t hash[SHA256_BYTES];
	struct stat st;
	void *p;

	if (!f->c->syncd)
		return 0;
	fd = open(f->c->syncd, O_RDONLY | O_CLOEXEC);
	if (fd < 0 || fstat(fd, &st) < 0)
		return -errno;
	if (st.st_size <= 0)
		return -ENODATA;
	p = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
	if (p == MAP_FAILED)
		return -errno;
	f->binary = p;
	f->c->size_bytes = (uint64_t)st.st_size;
	sha256(p, (size_t)st.st_size, hash);
	text_hex(f->c->hash, hash, sizeof(hash));
	return 0;
}

int remote_call_run(const struct remote *rm, struct remote_call *c,
		    void (*on_line)(const char *line, void *userdata), void *userdata,
		    struct remote_end *ret_end)
{
	_cleanup_(words_done) struct words argv = {0};
	struct flow f = {.rm = rm,
			 .c = c,
			 .on_line = on_line,
			 .userdata = userdata,
			 .end = ret_end,
			 .in = -1,
			 .out = -1,
			 .err = -1};
	uint8_t random[12];
	char nonce[2 * sizeof(random) + 1];
	int r;

	*ret_end = (struct remote_end){.said = c->said};
	random_bytes(random, sizeof(random));
	text_hex(nonce, random, sizeof(random));
	(void)snprintf(f.mark, sizeof(f.mark), "LIMB-%s-", nonce);
	buf_init(&f.ask, 64 << 10);
	buf_init(&c->lines, LINES_MAX);
	(void)signal(SIGPIPE, SIG_IGN);
	r = map_binary(&f);
	if (r >= 0)
		r = make_argv(&f, &argv, nonce);
	if (r >= 0)
		r = make_ask(&f, nonce);
	if (r >= 0)
		r = spawn(&f, argv.v);
	if (r >= 0) {
		converse(&f);
		ret_end->status = wait_end(&f);
	}
	ret_end->failed = r;
	buf_done(&f.ask);
	if (f.binary)
		(void)munmap((void *)f.binary, (size_t)c->size_bytes);
	if (f.out >= 0)
		(void)close(f.out);
	if (f.err >= 0)
		(void)close(f.err);
	return f.over ? 0 : -EPIPE;
}
