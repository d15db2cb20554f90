/*
 * bench-history - a state directory with a long history in it
 *
 *	bench-history STATE FILES DIRECTORIES RECORDS
 *
 * makes STATE (which must not be there): one environment, `old`, whose journal has that
 * many records and whose tree has that many empty files and directories from the
 * FILES+DIRECTORIES'th record on. Half of the records after it set a file's time, a
 * quarter rename one, a quarter remove one and make another. Prints the environment's id
 * and the number of a record in the middle. Nothing is synced, and there is no limbd in it.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "base/file.h"
#include "base/text.h"
#include "journal/body.h"
#include "journal/index.h"
#include "journal/store.h"

enum { BATCH = 20000 };

static const uint8_t env_id[16] = {0xbe, 0xbc, 1}, brain_id[16] = {0xbe, 0xbc, 2};
/* 2024-01-01 */
static const int64_t epoch_ns = 1704067200000000000;

struct file {
	uint64_t node, parent;
	uint32_t number; /* its name */
};

static struct history {
	struct log *log;
	struct index *ix;
	uint64_t next_node, seq, last_number;
	struct file *files;
	unsigned n_files, n_dirs;
} h = {.next_node = 2};

static void check(int r, const char *what)
{
	if (r >= 0)
		return;
	fprintf(stderr, "bench-history: %s: %s\n", what, strerror(-r));
	exit(1);
}

/* splitmix64 */
static uint64_t below(uint64_t n)
{
	static uint64_t state = 0x6c696d62;
	uint64_t z = state += 0x9e3779b97f4a7c15u;

	z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
	z = (z ^ z >> 27) * 0x94d049bb133111ebu;
	return (z ^ z >> 31) % n;
}

static int make_dir(int dir, const char *name)
{
	int fd;

	check(file_make_dir(dir, name), name);
	fd = file_open_dir(dir, name);
	check(fd, name);
	return fd;
}

/* ---- records ---- */

static void change(struct change_op *ops, size_t n)
{
	const struct change c = {.origin = ORIGIN_BRAIN_, .ops = ops, .n_ops = n};
	static struct buf body = BUF_INIT(0);
	int64_t time_ns = epoch_ns + (int64_t)h.seq * 1000000;

	buf_clear(&body);
	check(change_pack(&c, &body), "packing");
	check(log_append(h.log, RECORD_CHANGE, buf_data(&body), buf_len(&body), time_ns, &h.seq),
	      "the log");
	check(index_apply_change(h.ix, h.seq, time_ns, &c), "the index");
	if (h.seq % BATCH)
		return;
	check(log_write(h.log), "the log");
	check(index_commit(h.ix), "the index");
	check(index_begin(h.ix), "the index");
}

static struct change_op put(uint64_t node, uint8_t type)
{
	return (struct change_op){
		.kind = CHANGE_PUT,
		.node = node,
		.attr = {.type = type,
			 .mode = type == NODE_TYPE_DIRECTORY ? 0755 : 0644,
			 .mtime_ns = epoch_ns + (int64_t)h.seq * 1000000},
	};
}

static struct change_op name_op(uint8_t kind, uint64_t parent, const char *name, uint64_t node)
{
	return (struct change_op){.kind = kind,
				  .evidence = kind == CHANGE_UNLINK ? EVIDENCE_ABSENT_ : 0,
				  .parent = parent,
				  .name = name,
				  .name_len = (uint16_t)strlen(name),
				  .node = node};
}

static void make_directories(uint64_t *dirs)
{
	char name[32];

	dirs[0] = NODE_ROOT;
	for (unsigned i = 1; i < h.n_dirs; i++) {
		struct change_op ops[] = {
			put(h.next_node, NODE_TYPE_DIRECTORY),
			name_op(CHANGE_LINK, dirs[(i - 1) / 12], name, h.next_node)};

		(void)snprintf(name, sizeof(name), "directory-%u", i);
		ops[1].name_len = (uint16_t)strlen(name);
		change(ops, 2);
		dirs[i] = h.next_node++;
	}
}

static void name_of(const struct file *f, char name[32])
{
	(void)snprintf(name, 32, "file-%u.c", f->number);
}

static void make_file(struct file *f, uint64_t parent)
{
	char name[32];

	*f = (struct file){
		.node = h.next_node++, .parent = parent, .number = (uint32_t)++h.last_number};
	name_of(f, name);
	change((struct change_op[]){put(f->node, NODE_TYPE_FILE),
				    name_op(CHANGE_LINK, parent, name, f->node)},
	       2);
}

static void rename_file(struct file *f)
{
	char old[32], name[32];
	struct change_op op;

	name_of(f, old);
	f->number = (uint32_t)++h.last_number;
	name_of(f, name);
	op = name_op(CHANGE_MOVE, f->parent, old, f->node);
	op.to_parent = f->parent;
	op.to_name = name;
	op.to_name_len = (uint16_t)strlen(name);
	change(&op, 1);
}

static void remove_file(struct file *f)
{
	struct change_op op;
	char name[32];

	name_of(f, name);
	op = name_op(CHANGE_UNLINK, f->parent, name, f->node);
	change(&op, 1);
}

static void change_one(void)
{
	struct file *f = &h.files[below(h.n_files)];
	struct change_op op;

	switch (below(4)) {
	case 0: rename_file(f); return;
	case 1:
		remove_file(f);
		make_file(f, f->parent);
		return;
	default: op = put(f->node, NODE_TYPE_FILE); change(&op, 1);
	}
}

/* ---- the state ---- */

/* The brain's own log, which knows the environment by its name. */
static void register_env(int state_fd)
{
	const struct log_ids ids = {.log_id = {2}, .brain_id = {3}, .term = 1};
	Limb__EnvironmentEvent e = LIMB__ENVIRONMENT_EVENT__INIT;
	Limb__Record rec = LIMB__RECORD__INIT;
	int fd = make_dir(make_dir(state_fd, "brain"), "log");
	uint8_t body[256];
	struct log *log;
	uint64_t seq;
	size_t n;

	e.what = (char *)"created";
	e.id = (ProtobufCBinaryData){sizeof(env_id), (uint8_t *)(uintptr_t)env_id};
	e.name = (char *)"old";
	rec.body_case = LIMB__RECORD__BODY_ENVIRONMENT;
	rec.environment = &e;
	n = limb__record__pack(&rec, body);
	check(log_open(fd, &ids, LOG_CREATE, &log, NULL), "the brain's log");
	check(log_append(log, RECORD_ENVIRONMENT, body, n, epoch_ns, &seq), "the brain's log");
	check(log_write(log), "the brain's log");
	log_close(log);
}

int main(int argc, char **argv)
{
	struct log_ids ids = {.term = 1};
	int state_fd, env_fd, log_fd;
	uint64_t records, *dirs;
	struct store *store;
	char id[33];

	if (argc != 5) {
		fprintf(stderr, "usage: bench-history STATE FILES DIRECTORIES RECORDS\n");
		return 2;
	}
	h.n_files = (unsigned)strtoul(argv[2], NULL, 10);
	h.n_dirs = (unsigned)strtoul(argv[3], NULL, 10);
	records = strtoull(argv[4], NULL, 10);
	h.files = calloc(h.n_files + 1, sizeof(*h.files));
	dirs = calloc(h.n_dirs + 1, sizeof(*dirs));
	if (!h.files || !dirs || !h.n_files || !h.n_dirs)
		check(-ENOMEM, "files");
	if (mkdir(argv[1], 0700) < 0)
		check(-errno, argv[1]);
	state_fd = file_open_dir(AT_FDCWD, argv[1]);
	check(state_fd, argv[1]);
	register_env(state_fd);
	check(store_open(make_dir(make_dir(state_fd, "store"), "main"), STORE_WRITE, &store),
	      "the store");
	store_close(store);
	text_hex(id, env_id, sizeof(env_id));
	env_fd = make_dir(make_dir(state_fd, "envs"), id);
	log_fd = make_dir(env_fd, "log");
	memcpy(ids.log_id, env_id, sizeof(env_id));
	memcpy(ids.brain_id, brain_id, sizeof(brain_id));
	check(log_open(log_fd, &ids, LOG_CREATE, &h.log, NULL), "the log");
	check(index_open(env_fd, INDEX_WRITE, log_fd, NULL, NULL, &h.ix), "the index");
	check(index_begin(h.ix), "the index");
	make_directories(dirs);
	for (unsigned i = 0; i < h.n_files; i++)
		make_file(&h.files[i], dirs[below(h.n_dirs)]);
	while (h.seq < records)
		change_one();
	check(log_write(h.log), "the log");
	check(index_commit(h.ix), "the index");
	index_close(h.ix);
	log_close(h.log);
	printf("%s %" PRIu64 "\n", id, records / 2);
	return 0;
}
