#include "brain/snapshot.h"

#include "base/file.h"
#include "brain/state.h"

int snapshot_begin(struct env *f)
{
	int r = env_make_dirs(f);

	if (r == 0) /* without a root: a limbd that finds it so forgets it */
		r = env_save(f);
	if (r == 0)
		r = env_open(f, true);
	if (r == 0)
		r = state_record_env(f->brain, f, "created");
	if (r < 0) {
		(void)file_remove_tree(f->brain->envs_fd, f->id_hex);
		env_free(f);
		return r;
	}
	env_link_in(f);
	return 0;
}

struct snapshot {
	struct env *f;
	struct change_op ops[CHANGE_OPS_MAX];
	size_t n;
	struct index_walk_dirs dirs;
	char names[CHANGE_OPS_MAX][NODE_NAME_MAX + 1];
};

static int flush(struct snapshot *s, uint64_t number)
{
	struct change c = {.incarnation = s->f->incarnation,
			   .number = number,
			   .origin = ORIGIN_BRAIN_,
			   .ops = s->ops,
			   .n_ops = s->n};
	const char *why;
	uint64_t seq;
	int r;

	if (!s->n)
		return 0;
	r = commit_change(s->f, &c, &seq, &why);
	s->n = 0;
	return r;
}

static void put(struct snapshot *s, const struct index_node *n)
{
	struct change_op *op = &s->ops[s->n++];

	*op = (struct change_op){.kind = CHANGE_PUT,
				 .has_content = n->n.type == NODE_TYPE_FILE,
				 .node = n->id,
				 .attr = n->n};
	op->attr.unheld = 0;
}

static int each(const char *path, size_t len, const struct index_node *n, uint32_t same_as,
		void *userdata)
{
	struct snapshot *s = userdata;
	struct change_op *op;
	uint64_t parent;
	size_t name;
	int r;

	r = index_walk_parent(&s->dirs, path, len, n->id, &parent, &name);
	if (r < 0)
		return r;
	if (s->n + 2 > CHANGE_OPS_MAX) {
		r = flush(s, 0);
		if (r < 0)
			return r;
	}
	if (!same_as)
		put(s, n);
	memcpy(s->names[s->n], path + name, len - name);
	op = &s->ops[s->n];
	*op = (struct change_op){.kind = CHANGE_LINK,
				 .node = n->id,
				 .parent = parent,
				 .name = s->names[s->n],
				 .name_len = (uint16_t)(len - name)};
	s->n++;
	return 0;
}

int snapshot_take(struct env *f, struct env *parent, uint64_t seq, uint64_t number)
{
	struct snapshot *s = calloc(1, sizeof(*s));
	struct index_node root;
	struct index_txn *t;
	int r;

	if (!s)
		return -ENOMEM;
	s->f = f;
	r = env_read_begin(parent, &t);
	if (r < 0) {
		free(s);
		return r;
	}
	r = index_walk(t, NODE_ROOT, seq, each, s);
	if (r == 0)
		r = flush(s, 0);
	/* With the last one the incarnation's numbers go on where they were. */
	if (r == 0)
		r = index_get_node(t, NODE_ROOT, seq, &root);
	if (r == 0) {
		put(s, &root);
		r = flush(s, number);
	}
	index_read_end(t);
	free(s->dirs.nodes);
	free(s);
	return r;
}

/* The chain at seq, so that the fork says of which history it is one. */
static int chain_at(struct env *parent, uint64_t seq, uint8_t ret[SHA256_BYTES])
{
	_cleanup_(log_reader_freep) struct log_reader *rd = NULL;
	struct log_record rec = {0};
	int r;

	if (seq == log_last(parent->log)) {
		memcpy(ret, log_chain(parent->log), SHA256_BYTES);
		return 0;
	}
	r = log_reader_open(parent->log_fd, seq, &rd);
	if (r == 0)
		r = log_reader_next(rd, &rec);
	if (r <= 0 || rec.seq != seq)
		return r < 0 ? r : -ENOENT;
	memcpy(ret, rec.chain, SHA256_BYTES);
	return 0;
}

int snapshot_genesis(struct env *f, struct env *parent, uint64_t seq, commit_fn fn, void *userdata)
{
	cleanup_free char *spec = f->spec ? json_dumps(f->spec, JSON_COMPACT) : NULL;
	Limb__Record rec = LIMB__RECORD__INIT;
	Limb__Genesis g = LIMB__GENESIS__INIT;
	uint8_t chain[SHA256_BYTES];

	g.log_id = (ProtobufCBinaryData){sizeof(f->id), f->id};
	g.brain_id = (ProtobufCBinaryData){sizeof(f->brain->id), f->brain->id};
	g.name = f->name;
	g.parent_log_id = (ProtobufCBinaryData){sizeof(parent->id), parent->id};
	g.parent_seq = seq;
	if (chain_at(parent, seq, chain) == 0)
		g.parent_chain = (ProtobufCBinaryData){sizeof(chain), chain};
	g.kind = (char *)"environment";
	g.provider = f->provider;
	g.target = f->target ? f->target : (char *)"";
	g.spec_json = spec ? spec : (char *)"";
	rec.origin = LIMB__ORIGIN__ORIGIN_BRAIN;
	rec.body_case = LIMB__RECORD__BODY_GENESIS;
	rec.genesis = &g;
	return commit_submit(f, RECORD_GENESIS, &rec, fn, userdata);
}
