#include "brain/had.h"

struct finder {
	struct digest *digest;
	struct sha256_ctx *sha; /* by content; else NULL */
	uint8_t (*hashes)[DIGEST_BYTES];
	size_t n;
	struct had had;
	size_t cap;
};

static int by_bytes(const void *a, const void *b)
{
	return memcmp(a, b, DIGEST_BYTES);
}

static int by_number(const void *a, const void *b)
{
	const uint64_t *x = a, *y = b;

	return (*x > *y) - (*x < *y);
}

static int on_dir(uint64_t dir, const uint8_t hash[DIGEST_BYTES], void *userdata)
{
	struct finder *f = userdata;

	if (!bsearch(hash, f->hashes, f->n, DIGEST_BYTES, by_bytes))
		return 0;
	if (f->had.n == f->cap) {
		size_t cap = f->cap ? f->cap * 2 : 256;
		uint64_t *dirs = reallocarray(f->had.dirs, cap, sizeof(*dirs));

		if (!dirs)
			return -ENOMEM;
		f->had.dirs = dirs;
		f->cap = cap;
	}
	f->had.dirs[f->had.n++] = dir;
	return 0;
}

static int on_entry(const char *path, size_t len, const struct index_node *n, uint32_t same_as,
		    void *userdata)
{
	struct finder *f = userdata;
	uint8_t sha[SHA256_BYTES];
	struct digest_entry e;
	size_t depth = 0, name = 0;

	(void)same_as;
	for (size_t i = 0; i < len; i++) {
		if (path[i] == '/') {
			depth++;
			name = i + 1;
		}
	}
	if (f->sha) {
		bool odd = n->n.type != NODE_TYPE_DIRECTORY && n->links > 1;

		digest_of_content(path, len, &n->n, odd ? n->id : 0, f->sha, sha, &e);
	} else {
		digest_of_node(n->id, &n->n, sha, &e);
		e.name = path + name;
		e.name_len = (uint8_t)(len - name);
	}
	return digest_add(f->digest, depth, &e);
}

int had_find(struct index_txn *t, uint64_t at, uint8_t (*hashes)[DIGEST_BYTES], size_t n,
	     bool by_content, struct had *ret)
{
	struct finder f = {.hashes = hashes, .n = n};
	int r;

	if (by_content && !(f.sha = sha256_new()))
		return -ENOMEM;
	qsort(hashes, n, DIGEST_BYTES, by_bytes);
	r = digest_new(NODE_ROOT, on_dir, &f, &f.digest);
	if (r == 0)
		r = index_walk(t, NODE_ROOT, at, on_entry, &f);
	if (r == 0)
		r = digest_end(f.digest);
	digest_free(f.digest);
	sha256_free(f.sha);
	if (r < 0) {
		had_done(&f.had);
		return r;
	}
	if (f.had.n)
		qsort(f.had.dirs, f.had.n, sizeof(*f.had.dirs), by_number);
	*ret = f.had;
	return 0;
}

bool had_is(const struct had *had, uint64_t dir)
{
	return had->n && bsearch(&dir, had->dirs, had->n, sizeof(dir), by_number);
}

void had_done(struct had *had)
{
	free(had->dirs);
	*had = (struct had){0};
}
