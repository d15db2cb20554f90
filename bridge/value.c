#include "bridge/value.h"

#include <stdio.h>

#include "base/text.h"

json_t *value_text(const void *data, size_t n)
{
	_cleanup_(buf_done) struct buf b = BUF_INIT(0);

	if (n == 0 || text_utf8_ok(data, n))
		return json_stringn_nocheck(n ? data : "", n);
	if (text_utf8_replace(&b, data, n) < 0)
		return NULL;
	return json_stringn((const char *)buf_data(&b), buf_len(&b));
}

json_t *value_param(const void *data, size_t n)
{
	_cleanup_(buf_done) struct buf b = BUF_INIT(0);

	if (text_utf8_ok(data, n))
		return json_stringn(data, n);
	if (text_base64(&b, data, n) < 0)
		return NULL;
	return json_pack("{s:s%}", "base64", buf_data(&b), buf_len(&b));
}

int value_bytes(struct buf *b, const json_t *object, const char *field)
{
	char base64[64];
	const json_t *v;
	int r;

	r = snprintf(base64, sizeof(base64), "%s_base64", field);
	if (r < 0 || (size_t)r >= sizeof(base64))
		return -ENOENT;
	v = json_object_get(object, base64);
	if (json_is_string(v) && text_unbase64(b, json_string_value(v), json_string_length(v)) >= 0)
		return 0;
	v = json_object_get(object, field);
	if (!json_is_string(v))
		return -ENOENT;
	return buf_add(b, json_string_value(v), json_string_length(v));
}
