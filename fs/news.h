/*
 * news.h - what became different between two sequence numbers, of that which
 * the kernel knows: gathered from the index in read transactions, told
 * afterwards without one.
 *
 *	news_init(&n, fs, since);
 *	news_gather(&n, wanted)		n.seq is where it stands now
 *	... n.entries, n.dirs, n.nodes ...
 *	news_done(&n);
 */
#ifndef FS_NEWS_H
#define FS_NEWS_H

#include "fs/fs.h"

/* Ids are the journal's, and `shown` the kernel's, which are the same where nothing was
 * written in the view. What its overlay masks is no news. */
struct news_entry {
	uint64_t parent, shown;
	uint64_t
		dead; /* (the kernel's) the node, not a directory, that had this name and has none now; or 0 */
	size_t name_at;
	size_t len;
};

struct news_node {
	uint64_t id, shown;
	bool data; /* pages are old, too; else the attributes alone */
};

struct news {
	struct fs *fs;
	uint64_t since, seq;
	struct buf names;
	struct news_entry *entries;
	size_t n_entries, entries_room;
	uint64_t *dirs; /* whose listing changed */
	size_t n_dirs;
	struct news_node *nodes;
	size_t n_nodes, nodes_room;
};

void news_init(struct news *n, struct fs *fs, uint64_t since);
void news_done(struct news *n);
static inline const char *news_name(const struct news *n, const struct news_entry *e)
{
	return (const char *)buf_data(&n->names) + e->name_at;
}

/* Sets the floors of nodes and dirs to n->seq on the way, and drops listings. When the index
 * cannot tell what changed since, all that the kernel knows is compared. */
int news_gather(struct news *n, uint64_t wanted);

#endif
