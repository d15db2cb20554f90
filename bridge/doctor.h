/*
 * doctor.h - what on this machine limbfs needs, each as one check.
 *
 *	struct doctor d = {.places = &places};
 *	for (i = 0; i < doctor_checks_count; i++)
 *		doctor_checks[i].run(&d, &result);
 *
 * Checks look and try; they change nothing, need no limbd, and run as any user.
 * A check that tries something which may hang (a mount, a sandbox) does so in a
 * child under a deadline.  `fail` means that something limbfs promises will not
 * work here; `warn` that it works less well; a next step says what to do.
 */
#ifndef BRIDGE_DOCTOR_H
#define BRIDGE_DOCTOR_H

#include <jansson.h>
#include <stddef.h>

#include "base/util.h"
#include "bridge/places.h"

enum doctor_status { DOCTOR_OK, DOCTOR_WARN, DOCTOR_FAIL };

struct doctor_result {
	enum doctor_status status;
	char *detail;
	char *step; /* NULL: none */
};

struct doctor_check {
	const char *name;
	void (*run)(const struct places *places, struct doctor_result *r);
};

extern const struct doctor_check doctor_checks[];
extern const size_t doctor_checks_count;

void doctor_result_done(struct doctor_result *r);

/* For checks: sets status, detail and step (NULL, or text) once. */
void doctor_say(struct doctor_result *r, enum doctor_status status, const char *step,
		const char *fmt, ...) _printf_(4, 5);
/* Runs fn in a child: its return value (0 to 125), -ETIMEDOUT after deadline_ms
 * (the child is killed), or another negative errno. */
int doctor_try(int (*fn)(const void *arg), const void *arg, unsigned deadline_ms);
/* The path of a program in PATH; NULL. */
char *doctor_find(const char *program);

void doctor_dev_fuse(const struct places *places, struct doctor_result *r);
void doctor_fusermount3(const struct places *places, struct doctor_result *r);
void doctor_user_namespaces(const struct places *places, struct doctor_result *r);
void doctor_bwrap(const struct places *places, struct doctor_result *r);
void doctor_inotify_watches(const struct places *places, struct doctor_result *r);
void doctor_inotify_instances(const struct places *places, struct doctor_result *r);
void doctor_openat2(const struct places *places, struct doctor_result *r);
void doctor_state_dir(const struct places *places, struct doctor_result *r);
void doctor_disk(const struct places *places, struct doctor_result *r);
void doctor_mount_point(const struct places *places, struct doctor_result *r);
void doctor_stale_mount(const struct places *places, struct doctor_result *r);
void doctor_limbd(const struct places *places, struct doctor_result *r);

#endif
