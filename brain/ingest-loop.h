/*
 * ingest-loop.h - limb-ingest's poll loop between limbd and a transport.
 *
 * Neither side can block the other: what goes to the environment is queued up to
 * a mark, above which limbd's socket is not read; entries for limbd likewise,
 * above which the transport is not read.
 */
#ifndef BRAIN_INGEST_LOOP_H
#define BRAIN_INGEST_LOOP_H

enum ingest_exit {
	INGEST_EXIT_ENDED = 0,	/* the transport, limbd, or by ENTRY_STOP */
	INGEST_EXIT_FAILED = 1, /* memory, the pack's file, limbd's words: see the log */
	INGEST_EXIT_USAGE = 2,
	INGEST_EXIT_HOSTILE = 3, /* said in ENTRY_HOSTILE */
};

/* Descriptors that never block: limbd's socket, and the transport's two ends (which may be
 * one socket). */
int ingest_loop(int limbd_fd, int in_fd, int out_fd);

#endif
