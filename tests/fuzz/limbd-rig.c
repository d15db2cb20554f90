#include "tests/fuzz/limbd-rig.h"

#include <signal.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "base/clock.h"
#include "base/log.h"
#include "brain/commit.h"
#include "brain/env.h"
#include "brain/life.h"
#include "brain/point.h"
#include "brain/provider.h"
#include "brain/rpc-server.h"
#include "brain/state.h"
#include "brain/verb.h"

static struct brain rig_brain;
static uv_loop_t rig_loop;

int provider_run(struct env *env, const char *verb, json_t *extra, uint64_t deadline_ms,
		 provider_fn fn, void *userdata)
{
	json_decref(extra);
	return -ENOEXEC;
}

char *provider_judge(const struct brain *b, const char *provider)
{
	return NULL;
}

bool provider_is_here(const char *provider)
{
	return strcmp(provider, "local") == 0;
}

char **provider_argv(json_t *array)
{
	return NULL;
}

char **provider_env(json_t *array)
{
	return NULL;
}

/* It ends where the first directory would be made. */
static void rig_create(struct call *call)
{
	int envs_fd = call->brain->envs_fd;

	if (!json_is_object(json_object_get(call->params, "spec")))
		(void)json_object_del(call->params, "spec");
	(void)json_object_del(call->params, "from");
	(void)json_object_del(call->params, "root");
	call->brain->envs_fd = -1;
	life_create(call);
	rig_brain.envs_fd = envs_fd;
}

/* clang-format off */
const struct verb verbs[] = {
	{"attach", verb_attach},
	{"create", rig_create},
	{"exec", verb_exec},
	{"file_edit", verb_file_edit},
	{"file_read", verb_file_read},
	{"file_search", verb_file_search},
	{"file_stat", verb_file_stat},
	{"file_write", verb_file_write},
	{"input", verb_input},
	{"inspect", verb_inspect},
	{"jobs", verb_jobs},
	{"logs", verb_logs},
	{"ls", verb_ls},
	{"pause", life_pause},
	{"points", verb_points},
	{"ps", verb_ps},
	{"resume", life_resume},
	{"shell", verb_shell},
	{"signal", verb_signal},
	{"status", verb_status},
	{"sync", verb_sync},
	{"verify", verb_verify},
	{"wait", verb_wait},
	{NULL, NULL},
};
/* clang-format on */

void rig_start(void)
{
	char mount[80], *why = NULL;
	struct env *env;

	if (rig_brain.loop)
		return;
	(void)setenv("LIMB_LOG", "error", 0);
	(void)signal(SIGPIPE, SIG_IGN); /* as limbd */
	log_init("fuzz");
	(void)close(fuzz_dir());
	(void)snprintf(mount, sizeof(mount), "%s/mnt", fuzz_dir_path);
	must(uv_loop_init(&rig_loop) == 0);
	rig_brain.loop = &rig_loop;
	(void)unsetenv("LIMB_SOCKET");
	must(state_open(&rig_brain, fuzz_dir_path, mount, &why) == 0);
	must(env_new(&rig_brain, "box", &env) == 0);
	env->provider = strdup("none");
	env->spec = json_object();
	must(env->provider && env->spec);
	must(env_make_dirs(env) == 0 && env_open(env, true) == 0);
	env_link_in(env);
	must(rpc_server_start(&rig_brain, &why) == 0);
}

static int rig_connect(void)
{
	struct sockaddr_un a = {.sun_family = AF_UNIX};
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

	must(fd >= 0);
	(void)snprintf(a.sun_path, sizeof(a.sun_path), "%s", rig_brain.socket_path);
	must(connect(fd, (struct sockaddr *)&a, sizeof(a)) == 0);
	return fd;
}

/* Each frame that limbd sent is whole; JSON ones are objects. Returns how many answers. */
static size_t rig_check(const struct buf *b)
{
	const uint8_t *p = buf_data(b);
	size_t left = buf_len(b), answers = 0;

	while (left >= RPC_HEADER_BYTES) {
		size_t n = get_le32(p);
		json_t *o;

		must(n <= RPC_FRAME_MAX && left >= RPC_HEADER_BYTES + n);
		if (p[4] == RPC_JSON) {
			o = json_loadb((const char *)p + RPC_HEADER_BYTES, n, 0, NULL);
			must(json_is_object(o));
			answers += json_object_get(o, "id") != NULL;
			json_decref(o);
		}
		p += RPC_HEADER_BYTES + n;
		left -= RPC_HEADER_BYTES + n;
	}
	must(left == 0);
	return answers;
}

/* What a client sends, in one go, and then it waits a moment and goes. */
void rig_say(const void *data, size_t n, size_t calls)
{
	_cleanup_(buf_done) struct buf out = BUF_INIT(0);
	uint64_t by_ms = clock_mono_ms() + 30;
	size_t sent = 0, had;
	int fd = rig_connect();
	uint8_t *p;
	ssize_t k;

	do {
		had = buf_len(&out);
		k = sent < n ? send(fd, (const uint8_t *)data + sent, n - sent, MSG_NOSIGNAL) : 0;
		sent += k > 0 ? (size_t)k : 0;
		commit_kick_all(&rig_brain);
		(void)uv_run(&rig_loop, UV_RUN_NOWAIT);
		must(buf_reserve(&out, 65536, &p) == 0);
		while ((k = recv(fd, p, 65536, MSG_DONTWAIT)) > 0) {
			buf_commit(&out, (size_t)k);
			must(buf_reserve(&out, 65536, &p) == 0);
		}
	} while (k != 0 && clock_mono_ms() < by_ms &&
		 (sent < n || had != buf_len(&out) || rig_check(&out) < calls));
	(void)rig_check(&out);
	(void)close(fd);
	do
		(void)uv_run(&rig_loop, UV_RUN_NOWAIT);
	while (rig_brain.pack_works > 0 || rig_brain.envs->threads > 0);
}
