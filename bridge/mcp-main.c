/*
 * limb-mcp - `limb mcp`: the server of mcp.h on stdin and stdout.
 * usage: limb-mcp --state DIR --mount DIR --socket PATH [--environment NAME]
 */
#include <getopt.h>
#include <signal.h>

#include "base/log.h"
#include "bridge/mcp.h"

int main(int argc, char **argv)
{
	static const struct option options[] = {
		{"state", required_argument, NULL, 's'},
		{"mount", required_argument, NULL, 'm'},
		{"socket", required_argument, NULL, 'o'},
		{"environment", required_argument, NULL, 'e'},
		{NULL},
	};
	struct places places = {0};
	const char *environment = NULL;
	int c, r;

	log_init("limb");
	while ((c = getopt_long(argc, argv, "", options, NULL)) >= 0) {
		switch (c) {
		case 's': places.state = optarg; break;
		case 'm': places.mount = optarg; break;
		case 'o': places.socket = optarg; break;
		case 'e': environment = optarg; break;
		default: return 2;
		}
	}
	if (optind != argc || !places.state || !places.socket) {
		log_error("limb-mcp is started by: limb mcp");
		return 2;
	}
	(void)signal(SIGPIPE, SIG_IGN);
	r = mcp_serve(&places, environment, STDIN_FILENO, STDOUT_FILENO);
	if (r < 0 && r != -EPIPE && r != -ECONNRESET) {
		(void)log_error_errno(r, "the MCP session ended");
		return 125;
	}
	return 0;
}
