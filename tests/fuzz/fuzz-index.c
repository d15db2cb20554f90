/* Any rows in the index's tables, and any records applied to it: what it then says of nodes,
 * names, points and jobs is an answer or a refusal, and no pointer leads out of it. */
#include "journal/index-impl.h"
#include "tests/fuzz/fuzz.h"

enum { GIVEN_MAX = 2000 };

static struct index *ix;
static size_t given;
static volatile uint8_t sum;

static void setup(void)
{
	int dir = fuzz_dir(), log_dir;
	struct log_ids ids = {.log_id = {1}, .brain_id = {2}, .term = 1};
	struct log *log = NULL;

	must(file_make_dir(dir, "log") == 0);
	log_dir = file_open_dir(dir, "log");
	must(log_dir >= 0 && log_open(log_dir, &ids, LOG_CREATE, &log, NULL) == 0);
	log_close(log);
	must(index_open(dir, INDEX_WRITE, log_dir, NULL, NULL, &ix) == 0);
}

static void look(const void *p, size_t n)
{
	for (size_t i = 0; i < n; i++)
		sum = (uint8_t)(sum + ((const uint8_t *)p)[i]);
}

static void look_node(const struct index_node *n)
{
	look(n->n.target, n->n.target_len);
	look(n->n.xattrs, n->n.xattrs_len);
}

static int entry(const char *name, size_t len, uint64_t node, void *userdata)
{
	look(name, len);
	return ++given > GIVEN_MAX;
}

static int name(uint64_t parent, const char *text, size_t len, void *userdata)
{
	look(text, len);
	return ++given > GIVEN_MAX;
}

static int walked(const char *path, size_t len, const struct index_node *n, uint32_t same_as,
		  void *userdata)
{
	look(path, len);
	look_node(n);
	return ++given > GIVEN_MAX;
}

static int recent(const struct index_recent *r, void *userdata)
{
	look(r->name, r->name_len);
	return ++given > GIVEN_MAX;
}

static int point(const struct index_point *p, void *userdata)
{
	look(p->label, p->label_len);
	look(p->kind, p->kind_len);
	look(p->job, p->job_len);
	return ++given > GIVEN_MAX;
}

static int job(const struct index_job *j, void *userdata)
{
	look(j->id, j->id_len);
	look(j->start.body, j->start.n);
	look(j->end.body, j->end.n);
	return ++given > GIVEN_MAX;
}

static void read_at(struct index_txn *t, uint64_t node, uint64_t at)
{
	struct index_node n;
	uint64_t found;

	if (index_get_node(t, node, at, &n) == 0)
		look_node(&n);
	(void)index_lookup(t, node, "a", 1, at, &found);
	(void)index_lookup_path(t, "a/b", 3, at, &found);
	given = 0;
	(void)index_list(t, node, NULL, 0, at, entry, NULL);
	(void)index_list(t, node, "a", 1, at, entry, NULL);
	given = 0;
	(void)index_walk(t, node, at, walked, NULL);
}

static void read_all(struct index_txn *t)
{
	_cleanup_(buf_done) struct buf path = BUF_INIT(INDEX_PATH_MAX);
	struct index_counts counts;
	struct index_job one;
	const char *id;
	uint64_t seq;
	size_t n;

	for (uint64_t node = 0; node < 4; node++) {
		read_at(t, node, INDEX_NOW);
		read_at(t, node, 1);
		read_at(t, node, 3);
		given = 0;
		(void)index_names(t, node, name, NULL);
		buf_clear(&path);
		(void)index_path(t, node, &path);
	}
	given = 0;
	(void)index_recent(t, 0, recent, NULL);
	given = 0;
	(void)index_points(t, INDEX_NOW, point, NULL);
	(void)index_label(t, "a", &seq);
	if (index_job(t, "a", &one) == 0)
		(void)job(&one, NULL);
	if (index_job_by_key(t, "a", &id, &n) == 0)
		look(id, n);
	given = 0;
	(void)index_jobs(t, job, NULL);
	(void)index_jobs_open(t, job, NULL);
	(void)index_counts(t, &counts);
	(void)index_seq(t);
	(void)index_next_node(t);
	(void)index_node_used(t, 1, 100);
	(void)index_number(t, 1);
}

static void put_row(struct fuzz_in *in, uint8_t table)
{
	const uint8_t *key, *value;
	struct key k = {.len = fuzz_take_bytes(in, KEY_MAX, &key)};
	size_t n = fuzz_take_bytes(in, 4096, &value);

	if (k.len == 0)
		return;
	memcpy(k.b, key, k.len);
	(void)table_put(ix, table % N_TABLES, &k, value, n, 0);
}

static void apply(struct fuzz_in *in, uint64_t seq)
{
	struct log_record rec = {
		.type = (uint16_t)fuzz_take(in, 1), .seq = seq, .time_ns = (int64_t)seq};

	rec.n = fuzz_take_bytes(in, UINT16_MAX, &rec.body);
	(void)index_apply(ix, &rec);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct fuzz_in in = {data, size};
	uint64_t seq = 1;

	if (!ix)
		setup();
	if (size > 64 << 10)
		return 0;
	must(index_begin(ix) == 0);
	while (in.n > 0) {
		uint8_t what = (uint8_t)fuzz_take(&in, 1);

		if (what & 0x80)
			apply(&in, seq++);
		else
			put_row(&in, what);
	}
	read_all(index_writer_txn(ix));
	index_abort(ix);
	return 0;
}
