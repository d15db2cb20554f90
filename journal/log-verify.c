#include "journal/log.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <sys/stat.h>

#include "base/util.h"
#include "journal/body.h"
#include "journal/log-report.h"
#include "journal/segment.h"

/* As in log-read.c: a writer may be at work beside us. */
enum { LOOKS_MAX = 3 };

struct file {
	uint64_t name_first; /* by its name */
	int error;	     /* of its header */
	struct segment_header header;
	uint64_t size;
};

struct verifier {
	int dir_fd;
	struct log_head head; /* seq 0: not known */
	log_each_fn each;
	void *userdata;
	struct log_notes notes;
	struct log_report *report;

	struct file *files;
	size_t n_files;

	struct log_place place;
	uint64_t expect; /* the next number */
	bool chain_known;
	uint8_t chain[SHA256_BYTES];
	int64_t time_ns;
	bool hole; /* damage up to the end of the segment explains what is missing */
};

#define problem(v, kind, seq, ...) \
	log_notes_problem(&(v)->notes, LOG_PROBLEM_##kind, &(v)->place, seq, __VA_ARGS__)

/* ---- segments ---- */

static uint64_t file_first(const struct file *f)
{
	return f->error < 0 ? f->name_first : f->header.first_seq;
}

static int compare_files(const void *a, const void *b)
{
	uint64_t x = file_first(a), y = file_first(b);

	return x < y ? -1 : x > y;
}

static int load_file(struct verifier *v, struct file *f)
{
	char name[SEGMENT_NAME_BYTES];
	cleanup_close int fd = -1;
	struct stat st;
	int r;

	segment_name(name, f->name_first);
	if (fstatat(v->dir_fd, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return -errno;
	f->size = (uint64_t)st.st_size;
	r = segment_open(v->dir_fd, f->name_first, O_RDONLY, &f->header, &fd);
	if (r < 0 && r != -EBADMSG && r != -EPROTONOSUPPORT)
		return r;
	f->error = r;
	return 0;
}

static int load_files(struct verifier *v)
{
	cleanup_free uint64_t *firsts = NULL;
	size_t n = 0;
	int r;

	r = segment_list(v->dir_fd, &firsts, &n);
	if (r < 0)
		return r;
	v->files = calloc(n + 1, sizeof(*v->files));
	if (!v->files)
		return -ENOMEM;
	for (size_t i = 0; i < n; i++) {
		v->files[i].name_first = firsts[i];
		r = load_file(v, &v->files[i]);
		if (r < 0)
			return r;
		v->report->bytes += v->files[i].size;
	}
	v->n_files = v->report->segments = n;
	if (n > 0)
		qsort(v->files, n, sizeof(*v->files), compare_files);
	return 0;
}

static bool is_name(const struct verifier *v, uint64_t first)
{
	for (size_t i = 0; i < v->n_files; i++) {
		if (v->files[i].name_first == first)
			return true;
	}
	return false;
}

/* The header against its name and the first good header of the log. */
static int check_header(struct verifier *v, const struct file *f)
{
	const struct segment_header *h = &f->header, *ours = NULL;
	int r;

	if (f->error == -EPROTONOSUPPORT)
		return problem(v, BAD_HEADER, 0, "a version of segments that is not known here");
	if (f->error < 0)
		return problem(v, BAD_HEADER, 0, "the segment's header is damaged");
	if (h->first_seq != f->name_first) {
		r = is_name(v, h->first_seq)
			    ? problem(v, SWAPPED, h->first_seq,
				      "this is the segment of record %" PRIu64, h->first_seq)
			    : problem(v, BAD_HEADER, h->first_seq,
				      "name and header differ: begins with record %" PRIu64,
				      h->first_seq);
		if (r < 0)
			return r;
	}
	for (size_t i = 0; !ours; i++)
		ours = v->files[i].error < 0 ? NULL : &v->files[i].header;
	if (memcmp(h->log_id, ours->log_id, sizeof(h->log_id)) != 0)
		return problem(v, BAD_HEADER, 0, "a segment of another log");
	if (memcmp(h->brain_id, ours->brain_id, sizeof(h->brain_id)) != 0)
		return problem(v, BAD_HEADER, 0, "a segment of another brain");
	return 0;
}

static void set_chain(struct verifier *v, const uint8_t chain[SHA256_BYTES])
{
	memcpy(v->chain, chain, SHA256_BYTES);
	v->chain_known = true;
}

/* How the segment follows on the one before (NULL: it is the first). */
static int check_order(struct verifier *v, const struct file *f, const struct file *before)
{
	const struct segment_header *h = &f->header;
	uint64_t before_first = before ? file_first(before) : 0;
	int r = 0;

	if (h->before_first_seq != before_first && h->first_seq > v->expect) {
		r = problem(v, MISSING_SEGMENT, v->expect,
			    "segments with records %" PRIu64 " to %" PRIu64 " are missing",
			    v->expect, h->first_seq - 1);
		v->chain_known = false;
	} else if (h->first_seq > v->expect) {
		if (!v->hole)
			r = log_notes_gap(&v->notes, &v->place, v->expect, h->first_seq - 1);
		v->chain_known = false;
	} else if (h->before_first_seq != before_first) {
		r = problem(v, BAD_HEADER, 0, "names another segment as the one before");
	}
	if (r < 0)
		return r;
	if (before && before->error == 0 && h->term < before->header.term) {
		r = problem(v, BAD_HEADER, 0, "its term is older than that of the segment before");
		if (r < 0)
			return r;
	}
	if (v->chain_known && memcmp(h->chain, v->chain, SHA256_BYTES) != 0) {
		r = problem(v, CHAIN, h->first_seq, "does not follow on the segment before");
		if (r < 0)
			return r;
	}
	if (!v->chain_known)
		set_chain(v, h->chain);
	v->expect = h->first_seq;
	return 0;
}

/* ---- records ---- */

static int note_purge(struct verifier *v, const struct segment_record *rec)
{
	_cleanup_(arena_done) struct arena arena = ARENA_INIT(0);
	Limb__Record *body;
	int r;

	r = body_unpack(&arena, rec->salted + RECORD_SALT_BYTES,
			rec->h.body_len - RECORD_SALT_BYTES, &body);
	if (r < 0)
		return problem(v, CHECKSUM, rec->h.seq, "a purge record that cannot be read");
	if (body->body_case != LIMB__RECORD__BODY_PURGE)
		return 0;
	for (size_t i = 0; r >= 0 && i < body->purge->n_seqs; i++)
		r = log_notes_purged(&v->notes, body->purge->seqs[i]);
	return r;
}

static int good_record(struct verifier *v, const struct segment_record *rec)
{
	struct log_record out = {
		.type = rec->h.type,
		.seq = rec->h.seq,
		.time_ns = rec->h.time_ns,
		.body = rec->blank ? NULL : rec->salted + RECORD_SALT_BYTES,
		.n = rec->blank ? 0 : rec->h.body_len - RECORD_SALT_BYTES,
	};
	int r = 0;

	v->report->records++;
	if (rec->blank)
		r = log_notes_blank(&v->notes, &v->place, rec->h.seq);
	else if (rec->h.type == RECORD_PURGE)
		r = note_purge(v, rec);
	if (r < 0 || !v->each)
		return r;
	memcpy(out.chain, rec->h.chain, SHA256_BYTES);
	return v->each(&out, v->userdata);
}

/* Takes a good header in its place as the end of the chain so far. */
static int take_header(struct verifier *v, const struct record_header *h)
{
	struct log_report *rep = v->report;
	int r = 0;

	if (h->time_ns < v->time_ns)
		r = problem(v, BAD_HEADER, h->seq, "its time is before that of the record before");
	if (r >= 0 && h->seq == v->head.seq && memcmp(h->chain, v->head.chain, SHA256_BYTES) != 0)
		r = problem(v, ROLLED_BACK, h->seq,
			    "record %" PRIu64 " is not the one that was known to stand here",
			    h->seq);
	v->time_ns = MAX(v->time_ns, h->time_ns);
	v->expect = h->seq + 1;
	set_chain(v, h->chain);
	if (rep->first_seq == 0)
		rep->first_seq = h->seq;
	rep->last_seq = h->seq;
	memcpy(rep->head_hash, h->chain, SHA256_BYTES);
	return r;
}

/* Does the record after the one at s->offset have this number? */
static int next_is(struct segment_scan *s, const struct segment_record *rec, uint64_t seq)
{
	struct segment_record next;
	uint64_t at = s->offset;
	int k;

	segment_scan_skip(s, rec);
	k = segment_scan_next(s, false, &next);
	s->offset = at;
	return k < 0 ? k : k == SEGMENT_RECORD && next.h.seq == seq;
}

/* A good header with a number that is not the next. */
static int out_of_order(struct verifier *v, struct segment_scan *s,
			const struct segment_record *rec)
{
	const struct record_header *h = &rec->h;
	int r, misplaced = h->seq < v->expect;

	if (!misplaced && h->seq > v->expect + 1) {
		/* One stray record, behind which the order goes on? */
		misplaced = next_is(s, rec, v->expect + 1);
		if (misplaced < 0)
			return misplaced;
		if (misplaced > 0) {
			r = log_notes_gap(&v->notes, &v->place, v->expect, v->expect);
			if (r < 0)
				return r;
			v->expect++;
			v->chain_known = false;
		}
	}
	if (misplaced) {
		bool twice = h->seq < v->expect && !log_notes_in_gap(&v->notes, h->seq);

		r = log_notes_seen(&v->notes, h->seq);
		if (r < 0)
			return r;
		return problem(v, SWAPPED, h->seq,
			       twice ? "record %" PRIu64 " stands here a second time"
				     : "record %" PRIu64 " is not in its place",
			       h->seq);
	}
	r = log_notes_gap(&v->notes, &v->place, v->expect, h->seq - 1);
	return r < 0 ? r : take_header(v, h);
}

static int check_place(struct verifier *v, struct segment_scan *s, const struct segment_record *rec)
{
	int r = 0;

	if (rec->h.seq != v->expect)
		return out_of_order(v, s, rec);
	if (v->chain_known && !record_chain_ok(&rec->h, v->chain))
		r = problem(v, CHAIN, rec->h.seq, "does not follow on the record before");
	return r < 0 ? r : take_header(v, &rec->h);
}

/* Bytes that are no record: goes on at the next good header, or at the end. */
static int resynchronise(struct verifier *v, struct segment_scan *s, int verdict, uint64_t seq)
{
	enum log_problem_kind kind = verdict == SEGMENT_NEWER ? LOG_PROBLEM_BAD_HEADER
							      : LOG_PROBLEM_CHECKSUM;
	const char *what = verdict == SEGMENT_NEWER ? "a version of records that is not known here"
			   : verdict == SEGMENT_CUT ? "the file ends inside a record"
			   : verdict == SEGMENT_END ? "zeros in place of a record"
						    : "not a record";
	struct record_header h;
	uint64_t at, used;
	int r;

	r = segment_scan_find(s, s->offset + 8, false, &at, &h);
	if (r < 0)
		return r;
	if (r == 0) {
		r = segment_scan_used(s, &used);
		if (r < 0)
			return r;
		v->hole = true;
		r = log_notes_problem(&v->notes, kind, &v->place, seq,
				      "%s; nothing that is one in the %" PRIu64 " bytes from here",
				      what, used - s->offset);
		s->offset = used;
		return r < 0 ? r : 0;
	}
	r = log_notes_problem(&v->notes, kind, &v->place, seq,
			      "%s; the next one, %" PRIu64 " bytes on, is %" PRIu64, what,
			      at - s->offset, h.seq);
	if (r < 0)
		return r;
	if (h.seq > v->expect) {
		/* The damage explains what is missing. */
		v->expect = h.seq;
		v->chain_known = false;
	}
	s->offset = at;
	return 1;
}

static int damaged_body(struct verifier *v, struct segment_scan *s,
			const struct segment_record *rec, int verdict)
{
	int r;

	r = check_place(v, s, rec);
	if (r < 0)
		return r;
	if (verdict == SEGMENT_CUT)
		return resynchronise(v, s, verdict, rec->h.seq);
	segment_scan_skip(s, rec);
	r = problem(v, CHECKSUM, rec->h.seq, "the body of record %" PRIu64 " is damaged",
		    rec->h.seq);
	return r < 0 ? r : 1;
}

static int foreign_record(struct verifier *v, struct segment_scan *s,
			  const struct segment_record *rec)
{
	int r;

	r = log_notes_seen(&v->notes, rec->h.seq);
	if (r < 0)
		return r;
	r = problem(v, SWAPPED, rec->h.seq, "record %" PRIu64 " belongs to another segment",
		    rec->h.seq);
	segment_scan_skip(s, rec);
	return r < 0 ? r : 1;
}

/* At the last segment's end, a torn tail is nobody's fault. 1: it is one. */
static int torn_tail(struct verifier *v, struct segment_scan *s)
{
	uint64_t torn;
	int r;

	r = segment_scan_torn(s, v->expect, v->chain, v->head.seq, &torn);
	if (r > 0) {
		v->report->torn_tail_bytes = torn;
		v->report->bytes =
			v->report->bytes - v->files[v->n_files - 1].size + s->offset + torn;
	}
	return r;
}

static bool in_order(const struct verifier *v, const struct record_header *h)
{
	return h->seq == v->expect && v->chain_known && record_chain_ok(h, v->chain);
}

/* One step of the walk. 1: go on; 0: the end of the segment. */
static int step(struct verifier *v, struct segment_scan *s, const struct file *f, unsigned *looks)
{
	bool last = f == &v->files[v->n_files - 1];
	struct segment_record rec;
	int r, k;

	v->place.offset = s->offset;
	k = segment_scan_next(s, true, &rec);
	if (k < 0)
		return k;
	if (k == SEGMENT_END && s->offset >= f->size)
		return 0;
	if (last && k != SEGMENT_FOREIGN && k != SEGMENT_NEWER &&
	    (k != SEGMENT_RECORD || (rec.blank && v->head.seq < rec.h.seq))) {
		bool blank = k == SEGMENT_RECORD;

		r = torn_tail(v, s);
		if (r != 0)
			return r < 0 ? r : 0;
		if (!blank && (*looks)++ < LOOKS_MAX) {
			segment_scan_reread(s);
			return 1;
		}
		if (blank) /* the window has moved */
			k = segment_scan_next(s, true, &rec);
		if (k < 0)
			return k;
	}
	*looks = 0;

	switch (k) {
	case SEGMENT_RECORD:
		if (in_order(v, &rec.h)) {
			r = take_header(v, &rec.h);
			if (r >= 0)
				r = good_record(v, &rec);
		} else {
			r = check_place(v, s, &rec);
			if (r >= 0 && segment_scan_next(s, true, &rec) == SEGMENT_RECORD)
				r = good_record(v, &rec);
		}
		segment_scan_skip(s, &rec);
		return r < 0 ? r : 1;
	case SEGMENT_FOREIGN: return foreign_record(v, s, &rec);
	case SEGMENT_CUT:
	case SEGMENT_BAD_BODY:
		if (rec.h.seq > 0)
			return damaged_body(v, s, &rec, k);
		break;
	default: break;
	}
	return resynchronise(v, s, k, v->expect);
}

/* The tag of a segment whose header is damaged: that of its first record. */
static int guess_tag(struct segment_scan *s)
{
	struct record_header h;
	uint64_t at;
	int r;

	r = segment_scan_find(s, SEGMENT_HEADER_BYTES, true, &at, &h);
	if (r > 0)
		s->tag = h.tag;
	return r;
}

static int walk(struct verifier *v, const struct file *f)
{
	char name[SEGMENT_NAME_BYTES];
	cleanup_close int fd = -1;
	struct segment_scan s;
	unsigned looks = 0;
	int r = 1;

	segment_name(name, f->name_first);
	fd = openat(v->dir_fd, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
	if (fd < 0)
		return -errno;
	segment_scan_init(&s, fd, f->header.tag);
	if (f->error < 0)
		r = guess_tag(&s);
	v->hole = f->error < 0 && r == 0; /* nothing in it is a record */
	while (r > 0)
		r = step(v, &s, f, &looks);
	segment_scan_done(&s);
	return r;
}

static int check_file(struct verifier *v, const struct file *f, const struct file *before)
{
	int r;

	memset(v->place.segment, 0, sizeof(v->place.segment));
	segment_name(v->place.segment, f->name_first);
	v->place.offset = 0;
	r = check_header(v, f);
	if (r < 0)
		return r;
	if (f->error < 0)
		return walk(v, f);
	if (before && file_first(f) == file_first(before))
		return problem(v, SWAPPED, f->header.first_seq,
			       "the segment of record %" PRIu64 " a second time",
			       f->header.first_seq);
	r = check_order(v, f, before);
	return r < 0 ? r : walk(v, f);
}

static int check_tail(struct verifier *v)
{
	while (log_notes_was_seen(&v->notes, v->expect))
		v->expect++;
	if (v->head.seq < v->expect)
		return 0;
	return problem(v, MISSING_TAIL, v->expect,
		       "the log ends with record %" PRIu64 ", but went on up to %" PRIu64,
		       v->expect - 1, v->head.seq);
}

static int verify(struct verifier *v)
{
	int r;

	r = load_files(v);
	if (r < 0)
		return r;
	for (size_t i = 0; i < v->n_files; i++) {
		r = check_file(v, &v->files[i], i > 0 ? &v->files[i - 1] : NULL);
		if (r < 0)
			return r;
	}
	r = check_tail(v);
	if (r < 0)
		return r;
	return log_notes_finish(&v->notes);
}

int log_verify(int dir_fd, const struct log_head *head, log_each_fn each, void *userdata,
	       struct log_report *ret)
{
	struct log_report report = {0};
	struct verifier v = {
		.dir_fd = dir_fd,
		.each = each,
		.userdata = userdata,
		.notes = {.report = &report},
		.report = &report,
		.expect = 1,
		.chain_known = true, /* zeros */
		.time_ns = INT64_MIN,
	};
	int r;

	if (head)
		v.head = *head;
	r = verify(&v);
	log_notes_done(&v.notes);
	free(v.files);
	if (r < 0) {
		log_report_done(&report);
		return r;
	}
	*ret = report;
	return 0;
}
