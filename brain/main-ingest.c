/*
 * limb-ingest: reads what one environment sends, for limbd, which starts it with
 * descriptor 3 = a socket to limbd, stdin and stdout = the transport.
 *
 * limb-ingest --check LENGTH compares a sealed pack (stdin) with its hashes, with
 * even less that it may do, and tells on stdout (check.h).
 */
#include <fcntl.h>
#include <getopt.h>
#include <signal.h>
#include <stdio.h>

#include "base/log.h"
#include "base/sha256.h"
#include "base/text.h"
#include "base/util.h"
#include "brain/check.h"
#include "brain/ingest-confine.h"
#include "brain/ingest-loop.h"

enum {
	LIMBD_FD = 3,
	PIPE_BYTES = 1 << 20, /* one read and one write at the other end take more then */
};

static uid_t arg_uid = CONFINE_NO_UID;
static bool arg_self_test;
static uint64_t arg_check; /* length of the pack; 0: not that */

static int parse_uid(const char *s)
{
	uint64_t uid;
	int r;

	r = text_parse_u64(s, UINT32_MAX - 1, &uid);
	if (r < 0)
		return log_error_errno(r, "wrong user '%s'", s);
	arg_uid = (uid_t)uid;
	return 0;
}

static int parse_args(int argc, char **argv)
{
	static const struct option options[] = {
		{"uid", required_argument, NULL, 'u'},
		{"check", required_argument, NULL, 'c'},
		{"self-test", no_argument, NULL, 't'},
		{0},
	};
	int c;

	while ((c = getopt_long(argc, argv, "", options, NULL)) >= 0) {
		switch (c) {
		case 'u':
			if (parse_uid(optarg) < 0)
				return -EINVAL;
			break;
		case 'c':
			if (text_parse_u64(optarg, UINT64_MAX / 2, &arg_check) < 0 ||
			    arg_check == 0)
				return -EINVAL;
			break;
		case 't': arg_self_test = true; break;
		default: return -EINVAL;
		}
	}
	return optind == argc ? 0 : -EINVAL;
}

static int never_block(int fd)
{
	int flags = fcntl(fd, F_GETFL);

	if (flags < 0 || fcntl(fd, F_SETFL, flags | O_NONBLOCK) < 0)
		return log_error_errno(errno, "descriptor %d is not usable", fd);
	(void)fcntl(fd, F_SETPIPE_SZ, PIPE_BYTES); /* a pipe or not, allowed or not */
	return 0;
}

/* What the filter would not let a library do later. */
static void set_up_libraries(void)
{
	uint8_t hash[SHA256_BYTES];

	sha256("", 0, hash);
}

int main(int argc, char **argv)
{
	int r;

	log_init("limb-ingest");
	if (parse_args(argc, argv) < 0) {
		fputs("usage: limb-ingest [--uid N]    (limbd starts it)\n", stderr);
		return INGEST_EXIT_USAGE;
	}
	/* A write to who is gone, or past the limit of a file, is an error there. */
	if (signal(SIGPIPE, SIG_IGN) == SIG_ERR || signal(SIGXFSZ, SIG_IGN) == SIG_ERR)
		return INGEST_EXIT_FAILED;
	set_up_libraries();
	if (arg_self_test)
		return confine_self_test(arg_uid) ? INGEST_EXIT_FAILED : 0;
	if (arg_check) {
		check_be_quiet();
		if (confine(CONFINE_CHECK, arg_uid, STDERR_FILENO + 1) < 0)
			return INGEST_EXIT_FAILED;
		_exit(check_pack(STDIN_FILENO, arg_check, STDOUT_FILENO) < 0 ? INGEST_EXIT_FAILED
									     : 0);
	}
	if (never_block(LIMBD_FD) < 0 || never_block(STDIN_FILENO) < 0 ||
	    never_block(STDOUT_FILENO) < 0)
		return INGEST_EXIT_FAILED;
	if (confine(CONFINE_INGEST, arg_uid, LIMBD_FD + 1) < 0)
		return INGEST_EXIT_FAILED;
	r = ingest_loop(LIMBD_FD, STDIN_FILENO, STDOUT_FILENO);
	/* Not exit(): its handlers may want what the filter denies. */
	_exit(r);
}
