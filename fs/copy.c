#include "fs/copy.h"

#include <fcntl.h>
#include <stdbool.h>
#include <sys/stat.h>

#include "base/file.h"
#include "base/text.h"
#include "base/util.h"
#include "journal/registry.h"

#define ENVIRONMENTS_MAX 100000

static bool is_id(const char *name)
{
	uint8_t id[16];

	return text_unhex(id, sizeof(id), name) >= 0;
}

static int find_only(int state_fd, char ret_id[COPY_ID_HEX])
{
	const char *found = NULL;
	char **names;
	size_t n;
	int r;

	r = file_list(state_fd, "envs", ENVIRONMENTS_MAX, &names, &n);
	if (r < 0)
		return r;
	r = -ENOENT;
	for (size_t i = 0; i < n; i++) {
		if (!is_id(names[i]))
			continue;
		r = found ? -ENOTUNIQ : 0;
		found = names[i];
	}
	if (r == 0)
		memcpy(ret_id, found, COPY_ID_HEX);
	file_names_free(names, n);
	return r;
}

int copy_find(int state_fd, const char *name, char ret_id[COPY_ID_HEX])
{
	cleanup_close int log_fd = -1;
	uint8_t id[16];
	int r;

	if (!name)
		return find_only(state_fd, ret_id);
	if (is_id(name)) {
		memcpy(ret_id, name, COPY_ID_HEX);
		return 0;
	}
	log_fd = file_open_dir(state_fd, "brain/log");
	if (log_fd < 0)
		return log_fd;
	r = registry_find(log_fd, name, id);
	if (r >= 0)
		text_hex(ret_id, id, sizeof(id));
	return r;
}
