/*
 * bench-tree - the tree that the benchmarks measure with
 *
 *	bench-tree DIR FILES DIRECTORIES BYTES
 *
 * makes DIR (which must not be there) with that many files and directories and about
 * that many bytes. The same arguments give the same names, bytes and times on every
 * machine. Sizes are skewed as in source trees: most files are small, a few have
 * hundreds of kilobytes. Contents are lines made of words: some lines recur, about
 * every file has some of its own, and one file in twenty is a copy of another.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define WORDS 4096
#define LINES 8192
#define LINE_MAX_BYTES 160
#define PATH_BYTES 512
#define DEPTH_MAX 9
#define FILE_MAX_BYTES (1 << 20)
/* 2024-01-01; what is made gets a time after it, seconds apart. */
#define EPOCH_S 1704067200

struct word {
	char text[16];
	unsigned len;
};

struct line {
	char text[LINE_MAX_BYTES];
	unsigned len;
};

static struct word words[WORDS];
static struct line lines[LINES];
static uint64_t prng_state = 0x6c696d62;
static char content[FILE_MAX_BYTES + LINE_MAX_BYTES];

/* splitmix64 */
static uint64_t prng(void)
{
	uint64_t z = prng_state += 0x9e3779b97f4a7c15u;

	z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
	z = (z ^ z >> 27) * 0x94d049bb133111ebu;
	return z ^ z >> 31;
}

static unsigned below(unsigned n)
{
	return (unsigned)((prng() >> 32) * n >> 32);
}

/* Small numbers more often, as words are in a text. */
static unsigned skewed_below(unsigned n)
{
	return (unsigned)((uint64_t)below(n) * below(n) / n);
}

static void die(const char *what)
{
	fprintf(stderr, "bench-tree: %s: %s\n", what, strerror(errno));
	exit(1);
}

static void make_words(void)
{
	static const char vowels[] = "aeiou", others[] = "bcdfghklmnprstvz_";

	for (unsigned i = 0; i < WORDS; i++) {
		words[i].len = 2 + below(9);
		for (unsigned j = 0; j < words[i].len; j++)
			words[i].text[j] = j % 2 ? vowels[below(5)] : others[below(16)];
	}
}

static void make_line(struct line *line)
{
	unsigned n = 2 + below(9), indent = below(4);

	memset(line->text, '\t', indent);
	line->len = indent;
	while (n--) {
		const struct word *w = &words[skewed_below(WORDS)];

		memcpy(line->text + line->len, w->text, w->len);
		line->len += w->len;
		line->text[line->len++] = " (,;)."[below(6)];
	}
	line->text[line->len++] = '\n';
}

/* Five files in six are smaller than the mean. The factor makes it the mean. */
static size_t file_size(size_t mean_bytes)
{
	size_t size;

	mean_bytes = mean_bytes * 14 / 11;
	size = mean_bytes / 8 + below((unsigned)(mean_bytes / 2));

	if (below(6) == 0)
		size += below((unsigned)(mean_bytes * 3));
	if (below(200) == 0)
		size += below((unsigned)(mean_bytes * 64));
	return size < FILE_MAX_BYTES ? size : FILE_MAX_BYTES;
}

static size_t make_content(size_t size)
{
	struct line line;
	size_t n = 0;

	while (n < size) {
		const struct line *l = &lines[skewed_below(LINES)];

		if (below(4) == 0) {
			make_line(&line);
			l = &line;
		}
		memcpy(content + n, l->text, l->len);
		n += l->len;
	}
	return size;
}

static void set_time(const char *path, unsigned at)
{
	struct timespec times[2] = {{EPOCH_S + at, 0}, {EPOCH_S + at, at * 1000u}};

	if (utimensat(AT_FDCWD, path, times, 0) < 0)
		die(path);
}

static void make_file(const char *path, size_t size, unsigned at)
{
	int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, at % 16 ? 0644 : 0755);

	if (fd < 0 || write(fd, content, size) != (ssize_t)size || close(fd) < 0)
		die(path);
	set_time(path, at);
}

static void name_word(char *to, size_t size, unsigned number, const char *suffix)
{
	const struct word *w = &words[number % WORDS];

	snprintf(to, size, "%.*s%u%s", (int)w->len, w->text, number, suffix);
}

/* Directory 0 is the root; each other one lies in one that was made before. */
static char (*make_directories(const char *root, unsigned n))[PATH_BYTES]
{
	char(*paths)[PATH_BYTES] = calloc(n + 1, sizeof(*paths));
	unsigned char *depths = calloc(n + 1, 1);

	if (!paths || !depths)
		die("memory");
	snprintf(paths[0], PATH_BYTES, "%s", root);
	if (mkdir(root, 0755) < 0)
		die(root);
	for (unsigned i = 1; i <= n; i++) {
		unsigned parent = skewed_below(i);
		char name[32], path[PATH_BYTES];

		if (depths[parent] == DEPTH_MAX)
			parent = 0;
		depths[i] = depths[parent] + 1;
		name_word(name, sizeof(name), i, "");
		/* Not in place: both are rows of one array, which the compiler cannot tell apart. */
		if ((size_t)snprintf(path, sizeof(path), "%s/%s", paths[parent], name) >=
		    sizeof(path)) {
			errno = ENAMETOOLONG;
			die(root);
		}
		memcpy(paths[i], path, sizeof(path));
		if (mkdir(paths[i], 0755) < 0)
			die(paths[i]);
	}
	free(depths);
	return paths;
}

static unsigned number_arg(const char *text)
{
	char *end;
	unsigned long n = strtoul(text, &end, 10);

	if (*end || n > UINT32_MAX) {
		fprintf(stderr, "bench-tree: '%s' is not a number\n", text);
		exit(2);
	}
	return (unsigned)n;
}

int main(int argc, char **argv)
{
	static const char *const suffixes[] = {".c", ".h", ".md", ".py", ".json", ".txt"};
	char(*paths)[PATH_BYTES];
	unsigned files, directories, bytes;
	size_t size = 0;

	if (argc != 5) {
		fprintf(stderr, "usage: bench-tree DIR FILES DIRECTORIES BYTES\n");
		return 2;
	}
	files = number_arg(argv[2]);
	directories = number_arg(argv[3]);
	bytes = number_arg(argv[4]);
	make_words();
	for (unsigned i = 0; i < LINES; i++)
		make_line(&lines[i]);

	paths = make_directories(argv[1], directories);
	for (unsigned i = 0; i < files; i++) {
		char name[32], path[PATH_BYTES + sizeof(name) + 1];

		name_word(name, sizeof(name), i, suffixes[i % 6]);
		snprintf(path, sizeof(path), "%s/%s", paths[below(directories + 1)], name);
		if (i == 0 || below(20))
			size = make_content(file_size(bytes / files));
		make_file(path, size, i);
	}
	for (unsigned i = directories + 1; i-- > 0;)
		set_time(paths[i], i);
	free(paths);
	return 0;
}
