/*
 * limb-doctor - `limb doctor`: all checks of doctor.h, as lines or as JSON.
 * usage: limb-doctor --state DIR --mount DIR --socket PATH [--json | -q]
 */
#include <getopt.h>
#include <signal.h>
#include <stdio.h>

#include "base/log.h"
#include "base/text.h"
#include "bridge/doctor.h"
#include "bridge/failure.h"
#include "bridge/value.h"

static struct places arg_places;
static bool arg_json, arg_quiet;

static const char *const status_names[] = {
	[DOCTOR_OK] = "ok",
	[DOCTOR_WARN] = "warn",
	[DOCTOR_FAIL] = "fail",
};

static json_t *to_json(const char *name, const struct doctor_result *r)
{
	json_t *steps = json_array();

	if (r->step)
		(void)json_array_append_new(steps, value_text(r->step, strlen(r->step)));
	return json_pack("{s:s, s:s, s:o, s:o}", "name", name, "status", status_names[r->status],
			 "detail", value_text(r->detail, strlen(r->detail)), "next_steps", steps);
}

static void print_line(const char *name, const struct doctor_result *r, bool colour)
{
	static const char *const colours[] = {"\033[32m", "\033[33m", "\033[31m"};

	printf("%s%-4s%s  %-18s %s\n", colour ? colours[r->status] : "", status_names[r->status],
	       colour ? "\033[0m" : "", name, r->detail);
	if (r->step && r->status != DOCTOR_OK)
		printf("      %-18s -> %s\n", "", r->step);
}

static int run_checks(void)
{
	bool ok = true, colour = isatty(STDOUT_FILENO) == 1 && !getenv("NO_COLOR");
	json_t *array = json_array();

	for (size_t i = 0; i < doctor_checks_count; i++) {
		_cleanup_(doctor_result_done) struct doctor_result r = {0};
		const char *name = doctor_checks[i].name;

		doctor_checks[i].run(&arg_places, &r);
		if (!r.detail) {
			json_decref(array);
			return log_oom();
		}
		ok = ok && r.status != DOCTOR_FAIL;
		if (arg_json)
			(void)json_array_append_new(array, to_json(name, &r));
		else if (!arg_quiet)
			print_line(name, &r, colour);
		else if (r.status != DOCTOR_OK)
			printf("%s\n", name);
		(void)fflush(stdout);
	}
	if (arg_json) {
		json_t *o = json_pack("{s:b, s:O}", "ok", ok, "checks", array);

		(void)json_dumpf(o, stdout, JSON_COMPACT);
		(void)putchar('\n');
		json_decref(o);
	}
	json_decref(array);
	if (fflush(stdout) != 0 || ferror(stdout))
		return log_error_errno(-errno, "cannot write to stdout");
	return ok;
}

int main(int argc, char **argv)
{
	static const struct option options[] = {
		{"state", required_argument, NULL, 's'},
		{"mount", required_argument, NULL, 'm'},
		{"socket", required_argument, NULL, 'o'},
		{"json", no_argument, NULL, 'j'},
		{NULL},
	};
	int c, r;

	log_init("limb-doctor");
	while ((c = getopt_long(argc, argv, "q", options, NULL)) >= 0) {
		switch (c) {
		case 's': arg_places.state = optarg; break;
		case 'm': arg_places.mount = optarg; break;
		case 'o': arg_places.socket = optarg; break;
		case 'j': arg_json = true; break;
		case 'q': arg_quiet = true; break;
		default: return EXIT_USAGE;
		}
	}
	if (optind != argc || !arg_places.state || !arg_places.mount || !arg_places.socket) {
		log_error("run it as: limb doctor");
		return EXIT_USAGE;
	}
	r = run_checks();
	return r < 0 ? EXIT_COULD_NOT : (r ? 0 : EXIT_NO);
}
