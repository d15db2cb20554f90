/* What the files of queue.h share; nobody else includes it. */
#ifndef BRAIN_QUEUE_IMPL_H
#define BRAIN_QUEUE_IMPL_H

#include "brain/queue.h"
#include "journal/record.pb-c.h"

struct item {
	struct item *next;
	Limb__Record *rec; /* owned; `in` points into it */
	struct intent in;
	struct buf xattrs[2];
	char *path, *to_path;
	uint64_t base_seq, seq;
	int64_t since_ns;
	int error;    /* unapplied */
	bool durable; /* before that nothing is asked for */
	queue_durable_fn fn;
	void *userdata;
	struct queue *queue;
};

/* What is known of ids and nodes, by id. */
struct fact {
	struct fact *next;
	uint64_t id;
	bool has_alias, has_own;
	uint64_t alias; /* FACT_GONE: no more there */
	struct intent_own own;
	struct intent_names *before; /* own.before */
	char name[NODE_NAME_MAX];
};
#define FACT_GONE (INTENT_MADE - 1)

enum { BUCKETS = 4096 };

struct facts {
	struct fact *v[BUCKETS];
	bool any;
};

/* Entries and nodes of the brain's view that differ from the index. */
struct seen {
	struct seen *next;
	uint64_t parent; /* 0: a node */
	uint64_t node;
	const char *name;
	uint16_t len;
	const struct node *n; /* of a node, lent by its item */
	int links;	      /* that it has more than in the index */
};

struct judged {
	struct rec_plan plan;
	int r;
	char *path, *to_path; /* of the plan's names, from the root */
	uint64_t seen;	      /* CHANGEs of this incarnation that were in the tree */
	/* conflict: the environment's version */
	struct node other;
	uint8_t *target;
	uint64_t other_seq;
	/* confirming: what is at the plan's goal now, and in which directory */
	uint64_t made, made_dir;
	struct node made_node;
};

enum queue_state {
	QUEUE_IDLE,
	QUEUE_SETTLING, /* a barrier: what the environment became while nobody looked */
	QUEUE_JUDGING,
	QUEUE_SENDING,
	QUEUE_ASKED,
	QUEUE_SHOWING, /* a barrier: it shows what was made */
	QUEUE_CONFIRMING,
	QUEUE_RECORDING,
};

struct waiting {
	struct waiting *next;
	uint64_t last; /* number of the last one it waits for */
	uint64_t ms, until_ms;
	queue_fn fn;
	void *userdata;
	struct queue_result res;
};

struct queue {
	struct env *env;
	struct item *head, **tail;
	size_t n, n_unapplied;
	uint64_t bytes, conflicts;
	uint64_t last; /* highest number given */
	struct waiting *waiting;
	struct facts facts, merged; /* merged: of those, what a merge made (see queue-merge.c) */
	uint64_t durable_to;	    /* highest number that is durable */
	struct seen *view[BUCKETS];
	bool view_fresh;
	struct buf target, xattrs; /* lent by queue_seen */

	/* the one that is under way */
	enum queue_state state;
	struct item *item;
	uint64_t settled_session; /* of the line in which everything was settled */
	unsigned tries, stale;
	struct judged judged;
	uv_work_t work;
	uv_timer_t timer; /* waits end, and what could not go on is tried again */
	uv_timer_t pause; /* until the line has room */
	unsigned closing; /* timers that still close */
	bool working;	  /* a helper thread has it */

	/* its bytes */
	uint64_t request;
	uint32_t push;
	struct content_ref parts[2];
	uint64_t part_from[2];
	unsigned part;
	uint64_t part_at, sent;
	struct sha256_ctx *hash;
	struct content_ref became;
	struct buf frames;
	bool all_sent;
	uint8_t applying; /* origin that is counted in env->applying; 0: none */
};

/* queue.c */
void item_free(struct item *it);
void item_remove(struct queue *q, struct item *it);
void queue_later(struct queue *q); /* queue_kick() again, soon */
void queue_over(struct queue *q, struct item *it, const char *outcome, int error, uint64_t seq);

/* queue-facts.c */
const struct fact *fact_find(const struct facts *v, uint64_t id);
void facts_clear(struct facts *v);
int facts_take(struct queue *q, const Limb__IntentEnd *e);
int facts_take_ids(struct queue *q, const Limb__IntentEnd *e);
int facts_take_own(struct facts *v, const Limb__IntentEnd *e);
uint64_t alias_of(const struct queue *q, uint64_t id);

/* queue-merge.c */
int merge_open(struct queue *q);
bool merge_is_whole(const struct queue *q, const struct item *it);

/* queue-view.c */
void view_clear(struct queue *q);
void view_append(struct queue *q, const struct item *it); /* the newest */

/* queue-judge.c; in the helper thread. Reads item, facts, and no other item; fills judged. */
void judge(struct queue *q);
void judge_made(struct queue *q);
void judged_done(struct judged *j);

/* queue-record.c */
int record_conflict(struct queue *q, struct item *it, queue_durable_fn fn, void *userdata);
int record_end(struct queue *q, struct item *it, const char *outcome, queue_durable_fn fn,
	       void *userdata);
int record_unapplied(struct queue *q, struct item *it, int error, const char *detail,
		     queue_durable_fn fn, void *userdata);

/* queue-send.c: asks for the plan; queue_answered() with what came of it. */
void send_begin(struct queue *q);
void queue_answered(struct queue *q, int r, const char *detail);

#endif
