/* A hash of each row, added up: the sum does not depend on the order of the rows. */
#include "table.h"

#include "hashing.h"

#include <string.h>

/* Odd, with about half of their bits set, and otherwise arbitrary: digits of pi. */
static const uint64_t LOW = UINT64_C(0x243F6A8885A308D3), HIGH = UINT64_C(0x13198A2E03707345);

/* Both halves of the product meet, so that each bit of it depends on every bit that goes in. */
static inline uint64_t folded(uint64_t a, uint64_t b)
{
    const unsigned __int128 product = (unsigned __int128)a * b;
    return (uint64_t)product ^ (uint64_t)(product >> 64);
}

static unsigned __int128 row_hash(int64_t id, const float *row, ptrdiff_t width)
{
    uint64_t low = edlz_mix64((uint64_t)id), high = edlz_mix64(~(uint64_t)id);
    for (ptrdiff_t i = 0; i < width; i += 2) {
        uint32_t bits[2] = {0, 0};
        memcpy(bits, row + i, i + 1 < width ? 8 : 4);
        const uint64_t word = (uint64_t)bits[1] << 32 | bits[0];
        low = folded(low ^ word, LOW);
        high = folded(high + word, HIGH);
    }
    return (unsigned __int128)edlz_mix64(high) << 64 | edlz_mix64(low);
}

void edlz_table_digest(edlz_table *table, uint64_t sum[2])
{
    unsigned __int128 total = 0;
    pthread_rwlock_rdlock(&table->lock);
    for (uint64_t number = 0; number < table->row_count; number++)
        total += row_hash(edlz_row_ids(table)[number], edlz_row(table, number), table->width);
    pthread_rwlock_unlock(&table->lock);
    sum[0] = (uint64_t)total;
    sum[1] = (uint64_t)(total >> 64);
}
