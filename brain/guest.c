#include "brain/guest.h"

#include <sys/stat.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/text.h"
#include "brain/attach.h"
#include "brain/life-impl.h"
#include "brain/link.h"

bool guest_may_say(const struct env *guest, const struct entry_head *e)
{
	(void)guest;
	switch (e->type) {
	case ENTRY_PLACES:
	case ENTRY_CHANGE:
	case ENTRY_PACK_FULL:
	case ENTRY_JOB_STARTED:
	case ENTRY_JOB_OUTPUT:
	case ENTRY_JOB_EXIT:
	case ENTRY_JOB_LIST: return false;
	default: return true;
	}
}

int guest_says(struct env *guest, const struct entry_head *e)
{
	switch (e->type) {
	case ENTRY_PLACES:
	case ENTRY_CHANGE:
	case ENTRY_PACK_FULL:
		/* Not of this log: nothing is taken from this line any more. */
		guest->guest_spoke = true;
		return -ESTALE;
	default: return 0; /* its jobs ended with its lease */
	}
}

static const char *judge_target(const struct env *guest, const struct entry_hello *h)
{
	const struct env *env = guest->guest_of;

	if (h->root_missing)
		return "it cannot be opened";
	if (h->has_mark && memcmp(h->mark, env->mark, sizeof(env->mark)) == 0)
		return "it lives in that directory now";
	if (h->root_empty)
		return NULL;
	if (!h->has_mark)
		return "it is not empty; empty it, or choose another directory";
	return attach_mark_is_ours(env, h->mark)
		       ? NULL
		       : "it carries another environment; choose another directory";
}

int guest_on_hello(struct env *guest, const struct entry_hello *h)
{
	const char *why = NULL;
	enum attach_mode mode = guest->guest_is_old ? ATTACH_SYNC : ATTACH_RESTORE;

	if (!guest->guest_is_old)
		why = judge_target(guest, h);
	else if (h->root_missing || !h->has_mark ||
		 memcmp(h->mark, guest->mark, sizeof(guest->mark)) != 0)
		why = "another root stands there now";
	env_clear_reason(guest, NULL);
	if (why) {
		char shown[256];

		text_escape_into(shown, sizeof(shown), guest->root ? guest->root : "",
				 guest->root ? strlen(guest->root) : 0);
		(void)env_set_reason(guest, "root_replaced", "'%s' there: %s", shown, why);
		life_attached(guest, ATTACH_HOLD);
		return -ESTALE;
	}
	attach_welcome(guest, mode, mode == ATTACH_RESTORE);
	if (guest->link)
		life_attached(guest, mode);
	return 0;
}

void guest_free(struct env *guest)
{
	if (!guest)
		return;
	guest->wanted = false;
	link_stop(guest, "this place is done with");
	if (guest->retry_ready) {
		uv_close((uv_handle_t *)&guest->retry, NULL);
		guest->retry_ready = false;
	}
	env_free_later(guest);
}

int guest_make_dirs(struct env *guest)
{
	char name[40];
	int r;

	env_place_name(guest, "hands", name);
	r = file_make_dir(guest->dir_fd, name);
	if (r < 0 || guest->user_root)
		return r;
	env_place_name(guest, "root", name);
	r = file_make_dir(guest->dir_fd, name);
	if (r == 0 && fchmodat(guest->dir_fd, name, 0755, 0) < 0)
		r = -errno;
	return r;
}

/* The name is free at once: the place may be made again while the removal runs. */
static void remove_dir(struct env *guest, const char *what)
{
	char name[40], gone[40];

	env_place_name(guest, what, name);
	(void)snprintf(gone, sizeof(gone), GUEST_GONE "%llx", (unsigned long long)clock_mono_ns());
	if (renameat(guest->dir_fd, name, guest->dir_fd, gone) == 0)
		life_remove_later(guest->brain, guest->dir_fd, gone);
}

void guest_remove_dirs(struct env *guest)
{
	if (!guest->user_root)
		remove_dir(guest, "root");
	remove_dir(guest, "hands");
}

void guest_remove_rest(struct env *env)
{
	char **names;
	size_t n;

	if (file_list(env->dir_fd, ".", 1 << 16, &names, &n) < 0)
		return;
	for (size_t i = 0; i < n; i++)
		if (strncmp(names[i], GUEST_GONE, strlen(GUEST_GONE)) == 0)
			life_remove_later(env->brain, env->dir_fd, names[i]);
	file_names_free(names, n);
}
