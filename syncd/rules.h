/*
 * rules.h - which names are not part of the tree: what the brain says in WELCOME, and the
 * .limbignore files beneath the root (base/ignore.h has what a line means).
 *
 * A .limbignore is read when its directory is listed, before any other name in it is
 * judged, and when an event names it. What was sent before a rule came stays as it is, in
 * the shadow and in the journal: rules never remove. Directories that are left out are
 * flagged (SHADOW_IGNORED), have no watch and are not listed.
 *
 * What is in force is told to the brain (IGNORES) in order with the CHANGEs.
 */
#ifndef SYNCD_RULES_H
#define SYNCD_RULES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/ignore.h"
#include "syncd/scan.h"
#include "wire/wire.pb-c.h"

#define RULES_NAME ".limbignore"

struct item;
struct sync;

struct rules_file {
	uint32_t dir; /* shadow's node */
	struct stamp st;
	char *text;
	size_t len;
};

struct rules {
	struct ignore said; /* all that is in force */
	char *person;
	size_t person_len;
	bool no_files; /* what is in the tree says nothing */
	struct rules_file *files;
	size_t n_files, bytes;
	bool gone;   /* files in `said` that are not there any more */
	bool unsent; /* the brain does not know yet */
};

void rules_done(struct rules *ru);
void rules_welcome(struct sync *sy, const Limbwire__Welcome *w);
void rules_forget(struct sync *sy); /* the shadow begins anew */
/* A name RULES_NAME was seen in the item's directory, or st NULL: there is none. scanning: what
 * is in that is looked at after this anyway. Who waits for the item waits for what follows. */
void rules_look(struct sync *sy, const struct item *it, const struct stamp *st, bool scanning);
/* So many names of the directory are left out. */
void rules_count(struct sync *sy, uint32_t dir, uint32_t names, uint64_t bytes);
void rules_dir_left(struct sync *sy, uint32_t dir);
void rules_dir_moved(struct sync *sy, uint32_t dir);
void rules_pump(struct sync *sy);
bool rules_is_name(const char *name, size_t len);

#endif
