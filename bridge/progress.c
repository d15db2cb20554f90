#include "bridge/progress.h"

#include <stdio.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/text.h"
#include "bridge/render.h"

enum { REDRAW_MS = 100, RATE_AFTER_MS = 500 };

void progress_init(struct progress *p)
{
	*p = (struct progress){
		.terminal = isatty(STDERR_FILENO) == 1,
		.start_ms = clock_mono_ms(),
	};
}

static int add_amounts(struct buf *b, const json_t *params, uint64_t elapsed_ms)
{
	double files = json_number_value(json_object_get(params, "files"));
	double bytes = json_number_value(json_object_get(params, "bytes"));
	double total_files = json_number_value(json_object_get(params, "total_files"));
	double total_bytes = json_number_value(json_object_get(params, "total_bytes"));
	double part = total_bytes > 0 ? bytes / total_bytes
				      : (total_files > 0 ? files / total_files : 0);
	char text[RENDER_SHORT_MAX];
	int r;

	r = buf_printf(b, ": %.0f", files);
	if (r >= 0 && total_files > 0)
		r = buf_printf(b, " of %.0f", total_files);
	if (r >= 0)
		r = buf_printf(b, " files, %s", render_bytes_text(text, bytes));
	if (r < 0 || elapsed_ms < RATE_AFTER_MS)
		return r;
	r = buf_printf(b, ", %s/s", render_bytes_text(text, bytes * 1000 / (double)elapsed_ms));
	if (r >= 0 && part > 0.01 && part < 1)
		r = buf_printf(b, ", %s left",
			       render_ms_text(text, (double)elapsed_ms * (1 - part) / part));
	return r;
}

int progress_line(struct buf *b, const json_t *params, uint64_t elapsed_ms)
{
	const json_t *text = json_object_get(params, "text");
	int r;

	if (json_is_string(text))
		r = text_escape(b, json_string_value(text), json_string_length(text));
	else
		r = buf_add_str(b, "working");
	if (r >= 0 && json_is_integer(json_object_get(params, "files")))
		r = add_amounts(b, params, elapsed_ms);
	return r;
}

void progress_notified(const char *method, const json_t *params, void *userdata)
{
	_cleanup_(buf_done) struct buf b = BUF_INIT(0);
	struct progress *p = userdata;
	struct winsize ws = {.ws_col = 80};
	uint64_t now = clock_mono_ms();

	if (!p->terminal || strcmp(method, "progress") != 0 ||
	    (p->shown && now - p->last_ms < REDRAW_MS))
		return;
	if (progress_line(&b, params, now - p->start_ms) < 0)
		return;
	(void)ioctl(STDERR_FILENO, TIOCGWINSZ, &ws);
	(void)fprintf(stderr, "\r%.*s\033[K",
		      (int)MIN(buf_len(&b), (size_t)(ws.ws_col > 1 ? ws.ws_col - 1 : 79)),
		      (const char *)buf_data(&b));
	(void)fflush(stderr);
	p->shown = true;
	p->last_ms = now;
}

void progress_end(struct progress *p)
{
	if (p->shown)
		(void)fputs("\r\033[K", stderr);
	(void)fflush(stderr);
	p->shown = false;
}
