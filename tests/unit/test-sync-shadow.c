/* The shadow goes back to any state that is not yet acknowledged, whatever was done to it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <sys/stat.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/sha256.h"
#include "syncd/dirty.h"
#include "syncd/undo.h"

enum { STATES = 40, OPS = 60 };

static struct shadow sh;
static struct undo undo;
static uint64_t seed, next_id;

static unsigned pick(unsigned n)
{
	seed = seed * 6364136223846793005ull + 1442695040888963407ull;
	return (unsigned)(seed >> 33) % n;
}

/* ---- the whole tree as text, names sorted ---- */

static int by_name(const void *a, const void *b)
{
	uint8_t la, lb;
	const char *x = shadow_name(&sh, *(const uint32_t *)a, &la);
	const char *y = shadow_name(&sh, *(const uint32_t *)b, &lb);
	int r = memcmp(x, y, MIN(la, lb));

	return r ? r : la - lb;
}

static void describe(uint32_t dir, struct buf *out, unsigned depth)
{
	uint32_t list[512] = {0};
	size_t n = 0;

	for (uint32_t e = shadow_dir(&sh, dir)->first; e; e = shadow_entry(&sh, e)->next)
		list[n++] = e;
	assert_int_equal(n, shadow_dir(&sh, dir)->children);
	qsort(list, n, sizeof(*list), by_name);
	for (size_t i = 0; i < n; i++) {
		uint32_t node = shadow_entry(&sh, list[i])->node, pos = 0, found;
		const struct shadow_node *s = shadow_node(&sh, node);
		uint8_t len;
		const char *name = shadow_name(&sh, list[i], &len);

		assert_int_equal(buf_printf(out, "%*s%.*s %llu %llu x%u\n", (int)depth, "", len,
					    name, (unsigned long long)s->id,
					    (unsigned long long)s->size, shadow_names(&sh, node)),
				 0);
		/* Each index leads to it. */
		assert_int_equal(shadow_find(&sh, dir, name, len), list[i]);
		while ((found = shadow_find_inode(&sh, 0, s->inode, &pos)) && found != node)
			;
		assert_int_equal(found, node);
		if (shadow_dir(&sh, node)) {
			assert_int_equal(shadow_find_id(&sh, s->id), node);
			describe(node, out, depth + 1);
		}
	}
}

static char *snapshot(void)
{
	_cleanup_(buf_done) struct buf b = BUF_INIT(0);
	char *s;

	describe(SHADOW_ROOT, &b, 0);
	assert_int_equal(buf_printf(&b, "%llu nodes, %llu directories\n",
				    (unsigned long long)sh.n_nodes, (unsigned long long)sh.n_dirs),
			 0);
	assert_int_equal(buf_to_str(&b, &s), 0);
	return s;
}

/* ---- random changes ---- */

static uint32_t random_dir(void)
{
	uint32_t dir = SHADOW_ROOT;

	while (pick(3)) {
		uint32_t e = shadow_dir(&sh, dir)->first;

		for (unsigned skip = pick(6);
		     e && (skip || !shadow_dir(&sh, shadow_entry(&sh, e)->node));
		     e = shadow_entry(&sh, e)->next)
			skip -= skip > 0;
		if (!e)
			break;
		dir = shadow_entry(&sh, e)->node;
	}
	return dir;
}

static uint32_t random_entry(void)
{
	uint32_t e = shadow_dir(&sh, random_dir())->first;

	for (unsigned skip = pick(6); e && skip && shadow_entry(&sh, e)->next; skip--)
		e = shadow_entry(&sh, e)->next;
	return e;
}

static void make_free(uint64_t number, uint32_t dir, const char *name, size_t len)
{
	uint32_t e = shadow_find(&sh, dir, name, len);

	if (!e)
		return;
	shadow_detach(&sh, e, NULL, NULL);
	undo_unlink(&undo, &sh, number, e);
}

static void one_change(uint64_t number)
{
	struct shadow_node sig = {0};
	uint32_t dir = random_dir(), e = random_entry(), n;
	char name[300];
	size_t len = (size_t)snprintf(name, sizeof(name), "n%u%.*s", pick(8), (int)pick(40),
				      "----------------------------------------");
	uint32_t old_name, from;

	switch (pick(6)) {
	case 0:
	case 1:
		sig.id = ++next_id;
		sig.inode = pick(50) + 1;
		sig.mode = (uint16_t)(pick(2) ? S_IFREG : S_IFDIR);
		n = shadow_add_node(&sh, &sig);
		make_free(number, dir, name, len);
		undo_link(&undo, number, shadow_link(&sh, dir, name, len, n));
		break;
	case 2:
		if (!e)
			break;
		shadow_detach(&sh, e, NULL, NULL);
		undo_unlink(&undo, &sh, number, e);
		break;
	case 3:
		n = e ? shadow_entry(&sh, e)->node : 0;
		if (!e || shadow_is_beneath(&sh, dir, n) || shadow_find(&sh, dir, name, len) == e)
			break;
		make_free(number, dir, name, len);
		/* What stood there may have been above it. */
		if (!shadow_attached(&sh, n) || !shadow_attached(&sh, dir) ||
		    !shadow_is_beneath(&sh, shadow_entry(&sh, e)->parent, SHADOW_ROOT))
			break;
		from = shadow_entry(&sh, e)->parent;
		assert_int_equal(shadow_move(&sh, e, dir, name, len, &old_name), 0);
		undo_move(&undo, &sh, number, e, from, old_name);
		break;
	case 4:
		n = e ? shadow_entry(&sh, e)->node : 0;
		if (!e || shadow_dir(&sh, n) || shadow_find(&sh, dir, name, len))
			break;
		undo_link(&undo, number, shadow_link(&sh, dir, name, len, n));
		break;
	case 5:
		if (!e)
			break;
		n = shadow_entry(&sh, e)->node;
		undo_put(&undo, &sh, number, n);
		sig = *shadow_node(&sh, n);
		sig.size = pick(1000);
		sig.inode = pick(50) + 1;
		shadow_set_node(&sh, n, &sig);
		break;
	}
}

static void touched(uint32_t dir, const char *name, size_t len, void *userdata)
{
	(void)userdata;
	assert_true(dir == 0 || shadow_dir(&sh, dir) != NULL);
	assert_true(len < 256 && name);
}

static void test_undo(void **state)
{
	struct undo_fns fns = {.touched = touched};
	char *states[STATES + 1] = {0};
	unsigned rounds = getenv("LIMB_TEST_LONG") ? 3000 : 60;

	(void)state;
	for (unsigned round = 0; round < rounds; round++) {
		uint64_t number = 0, durable = 0;

		seed = round;
		next_id = 1;
		assert_int_equal(shadow_init(&sh), 0);
		states[0] = snapshot();
		while (number < STATES) {
			number++;
			for (unsigned i = pick(OPS); i; i--)
				one_change(number);
			states[number] = snapshot();
			if (pick(4) == 0) {
				durable += pick((unsigned)(number - durable) + 1);
				undo_commit(&undo, &sh, durable);
			}
			if (pick(4) == 0) {
				uint64_t back = durable + pick((unsigned)(number - durable) + 1);
				char *now;

				assert_int_equal(undo_rollback(&undo, &sh, back, &fns), 0);
				now = snapshot();
				assert_string_equal(now, states[back]);
				free(now);
				while (number > back)
					free(states[number--]);
				durable = back;
			}
			if (pick(30) == 0)
				break;
		}
		for (uint64_t i = 0; i <= number; i++)
			free(states[i]);
		undo_done(&undo, &sh);
		shadow_done(&sh);
	}
}

/* Names of all lengths, given back and taken again, take no more memory. */
static void test_names(void **state)
{
	char name[256];
	uint32_t chunks = 0;

	(void)state;
	memset(name, 'x', sizeof(name));
	assert_int_equal(shadow_init(&sh), 0);
	for (int round = 0; round < 20; round++) {
		uint32_t entries[255];

		for (unsigned len = 1; len <= 255; len++) {
			struct shadow_node sig = {.id = len + 1, .inode = len, .mode = S_IFREG};

			entries[len - 1] = shadow_link(&sh, SHADOW_ROOT, name, len,
						       shadow_add_node(&sh, &sig));
			assert_true(entries[len - 1] != 0);
		}
		for (unsigned len = 1; len <= 255; len++) {
			assert_int_equal(shadow_find(&sh, SHADOW_ROOT, name, len),
					 entries[len - 1]);
			shadow_detach(&sh, entries[len - 1], NULL, NULL);
			shadow_free_detached(&sh, entries[len - 1]);
		}
		if (round == 0)
			chunks = sh.arena_chunks;
		assert_int_equal(sh.arena_chunks, chunks);
		assert_int_equal(sh.n_nodes, 0);
	}
	shadow_done(&sh);
}

/* A directory that work is under way in keeps its number until the work is done. */
static void test_pins(void **state)
{
	struct shadow_node sig = {.id = 2, .inode = 2, .mode = S_IFDIR};
	struct dirty d;
	struct item *it;
	uint32_t dir, e, other;

	(void)state;
	assert_int_equal(shadow_init(&sh), 0);
	assert_int_equal(dirty_init(&d, &sh), 0);
	dir = shadow_add_node(&sh, &sig);
	e = shadow_link(&sh, SHADOW_ROOT, "d", 1, dir);
	it = dirty_mark(&d, ITEM_NAME, dir, "f", 1, 0, NULL);
	shadow_detach(&sh, e, NULL, NULL);
	shadow_free_detached(&sh, e);
	sig.id = 3;
	other = shadow_add_node(&sh, &sig);
	assert_int_not_equal(other, dir);
	assert_false(shadow_attached(&sh, dir));
	dirty_done(&d, it);
	assert_int_equal(shadow_add_node(&sh, &sig), dir);
	dirty_free(&d);
	shadow_done(&sh);
}

/* An item counts once for each barrier, whatever becomes of it. */
static void test_barrier_bits(void **state)
{
	struct dirty d;
	struct item *a, *c;

	(void)state;
	assert_int_equal(shadow_init(&sh), 0);
	assert_int_equal(dirty_init(&d, &sh), 0);
	a = dirty_mark(&d, ITEM_NAME, SHADOW_ROOT, "a", 1, 0, NULL);
	d.epoch++;
	c = dirty_mark(&d, ITEM_NAME, SHADOW_ROOT, "c", 1, 0, NULL);
	/* As long as it may be a directory, it counts whenever it was marked. */
	dirty_assign(&d, 2, 1, false);
	assert_int_equal(d.waiting[2], 2);
	dirty_release_all(&d, 2);
	a->st.mode = S_IFREG | 0644;
	a->flags |= ITEM_LOOKED;
	dirty_assign(&d, 3, 1, false);
	assert_int_equal(d.waiting[3], 1);
	dirty_assign(&d, 4, 0, false);
	assert_int_equal(d.waiting[4], 2);
	dirty_move(&d, a, ITEM_CAPTURING);
	(void)dirty_mark(&d, ITEM_NAME, SHADOW_ROOT, "a", 1, ITEM_CONTENT, NULL);
	dirty_assign(&d, 5, 0, false);
	assert_int_equal(d.waiting[5], 2);
	/* The first pass serves who waited before, the second one the others, too. */
	dirty_done(&d, a);
	assert_int_equal(d.waiting[4], 1);
	assert_int_equal(d.waiting[5], 2);
	assert_true(a->flags & ITEM_CONTENT);
	dirty_done(&d, a);
	assert_int_equal(d.waiting[5], 1);
	dirty_done(&d, c);
	for (int i = 0; i < DIRTY_BARRIERS; i++)
		assert_int_equal(d.waiting[i], 0);
	assert_int_equal(d.total, 0);
	dirty_free(&d);
	shadow_done(&sh);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_undo),
		cmocka_unit_test(test_names),
		cmocka_unit_test(test_pins),
		cmocka_unit_test(test_barrier_bits),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
