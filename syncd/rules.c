#include "syncd/rules.h"

#include <fcntl.h>
#include <sys/stat.h>

#include "base/beneath.h"
#include "base/io.h"
#include "syncd/plan.h"
#include "syncd/state.h"

enum { BYTES_MAX = 512 << 10 }; /* of all files: they go into one frame */

bool rules_is_name(const char *name, size_t len)
{
	return len == sizeof(RULES_NAME) - 1 && memcmp(name, RULES_NAME, len) == 0;
}

static void file_free(struct rules *ru, size_t i)
{
	ru->bytes -= ru->files[i].len;
	free(ru->files[i].text);
	ru->files[i] = ru->files[--ru->n_files];
}

static void files_free(struct rules *ru)
{
	while (ru->n_files)
		file_free(ru, ru->n_files - 1);
}

void rules_done(struct rules *ru)
{
	files_free(ru);
	free(ru->files);
	free(ru->person);
	ignore_done(&ru->said);
	*ru = (struct rules){0};
}

/* ---- what is in force ---- */

static void add_file(struct sync *sy, const struct rules_file *f)
{
	cleanup_free char *path = shadow_path(&sy->shadow, f->dir, "", 0);

	/* What is too much is not taken: less is left out. */
	if (path)
		(void)ignore_add(&sy->rules.said, path, f->text, f->len);
}

static int by_dir(const void *a, const void *b)
{
	const struct rules_file *x = a, *y = b;

	return x->dir < y->dir ? -1 : x->dir > y->dir;
}

static void make_anew(struct sync *sy)
{
	struct rules *ru = &sy->rules;

	ignore_done(&ru->said);
	if (ru->person)
		(void)ignore_add(&ru->said, NULL, ru->person, ru->person_len);
	if (ru->n_files)
		qsort(ru->files, ru->n_files, sizeof(*ru->files), by_dir);
	for (size_t i = 0; i < ru->n_files; i++)
		add_file(sy, &ru->files[i]);
	ru->gone = false;
	ru->unsent = true;
}

static void flag_dir(struct sync *sy, uint32_t e)
{
	uint32_t n = shadow_entry(&sy->shadow, e)->node, flags;
	struct shadow_dir *d = shadow_dir(&sy->shadow, n);
	cleanup_free char *path = NULL;
	bool covered;

	if (!d)
		return;
	path = shadow_path(&sy->shadow, n, "", 0);
	covered = path && ignore_covers(&sy->rules.said, path, true, NULL);
	flags = shadow_node(&sy->shadow, n)->flags;
	if (covered == !!(flags & SHADOW_IGNORED))
		return;
	shadow_node(&sy->shadow, n)->flags = flags ^ SHADOW_IGNORED;
	if (covered) {
		if (d->wd && sy->watch)
			watch_remove(sy->watch, d->wd);
		d->wd = 0;
		sync_set_polled(sy, n, false);
		rules_count(sy, n, 0, 0);
		status_changed(sy);
	}
}

/* The directories beneath one are judged anew; the root's: all. */
static void flag_dirs(struct sync *sy, uint32_t dir)
{
	uint32_t top = dir == SHADOW_ROOT ? 0 : shadow_node(&sy->shadow, dir)->entries;

	for (uint32_t e = shadow_dir(&sy->shadow, dir)->first; e;
	     e = shadow_next(&sy->shadow, e, top))
		flag_dir(sy, e);
}

/* ---- files ---- */

static size_t file_of(const struct rules *ru, uint32_t dir)
{
	size_t i = 0;

	while (i < ru->n_files && ru->files[i].dir != dir)
		i++;
	return i;
}

static char *read_text(struct sync *sy, uint32_t dir, size_t *ret_len)
{
	cleanup_free char *path = shadow_path(&sy->shadow, dir, RULES_NAME, sizeof(RULES_NAME) - 1);
	cleanup_close int dir_fd = -1, fd = -1;
	const char *name;
	struct stat st;
	char *text;
	ssize_t n;

	if (!path || beneath_open_parent(sy->root.fd, path, &dir_fd, &name) < 0)
		return NULL;
	fd = openat(dir_fd, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
	if (fd < 0 || fstat(fd, &st) < 0 || !S_ISREG(st.st_mode) || st.st_size > IGNORE_TEXT_MAX)
		return NULL;
	text = malloc(IGNORE_TEXT_MAX + 1);
	n = text ? io_read_full(fd, text, IGNORE_TEXT_MAX + 1, "rules.read") : -1;
	if (n < 0 || n > IGNORE_TEXT_MAX) {
		free(text);
		return NULL;
	}
	*ret_len = (size_t)n;
	return text;
}

static bool file_add(struct sync *sy, uint32_t dir, const struct stamp *st)
{
	struct rules *ru = &sy->rules;
	struct rules_file *more, f = {.dir = dir, .st = *st};

	if (ru->n_files == IGNORE_FILES_MAX - 1)
		return false;
	f.text = read_text(sy, dir, &f.len);
	if (!f.text || ru->bytes + f.len > BYTES_MAX) {
		free(f.text);
		return false;
	}
	more = reallocarray(ru->files, ru->n_files + 1, sizeof(*more));
	if (!more) {
		free(f.text);
		return false;
	}
	ru->files = more;
	ru->files[ru->n_files++] = f;
	ru->bytes += f.len;
	return true;
}

void rules_look(struct sync *sy, const struct item *it, const struct stamp *st, bool scanning)
{
	uint32_t dir = it->dir;
	struct rules *ru = &sy->rules;
	size_t i = file_of(ru, dir);
	bool had = i < ru->n_files, has;

	if (ru->no_files || (!had && !st) || (had && st && stamp_same(&ru->files[i].st, st)))
		return;
	if (had)
		file_free(ru, i);
	has = st && S_ISREG(st->mode) && file_add(sy, dir, st);
	if (!had && !has)
		return;
	if (had || ru->gone) {
		make_anew(sy);
	} else {
		add_file(sy, &ru->files[ru->n_files - 1]);
		ru->unsent = true;
	}
	flag_dirs(sy, dir);
	/* What is left out no more is found, and what is left out now is counted. */
	if (had || !scanning)
		sync_rescan(sy, it);
}

void rules_count(struct sync *sy, uint32_t dir, uint32_t names, uint64_t bytes)
{
	struct shadow_dir *d = shadow_dir(&sy->shadow, dir);
	struct status *s = &sy->status;

	if (d->ignored_names == names && d->ignored_bytes == bytes)
		return;
	s->ignored_names += (uint64_t)names - d->ignored_names;
	s->ignored_bytes += bytes - d->ignored_bytes;
	d->ignored_names = names;
	d->ignored_bytes = bytes;
	status_changed(sy);
}

void rules_dir_left(struct sync *sy, uint32_t dir)
{
	size_t i = file_of(&sy->rules, dir);

	rules_count(sy, dir, 0, 0);
	if (i == sy->rules.n_files)
		return;
	file_free(&sy->rules, i);
	sy->rules.gone = true;
}

void rules_dir_moved(struct sync *sy, uint32_t dir)
{
	struct rules *ru = &sy->rules;
	bool moved = false;

	if (!ru->said.n_rules)
		return;
	for (size_t i = 0; i < ru->n_files && !moved; i++)
		moved = shadow_is_beneath(&sy->shadow, ru->files[i].dir, dir);
	if (moved)
		make_anew(sy);
	flag_dir(sy, shadow_node(&sy->shadow, dir)->entries);
	flag_dirs(sy, dir);
	/* Other rules are for what is in it now. */
	(void)dirty_mark(&sy->dirty, ITEM_LIST, dir, "", 0, ITEM_SCAN | ITEM_DEEP, sy->emit.from);
}

/* ---- the line ---- */

void rules_forget(struct sync *sy)
{
	files_free(&sy->rules);
	make_anew(sy);
	sy->status.ignored_names = sy->status.ignored_bytes = 0;
}

void rules_welcome(struct sync *sy, const Limbwire__Welcome *w)
{
	struct rules *ru = &sy->rules;
	_cleanup_(buf_done) struct buf b = BUF_INIT(IGNORE_TEXT_MAX);
	bool changed;
	int r = 0;

	for (size_t i = 0; i < w->n_ignore && r == 0; i++) {
		r = buf_add(&b, w->ignore[i].data, w->ignore[i].len);
		if (r == 0)
			r = buf_add_u8(&b, '\n');
	}
	changed = ru->no_files != w->no_ignore_files || ru->person_len != buf_len(&b) ||
		  (ru->person && memcmp(ru->person, buf_data(&b), ru->person_len) != 0);
	ru->unsent = ru->said.n_files > 0;
	if (!changed)
		return;
	ru->no_files = w->no_ignore_files;
	if (ru->no_files)
		files_free(ru);
	free(ru->person);
	ru->person = NULL;
	ru->person_len = buf_len(&b);
	(void)buf_to_str(&b, &ru->person);
	make_anew(sy);
	if (sy->filled) {
		flag_dirs(sy, SHADOW_ROOT);
		sync_rescan(sy, NULL);
	}
}

static void send_all(struct sync *sy)
{
	const struct ignore *ig = &sy->rules.said;
	Limbwire__Ignores m = LIMBWIRE__IGNORES__INIT;
	Limbwire__Ignores__File *files = calloc(ig->n_files + 1, sizeof(*files));
	Limbwire__Ignores__File **ptrs = calloc(ig->n_files + 1, sizeof(*ptrs));

	for (size_t i = 0; files && ptrs && i < ig->n_files; i++) {
		const struct ignore_file *f = &ig->files[i];

		limbwire__ignores__file__init(&files[i]);
		files[i].dir = (ProtobufCBinaryData){strlen(f->dir), (uint8_t *)f->dir};
		files[i].text = (ProtobufCBinaryData){strlen(f->text), (uint8_t *)f->text};
		files[i].person = f->person;
		ptrs[m.n_files++] = &files[i];
	}
	m.files = ptrs;
	if (files && ptrs)
		(void)session_send(sy->session, SESSION_BULK, WIRE_IGNORES, &m.base, NULL, 0);
	free(files);
	free(ptrs);
}

void rules_pump(struct sync *sy)
{
	struct rules *ru = &sy->rules;

	if (ru->gone)
		make_anew(sy);
	if (!ru->unsent)
		return;
	ru->unsent = false;
	send_all(sy);
}
