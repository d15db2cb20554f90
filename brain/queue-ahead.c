/* The tree as it will be when the changes of a batch are made: what plans say, over an index. */
#include "brain/queue-impl.h"

#include "journal/record.pb-c.h"

enum { SLOTS = 1024 };

struct ahead_entry {
	struct ahead_entry *next;
	uint64_t parent, node; /* 0: nothing */
	uint16_t len;
	char name[];
};

struct ahead_node {
	struct ahead_node *next;
	uint64_t id, left;
	int links; /* more than in the index */
	bool known;
	struct node n;
	const struct ahead_entry *at; /* the name that it was given last */
};

struct ahead {
	struct facts facts;
	struct ahead_entry *entries[SLOTS];
	struct ahead_node *nodes[SLOTS];
};

int ahead_new(const struct facts *under, struct ahead **ret)
{
	struct ahead *a = calloc(1, sizeof(*a));

	if (!a)
		return -ENOMEM;
	a->facts.under = under;
	*ret = a;
	return 0;
}

void ahead_free(struct ahead *a)
{
	if (!a)
		return;
	facts_clear(&a->facts);
	for (size_t i = 0; i < SLOTS; i++) {
		struct ahead_entry *e;
		struct ahead_node *n;

		while ((e = a->entries[i])) {
			a->entries[i] = e->next;
			free(e);
		}
		while ((n = a->nodes[i])) {
			a->nodes[i] = n->next;
			free(n);
		}
	}
	free(a);
}

struct facts *ahead_facts(struct ahead *a)
{
	return &a->facts;
}

static size_t slot(uint64_t id, const char *name, size_t len)
{
	uint64_t h = id * 0x9e3779b97f4a7c15ull;

	for (size_t i = 0; i < len; i++)
		h = (h ^ (uint8_t)name[i]) * 0x100000001b3ull;
	return (size_t)(h >> 40) % SLOTS;
}

static struct ahead_entry *entry_find(const struct ahead *a, const struct intent_name *n)
{
	struct ahead_entry *e = a->entries[slot(n->parent, n->name, n->len)];

	while (e && (e->parent != n->parent || e->len != n->len ||
		     memcmp(e->name, n->name, n->len) != 0))
		e = e->next;
	return e;
}

static struct ahead_node *node_find(const struct ahead *a, uint64_t id)
{
	struct ahead_node *n = a->nodes[slot(id, "", 0)];

	while (n && n->id != id)
		n = n->next;
	return n;
}

bool ahead_entry(const struct ahead *a, const struct intent_name *n, uint64_t *ret_node)
{
	const struct ahead_entry *e = entry_find(a, n);

	if (e)
		*ret_node = e->node;
	return e != NULL;
}

bool ahead_node(const struct ahead *a, uint64_t node, struct node *ret, int *ret_links)
{
	const struct ahead_node *n = node_find(a, node);

	*ret_links = n ? n->links : 0;
	if (!n || !n->known)
		return false;
	*ret = n->n;
	return true;
}

bool ahead_touched(const struct ahead *a, uint64_t node)
{
	return node_find(a, node) != NULL;
}

uint64_t ahead_left(const struct ahead *a, uint64_t node)
{
	const struct ahead_node *n = node_find(a, node);

	return n ? n->left : 0;
}

static struct intent_name name_of(const struct ahead_entry *e)
{
	return (struct intent_name){e->parent, e->name, e->len};
}

bool ahead_name(const struct ahead *a, uint64_t node, struct intent_name *ret)
{
	const struct ahead_node *n = node_find(a, node);

	if (!n)
		return false;
	if (n->at && n->at->node == node) {
		*ret = name_of(n->at);
		return true;
	}
	for (size_t i = 0; i < SLOTS; i++)
		for (const struct ahead_entry *e = a->entries[i]; e; e = e->next)
			if (e->node == node) {
				*ret = name_of(e);
				return true;
			}
	return false;
}

bool ahead_list(const struct ahead *a, uint64_t dir,
		bool (*each)(const struct intent_name *n, uint64_t node, void *arg), void *arg)
{
	for (size_t i = 0; i < SLOTS; i++)
		for (const struct ahead_entry *e = a->entries[i]; e; e = e->next) {
			struct intent_name n = name_of(e);

			if (e->parent == dir && e->node && each(&n, e->node, arg))
				return true;
		}
	return false;
}

/* ---- a plan is made ---- */

static struct ahead_node *node_make(struct ahead *a, uint64_t id)
{
	struct ahead_node *n = node_find(a, id), **s;

	if (n)
		return n;
	n = calloc(1, sizeof(*n));
	if (!n)
		return NULL;
	s = &a->nodes[slot(id, "", 0)];
	n->id = id;
	n->next = *s;
	*s = n;
	return n;
}

static int lose_link(struct ahead *a, uint64_t id)
{
	struct ahead_node *n = node_make(a, id);

	if (!n)
		return -ENOMEM;
	n->links--;
	return 0;
}

/* node: what the name leads to from now on, NULL: nothing. */
static int set_entry(struct ahead *a, const struct intent_name *at, struct ahead_node *node)
{
	struct ahead_entry *e = entry_find(a, at), **s;

	if (!node_make(a, at->parent)) /* its times change */
		return -ENOMEM;
	if (!e) {
		e = calloc(1, sizeof(*e) + at->len + 1);
		if (!e)
			return -ENOMEM;
		s = &a->entries[slot(at->parent, at->name, at->len)];
		e->parent = at->parent;
		e->len = at->len;
		memcpy(e->name, at->name, at->len);
		e->next = *s;
		*s = e;
	}
	e->node = node ? node->id : 0;
	if (node)
		node->at = e;
	return 0;
}

static int put(struct ahead *a, const struct item *it, struct judged *j, const struct node *now)
{
	const struct rec_plan *p = &j->plan;
	struct ahead_node *n = node_make(a, AHEAD | it->in.number);
	int r;

	if (!n)
		return -ENOMEM;
	n->known = true;
	n->links = 1;
	n->left = it->in.number;
	if (p->step == STEP_PUT_OVER && now)
		n->n = *now;
	else
		n->n = it->in.kind == INTENT_LINK ? it->in.base : it->in.wanted;
	n->n.content = it->in.kind == INTENT_LINK ? it->in.base.content : it->in.wanted.content;
	r = set_entry(a, &p->at, n);
	if (r == 0 && p->step == STEP_PUT_OVER)
		r = lose_link(a, p->node);
	j->made = n->id;
	j->made_dir = p->at.parent;
	return r;
}

static int take_step(struct ahead *a, const struct item *it, struct judged *j,
		     const struct node *now)
{
	const struct rec_plan *p = &j->plan;
	struct ahead_node *n;
	int r;

	if (p->step == STEP_PUT_NEW || p->step == STEP_PUT_OVER)
		return put(a, it, j, now);
	n = node_make(a, p->node);
	if (!n)
		return -ENOMEM;
	if (p->step == STEP_REMOVE) { /* that leaves nothing: another name is what it was */
		n->links--;
		return set_entry(a, &p->at, NULL);
	}
	n->left = it->in.number;
	switch (p->step) {
	case STEP_MOVE:
		r = p->replaces ? lose_link(a, p->replaces) : 0;
		if (r == 0)
			r = set_entry(a, &p->at, NULL);
		break;
	case STEP_LINK:
		r = 0;
		n->links++;
		break;
	case STEP_ATTR:
		if (!n->known && now)
			n->n = *now;
		n->known |= now != NULL;
		node_set_fields(&n->n, &it->in.wanted, p->fields);
		return 0;
	default: return 0;
	}
	j->made = p->node;
	j->made_dir = p->to.parent;
	return r < 0 ? r : set_entry(a, &p->to, n);
}

int ahead_take(struct ahead *a, const struct item *it, struct judged *j, const struct node *now)
{
	Limb__IntentEnd e = LIMB__INTENT_END__INIT;
	Limb__Content c[2];
	int r = j->plan.verdict == REC_APPLY ? take_step(a, it, j, now) : 0;

	if (r < 0)
		return r;
	end_fill(&a->facts, it, j, NULL, &e, c);
	return facts_take(&a->facts, &e);
}
