/*
 * ssh - a provider for any host with sshd and an account there, root or not.
 *
 * The target is HOST[:/DIRECTORY]; HOST is what the user would say to ssh, whose
 * own configuration, keys and known hosts hold.  LIMB_SSH names another ssh
 * command, with options.  What limbfs itself sets: no questions, nothing
 * forwarded, no terminal, a line that notices when it is dead.
 */
#include <stdio.h>

#include "base/text.h"
#include "providers/remote.h"

static const char *const options[] = {
	"-T",
	"-a",
	"-x",
	"-oBatchMode=yes",
	"-oForwardAgent=no",
	"-oForwardX11=no",
	"-oClearAllForwardings=yes",
	"-oTunnel=no",
	"-oPermitLocalCommand=no",
	"-oRemoteCommand=none",
	"-oRequestTTY=no",
	"-oControlMaster=no", /* one that is there is used; we leave none behind */
	"-oConnectTimeout=10",
	"-oServerAliveInterval=15",
	"-oServerAliveCountMax=3",
	"-oLogLevel=ERROR",
};

struct target {
	char *host;
	const char *root;
	char *shown;	     /* for people */
	char *again, *plain; /* the user's own ssh, for a hint */
};

static void target_done(struct target *t)
{
	free(t->host);
	free(t->shown);
	free(t->again);
	free(t->plain);
}

static json_t *info(const struct provider_call *call, json_t **ret)
{
	*ret = json_pack("{s:i, s:s, s:s, s:[s,s,s,s,s,s,s,s], s:[s],"
			 " s:{s:s, s:s, s:s, s:s, s:s}, s:{s:s, s:s}, s:s, s:s}",
			 "protocol", 1, "name", "ssh", "version", PACKAGE_VERSION, "verbs", "info",
			 "create", "start", "stop", "delete", "status", "command", "list",
			 "isolation", "another machine", "enforces", "cpu", "none", "memory",
			 "none", "pids", "none", "disk", "none", "network", "none", "keeps", "stop",
			 "files", "pause", "none", "roots", "there", "transport", "network");
	return NULL;
}

static bool host_ok(const char *host)
{
	/* ssh before 9.6 gives it to a shell where a configuration says ProxyCommand or Match exec. */
	if (!words_plain(host) || host[0] == '-' || host[strcspn(host, " '\"\\`$;&<>|(){}*?!#~^")])
		return false;
	/* user@-host: ssh refuses the user, not always the host. */
	return !strstr(host, "@-");
}

/* spec.target is HOST[:PATH]; a path begins with '/', so that IPv6 addresses pass. */
static json_t *parse_target(const struct provider_call *call, struct target *ret)
{
	const char *target = json_string_value(json_object_get(call->spec, "target")), *path;
	char shown[256];

	if (!target || !*target)
		return provider_failure("usage", "limb create NAME --provider ssh:HOST",
					"the ssh provider needs a host: ssh:HOST or ssh:HOST:/DIR");
	text_escape_into(shown, sizeof(shown), target, strlen(target));
	path = strstr(target, ":/");
	/* HOST:work would be a host of another name. */
	if (!path && strchr(target, ':') && !strchr(strchr(target, ':') + 1, ':'))
		return provider_failure("usage", "limb create NAME --provider ssh:HOST:/DIR",
					"'%s': the directory must be an absolute path", shown);
	ret->host = path ? strndup(target, (size_t)(path - target)) : strdup(target);
	ret->root = path ? path + 1 : json_string_value(json_object_get(call->spec, "path"));
	if (!ret->host || asprintf(&ret->shown, "host '%s'", ret->host) < 0) {
		ret->shown = NULL;
		return provider_failure("internal", NULL, "out of memory");
	}
	if (!host_ok(ret->host))
		return provider_failure("usage", "limb create NAME --provider ssh:HOST",
					"'%s' names no host", shown);
	return NULL;
}

static json_t *make_argv(struct target *t, struct words *argv)
{
	const char *ssh = getenv("LIMB_SSH");
	int r;

	if (!ssh || !ssh[strspn(ssh, " \t\n")])
		ssh = "ssh";
	r = words_split(argv, ssh);
	if (r == -EINVAL)
		return provider_failure("usage", NULL, "LIMB_SSH has a quote that is not closed");
	for (size_t i = 0; i < ARRAY_SIZE(options) && r >= 0; i++)
		r = words_add(argv, options[i]);
	if (r >= 0)
		r = words_add(argv, t->host);
	if (r >= 0 &&
	    asprintf(&t->again, "%s -o StrictHostKeyChecking=accept-new %s true", ssh, t->host) < 0)
		t->again = NULL;
	if (r >= 0 && asprintf(&t->plain, "make this work first: %s %s true", ssh, t->host) < 0)
		t->plain = NULL;
	return r < 0 || !t->again || !t->plain ? provider_failure("internal", NULL, "out of memory")
					       : NULL;
}

/* ssh's own words, which are the same in every locale. */
static const char *line_with(const char *said, const char *what, char *out, size_t size)
{
	const char *p = strstr(said, what), *end;

	if (!p)
		return NULL;
	while (p > said && p[-1] != '\n')
		p--;
	p += strspn(p, " \t");
	end = p + strcspn(p, "\r\n");
	return text_escape_into(out, size, p, (size_t)(end - p));
}

static const struct target *explained; /* of the one call that this process makes */

static json_t *explain(const struct remote *rm, const struct remote_end *end)
{
	static const char *const away[] = {
		"Connection refused", "timed out",	   "No route to host", "unreachable",
		"Connection reset",   "Connection closed", "kex_exchange",     "Broken pipe",
		"not responding",     "closed by"};
	char line[400];
	const char *p;

	if (end->began || end->status == 0)
		return NULL;
	if (end->status == 127 && !end->said[0])
		return NULL;
	if (strstr(end->said, "HOST IDENTIFICATION HAS CHANGED")) {
		p = line_with(end->said, "ssh-keygen -f", line, sizeof(line));
		return provider_failure("permission_denied", p ? p : "ssh-keygen -R HOST",
					"%s has another host key than the one that is known: it is "
					"refused; if that is meant, forget the old one: %s",
					rm->where, p ? p : "ssh-keygen -R HOST");
	}
	if (strstr(end->said, "Host key verification failed"))
		return provider_failure("permission_denied", explained->again,
					"the host key of %s is not known: it is refused; to accept "
					"it: %s",
					rm->where, explained->again);
	if ((p = line_with(end->said, "Could not resolve", line, sizeof(line))))
		return provider_failure("env_unreachable", explained->plain, "there is no %s: %s",
					rm->where, p);
	if ((p = line_with(end->said, "Permission denied", line, sizeof(line))))
		return provider_failure("permission_denied", explained->plain,
					"%s lets nobody in with the keys at hand: %s", rm->where,
					p);
	for (size_t i = 0; i < ARRAY_SIZE(away); i++)
		if ((p = line_with(end->said, away[i], line, sizeof(line))))
			return provider_failure("env_unreachable", explained->plain,
						"%s does not answer: %s", rm->where, p);
	return NULL;
}

typedef json_t *(*remote_fn)(const struct remote *rm, json_t **ret);

static json_t *run(const struct provider_call *call, json_t **ret, remote_fn fn)
{
	_cleanup_(target_done) struct target t = {0};
	static struct remote rm = {.by_shell = true, .explain = explain}; /* one call a process */
	json_t *failure = parse_target(call, &t);

	if (!failure)
		failure = make_argv(&t, &rm.argv);
	rm.call = call;
	rm.where = t.shown;
	rm.root = t.root;
	explained = &t;
	if (!failure)
		failure = fn(&rm, ret);
	words_done(&rm.argv);
	return failure;
}

static json_t *create(const struct provider_call *call, json_t **ret)
{
	return run(call, ret, remote_create);
}

static json_t *start(const struct provider_call *call, json_t **ret)
{
	return run(call, ret, remote_start);
}

static json_t *stop(const struct provider_call *call, json_t **ret)
{
	return run(call, ret, remote_stop);
}

static json_t *delete (const struct provider_call *call, json_t **ret)
{
	return run(call, ret, remote_delete);
}

static json_t *status(const struct provider_call *call, json_t **ret)
{
	return run(call, ret, remote_status);
}

static json_t *command(const struct provider_call *call, json_t **ret)
{
	return run(call, ret, remote_command);
}

/* Without a target there is no machine to ask. */
static json_t *list(const struct provider_call *call, json_t **ret)
{
	if (json_object_get(call->spec, "target"))
		return run(call, ret, remote_list);
	*ret = json_pack("{s:[]}", "environments");
	return NULL;
}

static const struct provider_verb verbs[] = {
	{"info", info, false},	    {"create", create, true}, {"start", start, true},
	{"stop", stop, true},	    {"delete", delete, true}, {"status", status, true},
	{"command", command, true}, {"list", list, false},
};

int main(int argc, char **argv)
{
	return provider_main("ssh", argc, argv, verbs, ARRAY_SIZE(verbs));
}
