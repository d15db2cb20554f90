/*
 * sha256.h - SHA-256 by libcrypto: at once, and piece by piece.
 *
 * libcrypto uses the CPU's instructions where it has them.  Failure of the
 * library is a failure of the machine: these functions abort then.
 */
#ifndef BASE_SHA256_H
#define BASE_SHA256_H

#include <stddef.h>
#include <stdint.h>

#define SHA256_BYTES 32

void sha256(const void *data, size_t n, uint8_t out[SHA256_BYTES]);

struct sha256_ctx; /* opaque; heap */
struct sha256_ctx *sha256_new(void);
void sha256_free(struct sha256_ctx *c);
void sha256_reset(struct sha256_ctx *c);
void sha256_update(struct sha256_ctx *c, const void *data, size_t n);
void sha256_update_zeros(struct sha256_ctx *c, uint64_t n); /* n bytes of 0 */
/* Reset before reuse. */
void sha256_final(struct sha256_ctx *c, uint8_t out[SHA256_BYTES]);

/* n random bytes from the kernel (getrandom). */
void random_bytes(void *out, size_t n);

#endif
