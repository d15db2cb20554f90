#include "base/sha256.h"

#include <errno.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/random.h>

#include "base/util.h"

enum { ZEROS_BYTES = 64 * 1024 };

/* Fetched once: a fetch by name at each message costs more than a small
 * message does. */
static EVP_MD *md;
static pthread_key_t thread_ctx;
static pthread_once_t once = PTHREAD_ONCE_INIT;

struct sha256_ctx {
	EVP_MD_CTX *evp;
};

static void must(int ok)
{
	if (!ok)
		abort();
}

static void ctx_done(void *p)
{
	EVP_MD_CTX_free(p);
}

/* No exit handler: worker threads may still hash when the process exits. */
static void setup(void)
{
	must(OPENSSL_init_crypto(OPENSSL_INIT_NO_LOAD_CONFIG | OPENSSL_INIT_NO_ATEXIT, NULL));
	md = EVP_MD_fetch(NULL, "SHA256", NULL);
	must(md != NULL);
	must(pthread_key_create(&thread_ctx, ctx_done) == 0);
}

static EVP_MD_CTX *ctx_new(void)
{
	EVP_MD_CTX *evp;

	(void)pthread_once(&once, setup);
	evp = EVP_MD_CTX_new();
	must(evp != NULL);
	return evp;
}

static EVP_MD_CTX *ctx_of_thread(void)
{
	EVP_MD_CTX *evp;

	(void)pthread_once(&once, setup);
	evp = pthread_getspecific(thread_ctx);
	if (!evp) {
		evp = ctx_new();
		must(pthread_setspecific(thread_ctx, evp) == 0);
	}
	return evp;
}

void sha256(const void *data, size_t n, uint8_t out[SHA256_BYTES])
{
	EVP_MD_CTX *evp = ctx_of_thread();

	must(EVP_DigestInit_ex2(evp, md, NULL));
	must(EVP_DigestUpdate(evp, data, n));
	must(EVP_DigestFinal_ex(evp, out, NULL));
}

struct sha256_ctx *sha256_new(void)
{
	struct sha256_ctx *c = malloc(sizeof(*c));

	must(c != NULL);
	c->evp = ctx_new();
	sha256_reset(c);
	return c;
}

void sha256_free(struct sha256_ctx *c)
{
	if (!c)
		return;
	EVP_MD_CTX_free(c->evp);
	free(c);
}

void sha256_reset(struct sha256_ctx *c)
{
	must(EVP_DigestInit_ex2(c->evp, md, NULL));
}

void sha256_update(struct sha256_ctx *c, const void *data, size_t n)
{
	must(EVP_DigestUpdate(c->evp, data, n));
}

void sha256_update_zeros(struct sha256_ctx *c, uint64_t n)
{
	static uint8_t zeros[ZEROS_BYTES];

	while (n > 0) {
		size_t part = (size_t)MIN(n, (uint64_t)sizeof(zeros));

		sha256_update(c, zeros, part);
		n -= part;
	}
}

void sha256_final(struct sha256_ctx *c, uint8_t out[SHA256_BYTES])
{
	must(EVP_DigestFinal_ex(c->evp, out, NULL));
}

void random_bytes(void *out, size_t n)
{
	uint8_t *p = out;

	while (n > 0) {
		ssize_t k = getrandom(p, n, 0);

		if (k < 0 && errno == EINTR)
			continue;
		must(k > 0);
		p += k;
		n -= (size_t)k;
	}
}
