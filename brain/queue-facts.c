/* What became of ids of the brain's side, and what its own changes left of nodes. */
#include "brain/queue-impl.h"

enum { GIVEN_MAX = 64 };

static struct fact *find_here(const struct facts *f, uint64_t id)
{
	struct fact *x = f->of[id % BUCKETS];

	while (x && x->id != id)
		x = x->next;
	return x;
}

struct fact *fact_find(const struct facts *f, uint64_t id)
{
	struct fact *x = NULL;

	for (; f && !x; f = f->under)
		x = find_here(f, id);
	return x;
}

static void names_free(struct intent_names *n)
{
	for (struct intent_names *next; n; n = next) {
		next = n->next;
		free(n);
	}
}

static int names_copy(const struct intent_names *from, struct intent_names **p)
{
	for (; from; from = from->next, p = &(*p)->next) {
		char *name;

		*p = malloc(sizeof(**p) + from->name.len);
		if (!*p)
			return -ENOMEM;
		name = (char *)(*p + 1);
		memcpy(name, from->name.name, from->name.len);
		**p = (struct intent_names){NULL, {from->name.parent, name, from->name.len}};
	}
	return 0;
}

static struct fact *fact_make(struct facts *f, uint64_t id)
{
	const struct fact *under;
	struct fact *x = find_here(f, id);

	if (x)
		return x;
	x = calloc(1, sizeof(*x));
	if (!x)
		return NULL;
	under = fact_find(f, id);
	if (under) {
		*x = *under;
		if (x->own.at.name)
			x->own.at.name = x->name;
		x->before = NULL;
		if (names_copy(under->before, &x->before) < 0) {
			names_free(x->before);
			free(x);
			return NULL;
		}
		x->own.before = x->before;
	}
	x->id = id;
	x->next = f->of[id % BUCKETS];
	f->of[id % BUCKETS] = x;
	f->any = true;
	return x;
}

void facts_clear(struct facts *f)
{
	for (size_t i = 0; f->any && i < BUCKETS; i++) {
		struct fact *x;

		while ((x = f->of[i])) {
			f->of[i] = x->next;
			names_free(x->before);
			free(x);
		}
	}
	f->any = false;
}

uint64_t alias_of(const struct facts *facts, uint64_t id)
{
	/* A chain: what was made, was gone, and was made again. */
	for (unsigned i = 0; i < BATCH_MAX + 100; i++) {
		const struct fact *f = fact_find(facts, id);

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

int facts_take_ids(struct facts *facts, const Limb__IntentEnd *e)
{
	const uint64_t alias[2][2] = {{e->made, e->made_node}, {e->gone, e->gone_node}};
	struct fact *f;

	for (int i = 0; i < 2; i++) {
		if (!alias[i][0])
			continue;
		f = fact_make(facts, alias[i][0]);
		if (!f)
			return -ENOMEM;
		f->has_alias = true;
		f->alias = alias[i][1] ? alias[i][1] : FACT_GONE;
	}
	return 0;
}

int facts_take_own(struct facts *facts, const Limb__IntentEnd *e)
{
	struct fact *f;

	if (e->took) {
		f = fact_make(facts, e->took);
		if (!f)
			return -ENOMEM;
		f->has_own = true;
		f->own.dropped = true;
	}
	if (!e->node)
		return 0;
	f = fact_make(facts, e->node);
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

int facts_take(struct facts *facts, const Limb__IntentEnd *e)
{
	int r = facts_take_ids(facts, e);

	return r < 0 ? r : facts_take_own(facts, e);
}
