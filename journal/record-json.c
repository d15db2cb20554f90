#include "journal/record-json.h"

#include <ctype.h>
#include <stdio.h>

#include "base/clock.h"
#include "base/text.h"
#include "journal/body.h"

/* How a field is shown, when not by its type; by message and name. */
enum style {
	STYLE_PLAIN,
	STYLE_HASH,
	STYLE_HEX,
	STYLE_MODE,
	STYLE_TIME,
	STYLE_ALWAYS,
	STYLE_LEFT_OUT
};

static const struct rule {
	const char *message, *field, *shown;
	enum style style;
} rules[] = {
	{"Record", "incarnation", NULL, STYLE_LEFT_OUT}, /* always there */
	{"Record", "job", "job_id", STYLE_PLAIN},
	{"Record", "task", "task_id", STYLE_PLAIN},
	{"Record", "origin_time_ns", "origin_at", STYLE_TIME},
	{"Content", "sha256", NULL, STYLE_HASH},
	{"Content", "root", NULL, STYLE_HASH},
	{"Attr", "mode", NULL, STYLE_MODE},
	{"Attr", "mtime_ns", "modified_at", STYLE_TIME},
	{"Attr", "ctime_ns", "changed_at", STYLE_TIME},
	{"Op", "kind", "op", STYLE_PLAIN},
	{"Genesis", "log_id", NULL, STYLE_HEX},
	{"Genesis", "brain_id", NULL, STYLE_HEX},
	{"Genesis", "parent_log_id", NULL, STYLE_HEX},
	{"Genesis", "parent_chain", NULL, STYLE_HASH},
	{"Incarnation", "syncd_sha256", NULL, STYLE_HASH},
	{"Incarnation", "machine_id", NULL, STYLE_HEX},
	{"Incarnation", "mark", NULL, STYLE_HEX},
	{"JobEnd", "exit_code", NULL, STYLE_ALWAYS},
	{"JobEnd", "error", "error_code", STYLE_PLAIN}, /* no failure of this command */
	{"Intent", "kind", "wants", STYLE_PLAIN},
	{"Unapplied", "error", "errno", STYLE_PLAIN},
	{"EnvironmentEvent", "id", "environment_id", STYLE_HEX},
	{"EnvironmentEvent", "name", "environment", STYLE_PLAIN},
};

static const struct rule *find_rule(const ProtobufCMessageDescriptor *d, const char *field)
{
	for (size_t i = 0; i < ARRAY_SIZE(rules); i++) {
		if (strcmp(rules[i].message, d->short_name) == 0 &&
		    strcmp(rules[i].field, field) == 0)
			return &rules[i];
	}
	return NULL;
}

static int set(json_t *o, const char *key, json_t *value)
{
	return json_object_set_new(o, key, value) < 0 ? -ENOMEM : 0;
}

/* ---- values ---- */

static json_t *hex_value(const char *prefix, const void *data, size_t n)
{
	char hex[2 * 64 + 1];

	text_hex(hex, data, MIN(n, (size_t)64));
	return json_sprintf("%s%s", prefix, hex);
}

static json_t *buf_value(const struct buf *b)
{
	/* jansson takes no NULL, not even for an empty text. */
	return buf_len(b) > 0 ? json_stringn((const char *)buf_data(b), buf_len(b))
			      : json_string("");
}

static json_t *base64_value(const void *data, size_t n)
{
	_cleanup_(buf_done) struct buf b = BUF_INIT(0);

	if (text_base64(&b, data, n) < 0)
		return NULL;
	return buf_value(&b);
}

static json_t *text_value(const void *data, size_t n)
{
	_cleanup_(buf_done) struct buf b = BUF_INIT(0);

	if (text_utf8_replace(&b, data, n) < 0)
		return NULL;
	return buf_value(&b);
}

static json_t *time_value(int64_t ns)
{
	char text[CLOCK_TEXT_MAX];

	return json_string(clock_format(text, ns));
}

static json_t *mode_value(uint32_t mode)
{
	return json_sprintf("%04o", mode);
}

/* ORIGIN_ENVIRONMENT of enum Origin is "environment", PUT of OpKind "put": the
 * words before the value's own are the same for all values. */
static json_t *enum_value(const ProtobufCEnumDescriptor *d, int value)
{
	const ProtobufCEnumValue *v = protobuf_c_enum_descriptor_get_value(d, value);
	char text[64];
	const char *own;
	size_t i;

	if (!v)
		return json_integer(value);
	own = strchr(v->name, '_');
	own = own ? own + 1 : v->name;
	for (i = 0; own[i] && i + 1 < sizeof(text); i++)
		text[i] = (char)tolower((unsigned char)own[i]);
	text[i] = '\0';
	return json_string(text);
}

static json_t *unsigned_value(uint64_t v)
{
	return v <= INT64_MAX ? json_integer((json_int_t)v)
			      : json_sprintf("%llu", (unsigned long long)v);
}

/* Text, and its exact bytes when it is none. */
static int set_bytes(json_t *o, const char *key, const void *data, size_t n)
{
	char base64[80];
	int r;

	r = set(o, key, text_value(data, n));
	if (r < 0 || text_utf8_ok(data, n))
		return r;
	(void)snprintf(base64, sizeof(base64), "%s_base64", key);
	return set(o, base64, base64_value(data, n));
}

/* ---- messages by their descriptors ---- */

static int set_message(json_t *o, const ProtobufCMessage *m);

static json_t *message_value(const ProtobufCMessage *m)
{
	json_t *o = json_object();

	if (o && set_message(o, m) < 0) {
		json_decref(o);
		o = NULL;
	}
	return o;
}

static bool is_zero(const ProtobufCFieldDescriptor *f, const void *p)
{
	switch (f->type) {
	case PROTOBUF_C_TYPE_STRING: return !*(char *const *)p || !**(char *const *)p;
	case PROTOBUF_C_TYPE_BYTES: return ((const ProtobufCBinaryData *)p)->len == 0;
	case PROTOBUF_C_TYPE_MESSAGE: return !*(ProtobufCMessage *const *)p;
	case PROTOBUF_C_TYPE_UINT64:
	case PROTOBUF_C_TYPE_SINT64: return *(const uint64_t *)p == 0;
	case PROTOBUF_C_TYPE_BOOL: return !*(const protobuf_c_boolean *)p;
	default: return *(const uint32_t *)p == 0;
	}
}

/* NULL also for types that record.proto does not use. */
static json_t *value_of(const ProtobufCFieldDescriptor *f, const void *p)
{
	switch (f->type) {
	case PROTOBUF_C_TYPE_UINT32: return json_integer(*(const uint32_t *)p);
	case PROTOBUF_C_TYPE_INT32:
	case PROTOBUF_C_TYPE_SINT32: return json_integer(*(const int32_t *)p);
	case PROTOBUF_C_TYPE_UINT64: return unsigned_value(*(const uint64_t *)p);
	case PROTOBUF_C_TYPE_SINT64: return json_integer(*(const int64_t *)p);
	case PROTOBUF_C_TYPE_BOOL: return json_boolean(*(const protobuf_c_boolean *)p);
	case PROTOBUF_C_TYPE_ENUM: return enum_value(f->descriptor, *(const int *)p);
	case PROTOBUF_C_TYPE_STRING:
		return text_value(*(char *const *)p, strlen(*(char *const *)p));
	case PROTOBUF_C_TYPE_MESSAGE: return message_value(*(ProtobufCMessage *const *)p);
	default: return NULL;
	}
}

static int set_single(json_t *o, const ProtobufCFieldDescriptor *f, const struct rule *rule,
		      const char *key, const void *p)
{
	const ProtobufCBinaryData *b = p;

	switch (rule ? rule->style : STYLE_PLAIN) {
	case STYLE_HASH: return set(o, key, hex_value("sha256:", b->data, b->len));
	case STYLE_HEX: return set(o, key, hex_value("", b->data, b->len));
	case STYLE_MODE: return set(o, key, mode_value(*(const uint32_t *)p));
	case STYLE_TIME: return set(o, key, time_value(*(const int64_t *)p));
	default: break;
	}
	if (f->type == PROTOBUF_C_TYPE_BYTES)
		return set_bytes(o, key, b->data, b->len);
	return set(o, key, value_of(f, p));
}

static size_t element_size(const ProtobufCFieldDescriptor *f)
{
	switch (f->type) {
	case PROTOBUF_C_TYPE_BYTES: return sizeof(ProtobufCBinaryData);
	case PROTOBUF_C_TYPE_UINT64:
	case PROTOBUF_C_TYPE_SINT64: return sizeof(uint64_t);
	case PROTOBUF_C_TYPE_STRING:
	case PROTOBUF_C_TYPE_MESSAGE: return sizeof(void *);
	default: return sizeof(uint32_t);
	}
}

/* A list; of bytes also the exact list, when one of them is no text. */
static int set_repeated(json_t *o, const ProtobufCFieldDescriptor *f, const char *key,
			const uint8_t *p, size_t n)
{
	json_t *list = json_array(), *exact = json_array();
	bool bytes = f->type == PROTOBUF_C_TYPE_BYTES, all_text = true;
	char base64[80];
	int r = 0;

	for (size_t i = 0; r == 0 && i < n; i++, p += element_size(f)) {
		const ProtobufCBinaryData *b = (const void *)p;

		if (!bytes) {
			r = json_array_append_new(list, value_of(f, p));
			continue;
		}
		all_text = all_text && text_utf8_ok(b->data, b->len);
		r = json_array_append_new(list, text_value(b->data, b->len)) |
		    json_array_append_new(exact, base64_value(b->data, b->len));
	}
	r |= json_object_set_new(o, key, list);
	(void)snprintf(base64, sizeof(base64), "%s_base64", key);
	if (bytes && !all_text)
		r |= json_object_set_new(o, base64, exact);
	else
		json_decref(exact);
	return r < 0 ? -ENOMEM : 0;
}

static int set_field(json_t *o, const ProtobufCMessage *m, const ProtobufCFieldDescriptor *f)
{
	const struct rule *rule = find_rule(m->descriptor, f->name);
	const char *key = rule && rule->shown ? rule->shown : f->name;
	const uint8_t *p = (const uint8_t *)m + f->offset;
	size_t n;

	if (rule && rule->style == STYLE_LEFT_OUT)
		return 0;
	if (f->label == PROTOBUF_C_LABEL_REPEATED) {
		n = *(const size_t *)((const uint8_t *)m + f->quantifier_offset);
		return n == 0 ? 0 : set_repeated(o, f, key, *(uint8_t *const *)p, n);
	}
	if (f->flags & PROTOBUF_C_FIELD_FLAG_ONEOF) {
		/* The body's fields stand beside the record's own. */
		if (*(const uint32_t *)((const uint8_t *)m + f->quantifier_offset) != f->id)
			return 0;
		return set_message(o, *(ProtobufCMessage *const *)p);
	}
	if (is_zero(f, p) && !(rule && (rule->style == STYLE_MODE || rule->style == STYLE_ALWAYS)))
		return 0;
	return set_single(o, f, rule, key, p);
}

static int set_message(json_t *o, const ProtobufCMessage *m)
{
	int r;

	for (unsigned i = 0; i < m->descriptor->n_fields; i++) {
		r = set_field(o, m, &m->descriptor->fields[i]);
		if (r < 0)
			return r;
	}
	return 0;
}

/* ---- paths of operations ---- */

static int set_path(json_t *o, const char *key, int found, const struct buf *path)
{
	if (found < 0)
		return found == -ENOENT ? 0 : found;
	return set_bytes(o, key, buf_data(path), buf_len(path));
}

/* Of names: as they are when the operation comes. */
static int set_name_paths(json_t *o, const Limb__Op *op, const struct record_paths *paths)
{
	_cleanup_(buf_done) struct buf from = BUF_INIT(0), to = BUF_INIT(0);
	int r;

	if (op->name.len > 0) {
		r = record_paths_of(paths, op->parent, op->name.data, op->name.len, &from);
		r = set_path(o, "path", r, &from);
		if (r < 0)
			return r;
	}
	if (op->to_name.len == 0)
		return 0;
	r = record_paths_of(paths, op->to_parent, op->to_name.data, op->to_name.len, &to);
	return set_path(o, "to_path", r, &to);
}

/* Of nodes: as they are when the whole change is done, for a node that is made
 * gets its name only then. */
static int set_node_path(json_t *o, const Limb__Op *op, const struct record_paths *paths)
{
	_cleanup_(buf_done) struct buf path = BUF_INIT(0);

	return set_path(o, "path", record_paths_of_node(paths, op->node, &path), &path);
}

/* ops: NULL, or the array that set_message made of them. */
static int walk_ops(const Limb__Change *c, struct record_paths *paths, json_t *ops)
{
	int r = 0;

	for (size_t i = 0; r >= 0 && i < c->n_ops; i++) {
		if (ops)
			r = set_name_paths(json_array_get(ops, i), c->ops[i], paths);
		if (r >= 0)
			r = record_paths_apply(paths, c->ops[i]);
	}
	for (size_t i = 0; r >= 0 && ops && i < c->n_ops; i++) {
		if (c->ops[i]->name.len == 0)
			r = set_node_path(json_array_get(ops, i), c->ops[i], paths);
	}
	return r;
}

static int set_body(json_t *o, const Limb__Record *body, struct record_paths *paths)
{
	int r = 0;

	if (o)
		r = set_message(o, &body->base);
	if (r >= 0 && body->body_case == LIMB__RECORD__BODY_CHANGE)
		r = walk_ops(body->change, paths, o ? json_object_get(o, "ops") : NULL);
	return r;
}

int record_json(const struct log_record *rec, struct record_paths *paths, json_t **ret)
{
	_cleanup_(arena_done) struct arena arena = ARENA_INIT(0);
	Limb__Record *body = NULL;
	json_t *o = NULL;
	int r = 0;

	if (!ret && rec->type != RECORD_CHANGE)
		return 0;
	if (rec->body && body_unpack(&arena, rec->body, rec->n, &body) < 0)
		body = NULL;
	if (ret) {
		o = json_pack("{s:I, s:o, s:s, s:o}", "seq", (json_int_t)rec->seq, "at",
			      time_value(rec->time_ns), "type", record_type_name(rec->type),
			      "incarnation", unsigned_value(body ? body->incarnation : 0));
		if (!o)
			return -ENOMEM;
		if (!rec->body)
			r = set(o, "purged", json_true());
		else if (!body)
			r = set(o, "body_base64", base64_value(rec->body, rec->n));
	}
	if (r >= 0 && body)
		r = set_body(o, body, paths);
	if (r < 0) {
		json_decref(o);
		return r;
	}
	if (ret)
		*ret = o;
	return 0;
}
