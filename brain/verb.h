/*
 * verb.h - the handlers of the verbs that are not a life (life.h): each takes a
 * call and answers it. verbs.c has the table.
 */
#ifndef BRAIN_VERB_H
#define BRAIN_VERB_H

#include "base/sha256.h"
#include "brain/rpc-server.h"

void verb_up(struct call *call);
void verb_down(struct call *call);
void verb_status(struct call *call);
void verb_ls(struct call *call);
void verb_inspect(struct call *call);
void verb_exec(struct call *call);
void verb_shell(struct call *call);
void verb_jobs(struct call *call);
void verb_logs(struct call *call);
void verb_wait(struct call *call);
void verb_attach(struct call *call);
void verb_input(struct call *call);
void verb_signal(struct call *call);
void verb_sync(struct call *call);
void verb_verify(struct call *call);
void verb_accept(struct call *call);
void verb_trust(struct call *call);
void verb_ps(struct call *call);
void verb_conflicts(struct call *call);
void verb_resolve(struct call *call);
void verb_retry(struct call *call);
void verb_drop(struct call *call);
void verb_cp(struct call *call);
void verb_merge(struct call *call);
void verb_mv(struct call *call);
void verb_rm(struct call *call);
void verb_restore(struct call *call);
void verb_set(struct call *call);
void verb_why(struct call *call);

/* For tools: text by lines, ENTRY of one path, search; a file written, or edited. */
void verb_file_read(struct call *call);
void verb_file_stat(struct call *call);
void verb_file_search(struct call *call);
void verb_file_write(struct call *call);
void verb_file_edit(struct call *call);

struct env *verb_env(struct call *call); /* or NULL and the call is answered */
/* The same, and attached: else 125 not_running, env_unreachable, halted, hostile at once. What it
 * changes may not be captured (quota.h). */
struct env *verb_attached_env(struct call *call);
/* The same, and what it changes is captured: else 125 not_running, env_unreachable, halted, hostile at once. */
struct env *verb_live_env(struct call *call);
/* A path of the environment as its components below the root ("" = the root); malloc'ed; NULL:
 * the call is answered (invalid_path). */
char *verb_path(struct call *call, struct env *env, const char *path);
const char *verb_code(int r);
void verb_fail_full(struct call *call, struct env *env); /* its journal is */
void verb_fail_errno(struct call *call, struct env *env, int r, const char *what);
/* The same of a path ("cannot be listed"); where it is not there, that is the sentence. */
void verb_fail_path(struct call *call, struct env *env, int r, const char *path, const char *what);

/* Values of the contract: text with its exact bytes beside it where it is no UTF-8, a hash,
 * ENTRY. */
struct index_node;
void verb_put_bytes(json_t *o, const char *key, const void *data, size_t n);
void verb_put_hash(json_t *o, const char *key, const uint8_t sha256[SHA256_BYTES]);
json_t *verb_entry_json(struct env *env, const char *dir, const char *name, size_t len,
			const struct index_node *n);

#endif
