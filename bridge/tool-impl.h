/* What the files of tool.h share; nobody else includes it. */
#ifndef BRIDGE_TOOL_IMPL_H
#define BRIDGE_TOOL_IMPL_H

#include "bridge/tool.h"

int tool_text_exec(struct buf *b, const json_t *answer);
int tool_text_job(struct buf *b, const json_t *answer);
int tool_text_read(struct buf *b, const json_t *answer);
int tool_text_list(struct buf *b, const json_t *answer);
int tool_text_search(struct buf *b, const json_t *answer);

#endif
