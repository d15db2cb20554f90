/* Any bytes as the file of `limb create --spec`: limb refuses it by name, or limbd gets an object
 * and answers. */
#include <sys/mman.h>

#include "base/buf.h"
#include "brain/rpc.h"
#include "bridge/args.h"
#include "tests/fuzz/limbd-rig.h"

static json_t *parse(const char *path, struct args *args)
{
	char *argv[] = {(char *)"limb",	  (char *)"create", (char *)"fresh",
			(char *)"--spec", (char *)path,	    NULL};

	return args_parse(5, argv, args);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	_cleanup_(buf_done) struct buf frame = BUF_INIT(0);
	_cleanup_(args_done) struct args args = {0};
	uint8_t head[RPC_HEADER_BYTES] = {0};
	char path[32], *text;
	json_t *failure, *o;
	int fd;

	rig_start();
	fd = memfd_create("spec", MFD_CLOEXEC);
	must(fd >= 0 && pwrite(fd, data, size, 0) == (ssize_t)size);
	(void)snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	failure = parse(path, &args);
	(void)close(fd);
	if (failure) {
		must(json_string_value(json_object_get(failure, "detail")) != NULL);
		json_decref(failure);
		return 0;
	}
	o = json_pack("{s:s, s:i, s:s, s:O}", "jsonrpc", "2.0", "id", 1, "method", "create",
		      "params", args.params);
	text = json_dumps(o, JSON_COMPACT);
	must(text != NULL);
	put_le32(head, (uint32_t)strlen(text));
	head[4] = RPC_JSON;
	must(buf_add(&frame, head, sizeof(head)) == 0 && buf_add_str(&frame, text) == 0);
	rig_say(buf_data(&frame), buf_len(&frame), 1);
	free(text);
	json_decref(o);
	return 0;
}
