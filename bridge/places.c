#include "bridge/places.h"

#include <limits.h>
#include <pwd.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/un.h>

#include "base/text.h"
#include "bridge/failure.h"

char *places_absolute(const char *path)
{
	cleanup_free char *cwd = NULL;
	char *s = NULL;
	size_t n = strlen(path);

	if (n == 0) {
		errno = ENOENT;
		return NULL;
	}
	while (n > 1 && path[n - 1] == '/')
		n--;
	if (path[0] == '/')
		return strndup(path, n);
	cwd = getcwd(NULL, 0);
	if (!cwd)
		return NULL;
	while (n > 2 && path[0] == '.' && path[1] == '/') {
		size_t skip = 1 + strspn(path + 1, "/");

		path += skip;
		n -= skip;
	}
	if (n == 1 && path[0] == '.')
		return take_ptr(&cwd);
	if (asprintf(&s, "%s/%.*s", strcmp(cwd, "/") == 0 ? "" : cwd, (int)n, path) < 0)
		return NULL;
	return s;
}

static const char *variable(const char *name)
{
	const char *v = getenv(name);

	return v && *v ? v : NULL;
}

static const char *home(void)
{
	const char *h = variable("HOME");
	const struct passwd *pw;

	if (h)
		return h;
	pw = getpwuid(geteuid());
	return pw && pw->pw_dir && pw->pw_dir[0] == '/' ? pw->pw_dir : NULL;
}

static json_t *no_home(const char *flag)
{
	return failure_new("usage", flag, "there is no $HOME, and passwd has none for uid %u",
			   (unsigned)geteuid());
}

static json_t *absolute(const char *path, const char *what, char **ret)
{
	char shown[256];

	*ret = places_absolute(path);
	if (*ret)
		return NULL;
	text_escape_into(shown, sizeof(shown), path, strlen(path));
	return failure_new("usage", NULL, "%s '%s' is no usable path: %s", what, shown,
			   strerror(errno));
}

/* parent/a, parent NULL only where that was refused before */
static char *join(const char *parent, const char *name)
{
	char *s = NULL;

	return asprintf(&s, "%s/%s", parent, name) < 0 ? NULL : s;
}

static json_t *find_state(struct places *p, const char *given)
{
	cleanup_free char *parent = NULL;
	const char *base = variable("XDG_STATE_HOME");

	if (given)
		return absolute(given, "the state directory", &p->state);
	/* The XDG specification has relative values ignored. */
	if (base && base[0] == '/') {
		p->state = join(base, "limbfs");
	} else {
		base = home();
		if (!base)
			return no_home("give --state DIR");
		parent = join(base, ".local/state");
		p->state = parent ? join(parent, "limbfs") : NULL;
	}
	return p->state ? NULL : failure_new("internal", NULL, "out of memory");
}

json_t *places_find(struct places *p, const char *state, const char *mount)
{
	const char *socket_path = variable("LIMB_SOCKET");
	json_t *failure;

	if (!state)
		state = variable("LIMB_STATE");
	failure = find_state(p, state);
	if (failure)
		return failure;

	if (!mount)
		mount = variable("LIMB_MOUNT");
	if (mount) {
		failure = absolute(mount, "the mount point", &p->mount);
		if (failure)
			return failure;
	} else if (state) {
		p->mount = join(p->state, "mnt");
	} else {
		const char *h = home();

		if (!h)
			return no_home("give --mount DIR");
		p->mount = join(h, "limb");
	}

	if (socket_path)
		return absolute(socket_path, "the socket", &p->socket);
	p->socket = join(p->state, "limbd.sock");
	if (!p->mount || !p->socket)
		return failure_new("internal", NULL, "out of memory");
	return NULL;
}

void places_done(struct places *p)
{
	if (!p)
		return;
	free(p->state);
	free(p->mount);
	free(p->socket);
}

json_t *places_check_socket(const struct places *p)
{
	const size_t max = sizeof(((struct sockaddr_un *)NULL)->sun_path) - 1;
	char shown[256];

	if (strlen(p->socket) <= max)
		return NULL;
	text_escape_into(shown, sizeof(shown), p->socket, strlen(p->socket));
	return failure_new("invalid_path", "choose a shorter --state DIR, or set LIMB_SOCKET",
			   "the socket's path '%s' has %zu bytes, a socket can have %zu", shown,
			   strlen(p->socket), max);
}

json_t *places_check_owner(const struct places *p)
{
	cleanup_free char *step = NULL;
	char shown[256];
	const struct passwd *pw;
	struct stat st;

	if (stat(p->state, &st) < 0 || st.st_uid == geteuid())
		return NULL;
	pw = getpwuid(st.st_uid);
	if (asprintf(&step, "run limb as %s (without sudo), or choose another --state DIR",
		     pw ? pw->pw_name : "its owner") < 0)
		step = NULL;
	text_escape_into(shown, sizeof(shown), p->state, strlen(p->state));
	return failure_new("permission_denied", step,
			   "the state directory '%s' belongs to uid %u, and you are uid %u", shown,
			   (unsigned)st.st_uid, (unsigned)geteuid());
}

char *places_program(const char *name, const char *build_dir)
{
	char self[PATH_MAX];
	ssize_t n = readlink("/proc/self/exe", self, sizeof(self) - 1);
	char *path = NULL, *slash;

	if (n > 0) {
		self[n] = '\0';
		slash = strrchr(self, '/');
		*slash = '\0';
		if (asprintf(&path, "%s/../%s/%s", self, build_dir, name) < 0)
			return NULL;
		if (access(path, X_OK) == 0)
			return path;
		free(path);
		if (asprintf(&path, "%s/%s", self, name) < 0)
			return NULL;
		if (access(path, X_OK) == 0)
			return path;
		free(path);
	}
	if (asprintf(&path, "%s/%s", LIMB_PKGLIBEXECDIR, name) < 0)
		return NULL;
	if (access(path, X_OK) == 0)
		return path;
	free(path);
	errno = ENOENT;
	return NULL;
}
