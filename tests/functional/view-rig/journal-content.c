#include "tests/functional/view-rig/journal-impl.h"

#include <fcntl.h>

#include "base/file.h"
#include "base/io.h"

static void add_frame(struct journal *j)
{
	struct store_place places[FRAME_MEMBERS_MAX];
	struct frame f;
	int r;

	if (frame_builder_empty(j->frames))
		return;
	r = frame_builder_finish(j->frames, &f);
	if (r >= 0)
		r = io_pwrite_full(j->pack_fd, f.bytes, f.n, j->pack_at, "rig.frame");
	if (r < 0)
		fail(r, "frame");
	for (size_t i = 0; i < f.n_members; i++) {
		places[i] = (struct store_place){
			.offset = j->pack_at, .len = f.members[i].len, .kind = f.members[i].kind};
		memcpy(places[i].hash, f.members[i].hash, SHA256_BYTES);
		memcpy(places[i].pack_id, j->pack_id, sizeof(j->pack_id));
	}
	j->pack_at += f.n;
	r = store_add(j->store, places, f.n_members);
	if (r < 0)
		fail(r, "store_add");
	if (j->pack_at > PACK_SEAL_BYTES) {
		const uint8_t env_id[16] = {1};
		(void)close(j->pack_fd);
		r = store_pack_done(j->store, j->pack_id, j->pack_at);
		if (r >= 0)
			r = store_pack_create(j->store, env_id, 0, j->pack_id, &j->pack_fd);
		if (r < 0)
			fail(r, "pack");
		j->pack_at = PACK_HEADER_BYTES;
	}
}

static int take_piece(enum frame_kind kind, const uint8_t hash[SHA256_BYTES], const void *data,
		      size_t n, void *userdata)
{
	struct journal *j = userdata;
	int r;

	r = frame_builder_add(j->frames, kind, hash, data, n);
	if (r == -E2BIG) {
		add_frame(j);
		r = frame_builder_add(j->frames, kind, hash, data, n);
	}
	if (r == 1)
		add_frame(j);
	return MIN(r, 0);
}

void capture(struct journal *j, int dir, const char *name, struct content_ref *ret)
{
	static uint8_t mem[1 << 20];
	int fd = openat(dir, name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC), r = 0;
	struct stat st;
	off_t at = 0;

	if (fd < 0 || fstat(fd, &st) < 0)
		fail(-errno, name);
	content_writer_begin(j->writer);
	while (r >= 0 && at < st.st_size) {
		off_t data = lseek(fd, at, SEEK_DATA);
		off_t end = data < 0 ? st.st_size : lseek(fd, data, SEEK_HOLE);
		ssize_t n;

		if (data < 0)
			data = st.st_size;
		if (data > at)
			r = content_writer_hole(j->writer, (uint64_t)(data - at));
		for (at = data; r >= 0 && at < end; at += n) {
			n = pread(fd, mem, MIN(sizeof(mem), (size_t)(end - at)), at);
			if (n <= 0)
				break;
			r = content_writer_data(j->writer, mem, (size_t)n);
		}
		at = MAX(at, end);
	}
	if (r >= 0)
		r = content_writer_end(j->writer, ret);
	if (r < 0)
		fail(r, "content");
	(void)close(fd);
}

void finish_content(struct journal *j)
{
	add_frame(j);
}

void open_content(struct journal *j, const uint8_t id[16])
{
	int r;

	r = store_open(j->store_fd, STORE_WRITE, &j->store);
	if (r >= 0)
		r = store_pack_create(j->store, id, 0, j->pack_id, &j->pack_fd);
	if (r >= 0)
		r = content_writer_new(take_piece, j, &j->writer);
	if (r >= 0)
		r = frame_builder_new(3, &j->frames);
	if (r < 0)
		fail(r, "store");
	j->pack_at = PACK_HEADER_BYTES;
}
