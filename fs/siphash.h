/*
 * siphash.h - SipHash-2-4 (Aumasson, Bernstein 2012): a keyed hash of short
 * inputs whose collisions cannot be prepared by who does not know the key.
 */
#ifndef FS_SIPHASH_H
#define FS_SIPHASH_H

#include <stddef.h>
#include <stdint.h>

uint64_t siphash(const uint8_t key[16], const void *data, size_t n);

#endif
