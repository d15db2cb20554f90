#include "brain/basis.h"

#include "base/log.h"
#include "brain/link.h"
#include "journal/pack.h"

enum { QUEUE_MAX = 16 };

struct basis {
	struct basis *next;
	struct env *env;   /* NULL: stopped; freed when its work is over */
	struct env *owner; /* while it works: is not freed before */
	struct entry_base asked;
	bool working;
	uv_work_t work;

	/* lent to the thread while `working` */
	struct index *index;
	struct store *store;
	struct content_ref ref;
	struct buf bytes, hashes;
	int result;
};

/* ---- the helper thread ---- */

static int note_chunk(const uint8_t *hash, uint64_t offset, uint64_t len, void *userdata)
{
	struct basis *b = userdata;

	(void)offset;
	(void)len;
	if (!hash)
		return 0;
	/* No more than limb-ingest can remember. */
	return buf_add(&b->hashes, hash, SHA256_BYTES) < 0 ? 1 : 0;
}

static int read_part(struct basis *b)
{
	const struct entry_base *e = &b->asked;
	struct index_txn *t;
	int r;

	r = index_read_begin(b->index, &t);
	if (r < 0)
		return r;
	r = index_find_content(t, e->node, e->sha256, &b->ref);
	index_read_end(t);
	if (r < 0)
		return r;
	if (e->first) {
		r = content_walk(&b->ref, store_fetch_fn, b->store, note_chunk, b);
		if (r < 0)
			return r;
	}
	if (e->offset >= b->ref.size_bytes)
		return 0;
	return content_read(&b->ref, e->offset, e->len, store_fetch_fn, b->store, &b->bytes);
}

static void basis_work(uv_work_t *w)
{
	struct basis *b = container_of(w, struct basis, work);

	b->result = read_part(b);
}

/* ---- the loop ---- */

static void basis_free(struct basis *b)
{
	buf_done(&b->bytes);
	buf_done(&b->hashes);
	free(b);
}

static int answer(struct env *env, struct basis *b)
{
	int r;

	r = link_send_seed(env, buf_data(&b->hashes), buf_len(&b->hashes) / SHA256_BYTES);
	if (r < 0)
		return r;
	return link_send_base(env, b->asked.request, b->ref.size_bytes,
			      b->result < 0 ? -b->result : 0, buf_data(&b->bytes),
			      b->result < 0 ? 0 : buf_len(&b->bytes));
}

static void basis_go(struct env *env);

static void basis_worked(uv_work_t *w, int status)
{
	struct basis *b = container_of(w, struct basis, work);
	struct env *env = b->env;
	int r;

	(void)status;
	b->owner->threads--;
	b->working = false;
	if (!env) {
		basis_free(b);
		return;
	}
	env->bases = b->next;
	if (b->result < 0 && b->result != -ENOENT)
		log_warning_errno(b->result, "environment '%s': cannot read what it had",
				  env->name);
	r = answer(env, b);
	basis_free(b);
	if (r < 0)
		link_lost(env, "cannot give limb-ingest what it asks for");
	else
		basis_go(env);
}

static void basis_go(struct env *env)
{
	struct basis *b = env->bases;

	if (!b || b->working)
		return;
	b->working = true;
	b->owner = env;
	env->threads++;
	(void)uv_queue_work(env->brain->loop, &b->work, basis_work, basis_worked);
}

int basis_on_base(struct env *env, const struct entry_head *e)
{
	const struct entry_base *asked = (const struct entry_base *)e;
	struct basis **p = &env->bases, *b;
	size_t n = 0;

	/* What a guest sends is not kept, nor made from anything. */
	if (env->guest_of)
		return link_send_base(env, asked->request, 0, ENOENT, NULL, 0);
	for (; *p; p = &(*p)->next)
		n++;
	if (n >= QUEUE_MAX)
		return -EPROTO;
	b = calloc(1, sizeof(*b));
	if (!b)
		return -ENOMEM;
	b->asked = *asked;
	b->env = env;
	b->index = env->index;
	b->store = env->brain->store;
	buf_init(&b->bytes, ENTRY_BASE_MAX);
	buf_init(&b->hashes, ENTRY_SEED_MAX * SHA256_BYTES);
	*p = b;
	basis_go(env);
	return 0;
}

void basis_stop(struct env *env)
{
	struct basis *b;

	while ((b = env->bases)) {
		env->bases = b->next;
		b->env = NULL;
		if (!b->working)
			basis_free(b);
	}
}
