/*
 * The gear hash of a position is the sum of gear[byte] << age over the last 64
 * bytes, so a boundary depends on them alone. Two bytes are taken per round:
 * both hashes come from the one before, which halves the chain of dependent
 * instructions.
 */
#include "journal/chunk.h"

#define WINDOW_BYTES 64

/* First 8 bytes, little-endian, of SHA-256("limbfs gear", index as one byte). */
static const uint64_t gear[256] = {
	0x0ebb291a024d38e8, 0xf76bc503b159eb64, 0xfcdcb84835ba1f19, 0xd3f976675cfb594b,
	0x7c09abdd1ff5c0ce, 0xbe82db919d1753e5, 0xc366721516f68078, 0x855e725ac7af3ba3,
	0xcc46361ea4a3762b, 0x3bec39dc5840baeb, 0xfff226941e677b8d, 0x8ab0935643d1366c,
	0x97f2fa916f5ff0e8, 0xe66f58d04d0b9fd2, 0xd9daec6aa2af737c, 0x472db8863edb0077,
	0xbd5cf3ea52290170, 0xae0449c14ee5a89b, 0x4bdca92aae4fb199, 0xe4b97eead0e39041,
	0x83f2c6d075081fd3, 0x9cb6654f55ae8953, 0xb05064295b450e7e, 0xcde534462b002977,
	0x15edbe369408581b, 0x035f1d0f2b5c0c16, 0x806ce075155091fc, 0x3185a20b4487f8ec,
	0x628af300efc54049, 0x4cc8db612406fd2d, 0xe1ca125c39e87418, 0xd7470886cfa15097,
	0x7095198097b837a0, 0xf906fb959a8cd61f, 0xb787750cf6b86966, 0x4fa567224f8fb4ad,
	0x4988f5f0e009835b, 0xb99ffc00a2f8ee61, 0x26452306e170745d, 0x8dddee5fd5938bc1,
	0x9e485cff0ce99238, 0xba1c4a66a446f261, 0xda683780d891a04c, 0x6b35de10b5dea33d,
	0x214e55fcc61cfcd5, 0xd8e9ef5c732d5a4a, 0xb29d2c1dd80c7961, 0xaeeaea060d499b4f,
	0x0fd5db554a60cd6e, 0x83c60a47d7c3324a, 0xd7331e80b92ff61e, 0x1a374391e03f04e2,
	0x379540d2b7f00a8d, 0x78b6a603b8a4a069, 0x40b1b2e245163456, 0x3498711a486be629,
	0x33f3b2401f4d4ce0, 0xfdc4d41201a91613, 0xf1c394ce581a2652, 0x00dccb6af43e753a,
	0xf7a79b32674c52c7, 0x2666c97e541437c2, 0xad6b80dd0fff2795, 0xdae246adbb835de0,
	0x0dd32c7761825550, 0x8dcbce213525b588, 0x06445ed7e4bacee0, 0x312e2be03e813b0b,
	0x3609d849574786f5, 0x3e35aa31ed8bc48f, 0x3b3f00826a030bb8, 0x3f863ad6f0e5bef0,
	0x5a8957bd9f0a5d45, 0x9fe28fbe758275ea, 0x6dc07ec55eae3741, 0x6d652b61b41e3bb3,
	0x26d307ee3583d291, 0x2f2bceaccaffcf12, 0x94cdb9d904f35030, 0x6b58207361fab528,
	0xa81e57b39949ee30, 0x5d7a2efa0bc394f3, 0x7977e49928c056fb, 0xb0e1d70b6b997f4c,
	0x82bfdac38a79a38a, 0xfda3096f706d32fe, 0xaff7dd6897da77dd, 0x5c785db34b2b41e7,
	0x5d9dc357efae2710, 0xb8690aea3263caeb, 0x1b3385234d45321c, 0x66b404c2bcbc93c3,
	0xf40a8813f2d7362b, 0xee46166f471c9249, 0xca16bf79085196ab, 0xb950461880361e3c,
	0x16855d36d3cd074a, 0xde1b201129dfbfed, 0xeda22efa14225d9d, 0xb54dfa7865113dba,
	0xfcc51b0950d418c1, 0x8b8a7d2a88be951d, 0x8f8879f0b2bb957c, 0xf10ebedb2793ec6a,
	0x296eb8c3a1985000, 0x556322a9cc929cf0, 0x220a4aabdb7c7657, 0x2d81137fc48e299f,
	0x33c1db7830436622, 0x1787d37123530dd2, 0xe3e2ae6f26acb3a5, 0xa756f2a52585488f,
	0x27a4da5393650383, 0xaf82bd4293823211, 0xcedc1e4b3cc67502, 0xf71dcb67ac8aaa72,
	0x6174794b511e69ea, 0x24861a8e77ad9fc0, 0x5e641f495f15982e, 0x236d189afc29a15a,
	0xd1abef85ffcb0a06, 0x30075ae9d65a0052, 0xe8624235216d0a23, 0x17076073c755d694,
	0xcd1630488b0adbd2, 0x24ed46e7fa5befaa, 0xedd024d6ddb63f22, 0x36b313eac7bbf422,
	0xaf903d902f8bfd48, 0x456547d445863537, 0x632bf48228c0fc70, 0xe3280c23332efd2b,
	0xa2cca7dbb6e64948, 0xf2b650831027a75f, 0x107d493e8c7eadca, 0x7e2d072fca02e482,
	0xe7f2674c65bcc228, 0xac670b279656eea8, 0xae79926e02e6945f, 0x489be62b7b23f2c3,
	0x4be9d0a16029eafb, 0x72af806aa687fbaa, 0x423c95c51d94354f, 0x7f4a903379cfe7c3,
	0x4654e1f5e9ecfcd3, 0x48db0196e2768a06, 0xdb2d6bbb6a7e881f, 0x652e027f29e86724,
	0xcba0c3c9fd6d662e, 0xd1389a3732a239b5, 0xe9acf50cdb806d3e, 0x4bd998bdf4fe4873,
	0x14ff52c86f9795bf, 0xc7a28d09cbc48f23, 0xf09a15868855a2a1, 0x2e78aad6c6541531,
	0x616664b2e72c02ee, 0x138a7a8b2b5826ad, 0x9262d7739525c79b, 0x2047cff32310dfd2,
	0x82364be06a5f3645, 0x4755a5bcad2db3eb, 0x9bc8a52557f611f5, 0x2ec19bd5d4839e94,
	0x8aa0542b2c364c13, 0x5a45964e82edd159, 0xfc23cbc126a772a9, 0xa279c3e6b69415a7,
	0x9deee77dc66a9afc, 0xcaf26df1fd420c17, 0xfa5eee38cc2f0803, 0x1a15607555aa0b97,
	0xe8f4bb3e64ef1814, 0xff6312c083fcb9c2, 0x1fcc804e4f2164d9, 0x9a6764dfae0dd56f,
	0x5a0c2b695421158f, 0x4b727898ccdf1d55, 0x1b1739fe5f27981d, 0x1b8100d51c19ef7f,
	0x9cdf48eea5f77934, 0x97f135f4d1840617, 0xd28ee17370ef6100, 0x83963e8d27013921,
	0x569ca5fc99b6a75c, 0x26de88cbbd45ce11, 0x2e713f79c0261cbf, 0x248195817d6d221c,
	0x45deec9ee272e732, 0x192e61476249a969, 0x5fe5b79ed26e53ca, 0x49b65400956ed86d,
	0x75f2e285f719f297, 0x9e3dfb98d352dc6c, 0xe2c30866ce261fac, 0x645f7bfc9e3ae3e5,
	0xc35a071297e940db, 0x333ea2a385afba23, 0x56163e7c9099492e, 0xf79ae31dcbd004ab,
	0xe0c74eed6f6e3fd3, 0xbf6833ac4ce2a5c5, 0x1e10fe29d8f7699d, 0xa8f69e91e53f03f8,
	0x3c414ebd784f2f2d, 0x7d3df8305213ceba, 0xea2cf23e1cfeed51, 0xcc808bcf7d928987,
	0x62a8e8c0a0c176f3, 0x40b4e0adbcf6fa2d, 0x7b0c40dcf224b035, 0x1ba835c2601015da,
	0x10f6cbe481f08914, 0x35b4c75e0a762624, 0xfaf103c6d0b95617, 0x1bde955799c15576,
	0xd1d17e36e2485295, 0x1c908ad67d868e05, 0xf16148e47b3c96a9, 0xcfb4c343faa63695,
	0x4b42b1c06a0d0966, 0xb709c7359a58cc15, 0x6d085b7b5798e8db, 0xf27eb872d07d8092,
	0x020e3b79866ad4ef, 0x015db99a208136fd, 0x295f0aca320011e4, 0x801506ac79600f3c,
	0x94ac1a0a97a424dd, 0x4cae9759eccb1baa, 0x39d27e2d24b3704a, 0x2c42ecfefcd13515,
	0xcd565b0c3e568c07, 0x9607d5d5331322ed, 0x749c09518af89cd6, 0xd87cb9b82dd730e7,
	0x85df4e5336a54ae3, 0x254dfc6e133c781c, 0x8d267b20a6f3f6aa, 0xb47be2f2b6bfc823,
	0x1ea4c1e72ae504e9, 0x6e1c5cf845a05300, 0x219c810046dbf7a6, 0xffc27b1ec4804392,
	0x07578dfb9bff29e4, 0xf6f53fc1c95c5b68, 0x314808367f89abd7, 0x56b10f67738b305e,
	0xcef1d524b5f14928, 0xe702f8c477d21a1f, 0x315d9b0810e87e42, 0xbaa3da73fa3a34a8,
	0xa4b77016570cce93, 0xa31622f25d1c95c7, 0x07eec7be2f2d6045, 0x875052b3b0d2c1f2,
};

/* Length up to the first boundary in (from, to], 0 when there is none. `h` rolls on. */
static size_t scan(const uint8_t *data, size_t from, size_t to, unsigned bits, uint64_t *h)
{
	const uint64_t mask = ~UINT64_C(0) << (64 - bits);
	uint64_t h1, h2 = *h;
	size_t i = from;

	for (; i + 2 <= to; i += 2) {
		h1 = (h2 << 1) + gear[data[i]];
		h2 = (h2 << 2) + ((gear[data[i]] << 1) + gear[data[i + 1]]);
		if ((h1 & mask) == 0)
			return i + 1;
		if ((h2 & mask) == 0)
			return i + 2;
	}
	if (i < to) {
		h2 = (h2 << 1) + gear[data[i]];
		if ((h2 & mask) == 0)
			return i + 1;
	}
	*h = h2;
	return 0;
}

size_t chunk_cut(const uint8_t *data, size_t n, int last)
{
	uint64_t h = 0;
	size_t cut;

	/* While no more than this is known, it may be all: then it is one chunk. */
	if (n <= CHUNK_AVG)
		return last ? n : 0;

	for (size_t i = CHUNK_MIN - WINDOW_BYTES; i < CHUNK_MIN - 1; i++)
		h = (h << 1) + gear[data[i]];
	cut = scan(data, CHUNK_MIN - 1, CHUNK_AVG - 1, CHUNK_BITS_BEFORE_AVG, &h);
	if (cut == 0)
		cut = scan(data, CHUNK_AVG - 1, n < CHUNK_MAX ? n : CHUNK_MAX, CHUNK_BITS_FROM_AVG,
			   &h);
	if (cut > 0)
		return cut;
	if (n >= CHUNK_MAX)
		return CHUNK_MAX;
	return last ? n : 0;
}
