/*
 * pick FILTER: what `jq -r FILTER` prints of the JSON on stdin, without the 30 ms that jq takes to
 * start: tests ask for single values again and again. A filter is .name and [N], one after the other,
 * and "// empty" at its end; whatever else it is or finds is left to jq itself.
 */
#include <ctype.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <jansson.h>

#include "base/buf.h"
#include "base/io.h"

enum { READ_BYTES = 64 << 10 };

static int read_all(struct buf *b)
{
	uint8_t *p;
	ssize_t n;

	do {
		if (buf_reserve(b, READ_BYTES, &p) < 0)
			return -1;
		n = TEMP_FAILURE_RETRY(read(STDIN_FILENO, p, READ_BYTES));
		if (n < 0)
			return -1;
		buf_commit(b, (size_t)n);
	} while (n > 0);
	return 0;
}

static int by_jq(const struct buf *b, const char *filter)
{
	int fd = memfd_create("pick", 0);

	if (fd < 0 || io_write_full(fd, buf_data(b), buf_len(b), "pick") < 0 ||
	    lseek(fd, 0, SEEK_SET) < 0 || dup2(fd, STDIN_FILENO) < 0) {
		perror("pick");
		return 2;
	}
	(void)execlp("jq", "jq", "-r", filter, NULL);
	perror("pick: jq");
	return 2;
}

/* One step of the filter, from *at; NULL: it is another kind of filter, or finds nothing to step into. */
static const json_t *step(const json_t *from, const char **at)
{
	static const json_t *null;
	char name[64];
	char *end;
	size_t n;

	if (!null)
		null = json_null();
	if (**at == '[') {
		unsigned long i = strtoul(*at + 1, &end, 10);

		if (!isdigit((unsigned char)(*at)[1]) || *end != ']' || !json_is_array(from))
			return NULL;
		*at = end + 1;
		return i < json_array_size(from) ? json_array_get(from, i) : null;
	}
	if (**at != '.')
		return NULL;
	n = strspn(*at + 1, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_");
	if (n == 0 || n >= sizeof(name) || isdigit((unsigned char)(*at)[1]) ||
	    !json_is_object(from))
		return NULL;
	memcpy(name, *at + 1, n);
	name[n] = 0;
	*at += 1 + n;
	from = json_object_get(from, name);
	return from ? from : null;
}

static const json_t *find(const json_t *from, const char *filter, bool *ret_or_empty)
{
	const char *at = filter;

	*ret_or_empty = false;
	do {
		from = step(from, &at);
		*ret_or_empty = strcmp(at, " // empty") == 0;
	} while (from && *at && !*ret_or_empty);
	return from;
}

int main(int argc, char **argv)
{
	_cleanup_(buf_done) struct buf b = BUF_INIT(0);
	const json_t *found = NULL;
	bool or_empty = false;
	json_t *all;

	if (argc != 2 || read_all(&b) < 0) {
		(void)fprintf(stderr, "usage: pick FILTER <JSON\n");
		return 2;
	}
	all = json_loadb((const char *)buf_data(&b), buf_len(&b), JSON_REJECT_DUPLICATES, NULL);
	if (all)
		found = find(all, argv[1], &or_empty);
	if (json_is_string(found))
		(void)printf("%s\n", json_string_value(found));
	else if (json_is_integer(found))
		(void)printf("%" JSON_INTEGER_FORMAT "\n", json_integer_value(found));
	else if (or_empty && (json_is_null(found) || json_is_false(found)))
		(void)0;
	else if (json_is_null(found))
		(void)printf("null\n");
	else if (json_is_boolean(found))
		(void)printf("%s\n", json_is_true(found) ? "true" : "false");
	else
		return by_jq(&b, argv[1]);
	json_decref(all);
	return fflush(stdout) == 0 ? 0 : 2;
}
