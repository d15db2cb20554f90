#include "syncd/apply.h"

#include <fcntl.h>
#include <stdio.h>

#include "base/backoff.h"
#include "base/beneath.h"
#include "base/clock.h"
#include "base/io.h"
#include "base/log.h"
#include "base/util.h"
#include "syncd/apply-impl.h"
#include "syncd/known.h"
#include "syncd/numbers.h"
#include "syncd/restore.h"

#define TEMP_PREFIX ".limb-"
#define TEMP_SUFFIX '~'
#define REQUEST_FIRST (1ull << 62) /* sync's begin at 2^40 */

enum {
	PUSHES = 16,
	RESTORE_REQUESTS = 1 << 24,
	WAIT_FIRST_MS = 5,
	WAIT_MAX_MS = 200,
	WAIT_MS = 2000, /* what is not told by then never rests, or cannot be read */
	WAITING_MAX = 16,
};

struct apply {
	uv_loop_t *loop;
	struct session *session;
	struct sync *sync;
	struct restore *restore;
	struct rtree held; /* what a RESTORE that holds has made, for the next one */
	uint64_t next_request;
	bool past;	       /* the restore under way is of an older tree */
	uint64_t broken_batch; /* one of its changes could not be made */
	struct numbers numbers;
	struct push pushes[PUSHES];
	struct waiting *waiting; /* in the order in which they came */
	struct wait_timer *timer;
};

/* An APPLY that waits until what it takes away is told. */
struct waiting {
	struct waiting *next;
	Limbwire__Apply *m;
	uint64_t end_ms;
};

struct wait_timer {
	uv_timer_t timer;
	struct apply *ap; /* NULL: it is gone */
	unsigned tries;
};

/* ---- temporary names ---- */

bool apply_is_temp(const char *name, size_t len)
{
	if (len != APPLY_TEMP_BYTES || memcmp(name, TEMP_PREFIX, sizeof(TEMP_PREFIX) - 1) != 0 ||
	    name[len - 1] != TEMP_SUFFIX)
		return false;
	for (size_t i = sizeof(TEMP_PREFIX) - 1; i < len - 1; i++) {
		if (!strchr("0123456789abcdef", name[i]))
			return false;
	}
	return true;
}

void apply_temp_name(char out[APPLY_TEMP_BYTES + 1])
{
	uint64_t random;

	random_bytes(&random, sizeof(random));
	(void)snprintf(out, APPLY_TEMP_BYTES + 1, TEMP_PREFIX "%016llx%c",
		       (unsigned long long)random, TEMP_SUFFIX);
}

/* ---- PUSH ---- */

static void push_end(struct push *p)
{
	if (p->number != 0 && p->fd >= 0)
		(void)close(p->fd);
	*p = (struct push){.fd = -1};
}

/* A file without a name, in the file system of the root. */
static int unnamed_file(int root)
{
	char name[APPLY_TEMP_BYTES + 1];
	int fd;

	fd = openat(root, ".", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
	if (fd >= 0 || (errno != EOPNOTSUPP && errno != EISDIR && errno != ENOENT))
		return fd < 0 ? -errno : fd;
	apply_temp_name(name);
	fd = openat(root, name, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
	if (fd < 0)
		return -errno;
	(void)unlinkat(root, name, 0);
	return fd;
}

static struct push *push_find(struct apply *ap, uint32_t number)
{
	for (unsigned i = 0; i < PUSHES; i++) {
		if (ap->pushes[i].number == number)
			return &ap->pushes[i];
	}
	return NULL;
}

void apply_on_push(struct apply *ap, const Limbwire__Push *m, const void *bulk, size_t n)
{
	struct push *p;
	int root;

	if (m->push == 0)
		return;
	p = push_find(ap, m->push);
	if (!p) {
		/* With none free the oldest goes: its APPLY does not come, or finds nothing. */
		if (m->offset != 0)
			return;
		p = push_find(ap, 0);
		if (!p) {
			p = &ap->pushes[0];
			for (unsigned i = 1; i < PUSHES; i++)
				if (ap->pushes[i].number < p->number)
					p = &ap->pushes[i];
			push_end(p);
		}
		*p = (struct push){.number = m->push, .fd = -1};
		root = sync_root_fd(ap->sync);
		p->fd = root < 0 ? root : unnamed_file(root);
		if (p->fd < 0)
			p->error = p->fd;
	}
	if (p->error == 0 && (p->last || m->offset < p->size_bytes || m->offset > INT64_MAX - n))
		p->error = -EBADMSG;
	if (p->error == 0 && n > 0) /* what was skipped is a hole */
		p->error = io_pwrite_full(p->fd, bulk, n, m->offset, "apply.push");
	p->size_bytes = MAX(p->size_bytes, m->offset + n);
	p->last = m->last;
	if (p->error == 0 && p->last)
		p->error = io_ftruncate(p->fd, p->size_bytes, "apply.size");
}

/* ---- APPLY ---- */

/* What an earlier change of the batch left is at `path`, and, if it goes, as it was left. */
static int left_check(struct apply *ap, const struct change *c, const char *path, uint64_t number,
		      bool goes)
{
	cleanup_close int dir = -1;
	const char *name;
	struct stat st;
	int r;

	r = apply_change_dir(c, path, &dir, &name);
	if (r == 0 && fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
		r = -errno;
	if (r == 0 && !numbers_left(&ap->numbers, number, &st))
		r = -ESTALE;
	if (r == 0 && goes && S_ISREG(st.st_mode))
		r = c->based ? apply_hash_check(c, dir, name) : -ESTALE;
	if (r < 0)
		sync_touch(c->sync, path, strlen(path), 0);
	return r;
}

/* Is what would change what the brain believes? */
static int believed(struct apply *ap, const struct change *c)
{
	const Limbwire__Apply *m = c->m;
	bool goes = m->kind == LIMBWIRE__APPLY__KIND__REMOVE;
	/* One of many was judged some time ago. */
	bool strict = m->batch && m->kind == LIMBWIRE__APPLY__KIND__ATTR &&
		      c->node.type != NODE_TYPE_DIRECTORY;
	int r = 0;

	if (m->left)
		r = left_check(ap, c, c->path, m->left, goes);
	else if (m->node)
		r = known_check(c->sync, c->path, m->node, m->seen,
				goes || strict ? KNOWN_WHOLE : KNOWN_NODE);
	if (r < 0 || !c->to_path)
		return r;
	if (m->replaces_left)
		r = left_check(ap, c, c->to_path, m->replaces_left, true);
	else if (m->replaces)
		r = known_check(c->sync, c->to_path, m->replaces, m->seen, KNOWN_WHOLE);
	return r;
}

static int number_add(struct apply *ap, const struct change *c)
{
	const char *path = c->to_path ? c->to_path : c->path, *name;
	cleanup_close int dir = -1;
	struct stat st;
	bool there;

	there = c->m->batch && apply_change_dir(c, path, &dir, &name) == 0 &&
		fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) == 0;
	return numbers_add(&ap->numbers, c->m->number, there ? &st : NULL);
}

static int change_once(struct apply *ap, const struct change *c)
{
	int r = 0;

	if (c->m->number) {
		r = numbers_made(&ap->numbers, sync_private_fd(ap->sync), c->m->number);
		if (r != 0)
			return MIN(r, 0);
	}
	if (c->m->kind == LIMBWIRE__APPLY__KIND__ASK)
		return -ENOENT;
	if (c->m->kind != LIMBWIRE__APPLY__KIND__NOTHING) {
		r = believed(ap, c);
		if (r == 0)
			r = apply_change_make(c);
	}
	return r == 0 && c->m->number ? number_add(ap, c) : r;
}

static bool is_word_only(const Limbwire__Apply *m)
{
	return m->kind == LIMBWIRE__APPLY__KIND__ASK || m->kind == LIMBWIRE__APPLY__KIND__NOTHING;
}

static void apply_now(struct apply *ap, const Limbwire__Apply *m)
{
	Limbwire__Done done = LIMBWIRE__DONE__INIT;
	struct push *push = m->push != 0 ? push_find(ap, m->push) : NULL;
	struct change c;
	const char *why = "";
	int r;

	r = apply_change_read(&c, m, ap->sync, push, &why);
	if (r == 0 && m->batch && m->batch == ap->broken_batch)
		r = -ECANCELED;
	if (r == 0)
		r = ap->restore ? -EBUSY : change_once(ap, &c);
	if (r < 0 && m->batch)
		ap->broken_batch = m->batch;
	if (r == 0 && !is_word_only(m)) {
		sync_touch(ap->sync, c.path, strlen(c.path), (uint8_t)m->origin);
		if (c.to_path)
			sync_touch(ap->sync, c.to_path, strlen(c.to_path), (uint8_t)m->origin);
	}
	done.request = m->request;
	done.error = -r;
	done.detail = (char *)why;
	(void)session_send(ap->session, SESSION_CONTROL, WIRE_APPLIED, &done.base, NULL, 0);
	if (push)
		push_end(push);
	apply_change_done(&c);
}

/* ---- what a person asks for at once ---- */

/* It says nothing of what it expects to be there: would it take away what nobody was told of? */
static bool takes_untold(struct apply *ap, const Limbwire__Apply *m)
{
	const ProtobufCBinaryData *path = m->kind == LIMBWIRE__APPLY__KIND__MOVE ? &m->to_path
										 : &m->path;
	cleanup_free char *text = NULL;

	if (m->origin != LIMB__ORIGIN__ORIGIN_BRAIN || m->number || m->careful || m->no_replace ||
	    m->base_sha256.len || ap->restore || sync_root_fd(ap->sync) < 0)
		return false;
	if (m->kind != LIMBWIRE__APPLY__KIND__PUT && m->kind != LIMBWIRE__APPLY__KIND__SYMLINK &&
	    m->kind != LIMBWIRE__APPLY__KIND__REMOVE && m->kind != LIMBWIRE__APPLY__KIND__MOVE)
		return false;
	text = path->len && !memchr(path->data, 0, path->len)
		       ? strndup((const char *)path->data, path->len)
		       : NULL;
	return text && known_told(ap->sync, text) < 0;
}

static void waiting_drop_first(struct apply *ap)
{
	struct waiting *w = ap->waiting;

	ap->waiting = w->next;
	limbwire__apply__free_unpacked(w->m, NULL);
	free(w);
}

static void wait_on(struct apply *ap);

static void on_wait(uv_timer_t *t)
{
	struct wait_timer *wt = container_of(t, struct wait_timer, timer);
	struct apply *ap = wt->ap;

	while (ap->waiting) {
		if (takes_untold(ap, ap->waiting->m) && clock_mono_ms() < ap->waiting->end_ms)
			break;
		apply_now(ap, ap->waiting->m);
		waiting_drop_first(ap);
		wt->tries = 0;
	}
	if (ap->waiting)
		wait_on(ap);
}

static void wait_on(struct apply *ap)
{
	(void)uv_timer_start(&ap->timer->timer, on_wait,
			     backoff_ms(ap->timer->tries++, WAIT_FIRST_MS, WAIT_MAX_MS), 0);
}

static int wait_add(struct apply *ap, const Limbwire__Apply *m)
{
	size_t n = limbwire__apply__get_packed_size(m), count = 0;
	cleanup_free uint8_t *bytes = malloc(n + 1);
	struct waiting *w, **p = &ap->waiting;

	for (; *p; p = &(*p)->next)
		count++;
	if (!ap->timer) {
		ap->timer = calloc(1, sizeof(*ap->timer));
		if (ap->timer) {
			ap->timer->ap = ap;
			(void)uv_timer_init(ap->loop, &ap->timer->timer);
		}
	}
	w = bytes && ap->timer && count < WAITING_MAX ? calloc(1, sizeof(*w)) : NULL;
	if (!w)
		return -EBUSY;
	(void)limbwire__apply__pack(m, bytes);
	w->m = limbwire__apply__unpack(NULL, n, bytes);
	if (!w->m) {
		free(w);
		return -ENOMEM;
	}
	w->end_ms = clock_mono_ms() + WAIT_MS;
	*p = w;
	if (count == 0) {
		ap->timer->tries = 0;
		wait_on(ap);
	}
	return 0;
}

/* Others by a name do not overtake those that wait. */
void apply_on_apply(struct apply *ap, const Limbwire__Apply *m)
{
	bool wait = m->origin == LIMB__ORIGIN__ORIGIN_BRAIN && !m->number && ap->waiting;

	if ((wait || takes_untold(ap, m)) && wait_add(ap, m) == 0)
		return;
	apply_now(ap, m);
}

static void wait_timer_closed(uv_handle_t *h)
{
	free(container_of((uv_timer_t *)h, struct wait_timer, timer));
}

/* ---- RESTORE ---- */

static void on_restored(bool ok, struct rtree *tree, void *userdata)
{
	struct apply *ap = userdata;
	int r;

	ap->restore = NULL;
	rtree_done(&ap->held);
	if (!ok || ap->past)
		return;
	if (tree) {
		ap->held = *tree;
		*tree = (struct rtree){0};
		ap->held.base = NULL;
		if (rtree_sort(&ap->held) < 0)
			rtree_done(&ap->held);
		sync_restore_held(ap->sync);
		return;
	}
	r = sync_start(ap->sync);
	if (r < 0)
		(void)log_warning_errno(r, "cannot watch what was restored");
}

void apply_on_restore(struct apply *ap, const Limbwire__Restore *m)
{
	Limbwire__Restored answer = LIMBWIRE__RESTORED__INIT;
	int r;

	r = ap->restore
		    ? -EBUSY
		    : restore_new(ap->loop, ap->session, ap->sync, m, ap->held.n ? &ap->held : NULL,
				  ap->next_request, on_restored, ap, &ap->restore);
	ap->next_request += RESTORE_REQUESTS;
	if (r == 0) {
		numbers_forget(&ap->numbers, sync_private_fd(ap->sync));
		ap->past = m->past;
		return;
	}
	answer.request = m->request;
	answer.error = -r;
	answer.detail = (char *)(r == -EBUSY ? "another restore is under way" : "root");
	(void)session_send(ap->session, SESSION_CONTROL, WIRE_RESTORED, &answer.base, NULL, 0);
}

bool apply_on_tree_part(struct apply *ap, const Limbwire__TreePart *part)
{
	if (ap->restore && restore_on_tree_part(ap->restore, part))
		return true;
	return part->request >= REQUEST_FIRST; /* of a restore that is over */
}

bool apply_on_error(struct apply *ap, const Limbwire__Error *m)
{
	if (ap->restore && restore_on_error(ap->restore, m))
		return true;
	return m->request >= REQUEST_FIRST;
}

void apply_on_pull_data(struct apply *ap, const Limbwire__PullData *m, const void *bulk, size_t n)
{
	if (ap->restore)
		restore_on_pull_data(ap->restore, m, bulk, n);
}

void apply_detached(struct apply *ap)
{
	if (ap->restore)
		restore_cancel(ap->restore, -ENOTCONN);
	else
		rtree_done(&ap->held);
	while (ap->waiting)
		waiting_drop_first(ap);
	ap->broken_batch = 0;
	for (unsigned i = 0; i < PUSHES; i++)
		push_end(&ap->pushes[i]);
}

/* ---- begin and end ---- */

int apply_new(uv_loop_t *loop, struct session *session, struct sync *sync, struct apply **ret)
{
	struct apply *ap = calloc(1, sizeof(*ap));

	if (!ap)
		return -ENOMEM;
	ap->loop = loop;
	ap->session = session;
	ap->sync = sync;
	ap->next_request = REQUEST_FIRST;
	numbers_init(&ap->numbers);
	for (unsigned i = 0; i < PUSHES; i++)
		ap->pushes[i].fd = -1;
	*ret = ap;
	return 0;
}

void apply_free(struct apply *ap)
{
	if (!ap)
		return;
	apply_detached(ap);
	if (ap->restore) /* a thread still works for it, and may look at what is held */
		restore_disown(ap->restore);
	else
		rtree_done(&ap->held);
	numbers_done(&ap->numbers);
	if (ap->timer)
		uv_close((uv_handle_t *)&ap->timer->timer, wait_timer_closed);
	free(ap);
}
