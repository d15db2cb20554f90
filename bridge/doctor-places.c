/* The checks of the brain's own places. */
#include "bridge/doctor.h"

#include <fcntl.h>
#include <mntent.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/statvfs.h>

#include "base/file.h"
#include "base/text.h"
#include "bridge/client.h"
#include "bridge/failure.h"
#include "bridge/render.h"

enum { MOUNT_MS = 2000, LIMBD_MS = 3000, SHOWN_MAX = 300 };

#define DISK_FAIL_BYTES (64.0 * 1024 * 1024)
#define DISK_WARN_BYTES (1024.0 * 1024 * 1024)

static const char *shown(char out[SHOWN_MAX], const char *path)
{
	return text_escape_into(out, SHOWN_MAX, path, strlen(path));
}

/* The nearest directory that is there: the path itself, or one above it. */
static char *existing(const char *path)
{
	char *s = strdup(path), *slash;
	struct stat st;

	while (s && stat(s, &st) < 0 && (slash = strrchr(s, '/'))) {
		if (slash == s) {
			s[1] = '\0';
			break;
		}
		*slash = '\0';
	}
	return s;
}

static void say_failure(struct doctor_result *r, json_t *failure)
{
	doctor_say(r, DOCTOR_FAIL,
		   json_string_value(json_array_get(json_object_get(failure, "next_steps"), 0)),
		   "%s", json_string_value(json_object_get(failure, "detail")));
	json_decref(failure);
}

void doctor_state_dir(const struct places *places, struct doctor_result *r)
{
	cleanup_free char *there = existing(places->state);
	json_t *failure = places_check_socket(places);
	char text[SHOWN_MAX];
	struct stat st;

	if (!failure)
		failure = places_check_owner(places);
	if (failure) {
		say_failure(r, failure);
		return;
	}
	if (!there || access(there, W_OK | X_OK) < 0)
		doctor_say(r, DOCTOR_FAIL, "choose another --state DIR",
			   "'%s' cannot be written: %s", shown(text, there ? there : "/"),
			   strerror(errno));
	else if (strcmp(there, places->state) != 0)
		doctor_say(r, DOCTOR_OK, NULL, "'%s' will be made by limb up",
			   shown(text, places->state));
	else if (stat(there, &st) < 0 || !S_ISDIR(st.st_mode))
		doctor_say(r, DOCTOR_FAIL, "choose another --state DIR", "'%s' is not a directory",
			   shown(text, there));
	else if (st.st_mode & 022)
		doctor_say(r, DOCTOR_WARN, "chmod 700 it", "'%s' can be written by others",
			   shown(text, there));
	else
		doctor_say(r, DOCTOR_OK, NULL, "'%s'", shown(text, there));
}

void doctor_disk(const struct places *places, struct doctor_result *r)
{
	static const char step[] = "make room, or choose a --state DIR elsewhere";
	cleanup_free char *there = existing(places->state);
	char text[SHOWN_MAX], size[RENDER_SHORT_MAX];
	struct statvfs vfs;
	double free_bytes;

	if (!there || statvfs(there, &vfs) < 0) {
		doctor_say(r, DOCTOR_WARN, NULL, "the free space is not known: %s",
			   strerror(errno));
		return;
	}
	(void)shown(text, there);
	free_bytes = (double)vfs.f_bavail * (double)vfs.f_frsize;
	(void)render_bytes_text(size, free_bytes);
	if (free_bytes < DISK_FAIL_BYTES)
		doctor_say(r, DOCTOR_FAIL, step, "%s are free below '%s'", size, text);
	else if (vfs.f_files > 0 && vfs.f_favail < 1000)
		doctor_say(r, DOCTOR_FAIL, step, "%llu inodes are free below '%s'",
			   (unsigned long long)vfs.f_favail, text);
	else if (free_bytes < DISK_WARN_BYTES)
		doctor_say(r, DOCTOR_WARN, step, "%s are free below '%s'", size, text);
	else
		doctor_say(r, DOCTOR_OK, NULL, "%s are free below '%s'", size, text);
}

/* ---- mounts ---- */

/* 0, or errno, of looking at it as the kernel shows it. */
static int look(const void *path)
{
	struct stat st;
	int fd;

	if (stat(path, &st) < 0)
		return errno;
	fd = open(path, O_RDONLY | O_DIRECTORY | O_NONBLOCK);
	return fd < 0 ? errno : 0;
}

/* Mounts at or below the mount point; fn returns true to go on. */
static void each_mount(const char *below, bool (*fn)(const char *dir, const char *type, void *u),
		       void *userdata)
{
	FILE *f = setmntent("/proc/self/mounts", "r");
	size_t n = strlen(below);
	struct mntent *m;

	while (f && (m = getmntent(f)))
		if (strncmp(m->mnt_dir, below, n) == 0 &&
		    (m->mnt_dir[n] == '\0' || m->mnt_dir[n] == '/') &&
		    !fn(m->mnt_dir, m->mnt_type, userdata))
			break;
	if (f)
		(void)endmntent(f);
}

static bool find_stale(const char *dir, const char *type, void *userdata)
{
	int e;

	if (strncmp(type, "fuse", 4) != 0)
		return true;
	e = doctor_try(look, dir, MOUNT_MS);
	if (e == 0 || e == EACCES)
		return true;
	*(char **)userdata = strdup(dir);
	return false;
}

void doctor_stale_mount(const struct places *places, struct doctor_result *r)
{
	cleanup_free char *stale = NULL, *step = NULL;
	char text[SHOWN_MAX];

	each_mount(places->mount, find_stale, &stale);
	if (!stale) {
		doctor_say(r, DOCTOR_OK, NULL, "no dead mount below '%s'",
			   shown(text, places->mount));
		return;
	}
	(void)shown(text, stale);
	if (asprintf(&step, "limb up clears it; or: %s '%s'",
		     geteuid() == 0 ? "umount -l" : "fusermount3 -u -z", text) < 0)
		step = NULL;
	doctor_say(r, DOCTOR_FAIL, step, "nobody serves the mount '%s'", text);
}

static bool count_mount(const char *dir, const char *type, void *userdata)
{
	++*(unsigned *)userdata;
	return true;
}

static int is_empty(const void *path)
{
	char **names = NULL;
	size_t n = 0;
	int r = file_list(AT_FDCWD, path, 1, &names, &n);

	if (r == -E2BIG)
		return 1;
	if (r >= 0)
		file_names_free(names, n);
	return r < 0 ? 2 : n > 0;
}

void doctor_mount_point(const struct places *places, struct doctor_result *r)
{
	static const char step[] = "choose another --mount DIR";
	cleanup_free char *there = NULL;
	unsigned mounts = 0;
	char text[SHOWN_MAX];
	struct stat st;
	int e;

	(void)shown(text, places->mount);
	each_mount(places->mount, count_mount, &mounts);
	if (mounts > 0) {
		doctor_say(r, DOCTOR_OK, NULL, "'%s' is in use, with %u mounts", text, mounts);
		return;
	}
	e = lstat(places->mount, &st) < 0 ? errno : 0;
	if (e == ENOENT) {
		there = existing(places->mount);
		if (there && access(there, W_OK | X_OK) == 0)
			doctor_say(r, DOCTOR_OK, NULL, "'%s' will be made by limb up", text);
		else
			doctor_say(r, DOCTOR_FAIL, step, "'%s' cannot be made: %s", text,
				   strerror(errno));
	} else if (e) {
		doctor_say(r, DOCTOR_FAIL, step, "'%s': %s", text, strerror(e));
	} else if (!S_ISDIR(st.st_mode)) {
		doctor_say(r, DOCTOR_FAIL, step, "'%s' is not a directory", text);
	} else if (st.st_uid != geteuid()) {
		doctor_say(r, DOCTOR_FAIL, step, "'%s' belongs to uid %u", text,
			   (unsigned)st.st_uid);
	} else {
		e = doctor_try(is_empty, places->mount, MOUNT_MS);
		if (e == 0)
			doctor_say(r, DOCTOR_OK, NULL, "'%s'", text);
		else if (e == 1)
			doctor_say(r, DOCTOR_WARN, step,
				   "'%s' is not empty: what is there would be hidden", text);
		else
			doctor_say(r, DOCTOR_WARN, step, "'%s' cannot be listed", text);
	}
}

void doctor_limbd(const struct places *places, struct doctor_result *r)
{
	json_t *params = json_object(), *answer = NULL;
	struct client_call call = {.method = "status",
				   .params = params,
				   .in_fd = -1,
				   .out_fd = -1,
				   .err_fd = -1,
				   .deadline_ms = LIMBD_MS};
	struct client *c = NULL;
	json_t *failure = client_connect(places, &c);

	if (failure && client_is_unreachable(failure)) {
		doctor_say(r, DOCTOR_OK, NULL, "not running; limb up starts it");
		json_decref(failure);
	} else if (failure) {
		say_failure(r, failure);
	} else if (client_call(c, &call, &answer) == CLIENT_RESULT) {
		const char *version = json_string_value(json_object_get(answer, "version"));

		doctor_say(r, DOCTOR_OK, NULL, "version %s, process %d",
			   version ? version : "unknown", (int)client_peer_pid(c));
	} else {
		doctor_say(r, DOCTOR_FAIL, "see limbd.log in the state directory",
			   "limbd (process %d) does not answer", (int)client_peer_pid(c));
	}
	json_decref(answer);
	json_decref(params);
	client_free(c);
}
