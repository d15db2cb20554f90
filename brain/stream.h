/*
 * stream.h - a call that follows a job: its output to the client as it comes, the client's
 * input to it, and the answer at its end (exec, attach, wait, logs).
 *
 *	s = stream_new(call, job, STREAM_BYTES, STREAM_EXEC)
 *	s->...				what differs, below
 *	stream_go(s)			from here on it answers the call, maybe at once
 *
 * A client that reads slowly is waited for here, with what lies in the job's files; other
 * jobs and clients do not notice.
 */
#ifndef BRAIN_STREAM_H
#define BRAIN_STREAM_H

#include "brain/job.h"
#include "brain/rpc-server.h"

enum stream_how {
	STREAM_QUIET,
	STREAM_BYTES,  /* frames 'o' and 'r' */
	STREAM_PIECES, /* notifications "output": {stream, offset, data, data_base64?, at} */
};

enum stream_answer {
	STREAM_EXEC, /* the `exec` object, at the job's end */
	STREAM_JOB,  /* JOB, at the job's end or when all that there is was sent */
};

struct stream {
	struct call *call;
	struct job_watch watch; /* taken: offsets up to which it was sent */
	enum stream_how how;
	enum stream_answer answer;
	int only;	       /* this stream; 0: both */
	bool follow;	       /* STREAM_JOB: to the job's end */
	bool input;	       /* what the client sends goes to the job */
	bool kills;	       /* a client that cancels ends the job ... */
	bool outlive;	       /* ... but not one that is lost */
	bool with_output;      /* STREAM_EXEC: head and tail of it, max of each stream */
	uint64_t max, wait_ms; /* wait_ms: answered by then all the same; 0: never */

	bool over, cancelled;
	uint64_t step, left_out;
	bool stalled[2];
	uv_timer_t timer;
	bool timer_made;
};

struct stream *stream_new(struct call *call, struct job *job, enum stream_how how,
			  enum stream_answer answer); /* NULL: the call is answered */
void stream_go(struct stream *s);

/* One piece of output for JSON at the offset *at of a stream, below `to`: NULL when there is
 * none, *at is behind it or behind what was left out. `last`: nothing comes after `to`. */
json_t *stream_piece(struct job *job, int stream, uint64_t *at, uint64_t to, bool last,
		     int64_t when_ns);

#endif
