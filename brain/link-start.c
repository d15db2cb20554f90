/* Starting a line: the provider's command, the transport, limb-ingest. */
#include "brain/link-impl.h"

#include <fcntl.h>
#include <sys/socket.h>
#include "base/buf.h"
#include "base/file.h"
#include "base/log.h"
#include "base/text.h"
#include "brain/proof.h"
#include "brain/provider.h"

enum {
	HELLO_MS = 20000,
	SAID_MAX = 4096,
};

static void hello_late(uv_timer_t *t)
{
	struct link *l = container_of(t, struct link, hello_timer);

	(void)env_set_reason(l->env, "line_down",
			     "no word from limb-syncd in %d s; limbd tries again by itself",
			     HELLO_MS / 1000);
	link_lost(l->env, "no HELLO in time");
}

static void said_alloc(uv_handle_t *h, size_t n, uv_buf_t *b)
{
	static char room[4096]; /* used up before the next callback */

	(void)h;
	(void)n;
	*b = uv_buf_init(room, sizeof(room));
}

/* The last line stays: it is why the line fell, if it does. */
static void said_read(uv_stream_t *s, ssize_t n, const uv_buf_t *b)
{
	struct link *l = container_of((uv_pipe_t *)s, struct link, said);

	for (ssize_t i = 0; i < n && l->said_bytes < SAID_MAX; i++, l->said_bytes++) {
		if (b->base[i] == '\r')
			continue;
		if (b->base[i] != '\n') {
			if (l->said_n < sizeof(l->said_raw))
				l->said_raw[l->said_n++] = b->base[i];
			continue;
		}
		if (l->said_n == 0)
			continue;
		text_escape_into(l->said_line, sizeof(l->said_line), l->said_raw, l->said_n);
		l->said_n = 0;
		log_warning("environment '%s': its transport says: %s", l->env->name, l->said_line);
	}
	if (n < 0)
		(void)uv_read_stop(s);
}

static int spawn(struct env *env, uv_process_t *p, const char *file, char **argv, char **envp,
		 int in, int out, int err, int extra, uv_exit_cb cb)
{
	uv_stdio_container_t io[4] = {
		{.flags = in >= 0 ? UV_INHERIT_FD : UV_IGNORE, .data.fd = in},
		{.flags = out >= 0 ? UV_INHERIT_FD : UV_IGNORE, .data.fd = out},
		{.flags = UV_INHERIT_FD, .data.fd = err},
		{.flags = UV_INHERIT_FD, .data.fd = extra},
	};
	uv_process_options_t o = {
		.file = file,
		.args = argv,
		.env = envp,
		.cwd = "/",
		.exit_cb = cb,
		.stdio = io,
		.stdio_count = extra >= 0 ? 4 : 3,
	};

	return uv_spawn(env->brain->loop, p, &o);
}

/* path: uid_map or gid_map of our user namespace: "inside outside count", a line each. */
static bool is_mapped(const char *path, uint32_t id)
{
	_cleanup_(buf_done) struct buf b = BUF_INIT(64 << 10);
	unsigned long long first, outside, n;
	const char *line;
	int used;

	if (file_read(AT_FDCWD, path, &b) < 0 || buf_add(&b, "", 1) < 0)
		return false;
	line = (const char *)buf_data(&b);
	while (sscanf(line, "%llu %llu %llu%n", &first, &outside, &n, &used) == 3) {
		if (id >= first && id - first < n)
			return true;
		line += used;
	}
	return false;
}

/* As root each environment's limb-ingest has a user of its own, far above anybody's; it
 * stays ours where we are not root, or root of a user namespace that has no such user. */
bool link_helper_uid(uint32_t n, char *out, size_t size)
{
	uint32_t uid = (1u << 30) + n;

	if (geteuid() != 0 || !is_mapped("/proc/self/uid_map", uid) ||
	    !is_mapped("/proc/self/gid_map", uid))
		return false;
	(void)snprintf(out, size, "%u", uid);
	return true;
}

static int link_spawn_ingest(struct link *l, int in, int out, int sock)
{
	cleanup_free char *file = brain_helper(l->env->brain, "limb-ingest");
	char uid[16];
	char *argv[] = {file, NULL, NULL, NULL};
	int r;

	if (!file)
		return -ENOMEM;
	if (link_helper_uid(get_le32(l->env->id) & 0xffffff, uid, sizeof(uid))) {
		argv[1] = (char *)"--uid";
		argv[2] = uid;
	}
	l->ingest_made = true;
	r = spawn(l->env, &l->ingest, file, argv, NULL, in, out, STDERR_FILENO, sock,
		  link_ingest_exit);
	if (r == 0)
		l->ingest_alive = true;
	return r;
}

static void link_spawn(struct env *env, char **argv, char **envp)
{
	struct link *l = env->link;
	int to[2] = {-1, -1}, from[2] = {-1, -1}, pair[2] = {-1, -1}, said[2] = {-1, -1};
	int r;

	if (pipe2(to, O_CLOEXEC) < 0 || pipe2(from, O_CLOEXEC) < 0 || pipe2(said, O_CLOEXEC) < 0 ||
	    socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) < 0) {
		r = -errno;
		goto out;
	}
	(void)fcntl(to[1], F_SETPIPE_SZ, 1 << 20);
	(void)fcntl(from[1], F_SETPIPE_SZ, 1 << 20);
	r = fcntl(pair[0], F_SETFL, O_NONBLOCK) < 0 ? -errno : 0;
	if (r < 0)
		goto out;
	(void)setsockopt(pair[0], SOL_SOCKET, SO_SNDBUF, &(int){1 << 20}, sizeof(int));
	(void)setsockopt(pair[1], SOL_SOCKET, SO_SNDBUF, &(int){1 << 20}, sizeof(int));
	(void)uv_pipe_init(env->brain->loop, &l->said, 0);
	l->said_made = true;
	r = uv_pipe_open(&l->said, said[0]);
	if (r < 0)
		goto out;
	said[0] = -1;
	(void)uv_read_start((uv_stream_t *)&l->said, said_alloc, said_read);
	l->transport_made = true;
	r = spawn(env, &l->transport, argv[0], argv, envp, to[0], from[1], said[1], -1,
		  link_transport_exit);
	if (r < 0)
		goto out;
	l->transport_alive = true;
	r = link_spawn_ingest(l, from[0], to[1], pair[1]);
	if (r < 0)
		goto out;
	l->sock = take_fd(&pair[0]);
	r = uv_poll_init(env->brain->loop, &l->poll, l->sock);
	if (r < 0)
		goto out;
	l->poll_made = true;
	link_poll_update(l);
	/* One that moves here gets its pack with the lease. */
	r = env->guest_of && !env->guest_is_old ? 0 : link_send_pack(env);
out:
	for (size_t i = 0; i < 2; i++) {
		if (to[i] >= 0)
			(void)close(to[i]);
		if (from[i] >= 0)
			(void)close(from[i]);
		if (pair[i] >= 0)
			(void)close(pair[i]);
		if (said[i] >= 0)
			(void)close(said[i]);
	}
	if (r < 0) {
		log_warning_errno(r, "environment '%s': cannot start its line", env->name);
		(void)env_set_reason(env, "line_down",
				     "cannot start '%s': %s; limbd tries again by itself", argv[0],
				     strerror(-r));
		link_lost(env, "cannot start");
	}
}

static void on_command(struct env *env, const struct provider_error *err, json_t *answer,
		       void *userdata)
{
	struct link *l = userdata;
	cleanup_free char **argv = NULL, **envp = NULL;

	l->starting = false;
	if (env->link != l) {
		link_maybe_free(l); /* stopped meanwhile */
		return;
	}
	if (err) {
		(void)env_set_reason(env, "line_down", "%s; limbd tries again by itself",
				     err->detail);
		link_lost(env, err->detail);
		return;
	}
	argv = provider_argv(json_object_get(answer, "argv"));
	envp = provider_env(json_object_get(answer, "env"));
	if (!argv) {
		(void)env_set_reason(
			env, "line_down",
			"provider '%s' answered `command` without argv; limbd tries again "
			"by itself",
			env->provider);
		link_lost(env, "bad answer of the provider");
		return;
	}
	link_spawn(env, argv, envp);
}

int link_start(struct env *env)
{
	json_t *argv;
	struct link *l;
	int r;

	/* It may have been found out while a line was being asked for: a person has to say that it
	 * is heard again (life_attach). */
	if (env->link || env->hostile)
		return 0;
	l = calloc(1, sizeof(*l));
	if (!l)
		return -ENOMEM;
	l->env = env;
	l->sock = -1;
	r = proof_new(&l->proof);
	if (r < 0) {
		free(l);
		return r;
	}
	l->out_tail = &l->out_head;
	buf_init(&l->in, LINK_IN_LIMIT + LINK_READ_BYTES);
	(void)uv_timer_init(env->brain->loop, &l->hello_timer);
	(void)uv_timer_start(&l->hello_timer, hello_late, HELLO_MS, 0);
	env->link = l;
	argv = json_pack("[sssssssss]", env->inner_syncd, "attach", "--dir", env->inner_dir,
			 "--root", env->root, "--env", env->wire_hex, "--wait");
	l->starting = true;
	r = provider_run(env, "command", json_pack("{s:o}", "argv", argv), 10000, on_command, l);
	if (r < 0) {
		l->starting = false;
		link_lost(env, "cannot run its provider");
	}
	return r;
}
