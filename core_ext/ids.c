/* Loops on ids; ids_numpy.py documents each one and is their twin. */
#include "ids.h"

#include <stdlib.h>
#include <string.h>

#include "hashing.h"
#include "variants.h"

/* Ids hashed ahead of the probes, so that their entries are in the cache by then. */
enum { BLOCK = 32 };

/* Rows fetched ahead of the additions. */
enum { ROWS_AHEAD = 16 };

void edlz_partitions_of(const int64_t *ids, ptrdiff_t count, uint32_t partitions, int32_t *owners)
{
    for (ptrdiff_t i = 0; i < count; i++)
        owners[i] = (int32_t)edlz_partition_of(ids[i], partitions);
}

/* A set of ids by open addressing: entry 0 is empty, any other one is the number of an id in `firsts`, plus 1.
 * It is at most a quarter full: twice that costs a third of the speed in wrongly predicted branches. */
typedef struct {
    uint32_t *entries;
    uint64_t mask;
    int shift;
} id_set;

static int set_bits(ptrdiff_t count)
{
    int bits = 6;
    while (((ptrdiff_t)1 << bits) < 4 * count)
        bits++;
    return bits;
}

static id_set empty_set(void *memory, int bits)
{
    const size_t size = (size_t)1 << bits;
    id_set set = {memory, size - 1, 64 - bits}; /* the high bits: see hashing.h */
    memset(set.entries, 0, size * sizeof *set.entries);
    return set;
}

static void hash_ahead(const id_set *set, const int64_t *ids, ptrdiff_t count, uint64_t *starts)
{
    for (ptrdiff_t i = 0; i < count; i++) {
        starts[i] = edlz_mix64((uint64_t)ids[i]) >> set->shift;
        __builtin_prefetch(&set->entries[starts[i]], 1);
    }
}

static ptrdiff_t at_most_block(ptrdiff_t count)
{
    return count < BLOCK ? count : BLOCK;
}

/* Number the distinct ids in the order of their first occurrence. */
static ptrdiff_t number_ids(id_set *set, const int64_t *ids, ptrdiff_t count, int64_t *firsts, int32_t *numbers)
{
    uint64_t starts[2][BLOCK]; /* of the block in work, and of the one whose entries are on their way */
    ptrdiff_t distinct = 0;
    hash_ahead(set, ids, at_most_block(count), starts[0]);
    for (ptrdiff_t begin = 0, turn = 0; begin < count; begin += BLOCK, turn ^= 1) {
        if (begin + BLOCK < count)
            hash_ahead(set, ids + begin + BLOCK, at_most_block(count - begin - BLOCK), starts[turn ^ 1]);
        const ptrdiff_t size = at_most_block(count - begin);
        for (ptrdiff_t i = 0; i < size; i++) {
            const int64_t id = ids[begin + i];
            uint64_t at = starts[turn][i];
            uint32_t entry;
            while ((entry = set->entries[at]) != 0 && firsts[entry - 1] != id)
                at = (at + 1) & set->mask;
            if (entry == 0) {
                firsts[distinct] = id;
                entry = (uint32_t)++distinct;
                set->entries[at] = entry;
            }
            numbers[begin + i] = (int32_t)(entry - 1);
        }
    }
    return distinct;
}

/* Move ids that stand in the order of their first occurrence to their partitions' parts of `unique`, and make
 * places of the numbers.  `owners` and `moved` have room for all distinct ids, `ends` for all partitions. */
static void sort_by_partition(const int64_t *firsts, ptrdiff_t distinct, uint32_t partitions, int64_t *unique,
                              int64_t *counts, int32_t *places, ptrdiff_t count, int32_t *owners,
                              int32_t *moved, int64_t *ends)
{
    edlz_partitions_of(firsts, distinct, partitions, owners);
    for (ptrdiff_t i = 0; i < distinct; i++)
        counts[owners[i]]++;
    int64_t end = 0;
    for (uint32_t partition = 0; partition < partitions; partition++) {
        ends[partition] = end;
        end += counts[partition];
    }
    for (ptrdiff_t i = 0; i < distinct; i++) {
        moved[i] = (int32_t)ends[owners[i]]++;
        unique[moved[i]] = firsts[i];
    }
    for (ptrdiff_t i = 0; i < count; i++)
        places[i] = moved[places[i]];
}

ptrdiff_t edlz_group_ids(const int64_t *ids, ptrdiff_t count, uint32_t partitions, int64_t *unique,
                         int64_t *counts, int32_t *places)
{
    for (uint32_t partition = 0; partition < partitions; partition++)
        counts[partition] = 0;
    if (count == 0)
        return 0;
    /* One block for all, so that the C library keeps it from call to call: taking its pages from the system anew
     * each time would cost more than the work. */
    const size_t size = (size_t)count;
    const int bits = set_bits(count);
    const size_t sorting_bytes = (size + partitions) * sizeof(int64_t) + 2 * size * sizeof(int32_t);
    int64_t *memory = malloc((partitions > 1 ? sorting_bytes : 0) + (sizeof(uint32_t) << bits));
    if (memory == NULL)
        return -1;
    ptrdiff_t distinct;
    if (partitions == 1) {
        id_set set = empty_set(memory, bits);
        distinct = number_ids(&set, ids, count, unique, places);
        counts[0] = distinct;
    } else {
        int64_t *firsts = memory, *ends = firsts + size;
        int32_t *owners = (int32_t *)(ends + partitions), *moved = owners + size;
        id_set set = empty_set(moved + size, bits);
        distinct = number_ids(&set, ids, count, firsts, places);
        sort_by_partition(firsts, distinct, partitions, unique, counts, places, count, owners, moved, ends);
    }
    free(memory);
    return distinct;
}

ptrdiff_t edlz_first_outside(const int32_t *places, ptrdiff_t count, ptrdiff_t rows)
{
    for (ptrdiff_t i = 0; i < count; i++)
        if (places[i] < 0 || places[i] >= rows)
            return i;
    return -1;
}

static inline __attribute__((always_inline)) void add_rows(float *sums, const float *gradients,
                                                           const int32_t *places, ptrdiff_t count,
                                                           ptrdiff_t dim)
{
    for (ptrdiff_t i = 0; i < count; i++) {
        if (i + ROWS_AHEAD < count)
            __builtin_prefetch(sums + places[i + ROWS_AHEAD] * dim, 1);
        float *sum = sums + places[i] * dim;
        const float *row = gradients + i * dim;
#pragma omp simd
        for (ptrdiff_t k = 0; k < dim; k++)
            sum[k] += row[k];
    }
}

EDLZ_KERNEL
void edlz_add_rows(float *sums, const float *gradients, const int32_t *places, ptrdiff_t count, ptrdiff_t dim)
{
    /* The usual lengths are written out, without a loop in the loop. */
    switch (dim) {
    case 8:
        add_rows(sums, gradients, places, count, 8);
        return;
    case 16:
        add_rows(sums, gradients, places, count, 16);
        return;
    case 32:
        add_rows(sums, gradients, places, count, 32);
        return;
    case 64:
        add_rows(sums, gradients, places, count, 64);
        return;
    default:
        add_rows(sums, gradients, places, count, dim);
    }
}
