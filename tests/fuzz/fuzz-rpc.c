/* Any frames from a client: limbd answers with whole frames of JSON, and goes on. Each call with an
 * id has one answer. */
#include "base/buf.h"
#include "brain/rpc.h"
#include "tests/fuzz/limbd-rig.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	_cleanup_(buf_done) struct buf frames = BUF_INIT(0);
	struct fuzz_in in = {data, size};
	size_t calls = 0;

	rig_start();
	if (size > 64 << 10)
		return 0;
	while (in.n > 0) {
		uint8_t what = (uint8_t)fuzz_take(&in, 1), head[RPC_HEADER_BYTES] = {0};
		const uint8_t *text;
		size_t n = fuzz_take_bytes(&in, SIZE_MAX, &text);

		put_le32(head, what == 0xff ? UINT32_MAX : (uint32_t)n);
		head[4] = what & 0x80 ? what : what & 1 ? RPC_STDIN : RPC_JSON;
		must(buf_add(&frames, head, sizeof(head)) == 0 && buf_add(&frames, text, n) == 0);
		calls += head[4] == RPC_JSON && memmem(text, n, "\"id\"", 4);
	}
	rig_say(buf_data(&frames), buf_len(&frames), calls);
	return 0;
}
