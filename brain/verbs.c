#include "brain/life.h"
#include "brain/point.h"
#include "brain/rpc-server.h"
#include "brain/verb.h"

/* clang-format off */
const struct verb verbs[] = {
	{"accept", verb_accept},
	{"cp", verb_cp},
	{"create", life_create},
	{"down", verb_down},
	{"exec", verb_exec},
	{"inspect", verb_inspect},
	{"label", verb_label},
	{"ls", verb_ls},
	{"mv", verb_mv},
	{"points", verb_points},
	{"ps", verb_ps},
	{"rebuild", life_rebuild},
	{"rm", verb_rm},
	{"start", life_start},
	{"status", verb_status},
	{"stop", life_stop},
	{"sync", verb_sync},
	{"trust", verb_trust},
	{"up", verb_up},
	{"verify", verb_verify},
	{NULL, NULL},
};
/* clang-format on */
