/* The same tests by the walk of components, as where openat2 is missing. */
#define FORCE_WALK 1
#include "tests/unit/test-base-beneath.c"
