#include "bridge/render.h"

#include "base/buf.h"
#include "base/text.h"
#include "bridge/value.h"

const char *render_bytes_text(char out[RENDER_SHORT_MAX], double bytes)
{
	static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB"};
	size_t i = 0;

	while (bytes >= 1024 && i + 1 < ARRAY_SIZE(units)) {
		bytes /= 1024;
		i++;
	}
	(void)snprintf(out, RENDER_SHORT_MAX, i && bytes < 100 ? "%.1f %s" : "%.0f %s", bytes,
		       units[i]);
	return out;
}

const char *render_ms_text(char out[RENDER_SHORT_MAX], double ms)
{
	if (ms < 1000)
		(void)snprintf(out, RENDER_SHORT_MAX, "%.0f ms", ms);
	else if (ms < 120e3)
		(void)snprintf(out, RENDER_SHORT_MAX, "%.1f s", ms / 1000);
	else if (ms < 7200e3)
		(void)snprintf(out, RENDER_SHORT_MAX, "%.0f min", ms / 60e3);
	else if (ms < 48 * 3600e3)
		(void)snprintf(out, RENDER_SHORT_MAX, "%.0f h", ms / 3600e3);
	else
		(void)snprintf(out, RENDER_SHORT_MAX, "%.0f days", ms / 86400e3);
	return out;
}

static void add_escaped(struct buf *b, const json_t *text)
{
	(void)text_escape(b, json_string_value(text), json_string_length(text));
}

/* A line is for one glance; --json has all of them. */
enum { REASONS_SHOWN = 4 };

static void add_reasons(struct buf *b, const json_t *reasons)
{
	const json_t *reason;
	size_t i;

	json_array_foreach(reasons, i, reason)
	{
		if (i == REASONS_SHOWN) {
			(void)buf_printf(b, "; and %zu more", json_array_size(reasons) - i);
			break;
		}
		if (i)
			(void)buf_add_str(b, "; ");
		add_escaped(b, json_object_get(reason, "code"));
		if (json_string_length(json_object_get(reason, "detail"))) {
			(void)buf_add_str(b, ": ");
			add_escaped(b, json_object_get(reason, "detail"));
		}
	}
}

/* Appends the field as text; nothing when it is absent. */
static void add_cell(struct buf *b, const json_t *object, const char *field, enum cell_kind kind)
{
	_cleanup_(buf_done) struct buf exact = BUF_INIT(0);
	const json_t *v = json_object_get(object, field), *item;
	char text[RENDER_SHORT_MAX];
	size_t i;

	switch (kind) {
	case CELL_NAME:
		if (value_bytes(&exact, object, field) >= 0)
			(void)text_escape(b, buf_data(&exact), buf_len(&exact));
		return;
	case CELL_BYTES:
		if (json_is_number(v))
			(void)buf_add_str(b, render_bytes_text(text, json_number_value(v)));
		return;
	case CELL_MS:
		if (json_is_number(v))
			(void)buf_add_str(b, render_ms_text(text, json_number_value(v)));
		return;
	case CELL_LIST:
	case CELL_COMMAS:
		json_array_foreach(v, i, item)
		{
			if (i)
				(void)buf_add_str(b, kind == CELL_LIST ? " " : ", ");
			add_escaped(b, item);
		}
		return;
	case CELL_REASONS: add_reasons(b, v); return;
	case CELL_TEXT:
	case CELL_INTEGER: break;
	}
	if (json_is_string(v))
		add_escaped(b, v);
	else if (json_is_integer(v))
		(void)buf_printf(b, "%lld", (long long)json_integer_value(v));
	else if (json_is_boolean(v))
		(void)buf_add_str(b, json_is_true(v) ? "yes" : "no");
}

/* Columns that a terminal shows: bytes of UTF-8 but for their continuations. */
static size_t width(const struct buf *b)
{
	size_t n = 0;

	for (size_t i = 0; i < buf_len(b); i++)
		n += (buf_data(b)[i] & 0xc0) != 0x80;
	return n;
}

static void put(const struct render *r, const struct buf *b)
{
	if (buf_len(b) > 0)
		(void)fwrite(buf_data(b), 1, buf_len(b), r->out);
}

static void pad(const struct render *r, size_t n)
{
	(void)fprintf(r->out, "%*s", (int)n, "");
}

/* The cell of a row, or of the title row when it is NULL. */
static void table_cell(struct buf *b, const json_t *row, const struct column *c)
{
	buf_clear(b);
	if (!row) {
		(void)buf_add_str(b, c->title);
		return;
	}
	add_cell(b, row, c->field, c->kind);
	if (buf_len(b) == 0)
		(void)buf_add_u8(b, '-');
}

static void table_row(const struct render *r, const json_t *row, const struct column *columns,
		      size_t n, const size_t *widths)
{
	_cleanup_(buf_done) struct buf b = BUF_INIT(0);

	for (size_t c = 0; c < n; c++) {
		size_t w;

		table_cell(&b, row, &columns[c]);
		w = width(&b);
		if (columns[c].right)
			pad(r, widths[c] - MIN(w, widths[c]));
		put(r, &b);
		if (c + 1 == n)
			break;
		if (!columns[c].right)
			pad(r, widths[c] - MIN(w, widths[c]));
		(void)fputs("  ", r->out);
	}
	(void)fputc('\n', r->out);
}

#define COLUMNS_MAX 12

void render_table(const struct render *r, const json_t *array, const struct column *columns,
		  size_t n)
{
	_cleanup_(buf_done) struct buf b = BUF_INIT(0);
	size_t widths[COLUMNS_MAX] = {0}, i;
	const json_t *row;

	if (n > COLUMNS_MAX || json_array_size(array) == 0)
		return;
	for (size_t c = 0; c < n; c++) {
		table_cell(&b, NULL, &columns[c]);
		widths[c] = width(&b);
		json_array_foreach(array, i, row)
		{
			table_cell(&b, row, &columns[c]);
			widths[c] = MAX(widths[c], width(&b));
		}
	}
	table_row(r, NULL, columns, n, widths);
	json_array_foreach(array, i, row) table_row(r, row, columns, n, widths);
}

void render_fields(const struct render *r, const json_t *object, const struct column *columns,
		   size_t n)
{
	size_t wide = 0;

	for (size_t c = 0; c < n; c++)
		wide = MAX(wide, strlen(columns[c].title));
	for (size_t c = 0; c < n; c++) {
		_cleanup_(buf_done) struct buf b = BUF_INIT(0);

		add_cell(&b, object, columns[c].field, columns[c].kind);
		if (buf_len(&b) == 0)
			continue;
		(void)fprintf(r->out, "%-*s  ", (int)wide, columns[c].title);
		put(r, &b);
		(void)fputc('\n', r->out);
	}
}

void render_text(const struct render *r, const json_t *object, const char *field)
{
	_cleanup_(buf_done) struct buf b = BUF_INIT(0);

	add_cell(&b, object, field, CELL_TEXT);
	if (buf_len(&b) == 0)
		(void)buf_add_u8(&b, '-');
	put(r, &b);
}

void render_name(const struct render *r, const json_t *object, const char *field)
{
	_cleanup_(buf_done) struct buf b = BUF_INIT(0);

	if (r->nul)
		(void)value_bytes(&b, object, field);
	else
		add_cell(&b, object, field, CELL_NAME);
	put(r, &b);
	(void)fputc(r->nul ? '\0' : '\n', r->out);
}

static void id_line(const struct render *r, const json_t *object, const char *field)
{
	const json_t *v = json_object_get(object, field);

	if (json_is_string(v))
		render_name(r, object, field);
	else if (json_is_integer(v))
		(void)fprintf(r->out, "%lld%c", (long long)json_integer_value(v),
			      r->nul ? '\0' : '\n');
}

/* One of the alternatives of an id. */
static void ids_of(const struct render *r, const json_t *result, const char *id)
{
	char *slash = strchr(id, '/');
	json_t *entry;
	size_t i;

	if (!slash) {
		id_line(r, result, id);
		return;
	}
	*slash = '\0';
	json_array_foreach(json_object_get(result, id), i, entry)
	{
		json_t *text = slash[1] ? NULL : json_pack("{s:O}", "id", entry);

		id_line(r, text ? text : entry, text ? "id" : slash + 1);
		json_decref(text);
	}
}

void render_ids(const struct render *r, const json_t *result, const char *id)
{
	cleanup_free char *copy = strdup(id);
	char *save = NULL;

	for (char *p = copy ? strtok_r(copy, ",", &save) : NULL; p; p = strtok_r(NULL, ",", &save))
		ids_of(r, result, p);
}
