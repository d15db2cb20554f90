#include "brain/spec.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "base/text.h"
#include "base/util.h"
#include "brain/class.h"
#include "brain/quota.h"
#include "brain/rules.h"

/* Separated by blanks, as they are shown. */
static const char settings[] =
	"audit class classes env ignore quota_bytes rate_bytes sweep_s view watch_limit";

static const struct {
	const char *provider, *keys;
} taken[] = {
	{"bwrap", "limits"},
	{"command", "command in_place limits path"},
	{"container", "image limits network"},
	{"local", "limits"},
	{"ssh", "in_place limits path"},
};

static bool has_word(const char *words, const char *word)
{
	size_t n = strlen(word);

	for (const char *p = words; n && !strchr(word, ' ') && (p = strstr(p, word)); p += n)
		if ((p == words || p[-1] == ' ') && (p[n] == ' ' || p[n] == 0))
			return true;
	return false;
}

static const char *judge_keys(const json_t *spec, const char *provider, char *room)
{
	const char *keys = NULL, *key;
	json_t *value;
	char shown[128];

	for (size_t i = 0; i < ARRAY_SIZE(taken); i++)
		if (strcmp(provider, taken[i].provider) == 0)
			keys = taken[i].keys;
	if (!keys)
		return NULL;
	json_object_foreach((json_t *)spec, key, value)
	{
		if (has_word(settings, key) || has_word(keys, key))
			continue;
		(void)snprintf(room, SPEC_WHY_MAX,
			       "the spec's `%s` is nothing that an environment of the provider "
			       "'%s' takes; it takes %s %s",
			       text_escape_into(shown, sizeof(shown), key, strlen(key)), provider,
			       settings, keys);
		return room;
	}
	return NULL;
}

static bool env_ok(const json_t *env)
{
	const char *name;
	json_t *value;
	bool ok = !env || json_is_object(env);

	json_object_foreach((json_t *)env, name, value)
		ok = ok && *name && !strchr(name, '=') && strncmp(name, "LIMB_", 5) != 0 &&
		     json_is_string(value) &&
		     strlen(json_string_value(value)) == json_string_length(value);
	return ok;
}

static bool view_ok(const json_t *view)
{
	const char *name;
	json_t *value;
	bool ok = !view || json_is_object(view);

	json_object_foreach((json_t *)view, name, value) ok =
		ok && ((strcmp(name, "write") == 0 && json_is_boolean(value)) ||
		       (strcmp(name, "wait_s") == 0 && json_is_integer(value) &&
			json_integer_value(value) >= 0 && json_integer_value(value) <= UINT32_MAX));
	return ok;
}

static bool limits_ok(const json_t *limits)
{
	const char *name;
	json_t *value;
	bool ok = !limits || json_is_object(limits);

	json_object_foreach((json_t *)limits, name, value)
		ok = ok && *name && json_is_number(value) && json_number_value(value) > 0;
	return ok;
}

const char *spec_judge(const json_t *spec, const char *provider, char room[SPEC_WHY_MAX])
{
	const json_t *limit = json_object_get(spec, "watch_limit");
	const char *why;

	if (!env_ok(json_object_get(spec, "env")))
		return "the spec's `env` is an object of variables, {\"NAME\": \"value\"}; names "
		       "that begin with LIMB_ are limbfs's own";
	why = rules_judge(spec);
	if (!why)
		why = quota_judge_spec(spec);
	if (!why)
		why = class_judge_spec(spec);
	if (why)
		return why;
	if (!view_ok(json_object_get(spec, "view")))
		return "the spec's `view` is an object, {\"write\": true}, or with a number of "
		       "seconds, `wait_s`";
	if (limit && !(json_is_integer(limit) && json_integer_value(limit) >= 0 &&
		       json_integer_value(limit) <= UINT32_MAX))
		return "the spec's `watch_limit` is a number of watches; 0 is the kernel's limit";
	if (!limits_ok(json_object_get(spec, "limits")))
		return "the spec's `limits` is an object of numbers above 0, such as "
		       "{\"memory_bytes\": 1073741824}";
	return judge_keys(spec, provider, room);
}
