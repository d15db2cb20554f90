/* What the files of link.h share; nobody else includes it. */
#ifndef BRAIN_LINK_IMPL_H
#define BRAIN_LINK_IMPL_H

#include "base/buf.h"
#include "brain/link.h"

enum {
	LINK_IN_LIMIT = 16 << 20,
	LINK_READ_BYTES = 256 << 10,
};

/* Bytes for limb-ingest; a descriptor goes with the first of them. */
struct out {
	struct out *next;
	size_t n, done;
	int fd;
	uint8_t bytes[];
};

struct link {
	struct env *env;
	uv_process_t transport, ingest;
	uv_pipe_t said; /* the transport's stderr: bounded, as what is there may speak through it */
	char said_raw[200], said_line[256];
	size_t said_n, said_bytes;
	bool transport_alive, ingest_alive;
	/* libuv wants each handle that was initialised closed, once */
	bool transport_made, ingest_made, poll_made, said_made;
	struct proof *proof;   /* of what it has told of over this line */
	struct making *making; /* a pack on its way; link-out.c */
	bool starting;	       /* the provider's answer is awaited */
	int sock;
	uv_poll_t poll;
	uv_timer_t hello_timer;
	bool reading, writing, up, ending;
	uint64_t up_ms; /* since when it is up */
	struct buf in;
	size_t looked; /* bytes of it that the proof has seen */
	struct out *out_head, **out_tail;
	size_t out_bytes;
	uint64_t sent_bytes;
	unsigned closing; /* handles that still close */
};

void link_requests_fail(struct env *env, int r); /* link-request.c */
int link_flush(struct link *l);			 /* link-out.c; negative: the socket is dead */
void link_poll_update(struct link *l);		 /* link.c */
void link_pack_forget(struct link *l);
void link_maybe_free(struct link *l);
void link_transport_exit(uv_process_t *p, int64_t status, int sig);
void link_ingest_exit(uv_process_t *p, int64_t status, int sig);

#endif
