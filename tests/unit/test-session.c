/* One transport at a time, the newest; nothing but a WELCOME of ours lets it speak. */
#include "syncd-client.h"

static struct client c;

static int setup(void **state)
{
	client_make(&c);
	return 0;
}

static int teardown(void **state)
{
	client_remove(&c);
	return 0;
}

static void ping(struct client *x, uint64_t id)
{
	Limbwire__Ping m = LIMBWIRE__PING__INIT;

	m.id = id;
	client_send(x, WIRE_PING, &m.base, NULL, 0);
	assert_int_equal(((Limbwire__Ping *)client_wait(x, WIRE_PONG))->id, id);
}

static void test_hello(void **state)
{
	Limbwire__Hello *m = client_attach(&c);

	assert_int_equal(m->protocol_min, 1);
	assert_string_equal(m->syncd_version, PACKAGE_VERSION);
	assert_int_equal(m->syncd_sha256.len, 32);
	assert_int_equal(m->environment_id.len, 16);
	assert_int_equal(m->environment_id.data[1], 0x11);
	assert_string_equal(m->root, c.root);
	assert_true(m->syncd_pid > 1);
	client_welcome(&c);
	ping(&c, 42);
}

static void expect_refused(int error)
{
	Limbwire__Error *e = client_wait(&c, WIRE_ERROR);

	assert_int_equal(e->error, error);
	client_wait_closed(&c);
	client_detach(&c);
}

static void test_fencing(void **state)
{
	c.incarnation = 5;
	client_join(&c);
	ping(&c, 1);
	client_detach(&c);

	c.incarnation = 4;
	client_join(&c);
	expect_refused(ESTALE);

	/* Also by a daemon that has only its directory to know it from. */
	c.incarnation = 5;
	(void)client_attach(&c);
	assert_int_equal(kill((pid_t)((Limbwire__Hello *)c.last)->syncd_pid, SIGKILL), 0);
	client_wait_closed(&c);
	client_detach(&c);
	c.incarnation = 4;
	client_join(&c);
	expect_refused(ESTALE);
	c.incarnation = 6;
	client_join(&c);
	ping(&c, 2);
}

static void test_other_environment(void **state)
{
	Limbwire__Welcome m = LIMBWIRE__WELCOME__INIT;
	uint8_t env[16] = {1};

	(void)client_attach(&c);
	assert_int_equal(io_write_full(c.fd, WIRE_START, WIRE_START_BYTES, "test"), 0);
	m.protocol = 1;
	m.incarnation = 1;
	m.environment_id = (ProtobufCBinaryData){sizeof(env), env};
	client_send(&c, WIRE_WELCOME, &m.base, NULL, 0);
	expect_refused(ESTALE);
}

static void expect_closed(void)
{
	client_wait_closed(&c);
	client_detach(&c);
}

/* Frames that break a rule end the stream and nothing else. */
static void test_bad_frames(void **state)
{
	uint8_t junk[16] = {WIRE_JOB_START, 0, 0, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0};
	struct client_job job = {.id = "j-1", .sh = "true"};
	uint32_t pid;

	/* A job before WELCOME. */
	pid = client_attach(&c)->syncd_pid;
	assert_int_equal(io_write_full(c.fd, WIRE_START, WIRE_START_BYTES, "test"), 0);
	client_start(&c, &job);
	expect_closed();
	/* A body that is no message. */
	client_join(&c);
	assert_int_equal(io_write_full(c.fd, junk, sizeof(junk), "test"), 0);
	assert_int_equal(io_write_full(c.fd, "\xff\xff\xff\xff", 4, "test"), 0);
	expect_closed();
	/* A length beyond any limit. */
	client_join(&c);
	put_le32(junk + 4, 0x7fffffff);
	assert_int_equal(io_write_full(c.fd, junk, sizeof(junk), "test"), 0);
	expect_closed();
	/* A message of the other direction. */
	client_join(&c);
	junk[0] = WIRE_HELLO;
	put_le32(junk + 4, 0);
	assert_int_equal(io_write_full(c.fd, junk, sizeof(junk), "test"), 0);
	expect_closed();
	assert_int_equal(client_attach(&c)->syncd_pid, pid);
	client_welcome(&c);
	ping(&c, 3);
}

static void test_newest_wins(void **state)
{
	struct client d = c;

	client_join(&c);
	ping(&c, 1);
	client_join(&d);
	ping(&d, 2);
	client_wait_closed(&c);
	client_detach(&c);
	ping(&d, 3);
	client_detach(&d);
	protobuf_c_message_free_unpacked(d.last, NULL);
}

/* stdin that cannot be handed over: the attach itself moves the bytes. */
static void test_relay(void **state)
{
	int in[2], out, status, fd;
	char path[300];
	struct stat st;
	pid_t pid;

	(void)snprintf(path, sizeof(path), "%s/out", c.top);
	assert_int_equal(pipe2(in, O_CLOEXEC), 0);
	out = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	pid = client_spawn(&c, "attach", in[0], out);
	(void)close(in[0]);
	for (unsigned i = 0; i < 500; i++) {
		assert_int_equal(fstat(out, &st), 0);
		if (st.st_size > WIRE_START_BYTES + WIRE_HEADER_BYTES)
			break;
		(void)usleep(10000);
	}
	assert_true(st.st_size > WIRE_START_BYTES + WIRE_HEADER_BYTES);
	(void)close(in[1]);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
	fd = out;
	assert_int_equal(io_pread_full(fd, path, WIRE_START_BYTES, 0, "test"), WIRE_START_BYTES);
	assert_memory_equal(path, WIRE_START, WIRE_START_BYTES);
	(void)close(fd);
}

/* DIR/s may be longer than a socket's address. */
static void test_long_path(void **state)
{
	size_t n = strlen(c.dir);

	memset(c.dir + n, 'x', 210 - n);
	c.dir[210] = 0;
	client_join(&c);
	ping(&c, 9);
}

static void test_stop_ends_jobs(void **state)
{
	Limbwire__JobStarted *m;
	uint32_t pid;
	pid_t stop;
	int status;

	client_join(&c);
	client_start(&c, &(struct client_job){.id = "j-1", .sh = "trap '' TERM; sleep 610 & wait"});
	m = client_wait(&c, WIRE_JOB_STARTED);
	pid = m->pid;
	client_detach(&c);
	stop = client_spawn(&c, "stop", -1, -1);
	assert_int_equal(waitpid(stop, &status, 0), stop);
	assert_int_equal(status, 0);
	assert_int_not_equal(kill((pid_t)pid, 0), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_hello, setup, teardown),
		cmocka_unit_test_setup_teardown(test_fencing, setup, teardown),
		cmocka_unit_test_setup_teardown(test_other_environment, setup, teardown),
		cmocka_unit_test_setup_teardown(test_bad_frames, setup, teardown),
		cmocka_unit_test_setup_teardown(test_newest_wins, setup, teardown),
		cmocka_unit_test_setup_teardown(test_relay, setup, teardown),
		cmocka_unit_test_setup_teardown(test_long_path, setup, teardown),
		cmocka_unit_test_setup_teardown(test_stop_ends_jobs, setup, teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
