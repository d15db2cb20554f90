/* Any bytes as what a limb-ingest that was taken over says to limbd: each entry is refused, or
 * all that limbd reads in it lies inside of it. */
#include "brain/entry.h"
#include "tests/fuzz/fuzz.h"

static const uint8_t *begin, *end;

static void inside(const void *p, size_t n)
{
	volatile uint8_t sum = 0;

	if (n == 0)
		return;
	must((const uint8_t *)p >= begin && (const uint8_t *)p + n <= end);
	for (size_t i = 0; i < n; i++)
		sum = (uint8_t)(sum + ((const uint8_t *)p)[i]);
}

static void walk_node(const struct node *n)
{
	inside(n->target, n->target_len);
	inside(n->xattrs, n->xattrs_len);
	must(node_xattrs_ok(n->xattrs, n->xattrs_len));
}

static void walk_change(struct entry_cursor *c)
{
	struct change_op ops[CHANGE_OPS_MAX];
	struct change ch = {.incarnation = 1, .number = 1, .origin = 1, .ops = ops};
	const char *why;

	while (ch.n_ops < CHANGE_OPS_MAX && entry_next_op(c, &ops[ch.n_ops])) {
		const struct change_op *op = &ops[ch.n_ops++];

		inside(op->name, op->name_len);
		inside(op->to_name, op->to_name_len);
		walk_node(&op->attr);
	}
	must(ch.n_ops > 0 && c->left == 0);
	(void)change_judge(&ch, &why);
}

static void walk(const struct entry_head *e)
{
	const struct entry_unsupported *unsupported;
	const struct entry_unsettled *unsettled;
	const struct entry_tree_entry *tree;
	const struct entry_process *process;
	const struct entry_reason *reason;
	const char *text, *more;
	struct entry_cursor c;
	struct node n;

	entry_cursor_init(&c, e);
	switch (e->type) {
	case ENTRY_CHANGE: walk_change(&c); break;
	case ENTRY_TREE_PART:
		while (entry_next_tree(&c, &tree, &text, &n)) {
			inside(text, tree->name_len);
			walk_node(&n);
		}
		break;
	case ENTRY_BARRIER_DONE:
	case ENTRY_JOB_EXIT:
		while (entry_next_unsettled(&c, &unsettled, &text))
			inside(text, unsettled->len);
		break;
	case ENTRY_STATUS:
		while (entry_next_reason(&c, &reason, &text, &more)) {
			inside(text, reason->detail_len);
			inside(more, reason->path_len);
		}
		break;
	case ENTRY_RESTORED:
		while (entry_next_unsupported(&c, &unsupported, &text, &more)) {
			inside(text, unsupported->path_len);
			inside(more, unsupported->field_len);
		}
		break;
	case ENTRY_PS_DONE:
		while (entry_next_process(&c, &process, &text))
			inside(text, process->argv_len);
		break;
	default: break;
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	uint8_t *copy = malloc(size + 1); /* entries are read in place, 8-byte aligned */
	const char *why = NULL;
	size_t at = 0;
	ssize_t n;

	must(copy != NULL);
	memcpy(copy, data, size);
	while ((n = entry_whole(copy + at, size - at)) > 0) {
		uint8_t *one = malloc((size_t)n);

		must(one != NULL);
		memcpy(one, copy + at, (size_t)n);
		begin = one;
		end = one + n;
		if (entry_check((const struct entry_head *)one, &why) == 0)
			walk((const struct entry_head *)one);
		else
			must(why != NULL);
		free(one);
		at += (size_t)n;
	}
	free(copy);
	return 0;
}
