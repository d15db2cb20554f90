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
	const struct facts *under; /* what is not here may be there */
	struct fact *of[BUCKETS];
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
	int names;	      /* of a node: those here that lead to it */
};

/* What a change makes has this id in a batch, until the environment has said which node it is. */
#define AHEAD (1ull << 62)
static inline bool is_ahead(uint64_t id)
{
	return id >= AHEAD && id < FACT_GONE;
}

struct judged {
	struct rec_plan plan;
	int r;
	bool plain; /* what comes of it is foreseen: others may follow in the same batch */
	char *path, *to_path; /* of the plan's names, from the root */
	/* conflict: the environment's version */
	struct node other;
	uint8_t *target;
	uint64_t other_seq;
	/* what is at the plan's goal, and in which directory: as foreseen, then as confirmed */
	uint64_t made, made_dir;
	uint64_t was; /* plan.node as it was judged, where it has another id now; 0 */
	bool passed;  /* what it made was replaced by a later one of the batch */
	/* A change of the same batch that was the last to touch what it is about, what it replaces;
	 * 0: none. What goes then is to have this content. */
	uint64_t left, replaces_left;
	struct content_ref goes;
};

/* One change of those that are under way. */
struct part {
	struct queue *queue;
	struct item *it;
	struct judged j;
	uint64_t request; /* 0: not asked for yet */
	uint32_t push;
	bool answered;
	int r; /* what was answered */
	char detail[100];
};

enum {
	BATCH_MAX = 256,
	/* Asked for after a crash: those that were under way, and what a person had tried again. */
	PARTS_MAX = 512,
};

enum queue_state {
	QUEUE_IDLE,
	QUEUE_SETTLING, /* which were made already? and a barrier: what became of the tree */
	QUEUE_JUDGING,
	QUEUE_SENDING, /* ... and a barrier, which shows what was made */
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
	struct facts facts, merged; /* merged: of those, what a fork's merges made, */
	uint64_t merged_last;	    /* that whose merge this is the last change of; 0: of none */
	uint64_t durable_to;	    /* highest number that is durable */
	struct seen *view[BUCKETS];
	bool view_fresh;
	struct buf target, xattrs; /* lent by queue_seen */
	bool views_over;	   /* of what came from a view something has ended */

	/* those that are under way, in their order */
	enum queue_state state;
	struct part *parts; /* PARTS_MAX */
	size_t n_parts;
	bool batched; /* they were several */
	struct item
		*perhaps; /* settling: made, too, if limb-syncd died before it kept the number */
	bool refused;	  /* the one behind those that were made was not */
	struct ahead *ahead;
	uint64_t batch;		  /* number of the newest */
	uint64_t seen;		  /* CHANGEs of this incarnation that were in the tree judged */
	uint64_t settled_session; /* of the line in which everything was settled */
	bool unsure;		  /* something was asked for, and nobody knows what was made */
	size_t window;		  /* so many at a time */
	unsigned tries, stale;
	int r;		  /* of the helper thread's work */
	size_t recording; /* ends that are not durable yet */
	int record_r;
	uv_work_t work;
	uv_timer_t timer; /* waits end, and what could not go on is tried again */
	uv_timer_t pause; /* until the line has room */
	unsigned closing; /* timers that still close */
	bool working;	  /* a helper thread has it */

	/* sending: which part, and how far its bytes are */
	size_t at;
	bool begun;
	uint32_t push;
	struct content_ref pieces[2];
	uint64_t piece_from[2];
	unsigned piece;
	uint64_t piece_at, sent, sent_all;
	struct sha256_ctx *hash;
	struct content_ref became;
	struct buf frames;
	bool all_sent;
	bool barrier;	  /* is under way */
	uint8_t applying; /* origin that is counted in env->applying; 0: none */
};

/* queue.c */
void item_free(struct item *it);
void item_remove(struct queue *q, struct item *it);
void queue_later(struct queue *q); /* queue_kick() again, soon */
/* It has ended, or is refused; who waits hears that by queue_told(). */
void queue_over(struct queue *q, struct item *it, const char *outcome, int error, uint64_t seq);
void queue_told(struct queue *q);

/* queue-facts.c */
struct fact *fact_find(const struct facts *f, uint64_t id);
void facts_clear(struct facts *f);
int facts_take(struct facts *f, const Limb__IntentEnd *e); /* both: */
int facts_take_ids(struct facts *f, const Limb__IntentEnd *e);
int facts_take_own(struct facts *f, const Limb__IntentEnd *e);
uint64_t alias_of(const struct facts *f, uint64_t id);

/* queue-merge.c */
int merge_open(struct queue *q);
int merge_facts(struct queue *q, const struct item *it); /* before it is judged */
int merge_ended(struct queue *q, const struct item *it, const Limb__IntentEnd *e);
void merge_forget(struct queue *q);
bool merge_is_whole(const struct queue *q, const struct item *it);

/* queue-view.c */
void view_clear(struct queue *q);
void view_append(struct queue *q, const struct item *it); /* the newest */

/* queue-ahead.c: the tree as it will be when the changes of a batch are made, over an index. */
int ahead_new(const struct facts *under, struct ahead **ret);
void ahead_free(struct ahead *a);
struct facts *ahead_facts(struct ahead *a);
/* *ret_node: what the name leads to, 0 nothing. False: the index knows. */
bool ahead_entry(const struct ahead *a, const struct intent_name *n, uint64_t *ret_node);
/* False: the index knows, but for its links, to which *ret_links are to be added. */
bool ahead_node(const struct ahead *a, uint64_t node, struct node *ret, int *ret_links);
/* Its attributes, or time, are not what the index has, and maybe not what is foreseen. */
bool ahead_touched(const struct ahead *a, uint64_t node);
/* Which change touched it last; 0: none. */
uint64_t ahead_left(const struct ahead *a, uint64_t node);
/* A name that it was given here, and has. */
bool ahead_name(const struct ahead *a, uint64_t node, struct intent_name *ret);
/* Entries of a directory that were given here; until each() is true. */
bool ahead_list(const struct ahead *a, uint64_t dir,
		bool (*each)(const struct intent_name *n, uint64_t node, void *arg), void *arg);
/* The plan is made; now: of plan.node, NULL where it has none. j->made, made_dir are set. */
int ahead_take(struct ahead *a, const struct item *it, struct judged *j, const struct node *now);

/* queue-judge.c; in the helper thread. Read items and facts; fill the parts' judged. */
void judge(struct queue *q);	  /* n_parts: those that can be made together */
void judge_made(struct queue *q); /* what the environment calls what they made */
/* The same for parts that were made, and nobody knows any more how they were judged. */
void judge_found(struct queue *q);
void judged_done(struct judged *j);

/* queue-record.c */
void end_fill(const struct facts *f, const struct item *it, const struct judged *j,
	      const struct content_ref *became, Limb__IntentEnd *e, Limb__Content c[2]);
int record_conflict(struct queue *q, const struct part *p, queue_durable_fn fn, void *userdata);
int record_end(struct queue *q, const struct part *p, const char *outcome, queue_durable_fn fn,
	       void *userdata);
int record_unapplied(struct queue *q, const struct part *p, int error, const char *detail,
		     queue_durable_fn fn, void *userdata);

/* queue-send.c: asks for all parts, or (ask) whether they were made; answers are in the parts.
 * queue_sent() when all is on its way, queue_answered() at each answer; not both at once. */
int send_begin(struct queue *q, bool ask);
void send_end(struct queue *q); /* nothing is waited for any more */
void queue_sent(struct queue *q);
void queue_answered(struct queue *q);

#endif
