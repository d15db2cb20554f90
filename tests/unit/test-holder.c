/* A job goes on, and what it did is known, whatever dies around it. */
#include "syncd-client.h"

#include "syncd/proc.h"

static struct client c;
static uint32_t daemon_pid;

static int setup(void **state)
{
	client_make(&c);
	daemon_pid = client_attach(&c)->syncd_pid;
	client_welcome(&c);
	return 0;
}

static int teardown(void **state)
{
	client_remove(&c);
	return 0;
}

/* One that has ended is gone: when the system takes it away is not our matter. */
static bool alive(uint32_t pid)
{
	cleanup_free struct proc *list = NULL;
	const struct proc *p;
	size_t n = 0;

	assert_int_equal(proc_list(&list, &n), 0);
	p = proc_find(list, n, (pid_t)pid);
	return p && p->state != 'Z' && p->state != 'X';
}

static unsigned alive_in_session(uint32_t session)
{
	cleanup_free struct proc *list = NULL;
	size_t n = 0;
	unsigned count = 0;

	assert_int_equal(proc_list(&list, &n), 0);
	for (size_t i = 0; i < n; i++)
		count += list[i].session == (pid_t)session && list[i].state != 'Z' &&
			 list[i].state != 'X';
	return count;
}

static void wait_gone(uint32_t pid)
{
	for (unsigned i = 0; i < 1000 && alive(pid); i++)
		(void)usleep(10000);
	assert_false(alive(pid));
}

static void kill_daemon(void)
{
	int status;

	assert_int_equal(kill((pid_t)daemon_pid, SIGKILL), 0);
	/* The attach ends by itself when its daemon does. */
	assert_int_equal(waitpid(c.pid, &status, 0), c.pid);
	assert_true(WIFEXITED(status));
	(void)close(c.fd);
	c.fd = -1;
	wframe_decoder_done(&c.decoder);
	wait_gone(daemon_pid);
}

static void come_back(void)
{
	daemon_pid = client_attach(&c)->syncd_pid;
	client_welcome(&c);
}

static void go(const char *name)
{
	char path[300];
	int fd;

	(void)snprintf(path, sizeof(path), "%s/%s", c.root, name);
	fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
	assert_true(fd >= 0);
	(void)close(fd);
}

static uint32_t start(const struct client_job *job)
{
	Limbwire__JobStarted *m;

	client_start(&c, job);
	m = client_wait(&c, WIRE_JOB_STARTED);
	assert_int_equal(m->error, 0);
	return m->pid;
}

static void wait_output(const char *text)
{
	while (!client_out_is(&c, 0, text))
		(void)client_wait(&c, WIRE_JOB_OUTPUT);
}

static const char counting[] =
	"echo begin; until test -e go; do sleep 0.02; done; seq 1 5000; echo end; exit 7";

static void check_counted(const Limbwire__JobExit *e)
{
	assert_int_equal(e->exit_code, 7);
	assert_false(e->unknown);
	assert_int_equal(e->stdout_bytes, 6 + 23893 + 4);
	assert_int_equal(buf_len(&c.out[0]), e->stdout_bytes);
	assert_memory_equal(buf_data(&c.out[0]), "begin\n1\n2\n", 10);
	assert_memory_equal(buf_data(&c.out[0]) + e->stdout_bytes - 9, "5000\nend\n", 9);
}

static void test_line_cut(void **state)
{
	Limbwire__JobList *list;

	(void)start(&(struct client_job){.id = "j-1", .sh = counting});
	wait_output("begin\n");
	client_detach(&c);
	go("go");
	(void)client_attach(&c);
	client_welcome(&c);
	list = client_wait(&c, WIRE_JOB_LIST);
	assert_int_equal(list->n_jobs, 1);
	assert_string_equal(list->jobs[0]->job, "j-1");
	check_counted(client_wait(&c, WIRE_JOB_EXIT));
	/* And again, until it is forgotten; output too, since none was acknowledged. */
	client_detach(&c);
	buf_clear(&c.out[0]);
	c.end[0] = 0;
	client_join(&c);
	check_counted(client_wait(&c, WIRE_JOB_EXIT));
	client_forget(&c, "j-1");
	client_detach(&c);
	client_join(&c);
	list = client_wait(&c, WIRE_JOB_LIST);
	assert_int_equal(list->n_jobs, 0);
}

/* kill -9 of the daemon while a job runs: it is adopted. */
static void test_daemon_killed(void **state)
{
	Limbwire__JobList *list;
	uint32_t pid;

	pid = start(&(struct client_job){.id = "j-1", .sh = counting});
	wait_output("begin\n");
	kill_daemon();
	come_back();
	list = client_wait(&c, WIRE_JOB_LIST);
	assert_int_equal(list->n_jobs, 1);
	assert_true(list->jobs[0]->running);
	assert_int_equal(list->jobs[0]->pid, pid);
	go("go");
	check_counted(client_wait(&c, WIRE_JOB_EXIT));
}

/* It ends while there is no daemon: the record tells. */
static void test_ended_without_daemon(void **state)
{
	uint32_t pid;

	pid = start(&(struct client_job){.id = "j-1", .sh = counting});
	wait_output("begin\n");
	kill_daemon();
	go("go");
	wait_gone(pid);
	come_back();
	check_counted(client_wait(&c, WIRE_JOB_EXIT));
}

/* What another daemon started is not started again. */
static void test_started_once(void **state)
{
	struct client_job job = {.id = "j-1", .sh = "echo x >>count; sleep 600"};
	Limbwire__JobSignal kill_it = LIMBWIRE__JOB_SIGNAL__INIT;
	Limbwire__JobStarted *m;
	Limbwire__JobExit *e;
	uint32_t pid;

	pid = start(&job);
	kill_daemon();
	come_back();
	client_start(&c, &job);
	m = client_wait(&c, WIRE_JOB_STARTED);
	assert_int_equal(m->error, 0);
	assert_int_equal(m->pid, pid);
	kill_it.job = (char *)"j-1";
	kill_it.signal = SIGTERM;
	kill_it.why = (char *)"user";
	/* The holder may be on its way back; then the signal waits for it. */
	client_send(&c, WIRE_JOB_SIGNAL, &kill_it.base, NULL, 0);
	e = client_wait(&c, WIRE_JOB_EXIT);
	assert_int_equal(e->signal, SIGTERM);
	assert_string_equal(e->killed_by, "user");
	kill_daemon();
	come_back();
	client_start(&c, &job);
	m = client_wait(&c, WIRE_JOB_STARTED);
	assert_int_equal(m->pid, pid);
	e = client_run(&c, &(struct client_job){.id = "j-2", .sh = "cat count"});
	assert_true(client_out_is(&c, 0, "x\n"));
}

static uint32_t parent_of(uint32_t pid)
{
	_cleanup_(buf_done) struct buf b = BUF_INIT(0);
	unsigned ppid = 0;
	char path[64], *s;

	(void)snprintf(path, sizeof(path), "/proc/%u/stat", pid);
	assert_int_equal(file_read(AT_FDCWD, path, &b), 0);
	assert_int_equal(buf_to_str(&b, &s), 0);
	assert_int_equal(sscanf(strrchr(s, ')') + 1, " %*c %u", &ppid), 1);
	free(s);
	return ppid;
}

/* Without its holder a job's end cannot be known; nothing of it may run on. */
static void test_holder_killed(void **state)
{
	static const char script[] = "env -i setsid sleep 608 & echo $!; sleep 609";
	unsigned hidden = 0;
	Limbwire__JobExit *e;
	uint32_t pid;
	char *s;

	pid = start(&(struct client_job){.id = "j-1", .sh = script});
	while (buf_len(&c.out[0]) == 0)
		(void)client_wait(&c, WIRE_JOB_OUTPUT);
	assert_int_equal(buf_to_str(&c.out[0], &s), 0);
	assert_int_equal(sscanf(s, "%u", &hidden), 1);
	free(s);
	assert_int_equal(kill((pid_t)parent_of(pid), SIGKILL), 0);
	e = client_wait(&c, WIRE_JOB_EXIT);
	assert_true(e->unknown);
	assert_true(e->stdout_bytes > 0);
	wait_gone(pid);
	wait_gone(hidden);
}

/* Also when nobody is left above the job who would inherit it. */
static void test_spawner_and_holder_killed(void **state)
{
	uint32_t pid, holder;

	pid = start(&(struct client_job){.id = "j-1", .sh = "sleep 611; true"});
	holder = parent_of(pid);
	assert_int_equal(kill((pid_t)parent_of(holder), SIGKILL), 0);
	assert_int_equal(kill((pid_t)holder, SIGKILL), 0);
	assert_true(((Limbwire__JobExit *)client_wait(&c, WIRE_JOB_EXIT))->unknown);
	/* Its shell may have been about to start something, or itself: nothing runs on. */
	assert_int_equal(alive_in_session(pid), 0);
}

/* The spawner's death costs no job and no later start. */
static void test_spawner_killed(void **state)
{
	Limbwire__JobExit *e;
	uint32_t pid;
	char id[20];

	pid = start(&(struct client_job){.id = "j-1", .sh = counting});
	assert_int_equal(kill((pid_t)parent_of(parent_of(pid)), SIGKILL), 0);
	for (unsigned i = 0; i < 8; i++) {
		(void)snprintf(id, sizeof(id), "j-n%u", i);
		e = client_run(&c, &(struct client_job){.id = id, .sh = "exit 6"});
		assert_int_equal(e->exit_code, 6);
	}
	go("go");
	e = client_wait(&c, WIRE_JOB_EXIT);
	assert_string_equal(e->job, "j-1");
	assert_int_equal(e->exit_code, 7);
}

/* A copy of limb-syncd in TOP/NAME, with more bytes at its end. */
static void copy_program(const char *name, const char *more)
{
	_cleanup_(buf_done) struct buf b = BUF_INIT(0);
	char path[300], *dir, *dirs = strdup(getenv("PATH"));
	int fd = -1;

	for (char *p = dirs; fd < 0 && (dir = strsep(&p, ":"));) {
		(void)snprintf(path, sizeof(path), "%.200s/limb-syncd", dir);
		fd = open(path, O_RDONLY | O_CLOEXEC);
	}
	free(dirs);
	assert_true(fd >= 0);
	(void)close(fd);
	assert_int_equal(file_read(AT_FDCWD, path, &b), 0);
	(void)snprintf(path, sizeof(path), "%s/%s", c.top, name);
	assert_int_equal(mkdir(path, 0755), 0);
	(void)snprintf(path, sizeof(path), "%s/%s/limb-syncd", c.top, name);
	fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0755);
	assert_true(fd >= 0);
	assert_int_equal(io_write_full(fd, buf_data(&b), buf_len(&b), "test"), 0);
	assert_int_equal(io_write_full(fd, more, strlen(more), "test"), 0);
	(void)close(fd);
}

static uint32_t attach_by(const char *name)
{
	char path[1000], *before = strdup(getenv("PATH"));
	uint32_t pid;

	(void)snprintf(path, sizeof(path), "%s/%s:%.500s", c.top, name, before);
	assert_int_equal(setenv("PATH", path, 1), 0);
	pid = client_attach(&c)->syncd_pid;
	assert_int_equal(setenv("PATH", before, 1), 0);
	free(before);
	return pid;
}

/* Another build takes the daemon's place, and its jobs; the same one elsewhere does not. */
static void test_upgrade(void **state)
{
	uint32_t pid;

	copy_program("same", "");
	copy_program("newer", "more");
	(void)start(&(struct client_job){.id = "j-1", .sh = counting});
	wait_output("begin\n");
	client_detach(&c);
	assert_int_equal(attach_by("same"), daemon_pid);
	client_detach(&c);
	pid = attach_by("newer");
	assert_int_not_equal(pid, daemon_pid);
	client_welcome(&c);
	go("go");
	check_counted(client_wait(&c, WIRE_JOB_EXIT));
}

static unsigned open_files(uint32_t pid)
{
	char path[64];
	char **names;
	size_t n;

	(void)snprintf(path, sizeof(path), "/proc/%u/fd", pid);
	assert_int_equal(file_list(AT_FDCWD, path, 10000, &names, &n), 0);
	file_names_free(names, n);
	return (unsigned)n;
}

/* Jobs that are forgotten leave nothing in the daemon or in its directory. */
static void test_nothing_kept(void **state)
{
	unsigned before = 0, after = 0;
	char path[300], id[20];
	char **names;
	size_t n = 1;

	for (unsigned i = 0; i < 40; i++) {
		if (i == 10)
			before = open_files(daemon_pid);
		(void)snprintf(id, sizeof(id), "j-%u", i);
		(void)client_run(&c, &(struct client_job){.id = id, .sh = "echo hi; echo hi >&2"});
		client_forget(&c, id);
	}
	(void)snprintf(path, sizeof(path), "%s/jobs", c.dir);
	for (unsigned i = 0; i < 500 && n > 0; i++) {
		(void)usleep(10000);
		assert_int_equal(file_list(AT_FDCWD, path, 1000, &names, &n), 0);
		file_names_free(names, n);
	}
	assert_int_equal(n, 0);
	/* Spares come and go, a few descriptors with them. */
	for (unsigned i = 0; i < 200; i++) {
		after = open_files(daemon_pid);
		if (after <= before + 4)
			break;
		(void)usleep(10000);
	}
	assert_true(after <= before + 4);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_line_cut, setup, teardown),
		cmocka_unit_test_setup_teardown(test_daemon_killed, setup, teardown),
		cmocka_unit_test_setup_teardown(test_ended_without_daemon, setup, teardown),
		cmocka_unit_test_setup_teardown(test_started_once, setup, teardown),
		cmocka_unit_test_setup_teardown(test_holder_killed, setup, teardown),
		cmocka_unit_test_setup_teardown(test_spawner_and_holder_killed, setup, teardown),
		cmocka_unit_test_setup_teardown(test_spawner_killed, setup, teardown),
		cmocka_unit_test_setup_teardown(test_upgrade, setup, teardown),
		cmocka_unit_test_setup_teardown(test_nothing_kept, setup, teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
