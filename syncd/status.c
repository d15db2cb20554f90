#include "syncd/status.h"

#include <stdio.h>

#include "base/clock.h"
#include "syncd/state.h"

enum { SOON_MS = 250, IDLE_MS = 5000 };

static void on_timer(uv_timer_t *t)
{
	status_send(t->data);
}

static void schedule(struct sync *sy)
{
	struct status *s = &sy->status;
	uint64_t due_ms = s->sent_ms + (s->changed ? SOON_MS : IDLE_MS), now_ms = clock_mono_ms();

	if (sy->closing)
		return;
	if (!sy->attached) {
		(void)uv_timer_stop(&s->timer);
		return;
	}
	(void)uv_timer_start(&s->timer, on_timer, due_ms > now_ms ? due_ms - now_ms : 0, 0);
}

void status_init(struct sync *sy)
{
	(void)uv_timer_init(sy->loop, &sy->status.timer);
	sy->status.timer.data = sy;
}

static void reason_clear(struct status_reason *r)
{
	free(r->path);
	free(r->detail);
	*r = (struct status_reason){0};
}

void status_done(struct sync *sy)
{
	for (size_t i = 0; i < sy->status.n_reasons; i++)
		reason_clear(&sy->status.reasons[i]);
	sy->status.n_reasons = 0;
}

void status_changed(struct sync *sy)
{
	/* What was to be said when the line fell is still to be said, by nobody's timer. */
	if (sy->status.changed && uv_is_active((uv_handle_t *)&sy->status.timer))
		return;
	sy->status.changed = true;
	schedule(sy);
}

static void remove_at(struct sync *sy, size_t i)
{
	struct status *s = &sy->status;

	reason_clear(&s->reasons[i]);
	s->reasons[i] = s->reasons[--s->n_reasons];
	s->reasons_changed = true;
	status_changed(sy);
}

static bool is(const struct status_reason *r, const char *code, const char *path)
{
	return strcmp(r->code, code) == 0 &&
	       (r->path == path || (r->path && path && strcmp(r->path, path) == 0));
}

void status_set(struct sync *sy, const char *code, const char *path, uint64_t for_ms,
		const char *detail)
{
	struct status *s = &sy->status;
	struct status_reason *r;
	uint64_t until_ms = for_ms ? clock_mono_ms() + for_ms : 0;

	for (size_t i = 0; i < s->n_reasons; i++) {
		if (is(&s->reasons[i], code, path)) {
			s->reasons[i].until_ms = until_ms;
			return;
		}
	}
	if (s->n_reasons == ARRAY_SIZE(s->reasons)) {
		s->unlisted++;
		return;
	}
	r = &s->reasons[s->n_reasons++];
	*r = (struct status_reason){.code = code,
				    .path = path ? strdup(path) : NULL,
				    .detail = detail ? strdup(detail) : NULL,
				    .since_ns = clock_real_ns(),
				    .until_ms = until_ms};
	s->reasons_changed = true;
	status_changed(sy);
}

void status_clear(struct sync *sy, const char *code, const char *path)
{
	for (size_t i = 0; i < sy->status.n_reasons; i++) {
		if (is(&sy->status.reasons[i], code, path)) {
			remove_at(sy, i);
			return;
		}
	}
}

void status_clear_all(struct sync *sy, const char *code)
{
	for (size_t i = sy->status.n_reasons; i-- > 0;)
		if (strcmp(sy->status.reasons[i].code, code) == 0)
			remove_at(sy, i);
}

bool status_has(const struct sync *sy, const char *code)
{
	for (size_t i = 0; i < sy->status.n_reasons; i++)
		if (strcmp(sy->status.reasons[i].code, code) == 0)
			return true;
	return false;
}

static void drop_old(struct sync *sy)
{
	uint64_t now_ms = clock_mono_ms();

	for (size_t i = sy->status.n_reasons; i-- > 0;)
		if (sy->status.reasons[i].until_ms && sy->status.reasons[i].until_ms <= now_ms)
			remove_at(sy, i);
}

/* Texts are UTF-8 in the message; strerror's are. */
static void fill_reason(Limbwire__Reason *m, const struct status_reason *r)
{
	limbwire__reason__init(m);
	m->code = (char *)r->code;
	if (r->detail)
		m->detail = r->detail;
	m->since_ns = r->since_ns;
	if (r->path) {
		m->path.data = (uint8_t *)r->path;
		m->path.len = strlen(r->path);
	}
}

static uint64_t pending_bytes(const struct sync *sy)
{
	static const uint8_t states[] = {ITEM_WANTED, ITEM_CAPTURING, ITEM_STREAM};
	uint64_t bytes = session_queued(sy->session, SESSION_BULK);
	unsigned seen = 0;

	for (size_t i = 0; i < ARRAY_SIZE(states); i++)
		for (struct item *it = dirty_first(&sy->dirty, states[i]); it && seen < 10000;
		     it = dirty_after(&sy->dirty, it), seen++)
			bytes += it->st.size;
	return bytes;
}

void status_send(struct sync *sy)
{
	struct status *s = &sy->status;
	Limbwire__Status m = LIMBWIRE__STATUS__INIT;
	Limbwire__Reason reasons[STATUS_REASONS_MAX], *ptrs[STATUS_REASONS_MAX];

	drop_old(sy);
	for (size_t i = 0; i < s->n_reasons; i++) {
		fill_reason(&reasons[i], &s->reasons[i]);
		ptrs[i] = &reasons[i];
	}
	m.reasons = ptrs;
	m.n_reasons = s->n_reasons;
	m.files = sy->shadow.n_nodes - sy->shadow.n_dirs;
	m.directories = sy->shadow.n_dirs;
	/* One is the cookies'. */
	m.watches = watch_count(sy->watch) - (sy->barriers.cookie_wd != 0);
	m.polled_directories = sy->n_polled;
	m.overflows = s->overflows;
	m.rescans = s->rescans;
	m.pending_changes = sy->dirty.total + (sy->emit.made - sy->emit.durable);
	m.pending_bytes = pending_bytes(sy);
	m.ignored_names = s->ignored_names;
	m.ignored_bytes = s->ignored_bytes;
	m.sweep_period_ms = sy->sweep_period_s * 1000ull;
	m.audit_differences = s->audit_differences;
	m.scanning = sy->scanning || sy->phase == PHASE_FILLING;
	m.scanned_files = s->scanned_files;
	m.scanned_bytes = s->scanned_bytes;
	m.mount_changed = status_has(sy, "mount_changed");
	m.halted = sy->halted;
	m.refused = s->refused;
	if (sy->attached)
		(void)session_send(sy->session, SESSION_CONTROL, WIRE_STATUS, &m.base, NULL, 0);
	s->sent_ms = clock_mono_ms();
	s->changed = sy->scanning;
	s->reasons_changed = false;
	schedule(sy);
}

void status_send_reasons(struct sync *sy)
{
	if (sy->status.reasons_changed)
		status_send(sy);
}
