#include "fs/siphash.h"

#include "base/util.h"

static uint64_t rotl(uint64_t x, unsigned b)
{
	return x << b | x >> (64 - b);
}

static void rounds(uint64_t v[4], unsigned n)
{
	for (; n > 0; n--) {
		v[0] += v[1];
		v[1] = rotl(v[1], 13) ^ v[0];
		v[0] = rotl(v[0], 32);
		v[2] += v[3];
		v[3] = rotl(v[3], 16) ^ v[2];
		v[0] += v[3];
		v[3] = rotl(v[3], 21) ^ v[0];
		v[2] += v[1];
		v[1] = rotl(v[1], 17) ^ v[2];
		v[2] = rotl(v[2], 32);
	}
}

static void add_word(uint64_t v[4], uint64_t m)
{
	v[3] ^= m;
	rounds(v, 2);
	v[0] ^= m;
}

uint64_t siphash(const uint8_t key[16], const void *data, size_t n)
{
	uint64_t k0 = get_le64(key), k1 = get_le64(key + 8);
	uint64_t v[4] = {k0 ^ 0x736f6d6570736575ull, k1 ^ 0x646f72616e646f6dull,
			 k0 ^ 0x6c7967656e657261ull, k1 ^ 0x7465646279746573ull};
	const uint8_t *p = data, *end = p + n / 8 * 8;
	uint64_t last = (uint64_t)n << 56;

	for (; p < end; p += 8)
		add_word(v, get_le64(p));
	for (size_t i = 0; i < n % 8; i++)
		last |= (uint64_t)p[i] << 8 * i;
	add_word(v, last);
	v[2] ^= 0xff;
	rounds(v, 4);
	return v[0] ^ v[1] ^ v[2] ^ v[3];
}
