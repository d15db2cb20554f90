/*
 * store-repair.h - brings a store's table and its packs into line when it is
 * opened: the writer's by mending packs, a copy's by reading them. For store*.c
 * alone.
 */
#ifndef JOURNAL_STORE_REPAIR_H
#define JOURNAL_STORE_REPAIR_H

#include "journal/store-mem.h"
#include "journal/store-table.h"

/* Enters what the table does not know. Packs that are not sealed are walked behind
 * what is known of them, each content compared with its hash; a torn tail is cut,
 * and they are sealed (one that a limb-ingest still has open is left as it is). `unseen`:
 * the table is new, and not published yet. */
int store_repair_table(int packs_fd, struct store_table *t, bool unseen);

int store_repair_load(int packs_fd, struct store_mem *m);

/* Cuts a pack to length and seals it, durably. */
int store_repair_seal(int fd, uint64_t length_bytes);

#endif
