#include "syncd/dispatch.h"

#include <stdio.h>
#include <string.h>
#include <sys/auxv.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "base/text.h"
#include "base/util.h"

#define INCARNATION_FILE "incarnation"

struct dispatch {
	const struct place *place;
	int dir_fd;
	struct session *session;
	struct sync *sync;
	struct jobs *jobs;
	struct apply *apply;

	uint64_t incarnation; /* the newest that we have served */
	uint8_t boot_id[16];
	bool has_boot_id;
	uint8_t sha256[SHA256_BYTES];
};

/* ---- the session's own messages ---- */

static int refuse(struct dispatch *d, int error, const char *why)
{
	log_warning("refusing the brain's WELCOME: %s", why);
	(void)session_send_error(d->session, 0, error, why);
	session_close(d->session);
	return 0;
}

static int keep_incarnation(struct dispatch *d, uint64_t incarnation)
{
	char text[24];
	int n;

	if (incarnation == d->incarnation)
		return 0;
	n = snprintf(text, sizeof(text), "%llu\n", (unsigned long long)incarnation);
	d->incarnation = incarnation;
	return file_replace(d->dir_fd, INCARNATION_FILE, text, (size_t)n);
}

static int load_incarnation(struct dispatch *d)
{
	_cleanup_(buf_done) struct buf b = BUF_INIT(64);
	cleanup_free char *s = NULL;
	int r;

	r = file_read(d->dir_fd, INCARNATION_FILE, &b);
	if (r == -ENOENT)
		return 0;
	if (r < 0)
		return r;
	r = buf_to_str(&b, &s);
	if (r < 0)
		return r;
	s[strcspn(s, "\n")] = 0;
	r = text_parse_u64(s, UINT64_MAX, &d->incarnation);
	return r < 0 ? r : 0;
}

static int on_welcome(struct dispatch *d, const void *msg, const struct wframe *f)
{
	const Limbwire__Welcome *w = msg;
	int r;

	if (session_attached(d->session) && w->incarnation != d->incarnation)
		return -EPROTO;
	if (w->protocol != WIRE_PROTOCOL_VERSION)
		return refuse(d, EPROTONOSUPPORT, "protocol version");
	if (w->environment_id.len != sizeof(d->place->env) ||
	    memcmp(w->environment_id.data, d->place->env, sizeof(d->place->env)) != 0)
		return refuse(d, ESTALE, "another environment");
	if (w->incarnation < d->incarnation || w->incarnation == 0)
		return refuse(d, ESTALE, "an older incarnation");
	if (w->node_first > w->node_end)
		return -EPROTO;

	r = keep_incarnation(d, w->incarnation);
	if (r < 0)
		(void)log_warning_errno(r, "cannot keep the incarnation's number");
	session_welcomed(d->session, w->capabilities);
	jobs_welcome(d->jobs);
	return sync_welcome(d->sync, w);
}

static int on_ping(struct dispatch *d, const void *msg, const struct wframe *f)
{
	const Limbwire__Ping *ping = msg;
	Limbwire__Ping pong = LIMBWIRE__PING__INIT;
	int r;

	pong.id = ping->id;
	r = session_send(d->session, SESSION_CONTROL, WIRE_PONG, &pong.base, NULL, 0);
	return r == -ENOTCONN ? 0 : r;
}

static int on_pong(struct dispatch *d, const void *msg, const struct wframe *f)
{
	return 0;
}

static int on_error(struct dispatch *d, const void *msg, const struct wframe *f)
{
	const Limbwire__Error *e = msg;
	char detail[200];

	if (e->request != 0 && apply_on_error(d->apply, e))
		return 0;
	log_warning("the brain ends the session: error %d, %s", e->error,
		    text_escape_into(detail, sizeof(detail), e->detail, strlen(e->detail)));
	session_close(d->session);
	return 0;
}

static int on_bye(struct dispatch *d, const void *msg, const struct wframe *f)
{
	session_close(d->session);
	return 0;
}

/* ---- sync ---- */

static int on_durable(struct dispatch *d, const void *msg, const struct wframe *f)
{
	sync_on_durable(d->sync, ((const Limbwire__Durable *)msg)->number);
	return 0;
}

static int on_settings(struct dispatch *d, const void *msg, const struct wframe *f)
{
	sync_on_settings(d->sync, msg);
	return 0;
}

static int on_data_done(struct dispatch *d, const void *msg, const struct wframe *f)
{
	sync_on_data_done(d->sync, msg);
	return 0;
}

static int on_tree_get(struct dispatch *d, const void *msg, const struct wframe *f)
{
	sync_on_tree_get(d->sync, msg);
	return 0;
}

static int on_tree_part(struct dispatch *d, const void *msg, const struct wframe *f)
{
	Limbwire__TreePart *inner;
	int r = wframe_unpack_tree(msg, f->bulk, f->bulk_len, NULL, &inner);

	if (r < 0)
		return r;
	if (inner)
		msg = inner;
	if (!apply_on_tree_part(d->apply, msg))
		sync_on_tree_part(d->sync, msg);
	if (inner)
		limbwire__tree_part__free_unpacked(inner, NULL);
	return 0;
}

static int on_accept(struct dispatch *d, const void *msg, const struct wframe *f)
{
	sync_on_accept(d->sync, msg);
	return 0;
}

struct barrier {
	struct dispatch *d;
	uint64_t request;
	bool frozen;
};

static void on_barrier_done(const struct sync_result *res, void *userdata)
{
	struct barrier *b = userdata;
	Limbwire__BarrierDone done = LIMBWIRE__BARRIER_DONE__INIT;
	cleanup_free Limbwire__Unsettled **list = NULL;

	if (b->frozen)
		(void)jobs_freeze(b->d->jobs, false);
	if (res->n_unsettled > 0)
		list = calloc(res->n_unsettled, sizeof(*list));
	for (size_t i = 0; list && i < res->n_unsettled; i++)
		list[i] = (Limbwire__Unsettled *)&res->unsettled[i];
	done.request = b->request;
	done.number = res->number;
	done.quiet = res->quiet;
	done.unsettled = list;
	done.n_unsettled = list ? res->n_unsettled : 0;
	if (res->error != 0)
		(void)session_send_error(b->d->session, b->request, res->error, "barrier");
	else
		/* In the class of the changes, so that it comes after all of those. */
		(void)session_send(b->d->session, SESSION_BULK, WIRE_BARRIER_DONE, &done.base, NULL,
				   0);
	free(b);
}

static int on_barrier(struct dispatch *d, const void *msg, const struct wframe *f)
{
	const Limbwire__Barrier *m = msg;
	struct barrier *b;
	int r;

	b = calloc(1, sizeof(*b));
	if (!b)
		return -ENOMEM;
	*b = (struct barrier){.d = d, .request = m->request, .frozen = m->freeze};
	if (b->frozen)
		(void)jobs_freeze(d->jobs, true);
	r = sync_barrier(d->sync, 0, m->settle_ms, m->deadline_ms, on_barrier_done, b);
	if (r < 0) {
		if (b->frozen)
			(void)jobs_freeze(d->jobs, false);
		free(b);
		(void)session_send_error(d->session, m->request, r, "barrier");
	}
	return 0;
}

/* ---- apply ---- */

static int on_restore(struct dispatch *d, const void *msg, const struct wframe *f)
{
	apply_on_restore(d->apply, msg);
	return 0;
}

static int on_apply(struct dispatch *d, const void *msg, const struct wframe *f)
{
	apply_on_apply(d->apply, msg);
	return 0;
}

static int on_push(struct dispatch *d, const void *msg, const struct wframe *f)
{
	apply_on_push(d->apply, msg, f->bulk, f->bulk_len);
	return 0;
}

static int on_pull_data(struct dispatch *d, const void *msg, const struct wframe *f)
{
	apply_on_pull_data(d->apply, msg, f->bulk, f->bulk_len);
	return 0;
}

/* ---- jobs ---- */

static int on_job_start(struct dispatch *d, const void *msg, const struct wframe *f)
{
	jobs_on_start(d->jobs, msg);
	return 0;
}

static int on_job_ack(struct dispatch *d, const void *msg, const struct wframe *f)
{
	jobs_on_ack(d->jobs, msg);
	return 0;
}

static int on_job_input(struct dispatch *d, const void *msg, const struct wframe *f)
{
	jobs_on_input(d->jobs, msg, f->bulk, f->bulk_len);
	return 0;
}

static int on_job_signal(struct dispatch *d, const void *msg, const struct wframe *f)
{
	jobs_on_signal(d->jobs, msg);
	return 0;
}

static int on_job_forget(struct dispatch *d, const void *msg, const struct wframe *f)
{
	jobs_on_forget(d->jobs, msg);
	return 0;
}

static int on_ps(struct dispatch *d, const void *msg, const struct wframe *f)
{
	jobs_on_ps(d->jobs, msg);
	return 0;
}

static int on_freeze(struct dispatch *d, const void *msg, const struct wframe *f)
{
	const Limbwire__Freeze *m = msg;
	Limbwire__Done done = LIMBWIRE__DONE__INIT;

	done.request = m->request;
	done.error = -jobs_freeze(d->jobs, !m->thaw);
	(void)session_send(d->session, SESSION_CONTROL, WIRE_FROZEN, &done.base, NULL, 0);
	return 0;
}

/* ---- the table ---- */

static const struct {
	const ProtobufCMessageDescriptor *message;
	int (*handle)(struct dispatch *d, const void *msg, const struct wframe *f);
	bool early; /* also before WELCOME */
} table[] = {
	[WIRE_WELCOME] = {&limbwire__welcome__descriptor, on_welcome, true},
	[WIRE_PING] = {&limbwire__ping__descriptor, on_ping, true},
	[WIRE_PONG] = {&limbwire__ping__descriptor, on_pong, true},
	[WIRE_ERROR] = {&limbwire__error__descriptor, on_error, true},
	[WIRE_BYE] = {&limbwire__bye__descriptor, on_bye, true},
	[WIRE_DURABLE] = {&limbwire__durable__descriptor, on_durable},
	[WIRE_DATA_DONE] = {&limbwire__data_done__descriptor, on_data_done},
	[WIRE_BARRIER] = {&limbwire__barrier__descriptor, on_barrier},
	[WIRE_TREE_GET] = {&limbwire__tree_get__descriptor, on_tree_get},
	[WIRE_TREE_PART] = {&limbwire__tree_part__descriptor, on_tree_part},
	[WIRE_SETTINGS] = {&limbwire__settings__descriptor, on_settings},
	[WIRE_ACCEPT] = {&limbwire__accept__descriptor, on_accept},
	[WIRE_APPLY] = {&limbwire__apply__descriptor, on_apply},
	[WIRE_PULL_DATA] = {&limbwire__pull_data__descriptor, on_pull_data},
	[WIRE_RESTORE] = {&limbwire__restore__descriptor, on_restore},
	[WIRE_JOB_START] = {&limbwire__job_start__descriptor, on_job_start},
	[WIRE_JOB_ACK] = {&limbwire__job_ack__descriptor, on_job_ack},
	[WIRE_JOB_INPUT] = {&limbwire__job_input__descriptor, on_job_input},
	[WIRE_JOB_SIGNAL] = {&limbwire__job_signal__descriptor, on_job_signal},
	[WIRE_JOB_FORGET] = {&limbwire__job_forget__descriptor, on_job_forget},
	[WIRE_PS] = {&limbwire__ps__descriptor, on_ps},
	[WIRE_FREEZE] = {&limbwire__freeze__descriptor, on_freeze},
	[WIRE_PUSH] = {&limbwire__push__descriptor, on_push},
};

static int on_frame(const struct wframe *f, void *userdata)
{
	struct dispatch *d = userdata;
	ProtobufCMessage *msg;
	int r;

	if (f->type >= ARRAY_SIZE(table) || !table[f->type].handle ||
	    (!table[f->type].early && !session_attached(d->session))) {
		log_warning("%s does not belong here", wframe_type_name(f->type));
		return -EPROTO;
	}
	msg = protobuf_c_message_unpack(table[f->type].message, NULL, f->body_len, f->body);
	if (!msg) {
		log_warning("%s has a body that cannot be read", wframe_type_name(f->type));
		return -EBADMSG;
	}
	r = table[f->type].handle(d, msg, f);
	protobuf_c_message_free_unpacked(msg, NULL);
	return r;
}

static int on_hello(Limbwire__Hello *hello, void *userdata)
{
	struct dispatch *d = userdata;

	hello->protocol_min = hello->protocol_max = WIRE_PROTOCOL_VERSION;
	hello->syncd_version = (char *)PACKAGE_VERSION;
	hello->syncd_sha256 = (ProtobufCBinaryData){sizeof(d->sha256), d->sha256};
	hello->environment_id =
		(ProtobufCBinaryData){sizeof(d->place->env), (uint8_t *)d->place->env};
	hello->syncd_pid = (uint32_t)getpid();
	hello->root = (char *)d->place->root;
	if (d->has_boot_id)
		hello->boot_id = (ProtobufCBinaryData){sizeof(d->boot_id), d->boot_id};
	hello->static_build = getauxval(AT_BASE) == 0; /* no program interpreter */
	return sync_hello(d->sync, hello);
}

static void on_drained(enum session_class class, void *userdata)
{
	struct dispatch *d = userdata;

	if (class == SESSION_OUTPUT)
		jobs_drained(d->jobs);
	else if (class == SESSION_BULK)
		sync_drained(d->sync);
}

static void on_detached(void *userdata)
{
	struct dispatch *d = userdata;

	apply_detached(d->apply);
	sync_detached(d->sync);
	jobs_detached(d->jobs);
}

int dispatch_new(uv_loop_t *loop, const struct place *place, int dir_fd, struct dispatch **ret)
{
	static const struct session_ops ops = {
		.hello = on_hello,
		.frame = on_frame,
		.drained = on_drained,
		.detached = on_detached,
	};
	struct dispatch *d;
	int r;

	d = calloc(1, sizeof(*d));
	if (!d)
		return -ENOMEM;
	d->place = place;
	d->dir_fd = dir_fd;
	d->has_boot_id = clock_boot_id(d->boot_id) == 0;
	r = self_sha256(d->sha256);
	if (r < 0)
		(void)log_warning_errno(r, "cannot read my own executable");
	r = load_incarnation(d);
	if (r == 0)
		r = session_new(loop, &ops, d, &d->session);
	if (r < 0) {
		free(d);
		return r;
	}
	*ret = d;
	return 0;
}

void dispatch_free(struct dispatch *d)
{
	if (!d)
		return;
	session_free(d->session);
	free(d);
}

struct session *dispatch_session(struct dispatch *d)
{
	return d->session;
}

void dispatch_set(struct dispatch *d, struct sync *sync, struct jobs *jobs, struct apply *apply)
{
	d->sync = sync;
	d->jobs = jobs;
	d->apply = apply;
}
