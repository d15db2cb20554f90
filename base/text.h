/*
 * text.h - bytes that people or JSON see: escaping, UTF-8, hex, base64.
 *
 * Names of files are bytes.  text_escape() makes them safe for a terminal and
 * a log line (control characters, C1 and DEL too, and what is not UTF-8 as
 * \xNN; a backslash as \\); text_utf8_ok() decides whether JSON can carry them exact,
 * and text_utf8_replace() is what it carries otherwise.
 */
#ifndef BASE_TEXT_H
#define BASE_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"

int text_escape(struct buf *b, const void *data, size_t n); /* appends */
/* The same into a static-size array, cut with "..." when too long; returns
 * `out`. For log lines. */
const char *text_escape_into(char *out, size_t size, const void *data, size_t n);

/* RFC 3629: no surrogates, no overlong; NUL is not ok. */
bool text_utf8_ok(const void *data, size_t n);
/* Appends, with U+FFFD for each bad byte or NUL. */
int text_utf8_replace(struct buf *b, const void *data, size_t n);

/* out has 2*n+1 bytes. */
void text_hex(char *out, const void *data, size_t n);
/* Exactly 2*n hex digits; -EINVAL otherwise. */
int text_unhex(void *out, size_t n, const char *hex);

int text_base64(struct buf *b, const void *data, size_t n); /* appends, RFC 4648 with padding */
/* Appends; -EINVAL for what text_base64() does not make: other characters, no
 * padding, bits left over. */
int text_unbase64(struct buf *b, const char *s, size_t n);

/* Whole string as an unsigned decimal no larger than max; -EINVAL, -ERANGE. */
int text_parse_u64(const char *s, uint64_t max, uint64_t *ret);
/* "123", "10K", "5M", "2G", "1T" (1024-based). */
int text_parse_size(const char *s, uint64_t *ret_bytes);

/* NAME, LABEL of the command-line contract. */
bool text_name_ok(const char *s);
bool text_label_ok(const char *s);

#endif
