/* The tools that `limb mcp` publishes, in the order in which it lists them. */
#include "bridge/tool-impl.h"

#include "base/util.h"

/* clang-format off */
#define STRING "{\"type\":\"string\"}"
#define INTEGER "{\"type\":\"integer\"}"
#define BOOLEAN "{\"type\":\"boolean\"}"
#define STRINGS "{\"type\":\"array\",\"items\":{\"type\":\"string\"}}"
#define OBJECTS "{\"type\":\"array\",\"items\":{\"type\":\"object\"}}"

#define MS_MAX 86400000

#define ENVIRONMENT {"environment", TOOL_NAME, false, "name", "env_name sandbox", 0, 0, \
	"Which environment. May be left out where there is only one; see list_environments."}
#define PATH(required) {"path", TOOL_BYTES, required, "path", "file_path filename file", 0, 0, \
	"Relative to the root of the environment, or absolute beneath it."}
#define POINT(param) {"point", TOOL_POINT, false, param, "at", 0, 0, \
	"As it was then: a label, a sequence number, an RFC 3339 time, before:JOB, after:JOB, HEAD~N. " \
	"Now, if left out."}
#define JOB {"job_id", TOOL_JOB, true, "job", "id", 0, 0, "The job, as exec or list_jobs gave it."}

static const struct tool_field exec_fields[] = {
	{"job_id", STRING, true}, {"environment", STRING, true}, {"incarnation", INTEGER, false},
	{"state", "{\"type\":\"string\",\"enum\":[\"exited\",\"running\",\"unknown\"]}", true},
	{"exit_code", INTEGER, false}, {"signal", STRING, false}, {"timed_out", BOOLEAN, true},
	{"truncated", BOOLEAN, true}, {"stdout", STRING, true}, {"stderr", STRING, true},
	{"stdout_base64", STRING, false}, {"stderr_base64", STRING, false},
	{"stdout_bytes", INTEGER, true}, {"stderr_bytes", INTEGER, true},
	{"duration_ms", INTEGER, true}, {"cwd", STRING, false}, {"seq", INTEGER, false},
	{"background", BOOLEAN, false}, {"unsettled", OBJECTS, false},
	{"mounts_behind", STRINGS, false}, {"error", STRING, false}, {"detail", STRING, false},
	{0},
};

#define JOB_FIELDS \
	{"job_id", STRING, true}, {"environment", STRING, true}, {"incarnation", INTEGER, false}, \
	{"state", STRING, true}, {"argv", STRINGS, false}, {"cwd", STRING, false}, \
	{"exit_code", INTEGER, false}, {"signal", STRING, false}, {"timed_out", BOOLEAN, false}, \
	{"started_at", STRING, false}, {"ended_at", STRING, false}, {"duration_ms", INTEGER, false}, \
	{"stdout_bytes", INTEGER, false}, {"stderr_bytes", INTEGER, false}, {"seq", INTEGER, false}

static const struct tool_field logs_fields[] = {
	JOB_FIELDS, {"pieces", OBJECTS, true}, {"stdout_offset", INTEGER, true},
	{"stderr_offset", INTEGER, true}, {"left_out_bytes", INTEGER, false},
	{0},
};

static const struct tool_field input_fields[] = {
	{"job_id", STRING, true}, {"accepted_bytes", INTEGER, true},
	{0},
};

static const struct tool_field signal_fields[] = {
	{"job_id", STRING, true}, {"signal", STRING, true},
	{0},
};

static const struct tool_field jobs_fields[] = {
	{"jobs", OBJECTS, true}, {"truncated", BOOLEAN, false},
	{0},
};

static const struct tool_field read_fields[] = {
	{"environment", STRING, true}, {"seq", INTEGER, true}, {"path", STRING, true},
	{"path_base64", STRING, false}, {"content", STRING, true},
	{"content_base64", STRING, false}, {"first_line", INTEGER, true}, {"lines", INTEGER, true},
	{"truncated", BOOLEAN, true}, {"next_offset", INTEGER, false},
	{"size_bytes", INTEGER, true}, {"sha256", STRING, true}, {"mode", STRING, true},
	{"changing", BOOLEAN, false},
	{0},
};

static const struct tool_field write_fields[] = {
	{"environment", STRING, true}, {"seq", INTEGER, true}, {"path", STRING, true},
	{"path_base64", STRING, false}, {"size_bytes", INTEGER, true}, {"sha256", STRING, true},
	{"created", BOOLEAN, true}, {"pending", BOOLEAN, false},
	{0},
};

static const struct tool_field edit_fields[] = {
	{"environment", STRING, true}, {"seq", INTEGER, true}, {"path", STRING, true},
	{"path_base64", STRING, false}, {"size_bytes", INTEGER, true}, {"sha256", STRING, true},
	{"replacements", INTEGER, true}, {"pending", BOOLEAN, false},
	{0},
};

#define ENTRY_FIELDS(always) \
	{"name", STRING, always}, {"name_base64", STRING, false}, \
	{"type", "{\"type\":\"string\",\"enum\":[\"file\",\"directory\",\"symlink\",\"fifo\",\"socket\"," \
		"\"char\",\"block\"]}", always}, \
	{"size_bytes", INTEGER, always}, {"mode", STRING, always}, {"uid", INTEGER, always}, \
	{"gid", INTEGER, always}, {"owner", STRING, always}, {"group", STRING, always}, \
	{"modified_at", STRING, always}, {"inode", INTEGER, always}, {"links", INTEGER, always}, \
	{"sha256", STRING, false}, {"symlink_target", STRING, false}, \
	{"symlink_target_base64", STRING, false}

static const struct tool_field stat_fields[] = {
	{"environment", STRING, true}, {"seq", INTEGER, true}, {"path", STRING, true},
	{"path_base64", STRING, false}, ENTRY_FIELDS(true),
	{0},
};

static const struct tool_field list_fields[] = {
	{"environment", STRING, true}, {"seq", INTEGER, true}, {"path", STRING, true},
	{"path_base64", STRING, false}, {"entries", OBJECTS, true}, {"truncated", BOOLEAN, true},
	{"total", INTEGER, true},
	{0},
};

static const struct tool_field search_fields[] = {
	{"environment", STRING, true}, {"seq", INTEGER, true}, {"path", STRING, true},
	{"path_base64", STRING, false}, {"matches", OBJECTS, true}, {"truncated", BOOLEAN, true},
	{"stopped_by", STRING, false}, {"files_searched", INTEGER, true},
	{"files_skipped", INTEGER, true},
	{0},
};

static const struct tool_field environments_fields[] = {
	{"environments", OBJECTS, true},
	{0},
};

static const struct tool_field migrate_fields[] = {
	{"environment", STRING, true}, {"incarnation", INTEGER, true}, {"seq", INTEGER, false},
	{"equal", BOOLEAN, true}, {"from", "{\"type\":\"object\"}", true},
	{"to", "{\"type\":\"object\"}", true}, {"frozen_ms", INTEGER, false},
	{"bytes_sent", INTEGER, false}, {"jobs", OBJECTS, false}, {"differences", OBJECTS, false},
	{0},
};

static const struct tool_field restore_fields[] = {
	{"environment", STRING, true}, {"to_seq", INTEGER, true}, {"dry_run", BOOLEAN, true},
	{"changes", OBJECTS, true}, {"label", STRING, false}, {"seq", INTEGER, false},
	{"truncated", BOOLEAN, false}, {"total", INTEGER, false},
	{0},
};

static const struct tool_field points_fields[] = {
	{"environment", STRING, true}, {"points", OBJECTS, true}, {"truncated", BOOLEAN, false},
	{"total", INTEGER, false},
	{0},
};

const struct tool tool_table[] = {
	{"exec", "Run a command",
		"Runs a command in an environment and waits for its end. Give either command (text for "
		"/bin/sh -c) or argv (a list, no shell). A command that runs longer than wait_ms is not "
		"ended: the answer has state \"running\" and a job_id for read_job, write_job and "
		"kill_job. An exit code other than 0 is a normal result. When it returns, what the "
		"command wrote is durable.",
		"exec",
		{ENVIRONMENT,
		 {"command", TOOL_BYTES, false, NULL, "cmd script", 0, 0, "Text for /bin/sh -c."},
		 {"argv", TOOL_TEXTS, false, "argv", "args", 0, 0,
			"The program and its arguments, as they are; no shell."},
		 {"cwd", TOOL_BYTES, false, "cwd", "workdir working_directory", 0, 0,
			"Directory to start in; the root, if left out."},
		 {"env_vars", TOOL_VARIABLES, false, "env", "env envs", 0, 0,
			"More variables for the command: {NAME: value}."},
		 {"timeout_ms", TOOL_INTEGER, false, "timeout_ms", NULL, 1, MS_MAX,
			"End the command, and all that it started, after this time."},
		 {"wait_ms", TOOL_INTEGER, false, "wait_ms", "yield_time_ms", 1, 3600000,
			"Answer after this time even if it runs on (45000)."},
		 {"background", TOOL_SWITCH, false, "detach", "run_in_background", 0, 0,
			"Answer at once with the job_id."},
		 {"stdin", TOOL_BYTES, false, "stdin_text", "input", 0, 1 << 20,
			"Input for the command; none, if left out."},
		 {"keep_stdin", TOOL_SWITCH, false, "stdin", NULL, 0, 0,
			"More input comes later, by write_job."},
		 {"max_output_bytes", TOOL_INTEGER, false, "max_output_bytes", NULL, 2, 1048576,
			"How much of each of stdout and stderr is answered (30000): head and tail."},
		 {"key", TOOL_TEXT, false, "key", "idempotency_key", 0, 0,
			"Any text: a second call with the same key does not run the command again."}},
		exec_fields, tool_text_exec, false, "{\"json\":true,\"outlive\":true,\"wait_ms\":45000,\"max_output_bytes\":30000}"},
	{"read_job", "Read a job's output",
		"What a job has written since the offsets, and how it is. Waits for more if there is "
		"nothing yet. Go on with the offsets of the answer.",
		"logs",
		{JOB,
		 {"wait_ms", TOOL_INTEGER, false, "wait_ms", "timeout_ms", 0, 3600000,
			"How long to wait for more, or for its end (0)."},
		 {"stdout_offset", TOOL_INTEGER, false, "since_stdout", "offset", 0, 1LL << 50,
			"From this byte of its stdout on."},
		 {"stderr_offset", TOOL_INTEGER, false, "since_stderr", NULL, 0, 1LL << 50,
			"From this byte of its stderr on."},
		 {"max_output_bytes", TOOL_INTEGER, false, "limit_bytes", NULL, 4, 1048576,
			"At most so many bytes (30000)."}},
		logs_fields, tool_text_job, false, "{\"limit_bytes\":30000}"},
	{"write_job", "Write to a job",
		"Input for a job that was started with keep_stdin. Lines end with a newline.", "input",
		{JOB,
		 {"input", TOOL_BYTES, false, TOOL_INPUT, "chars text", 0, 1 << 20, "What it reads."},
		 {"eof", TOOL_SWITCH, false, "eof", NULL, 0, 0, "And that is the end of its input."}},
		input_fields, NULL, false, "{\"input\":\"\"}"},
	{"kill_job", "End a job", "Ends a job and all that it started: TERM, then KILL for what is left after a while; or "
		"sends another signal.", "signal",
		{JOB,
		 {"signal", TOOL_TEXT, false, "signal", NULL, 0, 0, "TERM, if left out; KILL, INT, HUP ..."}},
		signal_fields, NULL, false, "{\"signal\":\"TERM\",\"tree\":true}"},
	{"list_jobs", "List jobs", "Commands that run; with all, those that ran, too.", "jobs",
		{{"environment", TOOL_NAME, false, "name", NULL, 0, 0, "Of this environment; else of all."},
		 {"all", TOOL_SWITCH, false, "all", NULL, 0, 0, "Also those that have ended."}},
		jobs_fields, NULL, true, NULL},
	{"read_file", "Read a text file",
		"Lines of a file, and its sha256. A file that is not text comes as content_base64. One that "
		"was written all the while it was read there is changing: it may hold parts of several moments.",
		"file_read",
		{ENVIRONMENT, PATH(true),
		 {"offset", TOOL_INTEGER, false, "offset", "start_line", 1, 1LL << 50, "First line, from 1."},
		 {"limit", TOOL_INTEGER, false, "limit", "max_lines", 1, 1000000, "How many lines (2000)."},
		 {"max_bytes", TOOL_INTEGER, false, "max_bytes", NULL, 1, 8 << 20,
			"At most so many bytes (262144)."},
		 POINT("point")},
		read_fields, tool_text_read, false, NULL},
	{"write_file", "Write a file",
		"Makes a file with this content, or replaces all of it; directories on the way are made. "
		"What was there before stays in the journal. Durable when it returns.",
		"file_write",
		{ENVIRONMENT, PATH(true),
		 {"content", TOOL_BYTES, false, "content", "text contents", 0, 0, "The whole content."},
		 {"content_base64", TOOL_TEXT, false, "content_base64", NULL, 0, 0,
			"The whole content as bytes, in place of content."},
		 {"base_sha256", TOOL_TEXT, false, "base_sha256", NULL, 0, 0,
			"Only if the file has this sha256 (as read_file gave it), else a conflict."},
		 {"no_replace", TOOL_SWITCH, false, "no_replace", NULL, 0, 0,
			"Only if there is no such file."}},
		write_fields, NULL, false, NULL},
	{"edit_file", "Edit a file",
		"Replaces exact texts in a file, one edit after the other, all or none. Each old_text has "
		"to be there exactly once, unless replace_all is set. If the file changes meanwhile, "
		"nothing is written and the answer is a conflict.",
		"file_edit",
		{ENVIRONMENT, PATH(true),
		 {"edits", TOOL_EDITS, true, "edits", NULL, 0, 0, "What to replace by what."},
		 {"base_sha256", TOOL_TEXT, false, "base_sha256", NULL, 0, 0,
			"Only if the file has this sha256 (as read_file gave it), else a conflict."}},
		edit_fields, NULL, false, NULL},
	{"list_directory", "List a directory", "The entries of a directory, by name.", "ls",
		{ENVIRONMENT, PATH(false),
		 {"limit", TOOL_INTEGER, false, "limit", NULL, 1, 10000, "At most so many entries (1000)."},
		 POINT("point")},
		list_fields, tool_text_list, false, "{\"follow\":true,\"limit\":1000,\"path\":\"\"}"},
	{"search_files", "Search files",
		"Files by name, by content, or both. .git is left out unless the pattern names it; large "
		"and binary files are not looked into.",
		"file_search",
		{ENVIRONMENT, PATH(false),
		 {"pattern", TOOL_BYTES, false, "pattern", "glob", 0, 0,
			"Of names: *.c, or of paths where it has a slash: src/**/*.c (* any bytes, ? one)."},
		 {"text", TOOL_BYTES, false, "text", "content query", 0, 0,
			"What a line has to contain, literally."},
		 {"ignore_case", TOOL_SWITCH, false, "ignore_case", NULL, 0, 0, "A is a, in ASCII."},
		 {"limit", TOOL_INTEGER, false, "limit", "max_results", 1, 5000, "At most so many matches (200)."},
		 POINT("point")},
		search_fields, tool_text_search, false, NULL},
	{"stat_file", "Look at a file",
		"Type, size, mode, owner, time and hash of one entry; a symlink is not followed.",
		"file_stat", {ENVIRONMENT, PATH(true), POINT("point")}, stat_fields, NULL, false, NULL},
	{"list_environments", "List environments",
		"The environments, what state each is in, and where its root is.", "ls", {{0}},
		environments_fields, NULL, true, NULL},
	{"restore", "Go back to a point",
		"Brings files back as they were at a point: all of them, or some paths. A label is made "
		"first (in the answer), so that this can be undone by a restore to it. Only what the "
		"journal knows is touched. With dry_run nothing is done, and the answer says what would be.",
		"restore",
		{ENVIRONMENT,
		 {"point", TOOL_POINT, true, "at", "at to", 0, 0,
			"A label, a sequence number, an RFC 3339 time, before:JOB, after:JOB, HEAD~N; see "
			"list_points."},
		 {"paths", TOOL_TEXTS, false, "paths", "files", 0, 0,
			"Only these, each with what is beneath it; everything, if left out."},
		 {"dry_run", TOOL_SWITCH, false, "dry_run", NULL, 0, 0, "Only say what would be done."}},
		restore_fields, NULL, false, NULL},
	{"migrate", "Move an environment",
		"Moves an environment with its files to another place; commands that run are waited for, "
		"stopped or started anew there. Answers when both sides were compared.",
		"migrate",
		{ENVIRONMENT,
		 {"to", TOOL_PLACE, false, "to", "target provider", 0, 0,
			"PROVIDER or PROVIDER:TARGET, such as ssh:HOST, bwrap, container:IMAGE."},
		 {"jobs", TOOL_TEXT, false, "jobs", NULL, 0, 0,
			"What becomes of running jobs: wait, stop or restart (wait)."},
		 {"resume", TOOL_SWITCH, false, "resume", NULL, 0, 0,
			"Go on with a move that was interrupted."}},
		migrate_fields, NULL, false, NULL},
	{"label_point", "Label a point",
		"Gives the present moment of an environment a name, to come back to it or to look at it.",
		"label",
		{ENVIRONMENT,
		 {"label", TOOL_TEXT, true, "label", "name", 0, 0,
			"Letters, digits, '.', '_', '-'; begins with a letter."},
		 POINT("at")},
		points_fields, NULL, false, NULL},
	{"list_points", "List points",
		"Points of an environment, the newest first: labels, beginning and end of each job.",
		"points",
		{ENVIRONMENT,
		 {"limit", TOOL_INTEGER, false, "limit", NULL, 1, 10000, "At most so many (100)."}},
		points_fields, NULL, false, "{\"limit\":100}"},
};
/* clang-format on */

const size_t tool_table_count = ARRAY_SIZE(tool_table);
