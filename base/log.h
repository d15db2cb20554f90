/*
 * log.h - lines on stderr for people: "limb: cannot open 'x': reason".
 *
 * Modules return errors; programs log them, at the edge, once.
 *
 *	return log_error_errno(r, "cannot open '%s'", path);
 *
 * returns r (made negative), so a failing main path is one line.  Lower case,
 * no full stop, subject quoted (and escaped by the caller when it is a file
 * name: text.h).  What a peer can cause goes through log_limited().
 */
#ifndef BASE_LOG_H
#define BASE_LOG_H

#include <stdbool.h>
#include <stdint.h>

#include "base/util.h"

enum log_level { LOG_LEVEL_ERROR, LOG_LEVEL_WARNING, LOG_LEVEL_INFO, LOG_LEVEL_DEBUG };

/* The prefix of each line, "limb" by default; the string is kept. Level is
 * INFO by default, or as the variable LIMB_LOG says (error warning info debug). */
void log_init(const char *prefix);
bool log_enabled(enum log_level level);

void log_line(enum log_level level, const char *fmt, ...) _printf_(2, 3);
int log_line_errno(enum log_level level, int r, const char *fmt, ...) _printf_(3, 4);

#define log_error(...) log_line(LOG_LEVEL_ERROR, __VA_ARGS__)
#define log_warning(...) log_line(LOG_LEVEL_WARNING, __VA_ARGS__)
#define log_info(...) log_line(LOG_LEVEL_INFO, __VA_ARGS__)
#define log_debug(...) log_line(LOG_LEVEL_DEBUG, __VA_ARGS__)
#define log_error_errno(r, ...) log_line_errno(LOG_LEVEL_ERROR, r, __VA_ARGS__)
#define log_warning_errno(r, ...) log_line_errno(LOG_LEVEL_WARNING, r, __VA_ARGS__)
#define log_oom() log_line_errno(LOG_LEVEL_ERROR, -ENOMEM, "out of memory")

/* A token bucket: true at most `burst` times, then once per interval. */
struct log_limit {
	uint64_t next_ms;
	unsigned used;
};
bool log_limited(struct log_limit *l, unsigned burst, unsigned interval_ms);

#endif
