#include "bridge/args.h"

#include <fcntl.h>
#include <stdio.h>

#include "base/buf.h"
#include "base/file.h"
#include "base/text.h"
#include "bridge/failure.h"
#include "bridge/places.h"
#include "bridge/ref.h"
#include "bridge/value.h"

/* What args_parse() walks over. */
struct scan {
	char **argv;
	int n, i;
	bool rest; /* "--" was seen */
	struct args *args;
};

#define SHOWN_MAX 200
#define SPEC_MAX (1 << 20)

static const char *shown(char out[SHOWN_MAX], const char *s)
{
	return text_escape_into(out, SHOWN_MAX, s, strlen(s));
}

static json_t *bad(const char *kind, const char *s, const char *rule)
{
	char out[SHOWN_MAX];

	return failure_new("usage", rule, "'%s' is not a %s", shown(out, s), kind);
}

static json_t *set_new(struct scan *sc, const char *param, json_t *value)
{
	if (json_object_set_new(sc->args->params, param, value) < 0)
		return failure_new("internal", NULL, "out of memory");
	return NULL;
}

static json_t *set_bytes(struct scan *sc, const char *param, const char *s, size_t n)
{
	return set_new(sc, param, value_param(s, n));
}

static json_t *append_bytes(struct scan *sc, const char *param, const char *s)
{
	json_t *array = json_object_get(sc->args->params, param);

	if (!array) {
		array = json_array();
		if (json_object_set_new(sc->args->params, param, array) < 0)
			return failure_new("internal", NULL, "out of memory");
	}
	if (json_array_append_new(array, value_param(s, strlen(s))) < 0)
		return failure_new("internal", NULL, "out of memory");
	return NULL;
}

/* Decimal seconds as ms, rounded up: a timeout is never cut to 0. */
static bool parse_seconds(const char *s, uint64_t *ret_ms)
{
	uint64_t whole = 0, ms = 0, scale = 1000;
	size_t n = 0;

	for (; s[n] >= '0' && s[n] <= '9'; n++) {
		whole = whole * 10 + (uint64_t)(s[n] - '0');
		if (whole > 1000000000)
			return false;
	}
	if (s[n] == '.') {
		bool more = false;

		if (s[n + 1] == '\0')
			return false;
		for (n++; s[n] >= '0' && s[n] <= '9'; n++) {
			scale /= 10;
			ms += scale * (uint64_t)(s[n] - '0');
			more = more || (scale == 0 && s[n] != '0');
		}
		ms += more;
	}
	if (n == 0 || s[n] != '\0')
		return false;
	*ret_ms = whole * 1000 + ms;
	return true;
}

/* PROVIDER[:TARGET], PROVIDER a name of ours, or an executable's path without ':'. */
static json_t *set_provider(struct scan *sc, const char *param, const char *s)
{
	static const char rule[] = "a name of ours such as bwrap or local, or a path";
	const char *target = strchrnul(s, ':');
	cleanup_free char *name = strndup(s, (size_t)(target - s)), *path = NULL, *text = NULL;

	if (!name)
		return failure_new("internal", NULL, "out of memory");
	if (strchr(name, '/'))
		path = places_absolute(name);
	else if (!ref_name_ok(name))
		return bad("provider", s, rule);
	if (asprintf(&text, "%s%s", path ? path : name, target) < 0)
		return failure_new("internal", NULL, "out of memory");
	return set_bytes(sc, param, text, strlen(text));
}

/* Read here, where its mistakes can be shown by line. */
static json_t *set_spec(struct scan *sc, const char *param, const char *s)
{
	_cleanup_(buf_done) struct buf b = BUF_INIT(SPEC_MAX);
	char out[SHOWN_MAX];
	json_error_t e;
	json_t *spec;
	int r = file_read(AT_FDCWD, s, &b);

	if (r < 0)
		return failure_new(failure_code_of_errno(r), "--spec takes a file of JSON",
				   "cannot read '%s': %s", shown(out, s),
				   r == -E2BIG ? "it has more than 1 MiB" : strerror(-r));
	spec = json_loadb((const char *)buf_data(&b), buf_len(&b), JSON_REJECT_DUPLICATES, &e);
	if (json_is_object(spec))
		return set_new(sc, param, spec);
	if (spec)
		json_decref(spec);
	else
		return failure_new("usage", NULL, "'%s', line %d: %s", shown(out, s), e.line,
				   e.text);
	return failure_new("usage", "write {\"KEY\": VALUE}", "'%s' is no JSON object",
			   shown(out, s));
}

static json_t *set_env(struct scan *sc, const char *param, const char *s)
{
	const char *eq = strchr(s, '=');

	if (!eq || eq == s)
		return bad("variable", s, "write -e NAME=VALUE");
	if (strncmp(s, "LIMB_", 5) == 0) {
		char out[SHOWN_MAX];

		return failure_new("usage", "choose another name",
				   "'%s' cannot be set: LIMB_* are limbfs's own",
				   text_escape_into(out, sizeof(out), s, (size_t)(eq - s)));
	}
	return append_bytes(sc, param, s);
}

static json_t *set_host_path(struct scan *sc, const char *param, const char *s)
{
	cleanup_free char *path = places_absolute(s);
	char out[SHOWN_MAX];

	if (!path)
		return *s ? failure_new("usage", "cd to a directory that is there",
					"'%s' is relative, and there is no current directory: %s",
					shown(out, s), strerror(errno))
			  : failure_new("usage", "write . for this directory",
					"an empty path was given");
	return set_bytes(sc, param, path, strlen(path));
}

static json_t *set_ref(struct scan *sc, const char *param, const struct ref *ref)
{
	json_t *failure = set_bytes(sc, "name", ref->name, ref->name_len);

	if (!failure && ref->point)
		failure = set_bytes(sc, "point", ref->point, ref->point_len);
	if (!failure && ref->path)
		failure = set_bytes(sc, param, ref->path, strlen(ref->path));
	return failure;
}

/* NAME alone stands for its root (ls), or for the environment (rm). */
static json_t *set_file(struct scan *sc, const char *param, const char *s)
{
	struct ref ref;

	if (!ref_parse(s, &ref))
		return bad("file of an environment", s,
			   "write NAME:PATH, or NAME@POINT:PATH with a POINT as in limb(1)");
	return set_ref(sc, param, &ref);
}

static json_t *set_copy(struct scan *sc, const char *param, const char *s)
{
	struct ref ref;

	if (ref_parse(s, &ref) && ref.path) {
		json_t *name = json_object_get(sc->args->params, "name"), *failure;
		cleanup_free char *plain = NULL;

		/* Said with one side only (check_files()). */
		if (asprintf(&plain, "%.*s:%s", (int)ref.name_len, ref.name, ref.path) < 0)
			return failure_new("internal", NULL, "out of memory");
		failure = set_bytes(sc, param, plain, strlen(plain));
		if (!failure && ref.point)
			failure = set_bytes(sc, "point", ref.point, ref.point_len);
		if (failure || name)
			return failure;
		return set_bytes(sc, "name", ref.name, ref.name_len);
	}
	if (strcmp(s, "-") == 0)
		return set_bytes(sc, param, s, 1);
	return set_host_path(sc, param, s);
}

static json_t *set_value(struct scan *sc, enum value_kind kind, const char *param, const char *s)
{
	uint64_t v;

	switch (kind) {
	case VALUE_SWITCH: return set_new(sc, param, json_true());
	case VALUE_TEXT:
	case VALUE_PATH: return set_bytes(sc, param, s, strlen(s));
	case VALUE_SECONDS:
		if (!parse_seconds(s, &v))
			return bad("number of seconds", s, "write digits, such as 90 or 0.5");
		return set_new(sc, param, json_integer((json_int_t)v));
	case VALUE_SIZE:
		if (text_parse_size(s, &v) < 0 || v > INT64_MAX)
			return bad("number of bytes", s, "write digits, or 10K, 5M, 2G");
		return set_new(sc, param, json_integer((json_int_t)v));
	case VALUE_SEQ:
		if (text_parse_u64(s, INT64_MAX, &v) < 0)
			return bad("whole number", s, "write digits");
		return set_new(sc, param, json_integer((json_int_t)v));
	case VALUE_HOST_PATH: return set_host_path(sc, param, s);
	case VALUE_POINT:
		if (!ref_point_ok(s))
			return bad("point", s,
				   "a sequence number, a label, a time, before:JOB, after:JOB, "
				   "HEAD, HEAD~N or now");
		return set_bytes(sc, param, s, strlen(s));
	case VALUE_NAME:
		if (!ref_name_ok(s))
			return bad("name", s,
				   "a name has a-z, 0-9, _ and -, begins with a letter or digit "
				   "and has at most 63");
		return set_bytes(sc, param, s, strlen(s));
	case VALUE_JOURNAL:
		if (strchr(s, '/'))
			return set_host_path(sc, "dir", s);
		if (!ref_name_ok(s))
			return bad("name", s, "write a directory with a '/'");
		return set_bytes(sc, param, s, strlen(s));
	case VALUE_SPEC: return set_spec(sc, param, s);
	case VALUE_PROVIDER: return set_provider(sc, param, s);
	case VALUE_ENV: return set_env(sc, param, s);
	case VALUE_FILE: return set_file(sc, param, s);
	case VALUE_COPY: return set_copy(sc, param, s);
	case VALUE_PATHS:
	case VALUE_ARGV:
	case VALUE_OWN_ARGV: return append_bytes(sc, param, s);
	}
	return NULL;
}

static const struct verb_flag *find_flag(const struct verb_flag *flags, const char *name, size_t n,
					 char letter)
{
	for (; flags && flags->name; flags++)
		if (letter ? flags->letter == letter
			   : strlen(flags->name) == n && memcmp(flags->name, name, n) == 0)
			return flags;
	return NULL;
}

static json_t *common_flag(struct scan *sc, const struct verb_flag *f, const char *value)
{
	switch (f->letter ? f->letter : f->name[0]) {
	case 'j': sc->args->json = true; break;
	case 'q': sc->args->quiet = true; break;
	case 'z': sc->args->nul = true; break;
	case 'h': sc->args->help = true; break;
	default: sc->args->state = value;
	}
	return NULL;
}

/* The words that follow, to the next flag; "--" has all of the rest. */
static json_t *take_paths(struct scan *sc, const struct verb_flag *f)
{
	json_t *failure = NULL;

	while (!failure && sc->i < sc->n && (sc->rest || sc->argv[sc->i][0] != '-'))
		failure = set_value(sc, f->kind, f->param, sc->argv[sc->i++]);
	return failure;
}

static json_t *unknown_flag(struct scan *sc, const char *word)
{
	const struct verb *verb = sc->args->verb;
	cleanup_free char *step = NULL;
	char out[SHOWN_MAX];

	if (asprintf(&step, "run: limb help%s%s", verb ? " " : "", verb ? verb->name : "") < 0)
		step = NULL;
	return failure_new("usage", step, "'%s' has no flag '%s'", verb ? verb->name : "limb",
			   shown(out, word));
}

/* The flag of this verb, or of all. *ret_common: which of them. */
static const struct verb_flag *look_up(struct scan *sc, const char *name, size_t n, char letter,
				       bool *ret_common)
{
	const struct verb_flag *f;

	f = find_flag(sc->args->verb ? sc->args->verb->flags : NULL, name, n, letter);
	*ret_common = !f;
	return f ? f : find_flag(verb_common_flags, name, n, letter);
}

/* value: what was given with it, or NULL: the next word. */
static json_t *take_value(struct scan *sc, const struct verb_flag *f, bool common,
			  const char *value)
{
	json_t *failure;

	if (!value) {
		if (sc->i >= sc->n || strcmp(sc->argv[sc->i], "--") == 0)
			return failure_new("usage", NULL, "--%s needs a value: %s", f->name,
					   f->value);
		value = sc->argv[sc->i++];
	}
	if (common)
		return common_flag(sc, f, value);
	failure = set_value(sc, f->kind, f->param, value);
	if (!failure && f->kind == VALUE_PATHS)
		failure = take_paths(sc, f);
	return failure;
}

static json_t *take_switch(struct scan *sc, const struct verb_flag *f, bool common)
{
	return common ? common_flag(sc, f, NULL) : set_value(sc, f->kind, f->param, NULL);
}

/* --name, --name=value, --name value */
static json_t *take_long(struct scan *sc)
{
	const char *word = sc->argv[sc->i++], *name = word + 2;
	size_t n = strcspn(name, "=");
	const struct verb_flag *f;
	bool common;

	f = look_up(sc, name, n, 0, &common);
	if (!f)
		return unknown_flag(sc, word);
	if (f->kind != VALUE_SWITCH)
		return take_value(sc, f, common, name[n] == '=' ? name + n + 1 : NULL);
	if (name[n] == '=')
		return failure_new("usage", NULL, "--%s takes no value", f->name);
	return take_switch(sc, f, common);
}

/* -q, -qz, -w DIR, -wDIR */
static json_t *take_short(struct scan *sc)
{
	const char *word = sc->argv[sc->i++];

	for (const char *p = word + 1; *p; p++) {
		const struct verb_flag *f;
		json_t *failure;
		bool common;

		f = look_up(sc, NULL, 0, *p, &common);
		if (!f)
			return unknown_flag(sc, word);
		if (f->kind != VALUE_SWITCH)
			return take_value(sc, f, common, p[1] ? p + 1 : NULL);
		failure = take_switch(sc, f, common);
		if (failure)
			return failure;
	}
	return NULL;
}

/* What one value alone does not show: how the sides of cp, mv, rm and ls go together. */
static json_t *check_files(struct scan *sc, const char *const given[VERB_ARGS_MAX])
{
	const char *verb = sc->args->verb->name;
	struct ref a = {0}, b = {0};
	bool in_a = given[0] && ref_parse(given[0], &a) && a.path;
	bool in_b = given[1] && ref_parse(given[1], &b) && b.path;

	if (strcmp(verb, "ls") == 0) {
		if (given[0] && !a.path)
			return set_bytes(sc, "path", "", 0);
	} else if (strcmp(verb, "rm") == 0) {
		if (a.point)
			return failure_new("usage", "leave @POINT away",
					   "the past cannot be changed");
		if (a.path && (json_object_get(sc->args->params, "force") ||
			       json_object_get(sc->args->params, "keep_journal")))
			return failure_new("usage", "leave them away",
					   "--force and --keep-journal are for environments, not "
					   "for a file of one");
	} else if (strcmp(verb, "cp") == 0) {
		if (in_a == in_b)
			return failure_new("usage",
					   "write: limb cp SRC NAME:PATH, or NAME:PATH DST",
					   "exactly one side of cp is in an environment");
		if (b.point)
			return failure_new("usage", "leave @POINT away",
					   "the past cannot be changed");
	} else if (strcmp(verb, "mv") == 0) {
		if (!in_a || !in_b || a.name_len != b.name_len ||
		    memcmp(a.name, b.name, a.name_len) != 0)
			return failure_new("usage", "write: limb mv NAME:PATH NAME:PATH",
					   "mv renames within one environment");
		if (a.point || b.point)
			return failure_new("usage", "leave @POINT away",
					   "the past cannot be changed");
	}
	return NULL;
}

static json_t *usage_failure(const struct verb *verb, const char *problem)
{
	_cleanup_(buf_done) struct buf b = BUF_INIT(0);

	if (args_usage(&b, verb) < 0)
		return failure_new("usage", NULL, "%s", problem);
	return failure_new("usage", NULL, "%s; %.*s", problem, (int)buf_len(&b),
			   (const char *)buf_data(&b));
}

/* Words and flags behind the verb, in any order. */
static json_t *take_words(struct scan *sc)
{
	const struct verb *verb = sc->args->verb;
	const char *given[VERB_ARGS_MAX] = {0};
	json_t *failure = NULL;
	size_t n = 0;

	while (!failure && sc->i < sc->n) {
		const char *word = sc->argv[sc->i];

		if (n < VERB_ARGS_MAX && verb->args[n].param &&
		    verb->args[n].kind == VALUE_OWN_ARGV)
			sc->rest = true;
		if (!sc->rest && strcmp(word, "--") == 0) {
			sc->rest = true;
			sc->i++;
		} else if (!sc->rest && word[0] == '-' && word[1] != '\0') {
			failure = word[1] == '-' ? take_long(sc) : take_short(sc);
		} else if (n == VERB_ARGS_MAX || !verb->args[n].param) {
			char out[SHOWN_MAX], text[SHOWN_MAX + 40];

			(void)snprintf(text, sizeof(text), "'%s' is one argument too many",
				       shown(out, word));
			return usage_failure(verb, text);
		} else if (verb->args[n].kind == VALUE_ARGV ||
			   verb->args[n].kind == VALUE_OWN_ARGV) {
			/* the command's own words, flags too */
			for (sc->rest = true; !failure && sc->i < sc->n; sc->i++)
				failure = append_bytes(sc, verb->args[n].param, sc->argv[sc->i]);
			given[n++] = word;
		} else if (verb->args[n].kind == VALUE_PATHS) {
			/* it and all words after it */
			failure = set_value(sc, VALUE_PATHS, verb->args[n].param, word);
			sc->i++;
		} else {
			failure = set_value(sc, verb->args[n].kind, verb->args[n].param, word);
			given[n++] = word;
			sc->i++;
		}
	}
	if (failure || sc->args->help)
		return failure;
	if (n < VERB_ARGS_MAX && verb->args[n].param && !verb->args[n].optional &&
	    !json_object_get(sc->args->params, verb->args[n].param)) {
		char text[80];

		(void)snprintf(text, sizeof(text), "%s is missing", verb->args[n].shown);
		return usage_failure(verb, text);
	}
	return check_files(sc, given);
}

/* A failure is to be printed as JSON even if it comes before --json was reached. */
static bool wants_json(int argc, char **argv)
{
	for (int i = 1; i < argc && strcmp(argv[i], "--") != 0; i++)
		if (strcmp(argv[i], "--json") == 0)
			return true;
	return false;
}

json_t *args_no_verb(const char *word)
{
	_cleanup_(buf_done) struct buf b = BUF_INIT(0);
	char out[SHOWN_MAX];

	if (!verbs_of(word, &b))
		return failure_new("usage", "run: limb help", "there is no verb '%s'",
				   shown(out, word));
	return failure_new("usage", "run: limb help", "'%s' wants a second word: %.*s", word,
			   (int)buf_len(&b), (const char *)buf_data(&b));
}

json_t *args_parse(int argc, char **argv, struct args *args)
{
	struct scan sc = {.argv = argv, .n = argc, .i = 1, .args = args};
	const char *word;
	json_t *failure;
	int words = 0;

	args->params = json_object();
	while (sc.i < argc && argv[sc.i][0] == '-') {
		if (strcmp(argv[sc.i], "--version") == 0) {
			args->version = true;
			return NULL;
		}
		failure = argv[sc.i][1] == '-' ? take_long(&sc) : take_short(&sc);
		if (failure) {
			args->json = args->json || wants_json(argc, argv);
			return failure;
		}
	}
	if (sc.i == argc)
		return args->help ? NULL
				  : failure_new("usage", "run: limb help", "no verb was given");
	word = argv[sc.i];
	args->verb = verb_find(word, sc.i + 1 < argc ? argv[sc.i + 1] : NULL, &words);
	if (!args->verb) {
		args->json = args->json || wants_json(argc, argv);
		return args_no_verb(word);
	}
	sc.i += words;
	failure = take_words(&sc);
	if (failure)
		args->json = args->json || wants_json(argc, argv);
	return failure;
}

void args_done(struct args *args)
{
	if (args)
		json_decref(args->params);
}

int args_usage(struct buf *b, const struct verb *verb)
{
	int r = buf_printf(b, "usage: limb %s", verb->name);

	for (const struct verb_flag *f = verb->flags; r >= 0 && f && f->name; f++) {
		r = f->letter ? buf_printf(b, " [-%c", f->letter)
			      : buf_printf(b, " [--%s", f->name);
		if (r >= 0)
			r = buf_printf(b, "%s%s]", f->value ? " " : "", f->value ? f->value : "");
	}
	for (size_t i = 0; r >= 0 && i < VERB_ARGS_MAX && verb->args[i].param; i++) {
		const struct verb_arg *a = &verb->args[i];

		if (a->shown[0])
			r = buf_printf(b, a->optional ? " [%s]" : " %s", a->shown);
	}
	return r;
}
