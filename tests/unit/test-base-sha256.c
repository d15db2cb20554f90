#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <pthread.h>

#include "base/sha256.h"
#include "base/text.h"
#include "base/util.h"

static void assert_hash(const uint8_t hash[SHA256_BYTES], const char *want)
{
	char hex[2 * SHA256_BYTES + 1];

	text_hex(hex, hash, SHA256_BYTES);
	assert_string_equal(hex, want);
}

/* FIPS 180-2, appendix B, and the empty message. */
static const struct {
	const char *text, *hash;
} vectors[] = {
	{"", "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"},
	{"abc", "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"},
	{"abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq",
	 "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1"},
};

#define MILLION_A "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0"

/* The vectors of the standard come out of one call. */
static void at_once(void **state)
{
	uint8_t hash[SHA256_BYTES];

	for (int again = 0; again < 2; again++) {
		for (size_t i = 0; i < ARRAY_SIZE(vectors); i++) {
			sha256(vectors[i].text, strlen(vectors[i].text), hash);
			assert_hash(hash, vectors[i].hash);
		}
	}
}

/* Pieces of any size give the same, and a context is good again after reset. */
static void in_pieces(void **state)
{
	struct sha256_ctx *c = sha256_new();
	uint8_t hash[SHA256_BYTES];
	char a[1000];

	memset(a, 'a', sizeof(a));
	for (int i = 0; i < 1000; i++) {
		sha256_update(c, a, (size_t)i);
		sha256_update(c, a, 0);
		sha256_update(c, a, (size_t)(1000 - i));
	}
	sha256_final(c, hash);
	assert_hash(hash, MILLION_A);

	sha256_reset(c);
	sha256_update(c, "junk", 4);
	sha256_reset(c);
	sha256_update(c, "a", 1);
	sha256_update(c, "bc", 2);
	sha256_final(c, hash);
	assert_hash(hash, vectors[1].hash);
	sha256_free(c);
	sha256_free(NULL);
}

/* A context stands apart from the calls at once in the same thread. */
static void contexts_do_not_mix(void **state)
{
	struct sha256_ctx *c = sha256_new();
	uint8_t hash[SHA256_BYTES];

	sha256_update(c, "ab", 2);
	sha256("junk", 4, hash);
	sha256_update(c, "c", 1);
	sha256_final(c, hash);
	assert_hash(hash, vectors[1].hash);
	sha256_free(c);
}

/* n zeros are n bytes of 0, below and above the size of a block of them. */
static void zeros(void **state)
{
	static const size_t sizes[] = {0, 1, 65535, 65536, 65537, 300001};
	cleanup_free uint8_t *data = calloc(1, 300001);
	struct sha256_ctx *c = sha256_new();
	uint8_t hash[SHA256_BYTES], want[SHA256_BYTES];

	for (size_t i = 0; i < ARRAY_SIZE(sizes); i++) {
		sha256(data, sizes[i], want);
		sha256_reset(c);
		sha256_update_zeros(c, sizes[i]);
		sha256_final(c, hash);
		assert_memory_equal(hash, want, SHA256_BYTES);
	}
	sha256_free(c);
}

static void *hash_often(void *arg)
{
	uint8_t hash[SHA256_BYTES], want[SHA256_BYTES];
	long *wrong = arg;

	(void)text_unhex(want, SHA256_BYTES, vectors[1].hash);
	for (int i = 0; i < 5000; i++) {
		sha256("abc", 3, hash);
		*wrong += memcmp(hash, want, SHA256_BYTES) != 0;
	}
	return NULL;
}

/* Threads hash at the same time. */
static void threads(void **state)
{
	pthread_t t[8];
	long wrong[8] = {0};

	for (size_t i = 0; i < 8; i++)
		assert_int_equal(pthread_create(&t[i], NULL, hash_often, &wrong[i]), 0);
	for (size_t i = 0; i < 8; i++) {
		assert_int_equal(pthread_join(t[i], NULL), 0);
		assert_int_equal(wrong[i], 0);
	}
}

/* All bytes of the output are filled, each time differently. */
static void random_fills(void **state)
{
	uint8_t a[1000] = {0}, b[1000] = {0};
	size_t same = 0;

	random_bytes(a, 0);
	random_bytes(a, sizeof(a));
	random_bytes(b, sizeof(b));
	for (size_t i = 0; i < sizeof(a); i++)
		same += a[i] == b[i];
	assert_in_range(same, 0, 100); /* 4 are likely, 100 are not within the universe's age */
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(at_once),
		cmocka_unit_test(in_pieces),
		cmocka_unit_test(contexts_do_not_mix),
		cmocka_unit_test(zeros),
		cmocka_unit_test(threads),
		cmocka_unit_test(random_fills),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
