/*
 * render.h - results as people read them: tables, lines, names.
 *
 *	struct render r = {.out = stdout, .nul = arg_z};
 *	verb->render(&r, result);
 *
 * A renderer gets the contract's object and prints it; fields that it does not
 * know it leaves out, fields that are missing it shows as "-".  What comes from
 * an environment is escaped (text.h), but for names with .nul: those are the
 * exact bytes, each ended by NUL.  Nothing here fails but the stream.
 */
#ifndef BRIDGE_RENDER_H
#define BRIDGE_RENDER_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

struct render {
	FILE *out;
	bool nul; /* -z */
};

typedef void render_fn(const struct render *r, const json_t *result);

/* ---- the parts that renderers are made of ---- */

/* One cell: text fields escaped, sizes and ages by kind. */
enum cell_kind {
	CELL_TEXT,
	CELL_NAME, /* bytes, exact with .nul */
	CELL_INTEGER,
	CELL_BYTES,
	CELL_MS,
	CELL_LIST,   /* an array of texts, joined by " " */
	CELL_COMMAS, /* ... by ", " */
	CELL_REASONS,
};

struct column {
	const char *title;
	const char *field;
	enum cell_kind kind;
	bool right;
};

void render_table(const struct render *r, const json_t *array, const struct column *columns,
		  size_t n);
/* One "title  value" line for each column whose field is there. */
void render_fields(const struct render *r, const json_t *object, const struct column *columns,
		   size_t n);
/* The field's text, escaped, to the stream; "-" when absent. */
void render_text(const struct render *r, const json_t *object, const char *field);
void render_name(const struct render *r, const json_t *object, const char *field);

/* What -q prints: a field; "array/field": of each entry; "array/": entries that are texts;
 * several of these, with commas: what is there of them. */
void render_ids(const struct render *r, const json_t *result, const char *id);

/* "1.5 MB", "3 h", for people. */
#define RENDER_SHORT_MAX 32
const char *render_bytes_text(char out[RENDER_SHORT_MAX], double bytes);
const char *render_ms_text(char out[RENDER_SHORT_MAX], double ms);

/* ---- verbs ---- */

render_fn render_up, render_down, render_status, render_create, render_state, render_ls,
	render_inspect, render_sync, render_verify, render_seq, render_rebuild, render_merge,
	render_migrate, render_restore, render_rm, render_trust, render_ps, render_copied,
	render_conflicts, render_points, render_jobs, render_input, render_signal, render_why;

#endif
