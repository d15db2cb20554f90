/*
 * record-json.h - one record as the JSON object that `limb journal dump` prints.
 *
 * Fields are those of record.proto, by its descriptors: what is added there
 * shows here.  They stand beside seq, at, type and incarnation; absent = zero.
 * Hashes are "sha256:...", ids hex, modes octal text, times RFC 3339; bytes that
 * are not UTF-8 have their exact value in X_base64.  Operations also have the
 * path that they are about, where the records before tell it.
 */
#ifndef JOURNAL_RECORD_JSON_H
#define JOURNAL_RECORD_JSON_H

#include <jansson.h>

#include "journal/log.h"
#include "journal/record-paths.h"

/* Takes the record into paths and, unless ret is NULL, makes its object, which the
 * caller owns.  A body that cannot be read is shown as body_base64.  -ENOMEM. */
int record_json(const struct log_record *rec, struct record_paths *paths, json_t **ret);

#endif
