#include "bridge/tool-impl.h"

#include <math.h>
#include <string.h>

#include "base/text.h"
#include "base/util.h"
#include "bridge/failure.h"
#include "bridge/ref.h"
#include "bridge/value.h"

enum { TEXTS_MAX = 10000 };

const struct tool *tool_find(const char *name)
{
	for (size_t i = 0; i < tool_table_count; i++)
		if (strcmp(tool_table[i].name, name) == 0)
			return &tool_table[i];
	return NULL;
}

const struct verb *tool_verb(const struct tool *tool)
{
	return verb_named(tool->verb);
}

/* ---- the schema ---- */

static json_t *param_schema(const struct tool_param *p)
{
	static const char text[] = "{s:s, s:s}";

	switch (p->type) {
	case TOOL_INTEGER:
		return json_pack("{s:s, s:s, s:I, s:I}", "type", "integer", "description", p->help,
				 "minimum", (json_int_t)p->min, "maximum", (json_int_t)p->max);
	case TOOL_SWITCH: return json_pack(text, "type", "boolean", "description", p->help);
	case TOOL_TEXTS:
		return json_pack("{s:s, s:s, s:{s:s}, s:i}", "type", "array", "description",
				 p->help, "items", "type", "string", "minItems", 1);
	case TOOL_VARIABLES:
		return json_pack("{s:s, s:s, s:{s:s}}", "type", "object", "description", p->help,
				 "additionalProperties", "type", "string");
	case TOOL_EDITS:
		return json_pack(
			"{s:s, s:s, s:i, s:{s:s, s:{s:{s:s, s:s}, s:{s:s, s:s}, s:{s:s, s:s}}, "
			"s:[s, s], s:b}}",
			"type", "array", "description", p->help, "minItems", 1, "items", "type",
			"object", "properties", "old_text", "type", "string", "description",
			"Exactly as it stands in the file; not empty.", "new_text", "type",
			"string", "description", "What takes its place.", "replace_all", "type",
			"boolean", "description", "Everywhere, not once.", "required", "old_text",
			"new_text", "additionalProperties", 0);
	default: return json_pack(text, "type", "string", "description", p->help);
	}
}

static json_t *input_schema(const struct tool *tool)
{
	json_t *properties = json_object(), *required = json_array(), *o;

	for (size_t i = 0; i < TOOL_PARAMS_MAX && tool->params[i].name; i++) {
		const struct tool_param *p = &tool->params[i];

		(void)json_object_set_new(properties, p->name, param_schema(p));
		if (p->required)
			(void)json_array_append_new(required, json_string(p->name));
	}
	o = json_pack("{s:s, s:o}", "type", "object", "properties", properties);
	if (json_array_size(required))
		(void)json_object_set(o, "required", required);
	json_decref(required);
	(void)json_object_set_new(o, "additionalProperties", json_false());
	return o;
}

static json_t *output_schema(const struct tool *tool)
{
	json_t *properties = json_object(), *required = json_array();

	for (const struct tool_field *f = tool->fields; f->name; f++) {
		(void)json_object_set_new(properties, f->name, json_loads(f->schema, 0, NULL));
		if (f->always)
			(void)json_array_append_new(required, json_string(f->name));
	}
	return json_pack("{s:s, s:o, s:o}", "type", "object", "properties", properties, "required",
			 required);
}

static json_t *annotations(const struct tool *tool)
{
	enum verb_effect effect = tool_verb(tool)->effect;

	/* What a change replaces stays in the journal, so it destroys nothing. A command may do
	 * anything that its environment allows. */
	return json_pack("{s:s, s:b, s:b, s:b, s:b}", "title", tool->title, "readOnlyHint",
			 effect == EFFECT_READ, "destructiveHint",
			 effect == EFFECT_RUN || effect == EFFECT_DESTROY, "idempotentHint",
			 effect == EFFECT_READ, "openWorldHint", effect == EFFECT_RUN);
}

json_t *tool_schema(const struct tool *tool)
{
	return json_pack("{s:s, s:s, s:s, s:o, s:o, s:o}", "name", tool->name, "title", tool->title,
			 "description", tool->help, "inputSchema", input_schema(tool),
			 "outputSchema", output_schema(tool), "annotations", annotations(tool));
}

/* ---- arguments ---- */

static int usage_line(struct buf *b, const struct tool *tool)
{
	int r = buf_printf(b, "%s takes", tool->name);

	for (size_t i = 0; r >= 0 && i < TOOL_PARAMS_MAX && tool->params[i].name; i++)
		r = buf_printf(b, "%s %s%s", i ? "," : "", tool->params[i].name,
			       tool->params[i].required ? "" : "?");
	if (r >= 0 && !tool->params[0].name)
		r = buf_add_str(b, " no arguments");
	return r;
}

static json_t *bad(const struct tool *tool, const char *fmt, ...) _printf_(2, 3);
static json_t *bad(const struct tool *tool, const char *fmt, ...)
{
	_cleanup_(buf_done) struct buf b = BUF_INIT(0);
	cleanup_free char *usage = NULL, *text = NULL;
	va_list ap;
	int n;

	va_start(ap, fmt);
	n = vasprintf(&text, fmt, ap);
	va_end(ap);
	if (usage_line(&b, tool) < 0 || buf_to_str(&b, &usage) < 0)
		usage = NULL;
	return failure_new("usage", usage, "%s: %s", tool->name, n < 0 ? "out of memory" : text);
}

static bool is_word_of(const char *words, const char *word, size_t len)
{
	while (words && *words) {
		size_t n = strcspn(words, " ");

		if (n == len && memcmp(words, word, n) == 0)
			return true;
		words += n + (words[n] == ' ');
	}
	return false;
}

static const struct tool_param *find_param(const struct tool *tool, const char *name)
{
	for (size_t i = 0; i < TOOL_PARAMS_MAX && tool->params[i].name; i++)
		if (strcmp(tool->params[i].name, name) == 0 ||
		    is_word_of(tool->params[i].aliases, name, strlen(name)))
			return &tool->params[i];
	return NULL;
}

static bool as_integer(const json_t *v, json_int_t *ret)
{
	double d;

	if (json_is_integer(v)) {
		*ret = json_integer_value(v);
		return true;
	}
	if (!json_is_real(v))
		return false;
	d = json_real_value(v);
	if (floor(d) != d || d < -9e15 || d > 9e15)
		return false;
	*ret = (json_int_t)d;
	return true;
}

static json_t *as_param(const json_t *v)
{
	return value_param(json_string_value(v), json_string_length(v));
}

static json_t *take_variables(const struct tool *tool, const struct tool_param *p, const json_t *v,
			      json_t **ret)
{
	json_t *array = json_array();
	const char *name;
	const json_t *value;

	json_object_foreach((json_t *)(uintptr_t)v, name, value)
	{
		_cleanup_(buf_done) struct buf b = BUF_INIT(0);

		if (!*name || strchr(name, '=') || strncmp(name, "LIMB_", 5) == 0 ||
		    !json_is_string(value)) {
			json_decref(array);
			return bad(
				tool,
				"'%s' is an object of {NAME: text}; names have no '=' and do not "
				"begin with LIMB_",
				p->name);
		}
		if (buf_printf(&b, "%s=", name) < 0 ||
		    buf_add(&b, json_string_value(value), json_string_length(value)) < 0) {
			json_decref(array);
			return bad(tool, "out of memory");
		}
		(void)json_array_append_new(array, value_param(buf_data(&b), buf_len(&b)));
	}
	*ret = array;
	return NULL;
}

static json_t *take_texts(const struct tool *tool, const struct tool_param *p, const json_t *v,
			  json_t **ret)
{
	size_t n = json_array_size(v);
	json_t *array;

	if (n == 0 || n > TEXTS_MAX)
		return bad(tool, "'%s' is a list of texts, not empty", p->name);
	array = json_array();
	for (size_t i = 0; i < n; i++) {
		const json_t *text = json_array_get(v, i);

		if (!json_is_string(text)) {
			json_decref(array);
			return bad(tool, "'%s' is a list of texts; number %zu is none", p->name, i);
		}
		(void)json_array_append_new(array, as_param(text));
	}
	*ret = array;
	return NULL;
}

static json_t *get_any(const json_t *o, const char *const names[])
{
	for (; *names; names++)
		if (json_object_get(o, *names))
			return json_object_get(o, *names);
	return NULL;
}

static const char *const old_names[] = {"old_text", "oldText", "old_string", NULL};
static const char *const new_names[] = {"new_text", "newText", "new_string", NULL};
static const char *const all_names[] = {"replace_all", "replaceAll", NULL};

static json_t *one_edit(const json_t *o)
{
	json_t *old_text = get_any(o, old_names), *new_text = get_any(o, new_names);
	json_t *all = get_any(o, all_names);

	if (!json_is_string(old_text) || !json_is_string(new_text) ||
	    json_string_length(old_text) == 0 || (all && !json_is_boolean(all)) ||
	    memchr(json_string_value(old_text), 0, json_string_length(old_text)) ||
	    memchr(json_string_value(new_text), 0, json_string_length(new_text)))
		return NULL;
	return json_pack("{s:O, s:O, s:b}", "old_text", old_text, "new_text", new_text,
			 "replace_all", json_is_true(all));
}

static json_t *take_edits(const struct tool *tool, const json_t *v, json_t **ret)
{
	json_t *array = json_array();

	for (size_t i = 0; i < json_array_size(v); i++)
		if (json_array_append_new(array, one_edit(json_array_get(v, i))) < 0)
			break;
	if (json_array_size(v) == 0 || json_array_size(array) != json_array_size(v)) {
		size_t n = json_array_size(array);

		json_decref(array);
		return bad(tool,
			   "'edits' is a list of {old_text, new_text, replace_all?}; number %zu is "
			   "not: both are texts, old_text is not empty, neither holds a NUL",
			   n + 1);
	}
	*ret = array;
	return NULL;
}

/* An agent that could choose any provider would run what it likes on this machine: `local`
 * keeps nothing in, `command` and an executable's path are programs. */
static bool place_ok(const char *s)
{
	return is_word_of("bwrap container ssh", s, strcspn(s, ":"));
}

static json_t *take_text(const struct tool *tool, const struct tool_param *p, const json_t *v,
			 json_t **ret)
{
	const char *s = json_string_value(v);
	bool nul = s && strlen(s) != json_string_length(v);

	if (!s)
		return bad(tool, "'%s' is a text", p->name);
	if (p->max && json_string_length(v) > (size_t)p->max)
		return bad(tool, "'%s' has at most %lld bytes; write a file, and read that",
			   p->name, p->max);
	if (nul && p->type != TOOL_BYTES)
		return bad(tool, "'%s' holds a NUL byte", p->name);
	if (p->type == TOOL_NAME && !ref_name_ok(s))
		return bad(tool, "'%s' is no name of an environment: a-z, 0-9, _ and -, at most 63",
			   p->name);
	if (p->type == TOOL_POINT && !ref_point_ok(s))
		return bad(
			tool,
			"'%s' is a sequence number, a label, a time, before:JOB, after:JOB, HEAD, "
			"HEAD~N or now",
			p->name);
	if (p->type == TOOL_JOB && !ref_job_ok(s))
		return bad(tool, "'%s' is the id of a job, j-...", p->name);
	if (p->type == TOOL_PLACE && !place_ok(s))
		return bad(
			tool,
			"'%s' is PROVIDER or PROVIDER:TARGET, and the provider is bwrap, container "
			"or ssh; to others a person moves it: limb migrate",
			p->name);
	*ret = as_param(v);
	return NULL;
}

static json_t *take_value(const struct tool *tool, const struct tool_param *p, const json_t *v,
			  json_t **ret)
{
	json_int_t n;

	switch (p->type) {
	case TOOL_INTEGER:
		if (!as_integer(v, &n) || n < p->min || n > p->max)
			return bad(tool, "'%s' is an integer from %lld to %lld", p->name, p->min,
				   p->max);
		*ret = json_integer(n);
		return NULL;
	case TOOL_SWITCH:
		if (!json_is_boolean(v))
			return bad(tool, "'%s' is true or false", p->name);
		*ret = json_boolean(json_is_true(v));
		return NULL;
	case TOOL_TEXTS: return take_texts(tool, p, v, ret);
	case TOOL_VARIABLES:
		if (!json_is_object(v))
			return bad(tool, "'%s' is an object of {NAME: text}", p->name);
		return take_variables(tool, p, v, ret);
	case TOOL_EDITS: return take_edits(tool, v, ret);
	default: return take_text(tool, p, v, ret);
	}
}

/* command becomes argv; exactly one of them. */
static json_t *finish_exec(const struct tool *tool, json_t *params, const json_t *seen)
{
	json_t *command = json_object_get(seen, "command");
	json_t *argv = json_object_get(params, "argv");

	if (!command == !argv)
		return bad(tool,
			   "give exactly one of 'command' (text for /bin/sh -c) and 'argv' (a "
			   "list, no shell)");
	if (command)
		(void)json_object_set_new(params, "argv",
					  json_pack("[s, s, O]", "/bin/sh", "-c", command));
	return NULL;
}

/* old_text and new_text beside path are one edit. */
static json_t *lift_edit(const struct tool *tool, const json_t *arguments)
{
	json_t *o = json_copy((json_t *)(uintptr_t)arguments), *edit;

	if (strcmp(tool->name, "edit_file") != 0 || json_object_get(o, "edits") ||
	    !get_any(o, old_names))
		return o;
	edit = json_object();
	for (size_t i = 0; i < 3; i++) {
		const char *const *names = i == 0 ? old_names : i == 1 ? new_names : all_names;

		for (; *names; names++) {
			json_t *v = json_object_get(o, *names);

			if (v)
				(void)json_object_set(edit, *names, v);
			(void)json_object_del(o, *names);
		}
	}
	(void)json_object_set_new(o, "edits", json_pack("[o]", edit));
	return o;
}

static json_t *take_all(const struct tool *tool, json_t *arguments, json_t *params, json_t *seen)
{
	const char *name;
	json_t *v;

	json_object_foreach(arguments, name, v)
	{
		const struct tool_param *p = find_param(tool, name);
		json_t *value = NULL, *failure;
		char shown[80];

		if (!p)
			return bad(tool, "there is no argument '%s'",
				   text_escape_into(shown, sizeof(shown), name, strlen(name)));
		if (json_is_null(v))
			continue;
		if (json_object_get(seen, p->name))
			return bad(tool, "'%s' is given twice", p->name);
		failure = take_value(tool, p, v, &value);
		if (failure)
			return failure;
		if (p->param)
			(void)json_object_set(params, p->param, value);
		(void)json_object_set_new(seen, p->name, value);
	}
	for (size_t i = 0; i < TOOL_PARAMS_MAX && tool->params[i].name; i++)
		if (tool->params[i].required && !json_object_get(seen, tool->params[i].name))
			return bad(tool, "'%s' is missing", tool->params[i].name);
	if (strcmp(tool->name, "exec") == 0)
		return finish_exec(tool, params, seen);
	return NULL;
}

json_t *tool_params(const struct tool *tool, const json_t *arguments, json_t **ret_params)
{
	json_t *params, *seen, *lifted, *failure;

	if (arguments && !json_is_object(arguments))
		return bad(tool, "the arguments are no object");
	params = tool->fixed ? json_loads(tool->fixed, 0, NULL) : json_object();
	seen = json_object();
	lifted = arguments ? lift_edit(tool, arguments) : json_object();
	failure = take_all(tool, lifted, params, seen);
	json_decref(seen);
	json_decref(lifted);
	if (failure)
		json_decref(params);
	else
		*ret_params = params;
	return failure;
}

/* ---- results ---- */

static json_t *content(const struct buf *b)
{
	json_t *text = value_text(buf_data(b), buf_len(b));

	return json_pack("[{s:s, s:o}]", "type", "text", "text", text ? text : json_string(""));
}

static bool ran(const json_t *answer)
{
	const char *state = json_string_value(json_object_get(answer, "state"));

	return state && strcmp(state, "unknown") == 0;
}

json_t *tool_result(const struct tool *tool, const json_t *answer)
{
	_cleanup_(buf_done) struct buf b = BUF_INIT(0);
	bool failed = json_object_get(answer, "error") && !ran(answer);
	cleanup_free char *text = NULL;

	if (tool->text) {
		(void)tool->text(&b, answer);
	} else {
		text = json_dumps(answer, JSON_COMPACT);
		(void)buf_add_str(&b, text ? text : "{}");
	}
	return json_pack("{s:o, s:O, s:b}", "content", content(&b), "structuredContent", answer,
			 "isError", failed);
}

json_t *tool_failure(const json_t *failure)
{
	const json_t *steps = json_object_get(failure, "next_steps"), *step;
	_cleanup_(buf_done) struct buf b = BUF_INIT(0);
	json_t *copy = json_deep_copy(failure), *o;
	const char *detail = json_string_value(json_object_get(failure, "detail"));
	const char *code = json_string_value(json_object_get(failure, "error"));
	size_t i;

	(void)json_object_del(copy, "exit");
	(void)buf_printf(&b, "%s: %s", code ? code : "internal", detail ? detail : "");
	json_array_foreach(steps, i, step)(void)
		buf_printf(&b, "\nnext: %s", json_string_value(step));
	o = json_pack("{s:o, s:b, s:{s:o}}", "content", content(&b), "isError", 1, "_meta",
		      "limbfs/error", copy);
	return o;
}
