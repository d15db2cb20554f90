#include "bridge/verbs.h"

#include <string.h>

#include "base/util.h"

/* clang-format off */
#define NAME_ARG {"name", VALUE_NAME, false, "NAME"}
#define JOB_ARG {"job", VALUE_TEXT, false, "JOB"}

const struct verb_flag verb_common_flags[] = {
	{"json", 0, VALUE_SWITCH, NULL, NULL, "one JSON object on stdout"},
	{"quiet", 'q', VALUE_SWITCH, NULL, NULL, "ids only"},
	{"null", 'z', VALUE_SWITCH, NULL, NULL, "end names with NUL and leave them as they are"},
	{"state", 0, VALUE_HOST_PATH, NULL, "DIR", "the brain's state directory"},
	{"help", 'h', VALUE_SWITCH, NULL, NULL, "what the verb takes"},
	{0},
};

static const struct verb_flag up_flags[] = {
	{"mount", 0, VALUE_HOST_PATH, "mount", "DIR", "where the view is mounted"},
	{"foreground", 0, VALUE_SWITCH, "foreground", NULL, "stay until limbd ends"},
	{0},
};

static const struct verb_flag down_flags[] = {
	{"stop", 0, VALUE_SWITCH, "stop", NULL, "stop the environments, too"},
	{0},
};

static const struct verb_flag create_flags[] = {
	{"provider", 0, VALUE_PROVIDER, "provider", "PROVIDER[:TARGET]", "who runs it (bwrap)"},
	{"from", 0, VALUE_HOST_PATH, "from", "DIR", "copy DIR into a new root"},
	{"root", 0, VALUE_HOST_PATH, "root", "DIR", "use DIR in place"},
	{"spec", 0, VALUE_SPEC, "spec", "FILE", "more settings, as JSON"},
	{0},
};

static const struct verb_flag rm_flags[] = {
	{"force", 'f', VALUE_SWITCH, "force", NULL, "also with changes that are not durable"},
	{"keep-journal", 0, VALUE_SWITCH, "keep_journal", NULL, "keep its history"},
	{0},
};

static const struct verb_flag exec_flags[] = {
	{"cwd", 'w', VALUE_PATH, "cwd", "DIR", "directory to start in (the root)"},
	{"env", 'e', VALUE_ENV, "env", "K=V", "a variable, may be repeated"},
	{"timeout", 0, VALUE_SECONDS, "timeout_ms", "S", "end it after S seconds, status 124"},
	{"detach", 'd', VALUE_SWITCH, "detach", NULL, "print the job's id and leave it"},
	{"tty", 't', VALUE_SWITCH, "tty", NULL, "give it a terminal"},
	{"shell", 0, VALUE_TEXT, "shell", "NAME", "run it in the shell session NAME"},
	{"key", 0, VALUE_TEXT, "key", "KEY", "never run twice for one KEY"},
	{"max-output", 0, VALUE_SIZE, "max_output_bytes", "BYTES", "how much of each stream --json has (1M)"},
	{"queue", 0, VALUE_SWITCH, "queue", NULL, "wait until the environment can run it"},
	{"despite-unapplied", 0, VALUE_SWITCH, "despite_unapplied", NULL, "also with refused changes"},
	{0},
};

static const struct verb_flag shell_flags[] = {
	{"cwd", 'w', VALUE_PATH, "cwd", "DIR", "directory to start in (the root)"},
	{"env", 'e', VALUE_ENV, "env", "K=V", "a variable, may be repeated"},
	{"shell", 0, VALUE_TEXT, "shell", "NAME", "the shell session NAME"},
	{0},
};

static const struct verb_flag jobs_flags[] = {
	{"all", 'a', VALUE_SWITCH, "all", NULL, "also those that have ended"},
	{0},
};

static const struct verb_flag logs_flags[] = {
	{"follow", 'f', VALUE_SWITCH, "follow", NULL, "go on until the job ends"},
	{"since", 0, VALUE_SIZE, "since", "OFFSET", "from this byte of each stream on"},
	{"stream", 0, VALUE_TEXT, "stream", "stdout|stderr", "this one only"},
	{0},
};

static const struct verb_flag wait_flags[] = {
	{"timeout", 0, VALUE_SECONDS, "timeout_ms", "S", "give up after S seconds, status 124"},
	{"max-output", 0, VALUE_SIZE, "max_output_bytes", "BYTES", "how much of each stream --json has (1M)"},
	{0},
};

static const struct verb_flag attach_flags[] = {
	{"max-output", 0, VALUE_SIZE, "max_output_bytes", "BYTES", "how much of each stream --json has (1M)"},
	{0},
};

static const struct verb_flag input_flags[] = {
	{"eof", 0, VALUE_SWITCH, "eof", NULL, "and that is the end of its input"},
	{0},
};

static const struct verb_flag sync_flags[] = {
	{"timeout", 0, VALUE_SECONDS, "timeout_ms", "S", "give up after S seconds (60), status 124"},
	{"freeze", 0, VALUE_SWITCH, "freeze", NULL, "stop the processes meanwhile"},
	{0},
};

static const struct verb_flag verify_flags[] = {
	{"paths", 0, VALUE_PATHS, "paths", "PATH...", "these only"},
	{0},
};

static const struct verb_flag rebuild_flags[] = {
	{"at", 0, VALUE_POINT, "at", "POINT|consistent", "how it was then (newest)"},
	{"force", 'f', VALUE_SWITCH, "force", NULL, "also while it is alive"},
	{0},
};

static const struct verb_flag restore_flags[] = {
	{"at", 0, VALUE_POINT, "at", "POINT|consistent", "the point to go back to"},
	{"dry-run", 'n', VALUE_SWITCH, "dry_run", NULL, "only say what would be done"},
	{0},
};

static const struct verb_flag fork_flags[] = {
	{"at", 0, VALUE_POINT, "at", "POINT|consistent", "how it was then (newest)"},
	{"provider", 0, VALUE_PROVIDER, "provider", "PROVIDER[:TARGET]", "who runs it (as NAME)"},
	{0},
};

static const struct verb_flag merge_flags[] = {
	{"into", 0, VALUE_NAME, "into", "NAME", "the environment that it was forked from"},
	{0},
};

static const struct verb_flag migrate_flags[] = {
	{"to", 0, VALUE_PROVIDER, "to", "PROVIDER[:TARGET]", "where it is to live"},
	{"jobs", 0, VALUE_TEXT, "jobs", "wait|stop|restart", "what becomes of running jobs (wait)"},
	{"resume", 0, VALUE_SWITCH, "resume", NULL, "go on with a move that was interrupted"},
	{0},
};

static const struct verb_flag label_flags[] = {
	{"at", 0, VALUE_POINT, "at", "POINT", "how it was then (now)"},
	{0},
};

static const struct verb_flag points_flags[] = {
	{"limit", 'n', VALUE_SEQ, "limit", "N", "at most N (1000)"},
	{0},
};

static const struct verb_flag resolve_flags[] = {
	{"take", 0, VALUE_TEXT, "take", "environment|brain|VERSION", "the version that stays"},
	{0},
};

static const struct verb_flag trust_flags[] = {
	{"off", 0, VALUE_SWITCH, "off", NULL, "back to mode look"},
	{0},
};

static const struct verb_flag mcp_flags[] = {
	{"environment", 0, VALUE_NAME, "environment", "NAME", "which, where a call names none"},
	{0},
};

static const struct verb_flag journal_verify_flags[] = {
	{"environment", 0, VALUE_NAME, "environment", "NAME", "which, where DIR holds several"},
	{0},
};

static const struct verb_flag journal_dump_flags[] = {
	{"environment", 0, VALUE_NAME, "environment", "NAME", "which, where DIR holds several"},
	{"since", 0, VALUE_SEQ, "since", "SEQ", "records from SEQ on"},
	{0},
};

static const struct verb_flag watch_flags[] = {
	{"since", 0, VALUE_POINT, "since", "POINT", "what came after it, too (now)"},
	{0},
};

static const struct verb_flag mount_flags[] = {
	{"journal", 0, VALUE_HOST_PATH, "journal", "DIR", "the copied state directory"},
	{"environment", 0, VALUE_NAME, "environment", "NAME", "which, where DIR holds several"},
	{"at", 0, VALUE_POINT, "at", "POINT|consistent", "how it was then (newest)"},
	{"look", 0, VALUE_SWITCH, "look", NULL, "what is there is not trusted (so by itself)"},
	{"work", 0, VALUE_SWITCH, "work", NULL, "owners, modes and links as they are"},
	{"foreground", 0, VALUE_SWITCH, "foreground", NULL, "stay until it is unmounted"},
	{0},
};

const struct verb verb_table[] = {
	{"up", "start limbd", HANDLE_UP, EFFECT_CHANGE,
		{{0}}, up_flags, NULL, render_up, "state_dir"},
	{"down", "end limbd and the view; environments run on", HANDLE_DOWN, EFFECT_CHANGE,
		{{0}}, down_flags, NULL, render_down, "environments_running/"},
	{"status", "how each environment is", HANDLE_DAEMON, EFFECT_READ,
		{{"name", VALUE_NAME, true, "NAME"}}, NULL, "ok", render_status,
		"environments/environment"},
	{"doctor", "check this machine", HANDLE_DOCTOR, EFFECT_READ,
		{{0}}, NULL, NULL, NULL, NULL},
	{"create", "make an environment", HANDLE_DAEMON, EFFECT_CHANGE,
		{NAME_ARG}, create_flags, NULL, render_create, "environment"},
	{"start", "start an environment", HANDLE_DAEMON, EFFECT_CHANGE,
		{NAME_ARG}, NULL, NULL, render_state, "environment"},
	{"stop", "stop an environment, keep its files", HANDLE_DAEMON, EFFECT_CHANGE,
		{NAME_ARG}, NULL, NULL, render_state, "environment"},
	{"pause", "stop its processes where they are", HANDLE_DAEMON, EFFECT_CHANGE,
		{NAME_ARG}, NULL, NULL, render_state, "environment"},
	{"resume", "let them go on", HANDLE_DAEMON, EFFECT_CHANGE,
		{NAME_ARG}, NULL, NULL, render_state, "environment"},
	{"ls", "list environments, or a directory of one", HANDLE_DAEMON, EFFECT_READ,
		{{"path", VALUE_FILE, true, "NAME[@POINT]:PATH"}}, NULL, NULL, render_ls,
		"entries/name,environments/environment"},
	{"inspect", "all about an environment", HANDLE_DAEMON, EFFECT_READ,
		{NAME_ARG}, NULL, NULL, render_inspect, "environment"},
	{"exec", "run a command in an environment", HANDLE_EXEC, EFFECT_RUN,
		{NAME_ARG, {"argv", VALUE_ARGV, false, "-- CMD ARG..."}},
		exec_flags, NULL, NULL, "job_id"},
	{"shell", "a shell in an environment, on a terminal", HANDLE_EXEC, EFFECT_RUN,
		{NAME_ARG}, shell_flags, NULL, NULL, "job_id"},
	{"jobs", "commands that run, or ran", HANDLE_DAEMON, EFFECT_READ,
		{{"name", VALUE_NAME, true, "NAME"}}, jobs_flags, NULL, render_jobs, "jobs/job_id"},
	{"logs", "a job's output", HANDLE_LOGS, EFFECT_READ,
		{JOB_ARG}, logs_flags, NULL, NULL, NULL},
	{"wait", "wait for a job's end, exit as it did", HANDLE_EXEC, EFFECT_READ,
		{JOB_ARG}, wait_flags, NULL, NULL, "job_id"},
	{"attach", "be a job's terminal until it ends", HANDLE_EXEC, EFFECT_RUN,
		{JOB_ARG}, attach_flags, NULL, NULL, "job_id"},
	{"input", "give stdin to a job", HANDLE_INPUT, EFFECT_RUN,
		{JOB_ARG}, input_flags, NULL, render_input, "job_id"},
	{"signal", "send a signal to a job", HANDLE_DAEMON, EFFECT_RUN,
		{JOB_ARG, {"signal", VALUE_TEXT, false, "SIG"}}, NULL, NULL, render_signal, "job_id"},
	{"sync", "wait until everything is durable", HANDLE_DAEMON, EFFECT_READ,
		{NAME_ARG}, sync_flags, NULL, render_sync, "seq"},
	{"verify", "compare both sides, byte for byte", HANDLE_DAEMON, EFFECT_READ,
		{NAME_ARG}, verify_flags, "equal", render_verify, "differences/path"},
	{"accept", "take a replaced subtree or root as meant", HANDLE_DAEMON, EFFECT_CHANGE,
		{NAME_ARG, {"path", VALUE_PATH, false, "PATH"}}, NULL, NULL, render_seq, "seq"},
	{"rebuild", "make a lost environment again", HANDLE_DAEMON, EFFECT_DESTROY,
		{NAME_ARG}, rebuild_flags, "equal", render_rebuild, "environment"},
	{"restore", "bring files back as they were at a point", HANDLE_DAEMON, EFFECT_CHANGE,
		{NAME_ARG, {"paths", VALUE_PATHS, true, "PATH..."}}, restore_flags, NULL,
		render_restore, "changes/path"},
	{"fork", "make a new environment from another's journal", HANDLE_DAEMON, EFFECT_CHANGE,
		{NAME_ARG, {"new", VALUE_NAME, false, "NEW"}}, fork_flags, "equal", render_create,
		"environment"},
	{"merge", "bring back what was done in a fork", HANDLE_DAEMON, EFFECT_CHANGE,
		{{"name", VALUE_NAME, false, "NEW"}, {"paths", VALUE_PATHS, true, "PATH..."}},
		merge_flags, "clean", render_merge, "seq"},
	{"migrate", "move an environment to another place", HANDLE_DAEMON, EFFECT_CHANGE,
		{NAME_ARG}, migrate_flags, "equal", render_migrate, "environment"},
	{"rm", "remove an environment, or a file of one", HANDLE_DAEMON, EFFECT_DESTROY,
		{{"path", VALUE_FILE, false, "NAME[:PATH]"}}, rm_flags, NULL, render_rm,
		"environment"},
	{"set", "change settings: class, quota, rate, sweep", HANDLE_DAEMON, EFFECT_CHANGE,
		{NAME_ARG, {"settings", VALUE_PATHS, false, "KEY=VALUE..."}}, NULL, NULL,
		render_inspect, "environment"},
	{"trust", "view an environment in mode work", HANDLE_DAEMON, EFFECT_CHANGE,
		{NAME_ARG}, trust_flags, NULL, render_trust, "environment"},
	{"git", "run git in an environment, not in its view", HANDLE_EXEC, EFFECT_RUN,
		{NAME_ARG, {"argv", VALUE_OWN_ARGV, false, "ARG..."}},
		NULL, NULL, NULL, "job_id"},
	{"ps", "processes of an environment", HANDLE_DAEMON, EFFECT_READ,
		{NAME_ARG}, NULL, NULL, render_ps, "processes/pid"},
	{"cp", "copy into or out of an environment", HANDLE_COPY, EFFECT_CHANGE,
		{{"src", VALUE_COPY, false, "SRC"}, {"dst", VALUE_COPY, false, "DST"}},
		NULL, NULL, render_copied, "seq"},
	{"mv", "rename within an environment", HANDLE_DAEMON, EFFECT_CHANGE,
		{{"src", VALUE_COPY, false, "NAME:PATH"}, {"dst", VALUE_COPY, false, "NAME:PATH"}},
		NULL, NULL, render_copied, "seq"},
	{"conflicts", "changes of both sides, of which one was kept aside", HANDLE_DAEMON, EFFECT_READ,
		{{"name", VALUE_NAME, true, "NAME"}}, NULL, NULL, render_conflicts,
		"conflicts/conflict_id"},
	{"resolve", "say which version of a conflict stays", HANDLE_DAEMON, EFFECT_CHANGE,
		{NAME_ARG, {"path", VALUE_PATH, false, "PATH"}}, resolve_flags, NULL, render_seq, "seq"},
	{"why", "how one path is, and what to do about it", HANDLE_DAEMON, EFFECT_READ,
		{NAME_ARG, {"path", VALUE_PATH, false, "PATH"}}, NULL, "ok", render_why, "state"},
	{"retry", "ask again for a change that was refused", HANDLE_DAEMON, EFFECT_CHANGE,
		{NAME_ARG, {"path", VALUE_PATH, false, "PATH"}}, NULL, NULL, render_seq, "seq"},
	{"drop", "give up a change that was refused", HANDLE_DAEMON, EFFECT_DESTROY,
		{NAME_ARG, {"path", VALUE_PATH, false, "PATH"}}, NULL, NULL, render_seq, "seq"},
	{"label", "give a point of its journal a name", HANDLE_DAEMON, EFFECT_CHANGE,
		{NAME_ARG, {"label", VALUE_TEXT, false, "LABEL"}}, label_flags, NULL, render_points,
		"points/seq"},
	{"points", "points of its journal, the newest first", HANDLE_DAEMON, EFFECT_READ,
		{NAME_ARG}, points_flags, NULL, render_points, "points/seq"},
	{"journal verify", "check a journal's chain and content", HANDLE_JOURNAL, EFFECT_READ,
		{{"name", VALUE_JOURNAL, false, "NAME|DIR/"}}, journal_verify_flags, NULL, NULL, NULL},
	{"journal dump", "print a journal's records", HANDLE_JOURNAL, EFFECT_READ,
		{{"name", VALUE_JOURNAL, false, "NAME|DIR/"}}, journal_dump_flags, NULL, NULL, NULL},
	{"watch", "what becomes of its files, one line a change", HANDLE_JOURNAL, EFFECT_READ,
		{NAME_ARG}, watch_flags, NULL, NULL, NULL},
	{"mount", "a copied state directory as files, without limbd", HANDLE_MOUNT, EFFECT_READ,
		{{"directory", VALUE_HOST_PATH, false, "MNT"}}, mount_flags, NULL, NULL, NULL},
	{"mcp", "serve agents: the Model Context Protocol on stdin and stdout", HANDLE_MCP, EFFECT_READ,
		{{0}}, mcp_flags, NULL, NULL, NULL},
	{"mcp-config", "what an agent's client reads to start limb mcp", HANDLE_MCP_CONFIG, EFFECT_READ,
		{{"client", VALUE_TEXT, false, "claude|codex|cursor|vscode"}}, mcp_flags, NULL, NULL, NULL},
	{"file_read", "lines of a text file", HANDLE_TOOL, EFFECT_READ,
		{{0}}, NULL, NULL, NULL, NULL},
	{"file_stat", "type, size, mode, time and hash of one entry", HANDLE_TOOL, EFFECT_READ,
		{{0}}, NULL, NULL, NULL, NULL},
	{"file_search", "files by name and content", HANDLE_TOOL, EFFECT_READ,
		{{0}}, NULL, NULL, NULL, NULL},
	{"file_write", "make or replace a file", HANDLE_TOOL, EFFECT_CHANGE,
		{{0}}, NULL, NULL, NULL, NULL},
	{"file_edit", "replace text in a file", HANDLE_TOOL, EFFECT_CHANGE,
		{{0}}, NULL, NULL, NULL, NULL},
	{"provider test", "try what a provider promises", HANDLE_PROVIDER_TEST, EFFECT_RUN,
		{{"provider", VALUE_PROVIDER, false, "EXECUTABLE[:TARGET]"}}, NULL, NULL, NULL, NULL},
	{"help", "this list, or what a verb takes", HANDLE_HELP, EFFECT_READ,
		{{"verb", VALUE_TEXT, true, "VERB"}, {"word", VALUE_TEXT, true, ""}},
		NULL, NULL, NULL, NULL},
};
/* clang-format on */

const size_t verb_table_count = ARRAY_SIZE(verb_table);

const struct verb *verb_find(const char *first, const char *second, int *ret_words)
{
	for (size_t i = 0; i < verb_table_count; i++) {
		const char *name = verb_table[i].name, *space = strchr(name, ' ');

		if (verb_table[i].handler == HANDLE_TOOL)
			continue;
		if (!space) {
			if (strcmp(name, first) != 0)
				continue;
			*ret_words = 1;
			return &verb_table[i];
		}
		if (second && strlen(first) == (size_t)(space - name) &&
		    strncmp(name, first, strlen(first)) == 0 && strcmp(space + 1, second) == 0) {
			*ret_words = 2;
			return &verb_table[i];
		}
	}
	return NULL;
}

bool verbs_of(const char *first, struct buf *b)
{
	size_t n = strlen(first), before = buf_len(b);

	for (size_t i = 0; i < verb_table_count; i++) {
		const char *name = verb_table[i].name;

		if (strncmp(name, first, n) != 0 || name[n] != ' ')
			continue;
		if (buf_printf(b, "%slimb %s", buf_len(b) > before ? ", " : "", name) < 0)
			break;
	}
	return buf_len(b) > before;
}

const struct verb *verb_named(const char *name)
{
	for (size_t i = 0; i < verb_table_count; i++)
		if (strcmp(verb_table[i].name, name) == 0)
			return &verb_table[i];
	return NULL;
}

const char *verb_effect_text(enum verb_effect effect)
{
	static const char *const text[] = {
		[EFFECT_READ] = "changes nothing",
		[EFFECT_RUN] = "runs programs in the environment",
		[EFFECT_CHANGE] = "makes changes",
		[EFFECT_DESTROY] = "can drop what is there",
	};

	return text[effect];
}
