#include "base/ignore.h"

#include <ctype.h>

#include "base/util.h"

/* Some 10^9 steps take a second. */
#define STEPS_BASE (10ull * 1000 * 1000 * 1000)
#define STEPS_NAME (1000ull * 1000)

/* ---- one pattern ---- */

/*
 * A pattern is a list of pieces, and all places in it that the bytes so far can have led to
 * are kept at once: no text makes this slower than its length allows.
 */
enum piece_kind {
	PIECE_BYTE,
	PIECE_ANY,   /* ? */
	PIECE_SET,   /* [...] */
	PIECE_STAR,  /* bytes but '/' */
	PIECE_STARS, /* any bytes */
	PIECE_DIRS,  /* nothing, or any bytes and a '/' */
};

struct piece {
	uint8_t kind, byte;
	uint32_t set[8];
};

static bool in_class(const char *name, size_t len, int c)
{
	static const struct {
		const char *name;
		int (*is)(int c);
	} classes[] = {
		{"alnum", isalnum}, {"alpha", isalpha}, {"blank", isblank}, {"cntrl", iscntrl},
		{"digit", isdigit}, {"graph", isgraph}, {"lower", islower}, {"print", isprint},
		{"punct", ispunct}, {"space", isspace}, {"upper", isupper}, {"xdigit", isxdigit},
	};

	for (size_t i = 0; i < ARRAY_SIZE(classes); i++)
		if (strlen(classes[i].name) == len && memcmp(classes[i].name, name, len) == 0)
			return c < 128 && classes[i].is(c);
	return false;
}

static bool is_class(const char *name, size_t len)
{
	static const char *const names[] = {"alnum", "alpha", "blank", "cntrl", "digit", "graph",
					    "lower", "print", "punct", "space", "upper", "xdigit"};

	for (size_t i = 0; i < ARRAY_SIZE(names); i++)
		if (strlen(names[i]) == len && memcmp(names[i], name, len) == 0)
			return true;
	return false;
}

static void set_add(struct piece *p, unsigned from, unsigned to)
{
	for (unsigned c = from; c <= to; c++)
		p->set[c / 32] |= 1u << (c % 32);
}

/* s: behind the '['. Returns what follows the ']', NULL: it never ends, and matches nothing. */
static const char *set_read(struct piece *p, const char *s, const char *end)
{
	bool negated = s < end && (*s == '!' || *s == '^');
	int before = -1; /* may begin a range */

	*p = (struct piece){.kind = PIECE_SET};
	s += negated;
	for (bool first = true; s < end && (first || *s != ']'); first = false) {
		unsigned char c = (unsigned char)*s++;

		if (c == '-' && before >= 0 && s < end && *s != ']') {
			c = (unsigned char)*s++;
			if (c == '\\') {
				if (s == end)
					return NULL;
				c = (unsigned char)*s++;
			}
			set_add(p, (unsigned)before, c);
			before = -1;
			continue;
		}
		if (c == '[' && s < end && *s == ':') {
			const char *name = s + 1, *close = memchr(name, ']', (size_t)(end - name));

			if (!close)
				return NULL;
			if (close > name && close[-1] == ':') {
				size_t len = (size_t)(close - 1 - name);

				if (!is_class(name, len))
					return NULL;
				for (int k = 0; k < 256; k++)
					if (in_class(name, len, k))
						set_add(p, (unsigned)k, (unsigned)k);
				s = close + 1;
				before = -1;
				continue;
			}
		} else if (c == '\\') {
			if (s == end)
				return NULL;
			c = (unsigned char)*s++;
		}
		set_add(p, c, c);
		before = c;
	}
	if (s >= end)
		return NULL;
	for (int i = 0; i < 8 && negated; i++)
		p->set[i] = ~p->set[i];
	p->set['/' / 32] &= ~(1u << ('/' % 32));
	return s + 1;
}

/* Stars that begin at s: two or more between slashes go over them. */
static const char *stars_read(struct piece *p, const char *begin, const char *s, const char *end)
{
	const char *after = s;

	while (after < end && *after == '*')
		after++;
	p->kind = PIECE_STAR;
	if (after - s < 2 || (s > begin && s[-1] != '/'))
		return after;
	if (after == end) {
		p->kind = PIECE_STARS;
	} else if (*after == '/') {
		p->kind = PIECE_DIRS;
		after++;
	} else if (*after == '\\' && after + 1 < end && after[1] == '/') {
		p->kind = PIECE_STARS;
	}
	return after;
}

/* The number of pieces, or -1: it matches nothing. */
static int pieces_read(struct piece pieces[IGNORE_PATTERN_MAX], const char *begin, const char *end)
{
	int n = 0;

	for (const char *s = begin; s < end; n++) {
		struct piece *p = &pieces[n];

		*p = (struct piece){.kind = PIECE_BYTE, .byte = (uint8_t)*s};
		switch (*s) {
		case '?':
			p->kind = PIECE_ANY;
			s++;
			break;
		case '*': s = stars_read(p, begin, s, end); break;
		case '[':
			s = set_read(p, s + 1, end);
			if (!s)
				return -1;
			break;
		case '\\':
			if (++s == end)
				return -1;
			p->byte = (uint8_t)*s;
			s++;
			break;
		default: s++;
		}
	}
	return n;
}

static bool takes(const struct piece *p, uint8_t c)
{
	switch (p->kind) {
	case PIECE_BYTE: return p->byte == c;
	case PIECE_ANY: return c != '/';
	case PIECE_SET: return p->set[c / 32] >> (c % 32) & 1;
	default: return false;
	}
}

/* Place i is reached, and with it those behind pieces that may be empty. */
static void reach(bool *at, const struct piece *pieces, int n, int i)
{
	for (; i <= n && !at[i]; i++) {
		at[i] = true;
		if (i == n || pieces[i].kind < PIECE_STAR)
			return;
	}
}

/* False: there are not that many left. */
static bool spend(uint64_t *left, uint64_t steps)
{
	if (!left)
		return true;
	*left -= MIN(*left, steps);
	return *left > 0;
}

static bool glob(const char *pattern, size_t len, const char *text, uint64_t *left)
{
	struct piece pieces[IGNORE_PATTERN_MAX];
	bool now[IGNORE_PATTERN_MAX + 1] = {false}, next[IGNORE_PATTERN_MAX + 1];
	int n = pieces_read(pieces, pattern, pattern + len);
	bool any = n > 0;

	if (n == 0)
		return !*text;
	if (!spend(left, (uint64_t)(n + 1) * strlen(text)))
		return false;
	if (any)
		reach(now, pieces, n, 0);
	for (const uint8_t *c = (const uint8_t *)text; *c && any; c++) {
		memset(next, 0, (size_t)n + 1);
		any = false;
		for (int i = 0; i < n; i++) {
			const struct piece *p = &pieces[i];

			if (!now[i])
				continue;
			any = true;
			if (takes(p, *c))
				reach(next, pieces, n, i + 1);
			else if (p->kind == PIECE_STARS || (p->kind == PIECE_STAR && *c != '/'))
				reach(next, pieces, n, i);
			else if (p->kind == PIECE_DIRS) {
				/* It goes on, without being empty any more; a '/' may end it. */
				next[i] = true;
				if (*c == '/')
					reach(next, pieces, n, i + 1);
			}
		}
		memcpy(now, next, (size_t)n + 1);
	}
	return any && now[n];
}

/* ---- one line ---- */

static bool is_special(char c)
{
	return c == '*' || c == '?' || c == '[' || c == '\\';
}

/* Spaces at the end do not count, unless a backslash is before the first of them. */
static size_t trimmed(const char *s, size_t n)
{
	size_t end = 0;

	for (size_t i = 0; i < n; i++) {
		if (s[i] == '\\') {
			if (++i >= n)
				return n;
			end = i + 1;
		} else if (s[i] != ' ') {
			end = i + 1;
		}
	}
	return end;
}

static bool rule_read(struct ignore_rule *r, const char *s, size_t n, uint32_t line)
{
	if (n && s[n - 1] == '\r')
		n--;
	if (!n || *s == '#')
		return false;
	n = trimmed(s, n);
	*r = (struct ignore_rule){.line = line};
	if (n && *s == '!') {
		r->negative = true;
		s++;
		n--;
	}
	if (n && s[n - 1] == '/') {
		r->dir_only = true;
		n--;
	}
	r->anchored = memchr(s, '/', n) != NULL;
	if (n && r->anchored && *s == '/') {
		s++;
		n--;
	}
	if (!n || n >= IGNORE_PATTERN_MAX || memchr(s, 0, n))
		return false;
	r->pattern = s;
	r->len = (uint16_t)n;
	while (r->plain < n && !is_special(s[r->plain]))
		r->plain++;
	return true;
}

/* text: the path from the rule's directory, or for a rule without '/' the name. */
static bool rule_matches(const struct ignore_rule *r, const char *text, uint64_t *left)
{
	if (strncmp(r->pattern, text, r->plain) != 0)
		return false;
	if (r->plain == r->len)
		return text[r->len] == 0;
	/* *.o */
	if (!r->anchored && r->pattern[0] == '*') {
		size_t n = strlen(text), tail = (size_t)r->len - 1;
		bool plain = true;

		for (size_t i = 1; i < r->len && plain; i++)
			plain = !is_special(r->pattern[i]);
		if (plain)
			return n >= tail && memcmp(text + n - tail, r->pattern + 1, tail) == 0;
	}
	/* As git does: what is plain goes first, so a** is as good as a and then **. */
	if (r->anchored)
		return glob(r->pattern + r->plain, (size_t)r->len - r->plain, text + r->plain,
			    left);
	return glob(r->pattern, r->len, text, left);
}

/* ---- files ---- */

static void file_done(struct ignore_file *f)
{
	free(f->dir);
	free(f->text);
	free(f->rules);
	*f = (struct ignore_file){0};
}

void ignore_done(struct ignore *ig)
{
	for (size_t i = 0; i < ig->n_files; i++)
		file_done(&ig->files[i]);
	free(ig->files);
	*ig = (struct ignore){0};
}

static int file_read_rules(struct ignore_file *f, size_t len)
{
	const char *s = f->text, *end = f->text + len, *eol;
	size_t cap = 0;

	if (len >= 3 && memcmp(s, "\xef\xbb\xbf", 3) == 0)
		s += 3;
	for (uint32_t line = 1; s < end; line++, s = eol + 1) {
		struct ignore_rule r;

		eol = memchr(s, '\n', (size_t)(end - s));
		if (!eol)
			eol = end;
		if (!rule_read(&r, s, (size_t)(eol - s), line))
			continue;
		if (f->n == cap) {
			struct ignore_rule *more;

			cap = cap ? cap * 2 : 16;
			more = reallocarray(f->rules, cap, sizeof(*more));
			if (!more)
				return -ENOMEM;
			f->rules = more;
		}
		f->rules[f->n++] = r;
	}
	return 0;
}

int ignore_add(struct ignore *ig, const char *dir, const void *text, size_t len)
{
	struct ignore_file f = {.person = !dir}, *files;
	int r;

	len = strnlen(text, len);
	if (len > IGNORE_TEXT_MAX || ig->n_files >= IGNORE_FILES_MAX)
		return -E2BIG;
	f.dir = strdup(dir ? dir : "");
	f.text = malloc(len + 1);
	r = f.dir && f.text ? 0 : -ENOMEM;
	if (r == 0) {
		memcpy(f.text, text, len);
		f.text[len] = 0;
		r = file_read_rules(&f, len);
	}
	if (r == 0 && ig->n_rules + f.n > IGNORE_RULES_MAX)
		r = -E2BIG;
	files = r == 0 ? reallocarray(ig->files, ig->n_files + 1, sizeof(*files)) : NULL;
	if (!files) {
		file_done(&f);
		return r < 0 ? r : -ENOMEM;
	}
	ig->files = files;
	ig->files[ig->n_files++] = f;
	ig->n_rules += f.n;
	return 0;
}

int ignore_copy(struct ignore *to, const struct ignore *from)
{
	for (size_t i = 0; i < from->n_files; i++) {
		const struct ignore_file *f = &from->files[i];
		int r = ignore_add(to, f->person ? NULL : f->dir, f->text, strlen(f->text));

		if (r < 0)
			return r;
	}
	return 0;
}

void ignore_bound(struct ignore *ig, uint64_t n, uint64_t *left)
{
	*left = STEPS_BASE + n * STEPS_NAME;
	ig->left = left;
}

/* ---- asking ---- */

static const struct ignore_rule *file_says(const struct ignore_file *f, const char *path,
					   const char *name, bool is_dir, uint64_t *left)
{
	size_t len = strlen(f->dir);

	if (len && (strncmp(path, f->dir, len) != 0 || path[len] != '/'))
		return NULL;
	for (size_t i = f->n; i-- > 0;) {
		const struct ignore_rule *r = &f->rules[i];

		if ((is_dir || !r->dir_only) &&
		    rule_matches(r, r->anchored ? path + len + (len > 0) : name, left))
			return r;
	}
	return NULL;
}

bool ignore_match(const struct ignore *ig, const char *path, bool is_dir,
		  struct ignore_hit *ret_hit)
{
	const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
	struct ignore_hit hit = {0};
	size_t depth = 0;

	for (size_t i = 0; i < ig->n_files; i++) {
		const struct ignore_file *f = &ig->files[i];
		const struct ignore_rule *r;
		size_t len = f->person ? SIZE_MAX : strlen(f->dir);

		/* Of those whose directories lead to the path the longest is the nearest. */
		if (hit.rule && len <= depth)
			continue;
		r = file_says(f, path, name, is_dir, ig->left);
		if (!r)
			continue;
		hit = (struct ignore_hit){f, r};
		depth = len;
	}
	if (ret_hit)
		*ret_hit = hit;
	return hit.rule && !hit.rule->negative;
}

bool ignore_covers(const struct ignore *ig, const char *path, bool is_dir,
		   struct ignore_hit *ret_hit)
{
	cleanup_free char *part = NULL;
	bool covered = false;

	if (!ig->n_rules) {
		if (ret_hit)
			*ret_hit = (struct ignore_hit){0};
		return false;
	}
	part = strdup(path);
	if (!part)
		return false;
	for (char *slash = strchr(part, '/'); slash && !covered; slash = strchr(slash + 1, '/')) {
		*slash = 0;
		covered = ignore_match(ig, part, true, ret_hit);
		*slash = '/';
	}
	return covered || ignore_match(ig, path, is_dir, ret_hit);
}
