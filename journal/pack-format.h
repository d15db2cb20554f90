/*
 * pack-format.h - what pack.c writes and pack-read.c judges: FORMAT 6 in numbers.
 * For these two files alone.
 */
#ifndef JOURNAL_PACK_FORMAT_H
#define JOURNAL_PACK_FORMAT_H

#include <string.h>

#include "base/sha256.h"

#define PACK_MAGIC "LIMBPAK\n"
#define PACK_VERSION 1
#define FRAME_MAGIC "LFRM"
#define FRAME_VERSION 1
#define CHECK_BYTES 8

enum codec { CODEC_STORED = 0, CODEC_ZSTD = 1 };

static inline void put_check(const void *data, size_t n, uint8_t out[CHECK_BYTES])
{
	uint8_t hash[SHA256_BYTES];

	sha256(data, n, hash);
	memcpy(out, hash, CHECK_BYTES);
}

static inline int check_ok(const void *data, size_t n, const uint8_t check[CHECK_BYTES])
{
	uint8_t expected[CHECK_BYTES];

	put_check(data, n, expected);
	return memcmp(expected, check, CHECK_BYTES) == 0;
}

#endif
