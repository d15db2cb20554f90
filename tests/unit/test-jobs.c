/* What a job is given, does and leaves behind arrives exactly, and nothing outlives what must
 * end it. */
#include "syncd-client.h"

#include <dirent.h>
#include <sys/prctl.h>

#ifdef __SANITIZE_ADDRESS__
#define SANITIZED true
#else
#define SANITIZED false
#endif

static struct client c;

static int setup(void **state)
{
	client_make(&c);
	client_join(&c);
	return 0;
}

static int teardown(void **state)
{
	client_remove(&c);
	return 0;
}

static void make_dir(const char *name, mode_t mode)
{
	char path[300];

	(void)snprintf(path, sizeof(path), "%s/%s", c.root, name);
	assert_int_equal(mkdir(path, mode), 0);
}

static void make_file(const char *name, mode_t mode, const char *text)
{
	char path[300];
	int fd;

	(void)snprintf(path, sizeof(path), "%s/%s", c.root, name);
	fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, mode);
	assert_true(fd >= 0);
	assert_int_equal(io_write_full(fd, text, strlen(text), "test"), 0);
	(void)close(fd);
}

static bool root_has(const char *name)
{
	char path[300];

	(void)snprintf(path, sizeof(path), "%s/%s", c.root, name);
	return access(path, F_OK) == 0;
}

/* Living processes started by a job, by the variable and the directory that each has: other
 * tests have jobs of that name, too. */
static unsigned processes_of(const char *job)
{
	char want[100], path[64], cwd[400];
	struct dirent *e;
	unsigned n = 0;
	DIR *d = opendir("/proc");

	(void)snprintf(want, sizeof(want), "LIMB_JOB=%s", job);
	while ((e = readdir(d))) {
		_cleanup_(buf_done) struct buf b = BUF_INIT(0);

		(void)snprintf(path, sizeof(path), "/proc/%.20s/environ", e->d_name);
		if (file_read(AT_FDCWD, path, &b) == 0 && buf_len(&b) > 0 &&
		    memmem(buf_data(&b), buf_len(&b), want, strlen(want) + 1)) {
			ssize_t len;

			(void)snprintf(path, sizeof(path), "/proc/%.20s/cwd", e->d_name);
			len = readlink(path, cwd, sizeof(cwd));
			n += len == (ssize_t)strlen(c.root) &&
			     memcmp(cwd, c.root, (size_t)len) == 0;
		}
	}
	(void)closedir(d);
	return n;
}

static void test_exit_and_signal(void **state)
{
	static const struct {
		const char *sh;
		int code, signal;
	} cases[] = {
		{"true", 0, 0},
		{"exit 3", 3, 0},
		{"exit 255", 255, 0},
		{"exit 256", 0, 0},
		{"kill -9 $$", 137, 9},
		{"kill -SEGV $$", 139, 11},
		{"kill -TERM $$", 143, 15},
	};
	char id[20];

	for (unsigned i = 0; i < ARRAY_SIZE(cases); i++) {
		Limbwire__JobExit *e;

		(void)snprintf(id, sizeof(id), "j-%u", i);
		e = client_run(&c, &(struct client_job){.id = id, .sh = cases[i].sh});
		assert_int_equal(e->exit_code, cases[i].code);
		assert_int_equal(e->signal, cases[i].signal);
		assert_false(e->timed_out || e->unknown || e->background);
		assert_true(e->started_ns > 0 && e->ended_ns >= e->started_ns);
	}
}

static int start_error(const char *id, const char *cwd, const char *const *argv, const char *detail)
{
	Limbwire__JobStarted *m;

	client_start(&c, &(struct client_job){.id = id, .cwd = cwd, .argv = argv});
	m = client_wait(&c, WIRE_JOB_STARTED);
	assert_int_equal(m->request, c.request);
	if (m->error != 0 && strcmp(m->detail, detail) != 0)
		fail_msg("detail is '%s', not '%s'", m->detail, detail);
	return m->error;
}

static void test_cannot_run(void **state)
{
	const char *missing[] = {"no-such-program", NULL}, *empty[] = {"", NULL};
	const char *plain[] = {"./plain", NULL}, *dir[] = {"./d", NULL};
	const char *format[] = {"./format", NULL};

	make_file("plain", 0644, "#!/bin/sh\n");
	make_file("format", 0755, "echo no\n");
	make_dir("d", 0755);
	assert_int_equal(start_error("j-1", NULL, missing, "exec"), ENOENT);
	assert_int_equal(start_error("j-2", NULL, plain, "exec"), EACCES);
	assert_int_equal(start_error("j-3", NULL, dir, "exec"), EACCES);
	assert_int_equal(start_error("j-4", NULL, format, "exec"), ENOEXEC);
	assert_int_equal(start_error("j-5", NULL, empty, "exec"), ENOENT);
	/* Asked again, the answer is the same. */
	assert_int_equal(start_error("j-4", NULL, plain, "exec"), ENOEXEC);
}

/* Never in another place than the one asked for. */
static void test_cwd(void **state)
{
	char path[600], name[40];
	const char *mark[] = {"touch", name, NULL};
	Limbwire__JobExit *e;

	(void)snprintf(name, sizeof(name), "limb-ran-here-%d", (int)getpid());
	make_dir("d", 0755);
	make_dir("d/e", 0755);
	make_dir("gone", 0755);
	make_file("file", 0644, "");
	(void)snprintf(path, sizeof(path), "%s/out", c.root);
	assert_int_equal(symlink("/tmp", path), 0);
	(void)snprintf(path, sizeof(path), "%s/up", c.root);
	assert_int_equal(symlink("..", path), 0);
	(void)snprintf(path, sizeof(path), "%s/gone", c.root);
	assert_int_equal(rmdir(path), 0);

	assert_int_equal(start_error("j-1", "gone", mark, "cwd"), ENOENT);
	assert_int_equal(start_error("j-2", "file", mark, "cwd"), ENOTDIR);
	assert_int_equal(start_error("j-3", "/tmp", mark, "cwd"), EXDEV);
	assert_int_not_equal(start_error("j-4", "out", mark, "cwd"), 0);
	assert_int_not_equal(start_error("j-5", "up", mark, "cwd"), 0);
	assert_int_not_equal(start_error("j-6", "../private", mark, "cwd"), 0);
	assert_int_not_equal(start_error("j-7", "d/../..", mark, "cwd"), 0);
	(void)snprintf(path, sizeof(path), "%s-not", c.root);
	assert_int_equal(start_error("j-8", path, mark, "cwd"), EXDEV);
	assert_false(root_has(name));
	(void)snprintf(path, sizeof(path), "/tmp/%s", name);
	assert_int_not_equal(unlink(path), 0);

	e = client_run(&c, &(struct client_job){.id = "j-9", .cwd = "d/e", .sh = "pwd -P"});
	assert_int_equal(e->exit_code, 0);
	(void)snprintf(path, sizeof(path), "%s/d/e\n", c.root);
	assert_true(client_out_is(&c, 0, path));
	(void)snprintf(path, sizeof(path), "%s//d", c.root);
	e = client_run(&c, &(struct client_job){.id = "j-10", .cwd = path, .sh = "pwd -P"});
	(void)snprintf(path, sizeof(path), "%s/d\n", c.root);
	assert_true(client_out_is(&c, 0, path));
}

static void test_argv_and_environment(void **state)
{
	static const char *argv[] = {"printf", "<%s>", "a b", "*",  ";",    "$(id)",
				     "x\ny",   "\"'",  "",    "-n", "\xff", NULL};
	static const char *env[] = {"env", NULL};
	Limbwire__JobExit *e;

	e = client_run(&c, &(struct client_job){.id = "j-1", .argv = argv});
	assert_int_equal(e->exit_code, 0);
	assert_true(client_out_is(&c, 0, "<a b><*><;><$(id)><x\ny><\"'><><-n><\xff>"));
	(void)client_run(&c, &(struct client_job){.id = "j-2", .argv = env});
	assert_true(client_out_is(&c, 0, "PATH=/usr/bin:/bin\nLIMB_JOB=j-2\n"));
	/* No descriptor of ours, no signal ignored or blocked. */
	e = client_run(&c,
		       &(struct client_job){
			       .id = "j-3",
			       .sh = "ls /proc/self/fd; grep -E 'Sig(Blk|Ign)' /proc/self/status",
		       });
	assert_true(client_out_is(&c, 0,
				  "0\n1\n2\n3\nSigBlk:\t0000000000000000\nSigIgn:\t"
				  "0000000000000000\n"));
}

static void test_output_is_exact(void **state)
{
	Limbwire__JobExit *e;

	e = client_run(&c, &(struct client_job){
				   .id = "j-1",
				   .sh = "printf 'a\\377\\303'; head -c 1000000 /dev/zero | "
					 "tr '\\0' '\\253'; printf '\\0z'; echo err >&2; exit 3",
			   });
	assert_int_equal(e->exit_code, 3);
	assert_int_equal(e->stdout_bytes, 1000005);
	assert_int_equal(buf_len(&c.out[0]), 1000005);
	assert_memory_equal(buf_data(&c.out[0]), "a\xff\xc3\xab", 4);
	assert_memory_equal(buf_data(&c.out[0]) + 1000002, "\xab\0z", 3);
	assert_true(client_out_is(&c, 1, "err\n"));
}

/* What runs on in the background does not keep the command from having ended. */
static void test_background(void **state)
{
	uint64_t begin = clock_mono_ms();
	Limbwire__JobSignal kill = LIMBWIRE__JOB_SIGNAL__INIT;
	Limbwire__JobExit *e;

	e = client_run(&c, &(struct client_job){.id = "j-1", .sh = "sleep 600 & echo hi"});
	assert_true(clock_mono_ms() - begin < 2000);
	assert_int_equal(e->exit_code, 0);
	assert_true(e->background);
	assert_true(client_out_is(&c, 0, "hi\n"));
	assert_int_equal(processes_of("j-1"), 1);

	kill.job = (char *)"j-1";
	kill.signal = SIGKILL;
	client_send(&c, WIRE_JOB_SIGNAL, &kill.base, NULL, 0);
	for (unsigned i = 0; i < 500 && processes_of("j-1") > 0; i++)
		(void)usleep(10000);
	assert_int_equal(processes_of("j-1"), 0);
}

/* At a timeout everything that the job started ends, also what hides from its group. */
static void test_timeout(void **state)
{
	static const char script[] =
		"echo partial; trap '' TERM; setsid sleep 601 & "
		"(setsid sh -c 'trap \"\" TERM; sleep 602 & sleep 603') & "
		"sh -c 'sleep 604 & ' ; nohup sleep 605 >/dev/null 2>&1 & sleep 606";
	uint64_t begin = clock_mono_ms();
	Limbwire__JobExit *e;

	e = client_run(&c, &(struct client_job){.id = "j-1", .sh = script, .timeout_ms = 300});
	assert_true(clock_mono_ms() - begin < 10000);
	assert_true(e->timed_out);
	assert_string_equal(e->killed_by, "timeout");
	assert_true(client_out_is(&c, 0, "partial\n"));
	assert_int_equal(processes_of("j-1"), 0);
}

static void ack(const char *id, uint64_t out)
{
	Limbwire__JobAck m = LIMBWIRE__JOB_ACK__INIT;

	m.job = (char *)id;
	m.stdout_offset = out;
	client_send(&c, WIRE_JOB_ACK, &m.base, NULL, 0);
}

static uint64_t disk_bytes(void)
{
	char path[300];
	struct stat st;

	(void)snprintf(path, sizeof(path), "%s/jobs/j-1/stdout", c.dir);
	assert_int_equal(stat(path, &st), 0);
	return (uint64_t)st.st_blocks * 512;
}

static uint64_t daemon_rss_kib(uint32_t pid)
{
	_cleanup_(buf_done) struct buf b = BUF_INIT(0);
	char path[64], *s, *p;
	uint64_t kib;

	(void)snprintf(path, sizeof(path), "/proc/%u/status", pid);
	assert_int_equal(file_read(AT_FDCWD, path, &b), 0);
	assert_int_equal(buf_to_str(&b, &s), 0);
	p = strstr(s, "VmHWM:");
	assert_non_null(p);
	kib = strtoull(p + 6, NULL, 10);
	free(s);
	return kib;
}

/* 100 MB flow through; what is acknowledged leaves the disk, and nothing grows. */
static void test_large_output(void **state)
{
	enum { BYTES = 100000000 };
	uint64_t got = 0, sum = 0;
	Limbwire__Hello *hello;
	Limbwire__JobExit *e = NULL;
	uint32_t daemon;

	client_detach(&c);
	hello = client_attach(&c);
	daemon = hello->syncd_pid;
	client_welcome(&c);
	client_start(&c, &(struct client_job){
				 .id = "j-1",
				 .sh = "yes 0123456 | head -c 100000000; exit 5",
			 });
	c.job = NULL;
	while (!e && client_next(&c, CLIENT_PATIENCE_MS)) {
		if (c.frame.type == WIRE_JOB_OUTPUT) {
			Limbwire__JobOutput *m =
				limbwire__job_output__unpack(NULL, c.frame.body_len, c.frame.body);

			assert_int_equal(m->offset, got);
			got += c.frame.bulk_len;
			for (uint32_t i = 0; i < c.frame.bulk_len; i += 997)
				sum += c.frame.bulk[i] != "0123456\n"[(m->offset + i) % 8];
			ack("j-1", got);
			limbwire__job_output__free_unpacked(m, NULL);
		} else if (c.frame.type == WIRE_JOB_EXIT) {
			e = limbwire__job_exit__unpack(NULL, c.frame.body_len, c.frame.body);
		}
	}
	assert_non_null(e);
	assert_int_equal(e->exit_code, 5);
	assert_int_equal(got, BYTES);
	assert_int_equal(e->stdout_bytes, BYTES);
	assert_int_equal(sum, 0);
	limbwire__job_exit__free_unpacked(e, NULL);
	/* A sanitizer keeps freed memory, so there it says nothing. */
	if (!SANITIZED)
		assert_true(daemon_rss_kib(daemon) < 64 << 10);
}

/* Nobody listens and a limit is set: head and tail are kept, the disk is not filled, the
 * command is not held up. */
static void test_output_limit(void **state)
{
	Limbwire__JobStarted *started;
	Limbwire__JobExit *e;
	const uint8_t *p;

	client_start(&c, &(struct client_job){
				 .id = "j-1",
				 .sh = "sleep 0.2; seq 1 2000000; exit 3",
				 .limit_bytes = 100000,
			 });
	started = client_wait(&c, WIRE_JOB_STARTED);
	assert_int_equal(started->error, 0);
	client_detach(&c);
	(void)client_attach(&c);
	for (unsigned i = 0; i < 1000 && processes_of("j-1") > 0; i++)
		(void)usleep(10000);
	assert_true(disk_bytes() < 400000);

	client_welcome(&c);
	e = client_wait(&c, WIRE_JOB_EXIT);
	assert_int_equal(e->exit_code, 3);
	assert_int_equal(e->stdout_bytes, 14888896);
	assert_int_equal(c.end[0], e->stdout_bytes);
	assert_int_equal(buf_len(&c.out[0]) + c.left_out[0], e->stdout_bytes);
	assert_true(buf_len(&c.out[0]) >= 100000 && buf_len(&c.out[0]) < 400000);
	p = buf_data(&c.out[0]);
	assert_memory_equal(p, "1\n2\n3\n", 6);
	assert_memory_equal(p + buf_len(&c.out[0]) - 16, "1999999\n2000000\n", 16);
	assert_null(memchr(p, 0, buf_len(&c.out[0])));
}

static void input(const char *id, uint64_t offset, const void *data, size_t n, bool eof)
{
	Limbwire__JobInput m = LIMBWIRE__JOB_INPUT__INIT;

	m.job = (char *)id;
	m.offset = offset;
	m.eof = eof;
	client_send(&c, WIRE_JOB_INPUT, &m.base, data, n);
}

static void test_input(void **state)
{
	enum { BYTES = 700000, PIECE = 50000 };
	cleanup_free uint8_t *data = malloc(BYTES);
	Limbwire__JobStarted *started;
	Limbwire__JobExit *e;

	for (size_t i = 0; i < BYTES; i++)
		data[i] = (uint8_t)(i * 31 + i / 251);
	/* It reads late, so most of it waits on disk. */
	client_start(&c, &(struct client_job){.id = "j-1",
					      .sh = "sleep 0.3; cat; echo end >&2",
					      .stdin_open = true});
	started = client_wait(&c, WIRE_JOB_STARTED);
	assert_int_equal(started->error, 0);
	for (size_t at = 0; at < BYTES; at += PIECE)
		input("j-1", at, data + at, PIECE, false);
	input("j-1", BYTES - PIECE, data + BYTES - PIECE, PIECE, false); /* once more */
	input("j-1", BYTES, NULL, 0, true);
	e = client_wait(&c, WIRE_JOB_EXIT);
	assert_int_equal(e->exit_code, 0);
	assert_int_equal(buf_len(&c.out[0]), BYTES);
	assert_memory_equal(buf_data(&c.out[0]), data, BYTES);
	assert_true(client_out_is(&c, 1, "end\n"));

	e = client_run(&c, &(struct client_job){.id = "j-2", .sh = "cat; echo ok"});
	assert_true(client_out_is(&c, 0, "ok\n"));
}

static void test_terminal(void **state)
{
	Limbwire__JobStarted *started;
	Limbwire__JobExit *e;

	client_start(&c, &(struct client_job){.id = "j-1",
					      .sh = "test -t 0; test -t 2 || exit 9; stty size; "
						    "echo own >/dev/tty; read x; "
						    "echo \"got $x\"; cat >/dev/null; exit 4",
					      .tty = true,
					      .stdin_open = true});
	started = client_wait(&c, WIRE_JOB_STARTED);
	assert_int_equal(started->error, 0);
	input("j-1", 0, "hello\n", 6, false);
	input("j-1", 6, NULL, 0, true);
	e = client_wait(&c, WIRE_JOB_EXIT);
	assert_int_equal(e->exit_code, 4);
	assert_non_null(memmem(buf_data(&c.out[0]), buf_len(&c.out[0]), "24 80\r\n", 7));
	assert_non_null(memmem(buf_data(&c.out[0]), buf_len(&c.out[0]), "own\r\n", 5));
	assert_non_null(memmem(buf_data(&c.out[0]), buf_len(&c.out[0]), "got hello\r\n", 11));
}

static void test_started_once(void **state)
{
	struct client_job job = {.id = "j-1", .sh = "echo x >>count; sleep 0.1"};
	Limbwire__JobStarted *m;
	uint32_t pid;

	client_start(&c, &job);
	m = client_wait(&c, WIRE_JOB_STARTED);
	pid = m->pid;
	client_start(&c, &job);
	m = client_wait(&c, WIRE_JOB_STARTED);
	assert_int_equal(m->request, c.request);
	assert_int_equal(m->pid, pid);
	(void)client_wait(&c, WIRE_JOB_EXIT);
	client_start(&c, &job);
	m = client_wait(&c, WIRE_JOB_STARTED);
	assert_int_equal(m->pid, pid);
	(void)client_run(&c, &(struct client_job){.id = "j-2", .sh = "cat count"});
	assert_true(client_out_is(&c, 0, "x\n"));
}

/* More than there are holders for: who has none yet hears it when there is one. */
static void test_signal_comes_first(void **state)
{
	enum { MANY = 8 };
	char id[20];

	for (unsigned i = 0; i < MANY; i++) {
		Limbwire__JobSignal m = LIMBWIRE__JOB_SIGNAL__INIT;

		(void)snprintf(id, sizeof(id), "j-%u", i);
		client_start(&c, &(struct client_job){.id = id, .sh = "sleep 100"});
		m.job = id;
		m.signal = SIGKILL;
		client_send(&c, WIRE_JOB_SIGNAL, &m.base, NULL, 0);
	}
	for (unsigned i = 0; i < MANY; i++) {
		const Limbwire__JobExit *e = client_wait(&c, WIRE_JOB_EXIT);

		assert_int_equal(e->signal, SIGKILL);
	}
}

/* Ended children of jobs do not stay as zombies. */
static void test_no_zombies(void **state)
{
	char id[20];
	Limbwire__JobExit *e;

	for (unsigned i = 0; i < 60; i++) {
		(void)snprintf(id, sizeof(id), "j-%u", i);
		e = client_run(&c, &(struct client_job){
					   .id = id, .sh = "(sleep 0.02 &) ; (true & true &) & :"});
		assert_int_equal(e->exit_code, 0);
		client_forget(&c, id);
	}
	(void)usleep(100000);
	e = client_run(&c,
		       &(struct client_job){
			       .id = "last",
			       .sh = "p=$PPID; g=$(cut -d' ' -f4 /proc/$p/stat); for f in "
				     "/proc/[0-9]*/stat; do read -r a b s pp r <$f || continue; "
				     "case $s$pp in Z$p|Z$g) echo $a;; esac; done 2>/dev/null",
		       });
	assert_int_equal(e->exit_code, 0);
	assert_true(client_out_is(&c, 0, ""));
}

static char state_of(uint32_t pid)
{
	_cleanup_(buf_done) struct buf b = BUF_INIT(0);
	char path[64];
	const uint8_t *p;

	(void)snprintf(path, sizeof(path), "/proc/%u/stat", pid);
	if (file_read(AT_FDCWD, path, &b) < 0)
		return 0;
	p = memrchr(buf_data(&b), ')', buf_len(&b));
	return p ? (char)p[2] : 0;
}

static void test_ps_and_freeze(void **state)
{
	Limbwire__Ps ps = LIMBWIRE__PS__INIT;
	Limbwire__Freeze freeze = LIMBWIRE__FREEZE__INIT;
	Limbwire__PsDone *list;
	uint32_t sleeper = 0;

	client_start(&c, &(struct client_job){.id = "j-1", .sh = "setsid sleep 607 & wait"});
	(void)client_wait(&c, WIRE_JOB_STARTED);
	for (unsigned n = 0; n < 200 && sleeper == 0; n++) {
		ps.request = ++c.request;
		client_send(&c, WIRE_PS, &ps.base, NULL, 0);
		list = client_wait(&c, WIRE_PS_DONE);
		assert_int_equal(list->request, ps.request);
		for (size_t i = 0; i < list->n_processes; i++) {
			Limbwire__PsDone__Process *p = list->processes[i];

			if (p->n_argv == 2 && p->argv[1].len == 3 &&
			    memcmp(p->argv[1].data, "607", 3) == 0) {
				assert_string_equal(p->job, "j-1");
				assert_true(p->memory_bytes > 0 && p->started_ns > 0);
				sleeper = p->pid;
			}
		}
	}
	assert_int_not_equal(sleeper, 0);
	freeze.request = ++c.request;
	client_send(&c, WIRE_FREEZE, &freeze.base, NULL, 0);
	assert_int_equal(((Limbwire__Done *)client_wait(&c, WIRE_FROZEN))->error, 0);
	for (unsigned n = 0; n < 200 && state_of(sleeper) != 'T'; n++)
		(void)usleep(10000);
	assert_int_equal(state_of(sleeper), 'T');
	freeze.thaw = true;
	client_send(&c, WIRE_FREEZE, &freeze.base, NULL, 0);
	(void)client_wait(&c, WIRE_FROZEN);
	for (unsigned n = 0; n < 200 && state_of(sleeper) != 'S'; n++)
		(void)usleep(10000);
	assert_int_equal(state_of(sleeper), 'S');
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_exit_and_signal, setup, teardown),
		cmocka_unit_test_setup_teardown(test_cannot_run, setup, teardown),
		cmocka_unit_test_setup_teardown(test_cwd, setup, teardown),
		cmocka_unit_test_setup_teardown(test_argv_and_environment, setup, teardown),
		cmocka_unit_test_setup_teardown(test_output_is_exact, setup, teardown),
		cmocka_unit_test_setup_teardown(test_background, setup, teardown),
		cmocka_unit_test_setup_teardown(test_timeout, setup, teardown),
		cmocka_unit_test_setup_teardown(test_large_output, setup, teardown),
		cmocka_unit_test_setup_teardown(test_output_limit, setup, teardown),
		cmocka_unit_test_setup_teardown(test_input, setup, teardown),
		cmocka_unit_test_setup_teardown(test_terminal, setup, teardown),
		cmocka_unit_test_setup_teardown(test_started_once, setup, teardown),
		cmocka_unit_test_setup_teardown(test_signal_comes_first, setup, teardown),
		cmocka_unit_test_setup_teardown(test_no_zombies, setup, teardown),
		cmocka_unit_test_setup_teardown(test_ps_and_freeze, setup, teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
