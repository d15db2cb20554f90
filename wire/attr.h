/*
 * attr.h - between a struct node and its protobuf form (record.proto's Attr
 * and Content), with every limit checked on the way in.
 *
 * Used by limb-syncd (what it sends and restores), limb-ingest (what it reads)
 * and limbd.  wire_attr_fill() makes a message that points into the node's memory
 * and into `scratch`: free nothing, keep both until it is packed.
 */
#ifndef WIRE_ATTR_H
#define WIRE_ATTR_H

#include "journal/node.h"
#include "journal/record.pb-c.h"

struct wire_attr_scratch {
	Limb__Attr attr;
	Limb__Content content;
	Limb__Xattr *xattrs;
	Limb__Xattr **xattr_ptrs;
	size_t xattrs_cap;
};
void wire_attr_scratch_done(struct wire_attr_scratch *s);

/* s->attr, and s->content for files, from n, whose xattr list must be canonical. */
int wire_attr_fill(struct wire_attr_scratch *s, const struct node *n);

/* n from messages (either may be NULL; no attributes break a rule). The target points into
 * a; the packed, sorted xattr list is appended to xattrs_out and points there (valid until
 * that buffer changes). -EBADMSG with *ret_why (static text) for what breaks a rule, and
 * -E2BIG when xattrs_out is full. */
int wire_attr_parse(const Limb__Attr *a, const Limb__Content *c, struct buf *xattrs_out,
		    struct node *ret, const char **ret_why);

#endif
