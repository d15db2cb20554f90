/* Requests to the environment and who waits for their answers. */
#include "brain/link-impl.h"

struct expectation {
	struct expectation *next;
	struct env *env;
	uint64_t request;
	enum entry_type answer;
	link_answer_fn fn;
	void *userdata;
	uv_timer_t timer;
};

static struct expectation *expectations; /* of all environments; few */
static uint64_t last_request;

static void expectation_closed(uv_handle_t *h)
{
	free(container_of((uv_timer_t *)h, struct expectation, timer));
}

static void expectation_end(struct expectation *e)
{
	for (struct expectation **p = &expectations; *p; p = &(*p)->next) {
		if (*p == e) {
			*p = e->next;
			break;
		}
	}
	uv_close((uv_handle_t *)&e->timer, expectation_closed);
}

static void expectation_late(uv_timer_t *t)
{
	struct expectation *e = container_of(t, struct expectation, timer);

	expectation_end(e);
	e->fn(e->env, -ETIMEDOUT, NULL, e->userdata);
}

int link_expect(struct env *env, enum entry_type answer, uint64_t deadline_ms, link_answer_fn fn,
		void *userdata, uint64_t *ret_request)
{
	struct expectation *e;

	if (!link_up(env))
		return -ENOTCONN;
	e = calloc(1, sizeof(*e));
	if (!e)
		return -ENOMEM;
	e->env = env;
	e->request = ++last_request;
	e->answer = answer;
	e->fn = fn;
	e->userdata = userdata;
	(void)uv_timer_init(env->brain->loop, &e->timer);
	(void)uv_timer_start(&e->timer, expectation_late, deadline_ms, 0);
	e->next = expectations;
	expectations = e;
	*ret_request = e->request;
	return 0;
}

static struct expectation *expectation_find(struct env *env, uint64_t request)
{
	for (struct expectation *e = expectations; e; e = e->next)
		if (e->request == request && e->env == env)
			return e;
	return NULL;
}

int link_answer(struct env *env, uint64_t request, int r, const struct entry_head *h, bool keep)
{
	struct expectation *e = expectation_find(env, request);

	if (!e)
		return 0; /* its deadline has passed */
	if (r == 0 && h->type != e->answer) {
		env_lied(env, "an answer of another kind than was asked for");
		return -EPROTO;
	}
	if (!keep)
		expectation_end(e);
	e->fn(env, r, h, e->userdata);
	return 0;
}

void link_extend(struct env *env, uint64_t request, uint64_t deadline_ms)
{
	struct expectation *e = expectation_find(env, request);

	if (e)
		(void)uv_timer_start(&e->timer, expectation_late, deadline_ms, 0);
}

void link_forget(struct env *env, uint64_t request)
{
	struct expectation *e = expectation_find(env, request);

	if (e)
		expectation_end(e);
}

void link_requests_fail(struct env *env, int r)
{
	struct expectation *e;

	do {
		for (e = expectations; e && e->env != env; e = e->next)
			;
		if (e) {
			expectation_end(e);
			e->fn(env, r, NULL, e->userdata);
		}
	} while (e);
}
