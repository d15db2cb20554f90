/*
 * verbs.h - the table of verbs: what each is called, what it takes, what it
 * changes, how its answer is shown.  The command line is one face of it.
 *
 * A verb's params (brain/rpc.h) are made from its entry alone:
 *
 *	positional	its `param`; FILE gives "name", "point"?, "path"
 *	flag		its `param`: text and paths as they are (host paths
 *			absolute), a switch true, seconds as integer ms (param
 *			ends in _ms), sizes as integer bytes (_bytes)
 *
 * Bytes that are not UTF-8 are {"base64"}.  What was not given is left out.
 * `cp` and `mv` send src and dst as "NAME:PATH", an absolute host path, or "-"
 * (that side travels as frames 'i' or 'o'); "name" is the environment's, "point"
 * that of the source.
 */
#ifndef BRIDGE_VERBS_H
#define BRIDGE_VERBS_H

#include <stdbool.h>
#include <stddef.h>

#include "base/buf.h"
#include "bridge/render.h"

enum value_kind {
	VALUE_SWITCH,
	VALUE_TEXT,
	VALUE_SECONDS, /* decimal, fractions allowed; sent as integer ms */
	VALUE_SIZE,    /* 1024-based suffix; sent as integer bytes */
	VALUE_SEQ,     /* unsigned integer */
	VALUE_HOST_PATH,
	VALUE_PATH,  /* in the environment */
	VALUE_PATHS, /* one or more of them, to the next flag */
	VALUE_POINT, /* POINT, or "consistent" */
	VALUE_NAME,
	VALUE_PROVIDER, /* PROVIDER[:TARGET] */
	VALUE_SPEC,	/* a JSON file; its object is sent */
	VALUE_ENV,	/* K=V, may be repeated; an array */
	VALUE_FILE,	/* REF:PATH */
	VALUE_COPY,	/* a side of cp: FILE, host path or - */
	VALUE_JOURNAL,	/* NAME, or a directory written with '/' */
	VALUE_ARGV,	/* the rest, after -- if there is one */
	VALUE_OWN_ARGV, /* the rest: none of its words is a flag of ours */
};

struct verb_flag {
	const char *name; /* without "--"; NULL ends the list */
	char letter;	  /* 0: none */
	enum value_kind kind;
	const char *param;
	const char *value; /* how help calls the value */
	const char *help;
};

struct verb_arg {
	const char *param; /* NULL ends the list */
	enum value_kind kind;
	bool optional;
	const char *shown;
};

/* What a call may change; policy and approvals go by it. */
enum verb_effect {
	EFFECT_READ,
	EFFECT_RUN,	/* runs programs in the environment */
	EFFECT_CHANGE,	/* changes files, environments or the brain's processes */
	EFFECT_DESTROY, /* drops something that an environment or its journal holds */
};

enum verb_handler {
	HANDLE_DAEMON, /* one call of limbd, the result rendered */
	HANDLE_EXEC,   /* exec-client.c */
	HANDLE_LOGS,   /* logs-client.c */
	HANDLE_INPUT,  /* one call, stdin as frames */
	HANDLE_COPY,   /* one call, with '-' as frames */
	HANDLE_UP,     /* up.c */
	HANDLE_DOWN,
	HANDLE_JOURNAL,	      /* executes limb-journal */
	HANDLE_MOUNT,	      /* executes limb-fs */
	HANDLE_DOCTOR,	      /* executes limb-doctor */
	HANDLE_PROVIDER_TEST, /* executes limb-provider-test */
	HANDLE_HELP,
	HANDLE_MCP,	   /* executes limb-mcp */
	HANDLE_MCP_CONFIG, /* mcp-config.c */
	HANDLE_TOOL,	   /* no word of the command line: a call of limbd that tools make */
};

#define VERB_ARGS_MAX 3

struct verb {
	const char *name; /* "create", "journal verify"; the method of the call */
	const char *help;
	enum verb_handler handler;
	enum verb_effect effect;
	struct verb_arg args[VERB_ARGS_MAX];
	const struct verb_flag *flags;
	/* Exit status 1 when this field of the result is not true; NULL: always 0. */
	const char *unless;
	render_fn *render;
	/* What -q prints: a field of the result, or "array/field" of each entry. */
	const char *id;
};

extern const struct verb verb_table[];
extern const size_t verb_table_count;
/* Flags of every verb. */
extern const struct verb_flag verb_common_flags[];

/* Any of them, by the whole name. */
const struct verb *verb_named(const char *name);
/* The verb of one or two words, but for those that only tools have; *ret_words says how many were its name. NULL. */
const struct verb *verb_find(const char *first, const char *second, int *ret_words);

/* "limb journal verify, limb journal dump": the verbs of two words that begin with `first`;
 * false: none do. Appends. */
bool verbs_of(const char *first, struct buf *b);

const char *verb_effect_text(enum verb_effect effect);

#endif
