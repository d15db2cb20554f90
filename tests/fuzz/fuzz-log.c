/* Any segment, made of records that are sealed right, records that are not, and raw bytes: it is
 * scanned, read, verified and opened for writing; what a reader was given was sealed, and a log
 * that opens takes another record and is sound. */
#include <fcntl.h>

#include "journal/log.h"
#include "journal/segment.h"
#include "tests/fuzz/fuzz.h"

enum { SEGMENT_MAX = 256 << 10, GIVEN_MAX = 4096 };

static const struct log_ids ids = {.log_id = {1}, .brain_id = {2}, .term = 1};
static int dir = -1;
static uint8_t segment[SEGMENT_MAX];
static size_t used;
/* What the last reader met: records without a body, or older than the one before, or that tell
 * of purges. */
static unsigned odd;

static void add(const void *p, size_t n)
{
	n = MIN(n, SEGMENT_MAX - used);
	memcpy(segment + used, p, n);
	used += n;
}

/* One record as the writer makes it, but for what `bend` says. */
static void add_record(struct fuzz_in *in, uint8_t bend, struct record_header *h)
{
	static uint8_t salted[RECORD_SALT_BYTES + 4096 + 8];
	uint8_t head[RECORD_HEADER_BYTES], chain[SHA256_BYTES];
	const uint8_t *body;
	size_t n;

	memcpy(chain, h->chain, sizeof(chain));
	h->type = (uint16_t)fuzz_take(in, 1);
	if (bend & 1)
		h->seq = MAX(fuzz_take(in, 8), (uint64_t)1);
	if (bend & 2)
		h->time_ns = (int64_t)fuzz_take(in, 8);
	if (bend & 4)
		h->durable_seq = fuzz_take(in, 8);
	if (bend & 8)
		h->tag = fuzz_take(in, 8);
	n = fuzz_take_bytes(in, 4096, &body);
	memset(salted, 7, RECORD_SALT_BYTES);
	memset(salted + RECORD_SALT_BYTES + n, 0, 8);
	memcpy(salted + RECORD_SALT_BYTES, body, n);
	h->body_len = (uint32_t)(RECORD_SALT_BYTES + n);
	record_header_seal(h, chain, salted, head);
	if (bend & 16)
		memset(salted, 0, ALIGN_UP(h->body_len, 8u)); /* purged, or never written */
	add(head, sizeof(head));
	add(salted, ALIGN_UP(h->body_len, 8u));
	h->seq = h->seq < UINT64_MAX ? h->seq + 1 : 1;
}

static void make(struct fuzz_in *in)
{
	struct segment_header sh = {.term = 1, .first_seq = 1, .time_ns = 1, .tag = 5};
	struct record_header h = {.seq = 1, .time_ns = 2, .tag = 5};

	memcpy(sh.log_id, ids.log_id, 16);
	memcpy(sh.brain_id, ids.brain_id, 16);
	segment_header_seal(&sh, segment);
	used = SEGMENT_HEADER_BYTES;
	while (in->n > 0 && used < SEGMENT_MAX) {
		uint8_t what = (uint8_t)fuzz_take(in, 1);
		const uint8_t *raw;
		size_t n;

		if (what < 0xe0) {
			add_record(in, what & 31, &h);
			continue;
		}
		n = fuzz_take_bytes(in, 4096, &raw);
		if (what & 1)
			add(raw, n);
		else
			used = MIN(used + n, (size_t)SEGMENT_MAX); /* what was there before */
		used = ALIGN_UP(used, 8u);
	}
}

static void put(const char *file)
{
	int fd = openat(dir, file, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

	must(fd >= 0 && write(fd, segment, used) == (ssize_t)used && close(fd) == 0);
}

static void scan(const char *file)
{
	int fd = openat(dir, file, O_RDONLY | O_CLOEXEC), r;
	struct record_header found;
	struct segment_record rec;
	struct segment_scan s;
	uint64_t at;

	must(fd >= 0);
	segment_scan_init(&s, fd, 5);
	while ((r = segment_scan_next(&s, true, &rec)) == SEGMENT_RECORD) {
		must(rec.offset + rec.size <= used);
		segment_scan_skip(&s, &rec);
	}
	must(r >= 0 && s.offset <= ALIGN_UP(used, 8u));
	if (segment_scan_find(&s, SEGMENT_HEADER_BYTES, true, &at, &found) > 0)
		must(at + RECORD_HEADER_BYTES <= used);
	must(segment_scan_used(&s, &at) == 0 && at <= MAX(used, s.offset));
	segment_scan_done(&s);
	close(fd);
}

static uint64_t read_all(void)
{
	struct log_reader *rd = NULL;
	struct log_record rec;
	uint64_t last = 0, n = 0;
	int64_t time_ns = INT64_MIN;

	int r;

	odd = 0;
	r = log_reader_open(dir, 0, &rd);
	while (r >= 0 && (r = log_reader_next(rd, &rec)) > 0) {
		must(rec.seq == last + 1);
		last = rec.seq;

		odd += !rec.body || rec.time_ns < time_ns || rec.type == RECORD_PURGE;
		time_ns = rec.time_ns;
		must(++n < SEGMENT_MAX);
	}
	log_reader_free(rd);
	return last;
}

static void go_on(void)
{
	struct log_report rep;
	struct log *log = NULL;
	uint64_t seq, before = read_all();
	int r;

	r = log_open(dir, &ids, 0, &log, NULL);
	must(r == 0 || r == -EBADMSG || r == -ESTALE || r == -EPROTONOSUPPORT);
	if (r < 0)
		return;
	must(log_last(log) == before);
	r = log_append(log, RECORD_CHANGE, "more", 4, 0, &seq);
	if (r == 0)
		r = log_sync(log);
	log_close(log);
	if (r < 0)
		return; /* a number or a time at its end */
	must(read_all() == before + 1);
	must(log_verify(dir, NULL, NULL, NULL, &rep) == 0);
	must(rep.n_problems == 0 || odd > 0);
	log_report_done(&rep);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct fuzz_in in = {data, size};
	char file[SEGMENT_NAME_BYTES], **names;
	struct log_report rep;
	size_t n;

	if (dir < 0)
		dir = fuzz_dir();
	must(file_list(dir, ".", 100, &names, &n) == 0);
	for (size_t i = 0; i < n; i++)
		(void)unlinkat(dir, names[i], 0);
	file_names_free(names, n);
	memset(segment, 0, sizeof(segment));
	make(&in);
	segment_name(file, 1);
	put(file);
	scan(file);
	must(log_verify(dir, NULL, NULL, NULL, &rep) == 0);
	must(rep.last_seq == read_all() || rep.n_problems > 0);
	log_report_done(&rep);
	go_on();
	return 0;
}
