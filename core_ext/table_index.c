/* Growth of the index, and taking back what was inserted in vain; see table_index.h. */
#include "table_index.h"

#include "variants.h"

enum { DOUBLING_BUCKETS = 1 << 16 }; /* up to 4 MB the index doubles; then memory counts more than time */

int edlz_index_open(edlz_region *buckets, uint64_t count)
{
    const size_t bytes = count * sizeof(edlz_bucket);
    if (edlz_region_reserve(buckets, bytes, bytes < 2 * EDLZ_HUGE_PAGE_BYTES ? EDLZ_NEVER_HUGE : 0))
        return EDLZ_NO_MEMORY;
    if (edlz_region_commit(buckets, bytes) == 0)
        return EDLZ_DONE;
    edlz_region_release(buckets);
    return EDLZ_NO_MEMORY;
}

/* Entries go in the order of their homes from the old buckets to the new ones, both nearly in sequence; what
 * was moved is given back at once, so that the two indices are never in memory as a whole. */
EDLZ_KERNEL
static void move_entries(edlz_table *table, edlz_bucket *new_buckets, uint64_t new_count)
{
    enum { GIVEN_BACK = EDLZ_HUGE_PAGE_BYTES / sizeof(edlz_bucket) };
    const edlz_bucket *old = edlz_buckets(table);
    for (uint64_t at = 0; at < table->bucket_count; at++) {
        for (int i = 0; i < EDLZ_BUCKET_IDS && old[at].places[i]; i++) {
            const int64_t id = old[at].ids[i];
            edlz_put(new_buckets, new_count, edlz_home(id, new_count), id, old[at].places[i]);
        }
        if ((at + 1) % GIVEN_BACK == 0)
            edlz_region_discard(&table->buckets, (at + 1 - GIVEN_BACK) * sizeof(edlz_bucket),
                                (at + 1) * sizeof(edlz_bucket));
    }
}

int edlz_index_grow(edlz_table *table, uint64_t rows)
{
    const uint64_t old_count = table->bucket_count;
    const uint64_t least = (uint64_t)((double)(rows + rows / 16) / EDLZ_ROWS_PER_BUCKET) + 1;
    uint64_t count = old_count < DOUBLING_BUCKETS ? 2 * old_count : old_count + old_count * 9 / 20;
    if (count < least)
        count = least;
    edlz_region region;
    if (edlz_index_open(&region, count))
        return EDLZ_NO_MEMORY;
    move_entries(table, (edlz_bucket *)region.base, count);
    edlz_region_release(&table->buckets);
    table->buckets = region;
    table->bucket_count = count;
    return EDLZ_DONE;
}

void edlz_index_take_back(edlz_table *table, const int64_t *ids, uint64_t count)
{
    edlz_bucket *buckets = edlz_buckets(table);
    while (count--) {
        uint64_t at = edlz_home(ids[count], table->bucket_count);
        const uint64_t place = edlz_find(buckets, table->bucket_count, ids[count], &at);
        int i = 0;
        while (buckets[at].places[i] != place)
            i++;
        buckets[at].places[i] = 0;
    }
}
