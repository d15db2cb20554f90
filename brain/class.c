#include "brain/class.h"

#include <stdbool.h>
#include <string.h>

#include "base/ignore.h"
#include "base/util.h"

static const char why_class[] = "a class is \"ordered\", \"strong\" or \"eventual\"";
static const char why_pattern[] = "a class's pattern is one line of gitignore(5), without `!`";

static bool is_class(const char *text)
{
	return text && (strcmp(text, "ordered") == 0 || strcmp(text, "strong") == 0 ||
			strcmp(text, "eventual") == 0);
}

static bool is_pattern(const char *text)
{
	struct ignore one = {0};
	bool fine;

	if (!text || *text == '!' || strchr(text, '\n') || strlen(text) >= IGNORE_PATTERN_MAX)
		return false;
	fine = ignore_add(&one, NULL, text, strlen(text)) == 0 && one.n_rules == 1;
	ignore_done(&one);
	return fine;
}

const char *class_judge_spec(const json_t *spec)
{
	const json_t *class = json_object_get(spec, "class"), *row;
	const json_t *rows = json_object_get(spec, "classes");
	size_t i;

	if (class && !is_class(json_string_value(class)))
		return "the spec's `class` is \"ordered\", \"strong\" or \"eventual\"";
	if (rows && (!json_is_array(rows) || json_array_size(rows) > CLASS_PATTERNS_MAX))
		return "the spec's `classes` is a list of at most 64 {\"pattern\", \"class\"}";
	json_array_foreach(rows, i, row)
	{
		if (!is_class(json_string_value(json_object_get(row, "class"))))
			return why_class;
		if (json_object_size(row) != 2 ||
		    !is_pattern(json_string_value(json_object_get(row, "pattern"))))
			return why_pattern;
	}
	return NULL;
}

static void remove_row(json_t *rows, const char *pattern)
{
	const json_t *row;
	size_t i;

	json_array_foreach(rows, i, row)
	{
		const char *has = json_string_value(json_object_get(row, "pattern"));

		if (has && strcmp(has, pattern) == 0) {
			(void)json_array_remove(rows, i);
			return;
		}
	}
}

const char *class_take(const json_t *spec, json_t *fields, const char *text)
{
	const char *colon = strchr(text, ':');
	size_t n = colon ? (size_t)(colon - text) : strlen(text);
	cleanup_free char *class = strndup(text, n);
	const json_t *had = json_object_get(fields, "classes");
	json_t *rows;

	if (!is_class(class) && !(colon && n == 0))
		return why_class;
	if (!colon) {
		(void)json_object_set_new(fields, "class", json_string(class));
		return NULL;
	}
	if (!is_pattern(colon + 1))
		return why_pattern;
	had = had ? had : json_object_get(spec, "classes");
	rows = had ? json_deep_copy(had) : json_array();
	remove_row(rows, colon + 1);
	if (n > 0)
		(void)json_array_append_new(
			rows, json_pack("{s:s, s:s}", "pattern", colon + 1, "class", class));
	(void)json_object_set_new(fields, "classes", rows);
	return class_judge_spec(fields);
}
