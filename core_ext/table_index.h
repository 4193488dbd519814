/* From ids to row numbers: open addressing over cache lines.
 *
 * A bucket is one cache line.  An id's home is a multiply-shift of its hash, so homes are in the order of the
 * hashes whatever the number of buckets is: growth need not double, and moves the entries in one pass from
 * front to back.  A bucket is filled from the left, one that is full sends its ids on to the next, and nothing
 * is ever removed (but see edlz_index_take_back), so a bucket with a free place ends a search.
 */
#ifndef EDLZ_TABLE_INDEX_H
#define EDLZ_TABLE_INDEX_H

#include "hashing.h"
#include "table.h"

enum { EDLZ_BUCKET_IDS = 5 };

typedef struct edlz_bucket {
    int64_t ids[EDLZ_BUCKET_IDS];
    uint32_t places[EDLZ_BUCKET_IDS + 1]; /* row number + 1, 0: free; so any id is allowed.  The last stays 0 */
} edlz_bucket;

_Static_assert(sizeof(edlz_bucket) == 64, "a bucket is a cache line");

/* Most rows a bucket, on average.  With more of them, too many ids would stand elsewhere than in their home. */
#define EDLZ_ROWS_PER_BUCKET (0.65 * EDLZ_BUCKET_IDS)

int edlz_index_open(edlz_region *buckets, uint64_t count);

/* Grow by about a half, at least to `rows` rows. */
int edlz_index_grow(edlz_table *table, uint64_t rows);

/* Undo the newest `count` insertions, the newest first: the place that one found free, it leaves free. */
void edlz_index_take_back(edlz_table *table, const int64_t *ids, uint64_t count);

static inline edlz_bucket *edlz_buckets(const edlz_table *table)
{
    return (edlz_bucket *)table->buckets.base;
}

EDLZ_PART uint64_t edlz_home(int64_t id, uint64_t bucket_count)
{
    return (uint64_t)((unsigned __int128)edlz_mix64((uint64_t)id) * bucket_count >> 64);
}

/* The place of an id in one bucket, or 0.  Which of the ids it is cannot be predicted: hence no branch.  Free
 * places may hold any id; but they stand to the right, where the leftmost match is not, and are 0. */
EDLZ_PART uint64_t edlz_place_in(const edlz_bucket *bucket, int64_t id)
{
    size_t match = EDLZ_BUCKET_IDS;
    for (int i = EDLZ_BUCKET_IDS - 1; i >= 0; i--)
        match = bucket->ids[i] == id ? (size_t)i : match;
    return bucket->places[match];
}

EDLZ_PART int edlz_is_full(const edlz_bucket *bucket)
{
    return bucket->places[EDLZ_BUCKET_IDS - 1] != 0;
}

/* The place of an id, or 0; *at goes from its home to the bucket that ended the search. */
EDLZ_PART uint64_t edlz_find(const edlz_bucket *buckets, uint64_t bucket_count, int64_t id, uint64_t *at)
{
    for (;;) {
        const uint64_t place = edlz_place_in(buckets + *at, id);
        if (place || !edlz_is_full(buckets + *at))
            return place;
        *at = *at + 1 == bucket_count ? 0 : *at + 1;
    }
}

/* Put an id, which is not there, into the first free place from bucket `at` on. */
EDLZ_PART void edlz_put(edlz_bucket *buckets, uint64_t bucket_count, uint64_t at, int64_t id, uint64_t place)
{
    while (edlz_is_full(buckets + at))
        at = at + 1 == bucket_count ? 0 : at + 1;
    int filled = 0;
    for (int i = 0; i < EDLZ_BUCKET_IDS - 1; i++)
        filled += buckets[at].places[i] != 0;
    buckets[at].ids[filled] = id;
    buckets[at].places[filled] = (uint32_t)place;
}

#endif
