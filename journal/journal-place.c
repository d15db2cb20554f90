#include "journal/journal-place.h"

#include <fcntl.h>
#include <stdbool.h>

#include "base/file.h"
#include "base/text.h"
#include "journal/body.h"
#include "journal/log.h"
#include "journal/registry.h"
#include "journal/segment.h"

enum {
	ID_BYTES = 16,
	ENVS_MAX = 1 << 20,
};

/* 32 hex digits, dashes passed over. */
static bool parse_id(const char *s, uint8_t id[ID_BYTES])
{
	char hex[2 * ID_BYTES + 1];
	size_t n = 0;

	for (; *s; s++) {
		if (*s == '-')
			continue;
		if (n == 2 * ID_BYTES)
			return false;
		hex[n++] = *s;
	}
	hex[n] = '\0';
	return text_unhex(id, ID_BYTES, hex) >= 0;
}

static int open_two(int dir, const char *name, const char *below)
{
	cleanup_close int fd = file_open_dir(dir, name);

	return fd < 0 ? fd : file_open_dir(fd, below);
}

static bool has_segments(int dir)
{
	cleanup_free uint64_t *firsts = NULL;
	size_t n = 0;

	return segment_list(dir, &firsts, &n) >= 0 && n > 0;
}

/* Is this the name that the log's GENESIS record gives it? */
static int born_as(int log_fd, const char *name)
{
	_cleanup_(log_reader_freep) struct log_reader *rd = NULL;
	_cleanup_(arena_done) struct arena arena = ARENA_INIT(0);
	struct log_record rec = {0};
	Limb__Record *m;
	int r;

	r = log_reader_open(log_fd, 0, &rd);
	if (r >= 0)
		r = log_reader_next(rd, &rec);
	if (r <= 0 || rec.type != RECORD_GENESIS || !rec.body)
		return 0;
	if (body_unpack(&arena, rec.body, rec.n, &m) < 0)
		return 0;
	return m->body_case == LIMB__RECORD__BODY_GENESIS && strcmp(m->genesis->name, name) == 0;
}

/* The first of envs/ that has a log and, if name is not NULL, was born with that
 * name; *ret_n says how many there are. */
static int find_env(int envs_fd, const char *name, int *ret_fd, size_t *ret_n)
{
	cleanup_close int found = -1;
	char **names;
	size_t n_names, n = 0;
	int r;

	r = file_list(envs_fd, ".", ENVS_MAX, &names, &n_names);
	if (r < 0)
		return r;
	for (size_t i = 0; i < n_names; i++) {
		cleanup_close int fd = open_two(envs_fd, names[i], "log");

		if (fd < 0 || (name && !born_as(fd, name)))
			continue;
		if (n++ == 0)
			found = take_fd(&fd);
	}
	file_names_free(names, n_names);
	*ret_fd = take_fd(&found);
	*ret_n = n;
	return 0;
}

static int open_by_id(int envs_fd, const uint8_t id[ID_BYTES])
{
	char hex[2 * ID_BYTES + 1];

	text_hex(hex, id, ID_BYTES);
	return open_two(envs_fd, hex, "log");
}

/* The log of the environment, by name or id; -ENOENT. */
static int open_named(int state_fd, int envs_fd, const char *name)
{
	cleanup_close int brain_fd = -1, fd = -1;
	uint8_t id[ID_BYTES];
	size_t n = 0;
	int r;

	brain_fd = open_two(state_fd, "brain", "log");
	if (brain_fd >= 0) {
		r = registry_find(brain_fd, name, id);
		if (r >= 0)
			return open_by_id(envs_fd, id);
		if (r != -ENOENT)
			return r;
	}
	if (parse_id(name, id))
		return open_by_id(envs_fd, id);
	if (brain_fd >= 0)
		return -ENOENT;
	r = find_env(envs_fd, name, &fd, &n);
	if (r < 0)
		return r;
	return n == 1 ? take_fd(&fd) : -ENOENT;
}

static int open_only(int envs_fd, enum journal_place_problem *ret_problem)
{
	cleanup_close int fd = -1;
	size_t n = 0;
	int r;

	r = find_env(envs_fd, NULL, &fd, &n);
	if (r < 0)
		return r;
	*ret_problem = n == 0 ? JOURNAL_PLACE_NO_LOG : JOURNAL_PLACE_SEVERAL;
	return n == 1 ? take_fd(&fd) : -ENOENT;
}

/* A state directory, then. */
static int open_state(int dir_fd, const char *environment, struct journal_place *p,
		      enum journal_place_problem *ret_problem)
{
	cleanup_close int envs_fd = file_open_dir(dir_fd, "envs");
	int r;

	if (envs_fd < 0) {
		*ret_problem = JOURNAL_PLACE_NO_LOG;
		return envs_fd;
	}
	*ret_problem = JOURNAL_PLACE_UNKNOWN;
	r = environment ? open_named(dir_fd, envs_fd, environment)
			: open_only(envs_fd, ret_problem);
	if (r < 0)
		return r;
	p->log_fd = r;
	p->store_fd = file_open_dir(dir_fd, "store");
	return 0;
}

int journal_place_open(const char *dir, const char *environment, struct journal_place *ret,
		       enum journal_place_problem *ret_problem)
{
	struct journal_place p = JOURNAL_PLACE_INIT;
	cleanup_close int dir_fd = -1;
	int r;

	dir_fd = file_open_dir(AT_FDCWD, dir);
	if (dir_fd < 0) {
		*ret_problem = JOURNAL_PLACE_NO_LOG;
		return dir_fd;
	}
	p.log_fd = file_open_dir(dir_fd, "log");
	if (p.log_fd >= 0)
		p.store_fd = file_open_dir(dir_fd, "../../store"); /* of envs/ID */
	else if (has_segments(dir_fd))
		p.log_fd = take_fd(&dir_fd);
	if (p.log_fd < 0) {
		r = open_state(dir_fd, environment, &p, ret_problem);
		if (r < 0)
			return r;
	}
	*ret = p;
	return 0;
}

void journal_place_done(struct journal_place *p)
{
	if (p->log_fd >= 0)
		(void)close(p->log_fd);
	if (p->store_fd >= 0)
		(void)close(p->store_fd);
	*p = (struct journal_place)JOURNAL_PLACE_INIT;
}
