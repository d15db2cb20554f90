/*
 * limbd-rig.h - limbd's client socket, its verbs, and one environment that is
 * stopped, in one process with a fuzzer; no other program is run.
 *
 * The table of verbs here takes the place of limbd's: those that would reach
 * files of the machine outside of the state (cp, --from, --root), end limbd or
 * remove the environment are not in it.
 */
#ifndef TESTS_FUZZ_LIMBD_RIG_H
#define TESTS_FUZZ_LIMBD_RIG_H

#include "tests/fuzz/fuzz.h"

void rig_start(void); /* once */
/* What a client sends, in one go; then it waits for so many answers, but not long, and goes. */
void rig_say(const void *data, size_t n, size_t calls);

#endif
