#include "base/log.h"

#include <stdarg.h>
#include <stdio.h>

#include "base/clock.h"

enum { LINE_MAX_BYTES = 4096 };

static const char *prefix = "limb";
static enum log_level max_level = LOG_LEVEL_INFO;

static const char *const level_names[] = {
	[LOG_LEVEL_ERROR] = "error",
	[LOG_LEVEL_WARNING] = "warning",
	[LOG_LEVEL_INFO] = "info",
	[LOG_LEVEL_DEBUG] = "debug",
};

void log_init(const char *new_prefix)
{
	const char *e = getenv("LIMB_LOG");

	prefix = new_prefix;
	for (size_t i = 0; e && i < ARRAY_SIZE(level_names); i++)
		if (strcmp(e, level_names[i]) == 0)
			max_level = (enum log_level)i;
}

bool log_enabled(enum log_level level)
{
	return level <= max_level;
}

struct line {
	char text[LINE_MAX_BYTES];
	size_t len; /* at most sizeof(text) - 1, which keeps room for '\n' */
};

static void _printf_(2, 0) line_vadd(struct line *l, const char *fmt, va_list ap)
{
	size_t room = sizeof(l->text) - l->len;
	int n = vsnprintf(l->text + l->len, room, fmt, ap);

	if (n > 0)
		l->len += MIN((size_t)n, room - 1);
}

static void _printf_(2, 3) line_add(struct line *l, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	line_vadd(l, fmt, ap);
	va_end(ap);
}

/* One write, so that lines of several threads and processes stay whole. */
static void line_write(struct line *l)
{
	l->text[l->len++] = '\n';
	if (write(STDERR_FILENO, l->text, l->len) < 0)
		return; /* nobody is left to be told */
}

void log_line(enum log_level level, const char *fmt, ...)
{
	struct line l = {.len = 0};
	int saved = errno;
	va_list ap;

	if (!log_enabled(level))
		return;
	line_add(&l, "%s: ", prefix);
	va_start(ap, fmt);
	line_vadd(&l, fmt, ap);
	va_end(ap);
	line_write(&l);
	errno = saved;
}

int log_line_errno(enum log_level level, int r, const char *fmt, ...)
{
	struct line l = {.len = 0};
	int saved = errno;
	va_list ap;

	r = r > 0 ? -r : r;
	if (!log_enabled(level))
		return r;
	line_add(&l, "%s: ", prefix);
	va_start(ap, fmt);
	line_vadd(&l, fmt, ap);
	va_end(ap);
	errno = -r;
	line_add(&l, ": %m");
	line_write(&l);
	errno = saved;
	return r;
}

bool log_limited(struct log_limit *l, unsigned burst, unsigned interval_ms)
{
	uint64_t now = clock_mono_ms(), back;

	if (l->used > 0 && now >= l->next_ms) {
		back = interval_ms ? 1 + (now - l->next_ms) / interval_ms : l->used;
		l->used -= (unsigned)MIN(back, (uint64_t)l->used);
		l->next_ms += back * interval_ms;
	}
	if (l->used >= burst)
		return false;
	if (l->used++ == 0)
		l->next_ms = now + interval_ms;
	return true;
}
