/* What the changes that are over say of ids, names and contents, for those behind them. */
#include "brain/queue-impl.h"

enum { GIVEN_MAX = 64 };

const struct fact *fact_find(const struct facts *v, uint64_t id)
{
	const struct fact *f = v->v[id % BUCKETS];

	while (f && f->id != id)
		f = f->next;
	return f;
}

static struct fact *fact_make(struct facts *v, uint64_t id)
{
	struct fact *f = v->v[id % BUCKETS];

	while (f && f->id != id)
		f = f->next;
	if (f)
		return f;
	f = calloc(1, sizeof(*f));
	if (!f)
		return NULL;
	f->id = id;
	f->next = v->v[id % BUCKETS];
	v->v[id % BUCKETS] = f;
	v->any = true;
	return f;
}

static void names_free(struct intent_names *n)
{
	for (struct intent_names *next; n; n = next) {
		next = n->next;
		free(n);
	}
}

void facts_clear(struct facts *v)
{
	for (size_t i = 0; v->any && i < BUCKETS; i++) {
		struct fact *f;

		while ((f = v->v[i])) {
			v->v[i] = f->next;
			names_free(f->before);
			free(f);
		}
	}
	v->any = false;
}

uint64_t alias_of(const struct queue *q, uint64_t id)
{
	/* A chain: what was made, was gone, and was made again. */
	for (unsigned i = 0; i < 100; i++) {
		const struct fact *f = fact_find(&q->facts, id);

		if (!f || !f->has_alias || f->alias == id)
			break;
		id = f->alias;
	}
	return id & INTENT_MADE ? 0 : id;
}

static void content_of(const Limb__Content *c, struct content_ref *ret)
{
	*ret = (struct content_ref){0};
	if (!c || c->sha256.len != SHA256_BYTES)
		return;
	ret->size_bytes = c->size_bytes;
	memcpy(ret->sha256, c->sha256.data, SHA256_BYTES);
}

/* Of a node with several names any may be asked about. Beyond the limit the last ones count. */
static int keep_name(struct fact *f)
{
	struct intent_names *n, **p = &f->before;
	char *name;

	if (!f->own.at.len)
		return 0;
	for (unsigned i = 0; *p; i++) {
		if (i < GIVEN_MAX) {
			p = &(*p)->next;
			continue;
		}
		names_free(*p);
		*p = NULL;
	}
	n = malloc(sizeof(*n) + f->own.at.len);
	if (!n)
		return -ENOMEM;
	name = (char *)(n + 1);
	memcpy(name, f->own.at.name, f->own.at.len);
	*n = (struct intent_names){f->before, {f->own.at.parent, name, f->own.at.len}};
	f->own.before = f->before = n;
	return 0;
}

int facts_take_ids(struct queue *q, const Limb__IntentEnd *e)
{
	const uint64_t alias[2][2] = {{e->made, e->made_node}, {e->gone, e->gone_node}};
	struct fact *f;

	q->view_fresh = false; /* it has the ids that were */
	for (int i = 0; i < 2; i++) {
		if (!alias[i][0])
			continue;
		f = fact_make(&q->facts, alias[i][0]);
		if (!f)
			return -ENOMEM;
		f->has_alias = true;
		f->alias = alias[i][1] ? alias[i][1] : FACT_GONE;
	}
	return 0;
}

int facts_take_own(struct facts *v, const Limb__IntentEnd *e)
{
	struct fact *f;

	if (!e->node)
		return 0;
	f = fact_make(v, e->node);
	if (!f)
		return -ENOMEM;
	f->has_own = true;
	f->own.astray |= e->astray;
	f->own.dropped |= e->dropped;
	if (e->name.len && e->name.len <= NODE_NAME_MAX) {
		if (keep_name(f) < 0)
			return -ENOMEM;
		memcpy(f->name, e->name.data, e->name.len);
		f->own.at = (struct intent_name){e->parent, f->name, (uint16_t)e->name.len};
	}
	if (e->written) {
		f->own.content = true;
		content_of(e->meant, &f->own.wanted);
		content_of(e->became, &f->own.got);
	}
	return 0;
}

int facts_take(struct queue *q, const Limb__IntentEnd *e)
{
	int r = facts_take_ids(q, e);

	if (r == 0)
		r = facts_take_own(&q->facts, e);
	if (r == 0 && e->merged)
		r = facts_take_own(&q->merged, e);
	return r;
}
