/*
 * limb-syncd: the part of limbfs that runs inside an environment. It has no
 * configuration; what it needs to know stands on its command line or comes
 * over the wire.
 */
#include <getopt.h>
#include <stdio.h>
#include <sys/prctl.h>

#include "base/log.h"
#include "base/text.h"
#include "base/util.h"
#include "syncd/attach.h"
#include "syncd/daemon.h"
#include "syncd/init.h"
#include "syncd/spawner.h"

enum { EXIT_USAGE = 2 };

static struct place arg_place;
static enum attach_start arg_start;
static bool arg_env;

enum need { NEED_NONE, NEED_DIR, NEED_ALL };

static int run_attach(void)
{
	int r = attach_run(&arg_place, arg_start);

	return r < 0 ? log_error_errno(r, "cannot attach to the daemon in '%s'", arg_place.dir) : 0;
}

static int run_daemon(void)
{
	int r = daemon_run(&arg_place);

	if (r == -EBUSY) {
		log_info("another daemon has '%s'", arg_place.dir);
		return r;
	}
	return r < 0 ? log_error_errno(r, "daemon in '%s'", arg_place.dir) : 0;
}

static int run_init(void)
{
	return init_run(&arg_place);
}

static int run_start(void)
{
	int r = attach_start(&arg_place);

	return r < 0 ? log_error_errno(r,
				       "cannot start the daemon in '%s'; it may have said why in"
				       " the file log there",
				       arg_place.dir)
		     : 0;
}

/* Says nothing: the status is the answer. */
static int run_probe(void)
{
	return attach_probe(&arg_place);
}

static int run_stop(void)
{
	int r = attach_stop(&arg_place);

	return r < 0 ? log_error_errno(r, "cannot stop the daemon in '%s'", arg_place.dir) : 0;
}

/* Started by the daemon only: its socket is descriptor 3. */
static int run_spawner(void)
{
	return spawner_main(3);
}

static int run_version(void)
{
	uint8_t hash[SHA256_BYTES];
	char hex[2 * SHA256_BYTES + 1];
	int r;

	r = self_sha256(hash);
	if (r < 0)
		return log_error_errno(r, "cannot read my own executable");
	text_hex(hex, hash, sizeof(hash));
	printf("limb-syncd %s sha256:%s\n", PACKAGE_VERSION, hex);
	return fflush(stdout) == 0 ? 0 : -errno;
}

static const struct {
	const char *name;
	enum need need;
	int (*run)(void);
} commands[] = {
	{"attach", NEED_ALL, run_attach},    {"daemon", NEED_ALL, run_daemon},
	{"init", NEED_ALL, run_init},	     {"start", NEED_ALL, run_start},
	{"probe", NEED_DIR, run_probe},	     {"stop", NEED_DIR, run_stop},
	{"spawner", NEED_NONE, run_spawner}, {"version", NEED_NONE, run_version},
};

static int usage(void)
{
	fputs("usage: limb-syncd attach --dir DIR --root ROOT --env ID [--wait | --running]\n"
	      "       limb-syncd daemon --dir DIR --root ROOT --env ID\n"
	      "       limb-syncd init --dir DIR --root ROOT --env ID\n"
	      "       limb-syncd start --dir DIR --root ROOT --env ID\n"
	      "       limb-syncd probe --dir DIR\n"
	      "       limb-syncd stop --dir DIR\n"
	      "       limb-syncd version\n",
	      stderr);
	return EXIT_USAGE;
}

/* 32 hex digits, with or without the dashes of a UUID. */
static int parse_env(const char *s)
{
	char hex[33];
	size_t n = 0;

	for (; *s; s++) {
		if (*s == '-')
			continue;
		if (n == sizeof(hex) - 1)
			return -EINVAL;
		hex[n++] = *s;
	}
	hex[n] = 0;
	arg_env = true;
	return text_unhex(arg_place.env, sizeof(arg_place.env), hex);
}

/* Our processes have "/" as current directory, so a relative path is made absolute here. */
static const char *absolute(const char *path)
{
	cleanup_free char *cwd = NULL;
	char *out = NULL;

	if (path[0] == '/')
		return path;
	cwd = getcwd(NULL, 0);
	if (!cwd || asprintf(&out, "%s/%s", cwd, path) < 0)
		return NULL;
	return out;
}

static int parse_options(int argc, char **argv)
{
	static const struct option options[] = {
		{"dir", required_argument, NULL, 'd'}, {"root", required_argument, NULL, 'r'},
		{"env", required_argument, NULL, 'e'}, {"wait", no_argument, NULL, 'w'},
		{"running", no_argument, NULL, 'R'},   {NULL},
	};
	int c;

	while ((c = getopt_long(argc, argv, "", options, NULL)) >= 0) {
		switch (c) {
		case 'd': arg_place.dir = absolute(optarg); break;
		case 'r': arg_place.root = absolute(optarg); break;
		case 'e':
			if (parse_env(optarg) < 0) {
				log_error("--env takes 32 hexadecimal digits");
				return -EINVAL;
			}
			break;
		case 'w': arg_start = ATTACH_WAIT; break;
		case 'R': arg_start = ATTACH_RUNNING; break;
		default: return -EINVAL;
		}
	}
	return optind == argc ? 0 : -EINVAL;
}

int main(int argc, char **argv)
{
	log_init("limb-syncd");
	/* The file's name carries its hash, or is /proc/self/exe. */
	(void)prctl(PR_SET_NAME, "limb-syncd");
	if (argc < 2)
		return usage();
	for (size_t i = 0; i < ARRAY_SIZE(commands); i++) {
		if (strcmp(argv[1], commands[i].name) != 0)
			continue;
		if (parse_options(argc - 1, argv + 1) < 0)
			return usage();
		if ((commands[i].need != NEED_NONE && !arg_place.dir) ||
		    (commands[i].need == NEED_ALL && (!arg_place.root || !arg_env)))
			return usage();
		return commands[i].run() < 0 ? EXIT_FAILURE : EXIT_SUCCESS;
	}
	return usage();
}
