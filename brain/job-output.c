/*
 * A job's output in files of ours: stdout and stderr, each byte at its own offset, head and
 * tail kept (base/spool.h); and `times`, struct job_step after struct job_step: what had come
 * until when.  That file is made with the second step, and its steps grow longer, so that it
 * stays small whatever the job does.
 */
#include "brain/job-impl.h"

#include <fcntl.h>
#include <sys/stat.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/io.h"
#include "base/log.h"
#include "brain/link.h"
#include "wire/wire.pb-c.h"

enum {
	ACK_BYTES = 1 << 20,
	AHEAD_BYTES = 4 << 20, /* how far a job that waits may be ahead of its reader */
	STEP_NS = 20 * 1000 * 1000,
	STEPS_EACH = 1024, /* then the steps are twice as long */
	DIRS_KEPT = 1000,
	DIRS_MORE = 100,
};
#define BYTES_KEPT (4ull << 30)
#define BYTES_MORE (256ull << 20)

static const char *const names[] = {"stdout", "stderr"};

/* ---- files ---- */

static int open_dir(struct job *j, bool create)
{
	cleanup_close int jobs = -1;
	int r;

	if (j->dir_fd >= 0)
		return 0;
	r = create ? file_make_dir(j->env->dir_fd, "jobs") : 0;
	if (r < 0)
		return r;
	jobs = file_open_dir(j->env->dir_fd, "jobs");
	if (jobs < 0)
		return jobs;
	if (create && mkdirat(jobs, j->id, 0700) < 0 && errno != EEXIST)
		return -errno;
	j->dir_fd = file_open_dir(jobs, j->id);
	return j->dir_fd < 0 ? j->dir_fd : 0;
}

static int open_stream(struct job *j, int s, bool create)
{
	int r;

	if (j->out[s].fd >= 0)
		return 0;
	r = open_dir(j, create);
	if (r < 0)
		return r;
	j->out[s].fd = openat(j->dir_fd, names[s],
			      O_RDWR | O_CLOEXEC | O_NOFOLLOW | (create ? O_CREAT : 0), 0600);
	return j->out[s].fd < 0 ? -errno : 0;
}

/* A hole says what was left out. */
static void find_gap(struct job *j, struct spool *s)
{
	off_t hole = lseek(s->fd, 0, SEEK_HOLE), data;

	if (hole < 0 || (uint64_t)hole >= s->total)
		return;
	data = lseek(s->fd, hole, SEEK_DATA);
	s->gap_start = (uint64_t)hole;
	s->gap_end = data < 0 ? s->total : (uint64_t)data;
	j->left_out = true;
}

static void open_steps(struct job *j)
{
	struct stat st;

	if (j->dir_fd < 0)
		return;
	j->steps_fd = openat(j->dir_fd, "times", O_RDWR | O_CLOEXEC | O_NOFOLLOW);
	if (j->steps_fd < 0)
		return;
	if (fstat(j->steps_fd, &st) == 0)
		j->n_steps = (uint64_t)st.st_size / sizeof(struct job_step);
	if (j->n_steps == 0 || io_pread_full(j->steps_fd, &j->first, sizeof(j->first), 0,
					     "job.times") != (ssize_t)sizeof(j->first))
		j->n_steps = 0;
}

void job_output_open(struct job *j)
{
	struct stat st;

	if (j->opened)
		return;
	j->opened = true;
	for (int s = 0; s < 2; s++) {
		if (open_stream(j, s, false) < 0 || fstat(j->out[s].fd, &st) < 0)
			continue;
		/* Of an ended job the record says how much there was. */
		if (!j->ended)
			j->out[s].total = (uint64_t)st.st_size;
		j->last_output_ns = MAX(j->last_output_ns, clock_from_timespec(st.st_mtim));
		find_gap(j, &j->out[s]);
	}
	open_steps(j);
}

void job_output_close(struct job *j)
{
	int fds[] = {j->out[0].fd, j->out[1].fd, j->steps_fd, j->dir_fd};

	for (size_t i = 0; i < ARRAY_SIZE(fds); i++)
		if (fds[i] >= 0)
			(void)close(fds[i]);
	j->out[0].fd = j->out[1].fd = j->steps_fd = j->dir_fd = -1;
	j->opened = false;
}

/* ---- adding ---- */

static void add_step(struct job *j)
{
	struct job_step step = {.total = {j->out[0].total, j->out[1].total}};
	int64_t every = (int64_t)STEP_NS << MIN(j->n_steps / STEPS_EACH, (uint64_t)30);

	step.at_ns = j->last_output_ns;
	if (j->n_steps && step.at_ns < j->step_ns + every)
		return;
	j->step_ns = step.at_ns;
	if (j->n_steps == 0) {
		j->first = step;
		j->n_steps = 1;
		return;
	}
	if (j->steps_fd < 0) {
		j->steps_fd = openat(j->dir_fd, "times",
				     O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
		if (j->steps_fd < 0 ||
		    io_pwrite_full(j->steps_fd, &j->first, sizeof(j->first), 0, "job.times") < 0)
			return;
	}
	if (io_pwrite_full(j->steps_fd, &step, sizeof(step), j->n_steps * sizeof(step),
			   "job.times") == 0)
		j->n_steps++;
}

/* Pieces come in order; one that begins further on says that what lies between was left out
 * there. */
int job_output_add(struct job *j, int stream, uint64_t offset, const void *data, size_t n)
{
	struct spool *s = &j->out[stream - 1];
	uint64_t skip;
	int r;

	job_output_open(j);
	if (offset > s->total) {
		s->total = offset;
		j->left_out = true;
	}
	skip = s->total - offset;
	if (skip >= n)
		return 0;
	r = open_stream(j, stream - 1, true);
	if (r < 0)
		return r;
	s->limit_bytes = JOB_KEPT_BYTES;
	r = spool_add(s, (const uint8_t *)data + skip, n - skip);
	if (r < 0)
		return r;
	j->left_out |= s->gap_end > s->gap_start;
	j->env->output_bytes += n;
	j->last_output_ns = clock_real_ns();
	add_step(j);
	return 0;
}

/* How much of a stream may be acknowledged: what nobody has to read first. */
static uint64_t ackable(const struct job *j, int s)
{
	uint64_t most = j->out[s].total;

	for (const struct job_watch *w = j->watches; j->waits && w; w = w->next)
		if (w->taken[s] < UINT64_MAX - AHEAD_BYTES)
			most = MIN(most, w->taken[s] + AHEAD_BYTES);
	return most;
}

int job_output_ack(struct job *j, bool now)
{
	Limbwire__JobAck m = LIMBWIRE__JOB_ACK__INIT;
	uint64_t to[2] = {ackable(j, 0), ackable(j, 1)};
	int r;

	if (!now && to[0] < j->acked[0] + ACK_BYTES && to[1] < j->acked[1] + ACK_BYTES)
		return 0;
	m.job = j->id;
	m.stdout_offset = to[0];
	m.stderr_offset = to[1];
	r = link_send(j->env, WIRE_JOB_ACK, &m.base, NULL, 0);
	if (r == 0)
		memcpy(j->acked, to, sizeof(to));
	return r;
}

/* ---- reading ---- */

uint64_t job_output_bytes(const struct job *j, int stream)
{
	return j->out[stream - 1].total;
}

ssize_t job_output_read(struct job *j, int stream, uint64_t offset, void *data, size_t n,
			uint64_t *ret_next)
{
	struct spool *s = &j->out[stream - 1];

	*ret_next = offset;
	if (offset >= s->total)
		return 0;
	job_output_open(j);
	*ret_next = s->total;
	if (s->fd < 0)
		return 0;
	return spool_read(s->fd, offset, s->total, data, n, ret_next);
}

int job_output_check(struct job *j)
{
	job_output_open(j);
	return j->ended && j->dir_fd < 0 && j->out[0].total + j->out[1].total > 0 ? -ENOENT : 0;
}

bool job_output_step(struct job *j, uint64_t step, struct job_step *ret)
{
	job_output_open(j);
	*ret = j->first;
	if (step == 0 && j->n_steps > 0)
		return true;
	if (step < j->n_steps && io_pread_full(j->steps_fd, ret, sizeof(*ret), step * sizeof(*ret),
					       "job.times") == (ssize_t)sizeof(*ret))
		return true;
	*ret = (struct job_step){j->last_output_ns, {j->out[0].total, j->out[1].total}};
	return false;
}

/* ---- what is kept ---- */

static uint64_t dir_bytes(int jobs, const char *id)
{
	char path[ENTRY_JOB_MAX + 16];
	uint64_t bytes = 0;
	struct stat st;

	for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
		(void)snprintf(path, sizeof(path), "%.*s/%s", ENTRY_JOB_MAX, id, names[i]);
		if (fstatat(jobs, path, &st, AT_SYMLINK_NOFOLLOW) == 0)
			bytes += (uint64_t)st.st_blocks * 512;
	}
	return bytes;
}

/* Looked at now and then only: a listing costs. */
void job_output_keep(struct env *env)
{
	cleanup_close int jobs = -1;
	uint64_t bytes = 0;
	struct job *j;
	char **list;
	size_t n;

	if (++env->output_dirs < DIRS_MORE && env->output_bytes < BYTES_MORE)
		return;
	env->output_dirs = 0;
	env->output_bytes = 0;
	jobs = file_open_dir(env->dir_fd, "jobs");
	if (jobs < 0 || file_list(jobs, ".", 1 << 20, &list, &n) < 0)
		return;
	/* Names begin with their time: the last one is the newest. */
	for (size_t i = n; i-- > 0;) {
		bytes += dir_bytes(jobs, list[i]);
		if (n - i <= DIRS_KEPT && bytes <= BYTES_KEPT)
			continue;
		j = job_find(env->brain, list[i]);
		if (j && (!j->over || j->watches))
			continue;
		if (j)
			job_output_close(j);
		(void)file_remove_tree(jobs, list[i]);
	}
	file_names_free(list, n);
}
