#include "brain/shell.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/util.h"

enum { NAME_BYTES_MAX = 64, OWN_WORDS = 7 };

#define SAVE                                                                           \
	"export PWD; (umask 077; [ -z \"$BASH_VERSION\" ] || set -o posix; export -p " \
	">\"$LIMB_SHELL.new.$$\" && "                                                  \
	"mv -f \"$LIMB_SHELL.new.$$\" \"$LIMB_SHELL\")"

/* $1 the session's file, $2 not empty: the directory stays, $3 how many of NAME=value follow. */
static const char script[] =
	"limb_job=$LIMB_JOB limb_at=$(pwd)\n"
	"[ ! -f \"$1\" ] || . \"$1\"\n"
	"export LIMB_JOB=\"$limb_job\" LIMB_SHELL=\"$1\"\n"
	"[ -z \"$2\" ] && cd \"$PWD\" 2>/dev/null || cd \"$limb_at\"\n"
	"limb_n=$3\n"
	"shift 3\n"
	"while [ \"$limb_n\" -gt 0 ]; do\n"
	"	export \"$1\"\n"
	"	shift\n"
	"	limb_n=$((limb_n - 1))\n"
	"done\n"
	"unset limb_job limb_at limb_n\n"
	"mkdir -p -m 700 \"${LIMB_SHELL%/*}\"\n"
	"if [ $# = 0 ]; then\n"
	"	cat >\"$LIMB_SHELL.rc\" <<-'END'\n"
	"	[ ! -f ~/.bashrc ] || [ -z \"$BASH_VERSION\" ] || . ~/.bashrc\n"
	"	trap '" SAVE "' EXIT\n"
	"	END\n"
	"	! command -v bash >/dev/null 2>&1 || exec bash --rcfile \"$LIMB_SHELL.rc\" -i\n"
	"	ENV=$LIMB_SHELL.rc exec sh -i\n"
	"fi\n"
	"trap '" SAVE "' EXIT\n"
	"if [ $# = 1 ]; then eval \"$1\"; else \"$@\"; fi\n";

bool shell_name_ok(const char *name)
{
	size_t n = strlen(name);

	if (n == 0 || n > NAME_BYTES_MAX || !isalnum((unsigned char)*name))
		return false;
	for (const char *p = name; *p; p++)
		if (!isalnum((unsigned char)*p) && !strchr("._-", *p))
			return false;
	return true;
}

static size_t count(char *const *v)
{
	size_t n = 0;

	while (v && v[n])
		n++;
	return n;
}

char **shell_argv(const char *dir, const char *name, char *const *argv, char *const *set,
		  bool keep_cwd)
{
	size_t n_set = count(set), n_argv = count(argv), n = 0;
	char **v = calloc(OWN_WORDS + n_set + n_argv + 1, sizeof(*v)), number[24];
	cleanup_free char *file = NULL;
	const char *own[OWN_WORDS];
	bool ok = v != NULL;

	if (asprintf(&file, "%s/shells/%s", dir, name) < 0)
		file = NULL;
	ok = ok && file;
	(void)snprintf(number, sizeof(number), "%zu", n_set);
	own[0] = "/bin/sh";
	own[1] = "-c";
	own[2] = script;
	own[3] = "sh";
	own[4] = file;
	own[5] = keep_cwd ? "stay" : "";
	own[6] = number;
	for (size_t i = 0; ok && i < OWN_WORDS + n_set + n_argv; i++, n++) {
		const char *word = i < OWN_WORDS	   ? own[i]
				   : i < OWN_WORDS + n_set ? set[i - OWN_WORDS]
							   : argv[i - OWN_WORDS - n_set];

		v[n] = strdup(word);
		ok = v[n] != NULL;
	}
	if (ok)
		return v;
	for (size_t i = 0; v && i < n; i++)
		free(v[i]);
	free(v);
	return NULL;
}
