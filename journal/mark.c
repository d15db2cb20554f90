#include "journal/mark.h"

#include <fcntl.h>
#include <inttypes.h>
#include <lmdb.h>
#include <stdio.h>
#include <sys/stat.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/sha256.h"
#include "base/text.h"

#define MARK_MAX 1024

/*
 *	limb index 1
 *	number 3
 *	machine 12ab34cd
 *	boot 32 hex digits
 *	data DEV INO
 *	txn 7
 *	clean 0
 *	check 16 hex digits (of all that stands before this line)
 */
#define MARK_FORMAT                                                                               \
	"limb index %" PRIu32 "\nnumber %" PRIu64 "\nmachine %" PRIx32 "\nboot %s\ndata %" PRIu64 \
	" %" PRIu64 "\ntxn %" PRIu64 "\nclean %d\n"

static uint32_t machine(void)
{
	return (uint32_t)(MDB_VERSION_MAJOR << 24 | MDB_VERSION_MINOR << 16 | sizeof(size_t) << 8 |
			  (htole16(1) == 1)) ^
	       (uint32_t)sysconf(_SC_PAGESIZE);
}

void mark_index_name(char out[MARK_INDEX_NAME_MAX], uint64_t number)
{
	(void)snprintf(out, MARK_INDEX_NAME_MAX, "index.%" PRIu64, number);
}

static int stat_data(int dir_fd, uint64_t number, struct stat *ret)
{
	char name[MARK_INDEX_NAME_MAX] = ".", path[MARK_INDEX_NAME_MAX + 16];

	if (number > 0)
		mark_index_name(name, number);
	(void)snprintf(path, sizeof(path), "%s/data.mdb", name);
	return fstatat(dir_fd, path, ret, AT_SYMLINK_NOFOLLOW) < 0 ? -errno : 0;
}

static void check_text(char out[17], const void *text, size_t n)
{
	uint8_t hash[SHA256_BYTES];

	sha256(text, n, hash);
	text_hex(out, hash, 8);
}

static int parse(const char *text, struct mark *ret)
{
	const char *check = strstr(text, "check ");
	char boot[33], wanted[17];
	struct mark m;
	int clean;

	if (!check || (check > text && check[-1] != '\n') || strlen(check) != 6 + 16 + 1)
		return -EBADMSG;
	check_text(wanted, text, (size_t)(check - text));
	if (memcmp(check + 6, wanted, 16) != 0)
		return -EBADMSG;
	if (sscanf(text,
		   "limb index %" SCNu32 " number %" SCNu64 " machine %" SCNx32
		   " boot %32s data %" SCNu64 " %" SCNu64 " txn %" SCNu64 " clean %d",
		   &m.format, &m.number, &m.machine, boot, &m.dev, &m.ino, &m.txn, &clean) != 8 ||
	    text_unhex(m.boot_id, sizeof(m.boot_id), boot) < 0)
		return -EBADMSG;
	m.clean = clean == 1;
	*ret = m;
	return 0;
}

int mark_read(int dir_fd, const struct mark_kind *k, struct mark *ret)
{
	_cleanup_(buf_done) struct buf b = BUF_INIT(MARK_MAX);
	cleanup_free char *text = NULL;
	int r;

	r = file_read(dir_fd, k->name, &b);
	if (r == -E2BIG)
		return -ENOENT;
	if (r < 0)
		return r;
	r = buf_to_str(&b, &text);
	if (r < 0)
		return r;
	return parse(text, ret) < 0 ? -ENOENT : 0;
}

int mark_write(int dir_fd, const struct mark_kind *k, uint64_t number, uint64_t txn, bool clean)
{
	_cleanup_(buf_done) struct buf b = BUF_INIT(MARK_MAX);
	char boot[33], check[17];
	uint8_t boot_id[16];
	struct stat st;
	int r;

	r = stat_data(dir_fd, number, &st);
	if (r < 0)
		return r;
	/* Without a boot id only clean marks count. */
	if (clock_boot_id(boot_id) < 0)
		random_bytes(boot_id, sizeof(boot_id));
	text_hex(boot, boot_id, sizeof(boot_id));
	r = buf_printf(&b, MARK_FORMAT, k->format, number, machine(), boot, (uint64_t)st.st_dev,
		       (uint64_t)st.st_ino, txn, clean ? 1 : 0);
	if (r < 0)
		return r;
	check_text(check, buf_data(&b), buf_len(&b));
	r = buf_printf(&b, "check %s\n", check);
	return r < 0 ? r : file_replace(dir_fd, k->name, buf_data(&b), buf_len(&b));
}

bool mark_fits(const struct mark *m, const struct mark_kind *k)
{
	return m->format == k->format && m->machine == machine();
}

bool mark_trusted(int dir_fd, const struct mark *m, const struct mark_kind *k)
{
	uint8_t boot_id[16];
	struct stat st;

	if (!mark_fits(m, k))
		return false;
	if (m->clean)
		return true;
	return clock_boot_id(boot_id) >= 0 && memcmp(boot_id, m->boot_id, 16) == 0 &&
	       stat_data(dir_fd, m->number, &st) >= 0 && m->dev == st.st_dev && m->ino == st.st_ino;
}
