/*
 * basis.h - parts of a content that the environment has had, for its limb-ingest, which
 * makes the new one from them and from what came over the line.
 *
 * Only what the environment's own index names is given out.  One helper thread reads for an
 * environment at a time; limb-ingest asks for a few parts ahead, and no more.
 */
#ifndef BRAIN_BASIS_H
#define BRAIN_BASIS_H

#include "brain/env.h"

int basis_on_base(struct env *env, const struct entry_head *e);
void basis_stop(struct env *env); /* the line is gone */

#endif
