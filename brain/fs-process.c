#include "brain/fs-process.h"

#include <assert.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "base/util.h"

enum { ARGS_MAX = 16 };

int fs_process_spawn(struct brain *b, const char *const *args, uv_exit_cb exit_cb,
		     uv_process_t *process)
{
	cleanup_free char *file = brain_helper(b, "limb-fs");
	char *argv[ARGS_MAX + 1] = {file};
	uv_stdio_container_t io[3] = {
		{.flags = UV_IGNORE},
		{.flags = UV_IGNORE},
		{.flags = UV_INHERIT_FD, .data.fd = STDERR_FILENO},
	};
	uv_process_options_t o = {.file = file,
				  .args = argv,
				  .cwd = "/",
				  .exit_cb = exit_cb,
				  .stdio = io,
				  .stdio_count = 3,
				  .flags = UV_PROCESS_DETACHED};
	int r;

	if (!file || access(file, X_OK) < 0)
		return -ENOENT;
	for (size_t i = 0; args[i]; i++) {
		assert(i + 1 < ARGS_MAX);
		argv[i + 1] = (char *)args[i];
	}
	r = uv_spawn(b->loop, process, &o);
	if (r == 0)
		uv_unref((uv_handle_t *)process);
	return r;
}

int fs_process_connect(int dir_fd, int *ret_sock, int *ret_pid)
{
	struct sockaddr_un a = {.sun_family = AF_UNIX};
	cleanup_close int s = -1;
	struct ucred cred;
	socklen_t n = sizeof(cred);

	/* By way of /proc, so that the state directory's length does not matter. */
	(void)snprintf(a.sun_path, sizeof(a.sun_path), "/proc/self/fd/%d/fs.sock", dir_fd);
	s = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (s < 0 || connect(s, (struct sockaddr *)&a, sizeof(a)) < 0)
		return -errno;
	if (getsockopt(s, SOL_SOCKET, SO_PEERCRED, &cred, &n) == 0)
		*ret_pid = cred.pid;
	if (fcntl(s, F_SETFL, O_NONBLOCK) < 0)
		return -errno;
	*ret_sock = take_fd(&s);
	return 0;
}
