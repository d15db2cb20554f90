/* What a create asks for, judged before anything is made: names, roots, providers, the spec. */
#include "brain/life-impl.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <sys/stat.h>
#include <sys/vfs.h>

#include "base/file.h"
#include "base/text.h"
#include "brain/provider.h"
#include "brain/spec.h"

enum { SPEC_MAX = 1 << 20 };

static bool beneath(const char *path, const char *dir)
{
	size_t n = strlen(dir);

	return strncmp(path, dir, n) == 0 &&
	       (path[n] == '/' || path[n] == 0 || strcmp(dir, "/") == 0);
}

/* Made up by the kernel while it is read: without an end, and nothing that could come back. */
static bool is_of_kernel(const char *real)
{
	static const uint32_t types[] = {
		BINFMTFS_MAGIC, BPF_FS_MAGIC,	    CGROUP2_SUPER_MAGIC, CGROUP_SUPER_MAGIC,
		DEBUGFS_MAGIC,	DEVPTS_SUPER_MAGIC, EFIVARFS_MAGIC,	 PROC_SUPER_MAGIC,
		PSTOREFS_MAGIC, SECURITYFS_MAGIC,   SELINUX_MAGIC,	 SYSFS_MAGIC,
		TRACEFS_MAGIC,
	};
	struct statfs fs;

	if (strcmp(real, "/dev") == 0)
		return true;
	if (statfs(real, &fs) < 0)
		return false;
	for (size_t i = 0; i < ARRAY_SIZE(types); i++)
		if ((uint32_t)fs.f_type == types[i])
			return true;
	return false;
}

const char *life_judge_dir(struct brain *b, const char *dir, char **ret)
{
	struct stat st;
	char *real;

	real = realpath(dir, NULL);
	if (!real)
		return errno == ENOENT ? "that directory does not exist; make it first"
				       : strerror(errno);
	*ret = real;
	if (stat(real, &st) < 0)
		return strerror(errno);
	if (!S_ISDIR(st.st_mode))
		return "that is not a directory; choose one";
	if (faccessat(AT_FDCWD, real, R_OK | X_OK, AT_EACCESS) < 0)
		return "that may not be read, or not entered, by you; choose another, or have its "
		       "owner allow it";
	if (strcmp(real, "/") == 0)
		return "the whole machine cannot be an environment's root; choose a directory in "
		       "it";
	if (is_of_kernel(real))
		return "that is the kernel's own, no directory of files; choose another";
	if (beneath(real, b->state_dir) || beneath(b->state_dir, real))
		return "it and limbfs's own state directory contain each other; choose another, or "
		       "another --state";
	if (beneath(real, b->mount_dir) || beneath(b->mount_dir, real))
		return "it and the mount contain each other; choose another, or another mount "
		       "with: limb up --mount";
	return NULL;
}

const struct env *life_root_taken(struct brain *b, const char *root)
{
	for (struct env *e = b->envs; e; e = e->next)
		if (e->user_root && (beneath(root, e->user_root) || beneath(e->user_root, root)))
			return e;
	return NULL;
}

void life_request_done(struct life_request *q)
{
	free(q->from);
	free(q->root);
	free(q->provider);
	free(q->target);
	json_decref(q->spec);
}

static bool judge_settings(struct call *call, const struct life_request *q)
{
	char room[SPEC_WHY_MAX];
	const char *why = spec_judge(q->spec, q->provider, room);

	if (why)
		call_fail(call, "usage", q->name, NULL, "%s", why);
	return !why;
}

/* --spec FILE: one JSON object, at most SPEC_MAX bytes. */
static bool judge_spec(struct call *call, struct life_request *q)
{
	_cleanup_(buf_done) struct buf b = BUF_INIT(SPEC_MAX);
	const char *file = call_str(call, "spec");
	json_error_t e = {.text = ""};
	int r;

	/* limb sends the object; another client may name the file. */
	if (json_is_object(json_object_get(call->params, "spec"))) {
		q->spec = json_deep_copy(json_object_get(call->params, "spec"));
		return judge_settings(call, q);
	}
	if (!file) {
		q->spec = json_object();
		return true;
	}
	r = file_read(AT_FDCWD, file, &b);
	if (r == 0)
		q->spec = json_loadb((const char *)buf_data(&b), buf_len(&b),
				     JSON_REJECT_DUPLICATES, &e);
	if (json_is_object(q->spec))
		return judge_settings(call, q);
	call_fail(call, "usage", q->name, NULL,
		  "the spec '%s' is not one JSON object%s%s (line %d)", file, r < 0 ? ": " : "",
		  r < 0 ? strerror(-r) : "", e.line);
	return false;
}

bool life_judge_name(struct call *call, const char *name)
{
	char shown[256];

	if (!name || !text_name_ok(name)) {
		call_fail(
			call, "usage", NULL, "limb create box",
			"'%s' is no name for one: 1 to 63 of a-z, 0-9, '_', '-', beginning with a "
			"letter or digit",
			name ? text_escape_into(shown, sizeof(shown), name, strlen(name)) : "");
		return false;
	}
	if (env_find(call->brain, name)) {
		call_fail(call, "environment_exists", name, "limb inspect NAME",
			  "there is an environment '%s' already; choose another name, or remove it "
			  "with: limb rm %s",
			  name, name);
		return false;
	}
	return true;
}

bool life_judge_provider(struct call *call, const char *name, const char *provider,
			 char **ret_provider, char **ret_target)
{
	cleanup_free char *unknown = NULL;
	const char *colon;

	provider = provider ? provider : "bwrap";
	colon = strchr(provider, ':');
	*ret_provider = colon ? strndup(provider, (size_t)(colon - provider)) : strdup(provider);
	*ret_target = colon ? strdup(colon + 1) : NULL;
	unknown = *ret_provider ? provider_judge(call->brain, *ret_provider) : NULL;
	if (unknown) {
		call_fail(call, "file_not_found", name, "limb help create", "%s", unknown);
		return false;
	}
	if (*ret_target && provider_is_here(*ret_provider)) {
		call_fail(
			call, "usage", name, "limb create NAME --root DIR",
			"the provider '%s' takes no target; --root DIR uses a directory in place, "
			"--from DIR copies one",
			*ret_provider);
		return false;
	}
	return true;
}

bool life_judge(struct call *call, struct life_request *q)
{
	struct brain *b = call->brain;
	const char *from = call_str(call, "from"), *root = call_str(call, "root");
	const struct env *other;
	const char *why;
	char shown[256];

	q->name = call_str(call, "name");
	if (!life_judge_name(call, q->name))
		return false;
	if (from && root) {
		call_fail(call, "usage", q->name, "limb help create",
			  "--from copies a directory, --root uses one in place: give one of them");
		return false;
	}
	if (from || root) {
		const char *dir = from ? from : root;

		why = life_judge_dir(b, dir, from ? &q->from : &q->root);
		if (why) {
			call_fail(call, "invalid_path", q->name, NULL, "'%s': %s",
				  text_escape_into(shown, sizeof(shown), dir, strlen(dir)), why);
			return false;
		}
	}
	other = q->root ? life_root_taken(b, q->root) : NULL;
	if (other) {
		call_fail(
			call, "invalid_path", q->name, NULL,
			"'%s' and the root of environment '%s' contain each other; choose another",
			q->root, other->name);
		return false;
	}
	if (!life_judge_provider(call, q->name, call_str(call, "provider"), &q->provider,
				 &q->target))
		return false;
	return judge_spec(call, q);
}
