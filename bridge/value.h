/*
 * value.h - bytes in JSON, both ways.
 *
 * JSON text is UTF-8 and file names are not.  In params bytes that are not
 * UTF-8 are {"base64": "..."} in place of the string (brain/rpc.h); in results
 * the text has U+FFFD and the exact bytes are in a sibling X_base64.
 */
#ifndef BRIDGE_VALUE_H
#define BRIDGE_VALUE_H

#include <jansson.h>
#include <stddef.h>

#include "base/buf.h"

/* A string, or {"base64": ...}; NULL when out of memory. The caller owns it. */
json_t *value_param(const void *data, size_t n);
/* A string, with U+FFFD for what is not UTF-8; NULL when out of memory. */
json_t *value_text(const void *data, size_t n);

/* Appends the exact bytes of object[field] (from field_base64 if it is there).
 * -ENOENT when absent or no string. */
int value_bytes(struct buf *b, const json_t *object, const char *field);

#endif
