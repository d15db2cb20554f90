#include "journal/store-mark.h"

#include <fcntl.h>
#include <lmdb.h>
#include <sys/stat.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/sha256.h"

#define MARK_NAME "state"
#define MARK_MAGIC "LIMBSIX\n"
#define MARK_BYTES 88
#define MARK_VERSION 1

static uint32_t machine(void)
{
	return (uint32_t)(MDB_VERSION_MAJOR << 24 | MDB_VERSION_MINOR << 16 | sizeof(size_t) << 8 |
			  (htole16(1) == 1)) ^
	       (uint32_t)sysconf(_SC_PAGESIZE);
}

static void boot_id(uint8_t out[16])
{
	if (clock_boot_id(out) < 0)
		random_bytes(out, 16); /* never the same: only clean marks count */
}

static int stat_data(int index_fd, struct stat *ret)
{
	return fstatat(index_fd, "data.mdb", ret, AT_SYMLINK_NOFOLLOW) < 0 ? -errno : 0;
}

int store_mark_read(int index_fd, struct store_mark *ret)
{
	_cleanup_(buf_done) struct buf b = BUF_INIT(MARK_BYTES);
	uint8_t check[SHA256_BYTES];
	const uint8_t *p;
	int r;

	r = file_read(index_fd, MARK_NAME, &b);
	if (r < 0)
		return r;
	p = buf_data(&b);
	if (buf_len(&b) != MARK_BYTES || memcmp(p, MARK_MAGIC, 8) != 0)
		return -EBADMSG;
	sha256(p, MARK_BYTES - 8, check);
	if (memcmp(check, p + MARK_BYTES - 8, 8) != 0)
		return -EBADMSG;
	if (get_le32(p + 8) != MARK_VERSION)
		return -EPROTONOSUPPORT;
	ret->machine = get_le32(p + 12);
	ret->clean = get_le64(p + 16) != 0;
	memcpy(ret->boot_id, p + 24, 16);
	ret->dev = get_le64(p + 40);
	ret->ino = get_le64(p + 48);
	ret->txn = get_le64(p + 56);
	return 0;
}

int store_mark_write(int index_fd, bool clean, uint64_t txn)
{
	uint8_t p[MARK_BYTES] = {0}, check[SHA256_BYTES];
	struct stat st;
	int r;

	r = stat_data(index_fd, &st);
	if (r < 0)
		return r;
	memcpy(p, MARK_MAGIC, 8);
	put_le32(p + 8, MARK_VERSION);
	put_le32(p + 12, machine());
	put_le64(p + 16, clean);
	boot_id(p + 24);
	put_le64(p + 40, st.st_dev);
	put_le64(p + 48, st.st_ino);
	put_le64(p + 56, txn);
	sha256(p, MARK_BYTES - 8, check);
	memcpy(p + MARK_BYTES - 8, check, 8);
	return file_replace(index_fd, MARK_NAME, p, sizeof(p));
}

bool store_mark_trusted(int index_fd, const struct store_mark *m)
{
	uint8_t boot[16];
	struct stat st;

	if (m->machine != machine())
		return false;
	if (m->clean)
		return true;
	boot_id(boot);
	return memcmp(boot, m->boot_id, sizeof(boot)) == 0 && stat_data(index_fd, &st) == 0 &&
	       m->dev == st.st_dev && m->ino == st.st_ino;
}
