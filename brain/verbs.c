#include "brain/life.h"
#include "brain/migrate.h"
#include "brain/point.h"
#include "brain/rpc-server.h"
#include "brain/verb.h"

/* clang-format off */
const struct verb verbs[] = {
	{"accept", verb_accept},
	{"attach", verb_attach},
	{"conflicts", verb_conflicts},
	{"cp", verb_cp},
	{"create", life_create},
	{"down", verb_down},
	{"drop", verb_drop},
	{"exec", verb_exec},
	{"file_edit", verb_file_edit},
	{"file_read", verb_file_read},
	{"file_search", verb_file_search},
	{"file_stat", verb_file_stat},
	{"file_write", verb_file_write},
	{"fork", life_fork},
	{"input", verb_input},
	{"inspect", verb_inspect},
	{"jobs", verb_jobs},
	{"label", verb_label},
	{"logs", verb_logs},
	{"ls", verb_ls},
	{"migrate", migrate},
	{"mv", verb_mv},
	{"pause", life_pause},
	{"points", verb_points},
	{"ps", verb_ps},
	{"rebuild", life_rebuild},
	{"resolve", verb_resolve},
	{"resume", life_resume},
	{"restore", verb_restore},
	{"retry", verb_retry},
	{"rm", verb_rm},
	{"set", verb_set},
	{"shell", verb_shell},
	{"signal", verb_signal},
	{"start", life_start},
	{"status", verb_status},
	{"stop", life_stop},
	{"sync", verb_sync},
	{"trust", verb_trust},
	{"up", verb_up},
	{"verify", verb_verify},
	{"wait", verb_wait},
	{"why", verb_why},
	{NULL, NULL},
};
/* clang-format on */
