/*
 * command - a provider for whatever a command line reaches: it starts a program
 * there, and its standard input and output are that program's, as those of
 *
 *	kubectl exec -i POD -- PROGRAM ARG...
 *
 * The target is that line's beginning, quoted as for a shell; or it stands in the
 * spec as a list, {"command": [WORD, ...]}.  spec.path is the directory there.
 */
#include <stdio.h>

#include "base/text.h"
#include "providers/remote.h"

static json_t *info(const struct provider_call *call, json_t **ret)
{
	*ret = json_pack("{s:i, s:s, s:s, s:[s,s,s,s,s,s,s,s], s:[],"
			 " s:{s:s, s:s, s:s, s:s, s:s}, s:{s:s, s:s}, s:s, s:s}",
			 "protocol", 1, "name", "command", "version", PACKAGE_VERSION, "verbs",
			 "info", "create", "start", "stop", "delete", "status", "command", "list",
			 "isolation", "enforces", "cpu", "none", "memory", "none", "pids", "none",
			 "disk", "none", "network", "none", "keeps", "stop", "files", "pause",
			 "none", "roots", "there", "transport", "network");
	return NULL;
}

static json_t *make_argv(const struct provider_call *call, struct words *argv)
{
	const char *target = json_string_value(json_object_get(call->spec, "target"));
	json_t *list = json_object_get(call->spec, "command"), *word;
	int r = 0;
	size_t i;

	json_array_foreach(list, i, word)
	{
		if (!json_is_string(word))
			return provider_failure("usage", NULL, "spec.command is a list of texts");
		r = words_add(argv, json_string_value(word));
		if (r < 0)
			return provider_failure_errno(r, "spec.command");
	}
	if (target && !list)
		r = words_split(argv, target);
	if (r == -EINVAL)
		return provider_failure("usage", NULL,
					"the command line has a quote that is not closed");
	if (r < 0)
		return provider_failure_errno(r, "the command line");
	if (argv->n == 0 || !argv->v[0][0])
		return provider_failure(
			"usage", "limb create NAME --provider 'command:kubectl exec -i POD --'",
			"the command provider needs a command line that starts a "
			"program there");
	return NULL;
}

typedef json_t *(*remote_fn)(const struct remote *rm, json_t **ret);

static json_t *run(const struct provider_call *call, json_t **ret, remote_fn fn)
{
	static struct remote rm; /* one call a process */
	json_t *failure = make_argv(call, &rm.argv);
	static char where[160];
	char shown[128];

	rm.call = call;
	rm.root = json_string_value(json_object_get(call->spec, "path"));
	if (!failure) {
		text_escape_into(shown, sizeof(shown), rm.argv.v[0], strlen(rm.argv.v[0]));
		(void)snprintf(where, sizeof(where), "what '%s' reaches", shown);
		rm.where = where;
		failure = fn(&rm, ret);
	}
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

/* Without a command line there is no place to ask. */
static json_t *list(const struct provider_call *call, json_t **ret)
{
	if (json_object_get(call->spec, "target") || json_object_get(call->spec, "command"))
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
	return provider_main("command", argc, argv, verbs, ARRAY_SIZE(verbs));
}
