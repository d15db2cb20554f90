/* file_read, file_stat, file_search: what the journal knows, read by a helper thread. */
#include "brain/file-impl.h"

#include <stdio.h>

#include "base/clock.h"
#include "base/text.h"

enum {
	PIECE = 1 << 20,
	READ_LINES = 2000, /* unless asked otherwise */
	READ_BYTES = 256 << 10,
	READ_BYTES_MAX = 8 << 20,
	SCAN_MAX = 512 << 20, /* looked through for the lines that were asked for */

	SEARCH_LIMIT = 200,
	SEARCH_LIMIT_MAX = 5000,
	SEARCH_FILE_MAX = 8 << 20,
	SEARCH_MS = 10000,
	SEARCH_LINE = 300,
	SEARCH_WORD_MAX = 1024,
	BINARY_LOOK = 8192,
};

static int read_piece(struct env *env, const struct content_ref *ref, uint64_t at, size_t n,
		      struct buf *out)
{
	int r = content_read(ref, at, n, store_fetch_fn, env->brain->store, out);

	return r == 0 && buf_len(out) == 0 ? -EBADMSG : r;
}

/* ---- read ---- */

struct reading {
	int64_t first, limit; /* lines, from 1 */
	size_t max_bytes;
	/* what came of it */
	struct buf text;
	int64_t line;  /* the one that is being read */
	int64_t given; /* complete or begun */
	bool cut, full;
};

/* Takes the lines that are wanted of one piece; full: no more of it is wanted. */
static int take_lines(struct reading *rd, const uint8_t *p, size_t n)
{
	while (n && !rd->full) {
		const uint8_t *end = memchr(p, '\n', n);
		size_t len = end ? (size_t)(end - p) + 1 : n, room;
		int r;

		if (rd->line >= rd->first) {
			if (rd->line >= rd->first + rd->limit) {
				rd->full = true;
				return 0;
			}
			rd->given = rd->line - rd->first + 1;
			room = rd->max_bytes - buf_len(&rd->text);
			r = buf_add(&rd->text, p, MIN(len, room));
			if (r < 0)
				return r;
			if (len > room) {
				rd->cut = rd->full = true;
				return 0;
			}
		}
		rd->line += end != NULL;
		p += len;
		n -= len;
	}
	return 0;
}

static int read_lines(struct file_call *f, const struct content_ref *ref)
{
	struct reading *rd = f->priv;
	_cleanup_(buf_done) struct buf piece = BUF_INIT(PIECE + FRAME_RAW_MAX);
	uint64_t at = 0;
	int r = 0;

	while (r == 0 && !rd->full && at < ref->size_bytes) {
		if (at >= SCAN_MAX) {
			(void)snprintf(f->problem, sizeof(f->problem),
				       "line %lld lies too far in; use exec: sed -n",
				       (long long)rd->first);
			return -EFBIG;
		}
		buf_clear(&piece);
		r = read_piece(f->env, ref, at, PIECE, &piece);
		if (r == 0)
			r = take_lines(rd, buf_data(&piece), buf_len(&piece));
		at += buf_len(&piece);
	}
	return r;
}

static void read_answer(struct file_call *f, const struct index_node *n)
{
	struct reading *rd = f->priv;
	const uint8_t *text = buf_data(&rd->text);
	size_t len = buf_len(&rd->text), back = 0;
	json_t *o = f->result;

	/* A character that the limit cut in two is left out. */
	while (rd->cut && back < 4 && back < len && !text_utf8_ok(text, len - back))
		back++;
	if (back < 4 && back < len && text_utf8_ok(text, len - back))
		len -= back;
	verb_put_bytes(o, "content", text, len);
	(void)json_object_set_new(o, "first_line", json_integer(rd->first));
	(void)json_object_set_new(o, "lines", json_integer(rd->given));
	(void)json_object_set_new(o, "truncated", json_boolean(rd->full));
	/* A line that was cut is begun again, unless it is all there is. */
	if (rd->full)
		(void)json_object_set_new(
			o, "next_offset",
			json_integer(rd->first + rd->given - (rd->cut && rd->given > 1)));
	(void)json_object_set_new(o, "size_bytes",
				  json_integer((json_int_t)n->n.content.size_bytes));
	verb_put_hash(o, "sha256", n->n.content.sha256);
	(void)json_object_set_new(o, "mode", json_sprintf("%04o", n->n.mode));
	/* As cp says it: it was written while it was read there. */
	if (n->n.torn)
		(void)json_object_set_new(o, "changing", json_true());
}

static int read_run(struct file_call *f)
{
	_cleanup_(buf_done) struct buf path = BUF_INIT(INDEX_PATH_MAX);
	struct index_txn *t;
	struct index_node n;
	int r;

	r = env_read_begin(f->env, &t);
	if (r < 0)
		return r;
	r = file_find(f, t, true, &path, &n);
	if (r == 0 && n.n.type != NODE_TYPE_FILE)
		r = n.n.type == NODE_TYPE_DIRECTORY ? -EISDIR : -EINVAL;
	if (r == 0)
		f->result = file_answer(f, t, &path);
	/* The reference is copied, its content is not in the index. */
	index_read_end(t);
	if (r == 0)
		r = read_lines(f, &n.n.content);
	if (r == 0)
		read_answer(f, &n);
	return r;
}

static void read_done(struct file_call *f)
{
	struct reading *rd = f->priv;

	buf_done(&rd->text);
	free(rd);
}

void verb_file_read(struct call *call)
{
	struct file_call *f = file_call_new(call, read_run);
	struct reading *rd;

	if (!f)
		return;
	rd = calloc(1, sizeof(*rd));
	if (!rd) {
		file_call_fail(f, -ENOMEM);
		return;
	}
	rd->first = MAX((int64_t)1, call_int(call, "offset", 1));
	rd->limit = MIN(MAX((int64_t)1, call_int(call, "limit", READ_LINES)), INT64_MAX / 4);
	rd->first = MIN(rd->first, INT64_MAX / 4);
	rd->max_bytes = (size_t)MIN(MAX((int64_t)1, call_int(call, "max_bytes", READ_BYTES)),
				    (int64_t)READ_BYTES_MAX);
	rd->line = 1;
	buf_init(&rd->text, READ_BYTES_MAX);
	f->priv = rd;
	f->done = read_done;
	file_call_go(f);
}

/* ---- stat ---- */

static int stat_run(struct file_call *f)
{
	_cleanup_(buf_done) struct buf path = BUF_INIT(INDEX_PATH_MAX);
	const char *s, *slash;
	cleanup_free char *whole = NULL, *dir = NULL;
	struct index_txn *t;
	struct index_node n;
	json_t *entry;
	int r;

	r = env_read_begin(f->env, &t);
	if (r < 0)
		return r;
	r = file_find(f, t, false, &path, &n);
	if (r == 0)
		r = buf_to_str(&path, &whole);
	if (r == 0) {
		s = whole;
		slash = strrchr(s, '/');
		dir = strndup(s, slash ? (size_t)(slash - s) : 0);
		s = slash ? slash + 1 : s;
		entry = verb_entry_json(f->env, dir ? dir : "", s, strlen(s), &n);
		f->result = file_answer(f, t, &path);
		(void)json_object_update(f->result, entry);
		json_decref(entry);
	}
	index_read_end(t);
	return r;
}

void verb_file_stat(struct call *call)
{
	struct file_call *f = file_call_new(call, stat_run);

	if (f)
		file_call_go(f);
}

/* ---- search ---- */

struct search {
	char pattern[SEARCH_WORD_MAX + 1], text[SEARCH_WORD_MAX + 1];
	size_t text_len;
	bool ignore_case, whole_path, hidden;
	int64_t limit;
	uint64_t end_ms;
	/* under way */
	struct file_call *f;
	struct buf content, prefix;
	json_t *matches;
	const char *stopped;
	uint64_t files, skipped;
};

/* '*' any bytes, '?' one; no character can make this slow: one star is ever gone back to. */
static bool glob(const char *p, const char *s, const char *end)
{
	const char *star = NULL, *from = NULL;

	while (s < end) {
		if (*p == '*') {
			star = ++p;
			from = s;
		} else if (*p == '?' || (*p && *p == *s)) {
			p++;
			s++;
		} else if (star) {
			p = star;
			s = ++from;
		} else {
			return false;
		}
	}
	while (*p == '*')
		p++;
	return !*p;
}

static uint8_t fold(uint8_t c)
{
	return c >= 'A' && c <= 'Z' ? (uint8_t)(c + 32) : c;
}

static const uint8_t *find_text(const struct search *s, const uint8_t *p, size_t n)
{
	const uint8_t *text = (const uint8_t *)s->text;

	if (!s->ignore_case)
		return memmem(p, n, text, s->text_len);
	for (size_t i = 0; i + s->text_len <= n; i++) {
		size_t k = 0;

		while (k < s->text_len && fold(p[i + k]) == text[k])
			k++;
		if (k == s->text_len)
			return p + i;
	}
	return NULL;
}

static int add_match(struct search *s, const char *path, size_t len, int64_t line,
		     const uint8_t *text, size_t n)
{
	json_t *o = json_object();
	size_t keep = buf_len(&s->prefix);

	(void)buf_add(&s->prefix, path, len);
	verb_put_bytes(o, "path", buf_data(&s->prefix), buf_len(&s->prefix));
	s->prefix.end = s->prefix.start + keep;
	if (line) {
		n = MIN(n, (size_t)SEARCH_LINE);
		for (int i = 0; i < 3 && n && !text_utf8_ok(text, n); i++)
			n--;
		(void)json_object_set_new(o, "line", json_integer(line));
		verb_put_bytes(o, "text", text, n);
	}
	if (json_array_append_new(s->matches, o) < 0)
		return -ENOMEM;
	if ((int64_t)json_array_size(s->matches) >= s->limit) {
		s->stopped = "limit";
		return 1;
	}
	return 0;
}

static int search_content(struct search *s, const char *path, size_t len,
			  const struct content_ref *ref)
{
	const uint8_t *p, *end, *hit, *line_start;
	int64_t line = 1;
	int r = 0;

	if (ref->size_bytes == 0)
		return 0;
	if (ref->size_bytes > SEARCH_FILE_MAX) {
		s->skipped++;
		return 0;
	}
	buf_clear(&s->content);
	while (r == 0 && buf_len(&s->content) < ref->size_bytes)
		r = read_piece(s->f->env, ref, buf_len(&s->content),
			       (size_t)ref->size_bytes - buf_len(&s->content), &s->content);
	if (r < 0) { /* lost or damaged: said by `limb journal verify` */
		s->skipped++;
		return 0;
	}
	s->files++;
	p = line_start = buf_data(&s->content);
	end = p + buf_len(&s->content);
	if (memchr(p, 0, MIN((size_t)BINARY_LOOK, buf_len(&s->content))))
		return 0;
	while (r == 0 && (hit = find_text(s, p, (size_t)(end - p)))) {
		const uint8_t *nl;

		while ((nl = memchr(line_start, '\n', (size_t)(hit - line_start)))) {
			line++;
			line_start = nl + 1;
		}
		nl = memchr(hit, '\n', (size_t)(end - hit));
		r = add_match(s, path, len, line, line_start,
			      (size_t)((nl ? nl : end) - line_start));
		if (!nl)
			break;
		p = line_start = nl + 1;
		line++;
	}
	return r;
}

static int search_entry(const char *path, size_t len, const struct index_node *n, uint32_t same_as,
			void *userdata)
{
	struct search *s = userdata;
	const char *name = memrchr(path, '/', len);

	(void)same_as;
	name = name ? name + 1 : path;
	if (clock_mono_ms() > s->end_ms) {
		s->stopped = "time";
		return 1;
	}
	if (!s->hidden &&
	    (memmem(path, len, "/.git/", 6) || (len > 5 && !memcmp(path, ".git/", 5))))
		return 0;
	if (s->pattern[0] && !glob(s->pattern, s->whole_path ? path : name, path + len))
		return 0;
	if (!s->text_len)
		return s->pattern[0] ? add_match(s, path, len, 0, NULL, 0) : 0;
	if (n->n.type != NODE_TYPE_FILE)
		return 0;
	return search_content(s, path, len, &n->n.content);
}

static int search_run(struct file_call *f)
{
	struct search *s = f->priv;
	_cleanup_(buf_done) struct buf path = BUF_INIT(INDEX_PATH_MAX);
	struct index_txn *t;
	struct index_node n;
	int r;

	r = env_read_begin(f->env, &t);
	if (r < 0)
		return r;
	s->end_ms = clock_mono_ms() + SEARCH_MS;
	r = file_find(f, t, true, &path, &n);
	if (r == 0) {
		f->result = file_answer(f, t, &path);
		(void)buf_add(&s->prefix, buf_data(&path), buf_len(&path));
	}
	if (r == 0 && n.n.type == NODE_TYPE_FILE && s->text_len) {
		r = search_content(s, "", 0, &n.n.content);
	} else if (r == 0) {
		if (buf_len(&path))
			(void)buf_add_u8(&s->prefix, '/');
		r = n.n.type == NODE_TYPE_DIRECTORY ? index_walk(t, n.id, f->at, search_entry, s)
						    : -ENOTDIR;
	}
	index_read_end(t);
	if (r < 0)
		return r;
	(void)json_object_set(f->result, "matches", s->matches);
	(void)json_object_set_new(f->result, "truncated", json_boolean(s->stopped != NULL));
	if (s->stopped)
		(void)json_object_set_new(f->result, "stopped_by", json_string(s->stopped));
	(void)json_object_set_new(f->result, "files_searched", json_integer((json_int_t)s->files));
	(void)json_object_set_new(f->result, "files_skipped", json_integer((json_int_t)s->skipped));
	return 0;
}

static void search_done(struct file_call *f)
{
	struct search *s = f->priv;

	buf_done(&s->content);
	buf_done(&s->prefix);
	json_decref(s->matches);
	free(s);
}

/* "**" and a slash stand for any directories, also none. */
static void take_pattern(struct search *s, const char *p)
{
	size_t n = 0;

	s->whole_path = strchr(p, '/') != NULL;
	s->hidden = strstr(p, ".git") != NULL;
	while (*p) {
		if (strncmp(p, "**/", 3) == 0 && (n == 0 || s->pattern[n - 1] == '/')) {
			s->pattern[n++] = '*';
			p += 3;
		} else {
			s->pattern[n++] = *p++;
		}
	}
}

void verb_file_search(struct call *call)
{
	const char *pattern = call_str(call, "pattern"), *text = call_str(call, "text");
	struct file_call *f = file_call_new(call, search_run);
	struct search *s;

	if (!f)
		return;
	s = calloc(1, sizeof(*s));
	if (!s) {
		file_call_fail(f, -ENOMEM);
		return;
	}
	f->priv = s;
	f->done = search_done;
	s->f = f;
	s->matches = json_array();
	buf_init(&s->content, SEARCH_FILE_MAX + FRAME_RAW_MAX);
	buf_init(&s->prefix, 2 * INDEX_PATH_MAX);
	if ((!pattern && !text) || (pattern && strlen(pattern) > SEARCH_WORD_MAX) ||
	    (text && (!*text || strlen(text) > SEARCH_WORD_MAX))) {
		f->code = "usage";
		(void)snprintf(
			f->problem, sizeof(f->problem),
			"a search wants a pattern of names (*.c) or a text, or both, each of "
			"1 to %d bytes",
			(int)SEARCH_WORD_MAX);
		file_call_fail(f, -EINVAL);
		return;
	}
	if (pattern)
		take_pattern(s, pattern);
	s->ignore_case = call_bool(call, "ignore_case");
	for (; text && text[s->text_len]; s->text_len++)
		s->text[s->text_len] = s->ignore_case ? (char)fold((uint8_t)text[s->text_len])
						      : text[s->text_len];
	s->limit = MIN(MAX((int64_t)1, call_int(call, "limit", SEARCH_LIMIT)),
		       (int64_t)SEARCH_LIMIT_MAX);
	file_call_go(f);
}
