/* Kernels on lists of ids and on the gradient rows that belong to them.
 *
 * Any int64 is an id; none has a special meaning.  The caller has checked the arrays: aligned, and no array that
 * is written overlaps another one.  At most 2^31 - 1 ids at once.
 */
#ifndef EDLZ_IDS_H
#define EDLZ_IDS_H

#include <stddef.h>
#include <stdint.h>

/* The owner of each id; partitions > 0. */
void edlz_partitions_of(const int64_t *ids, ptrdiff_t count, uint32_t partitions, int32_t *owners);

/* Fill `unique` with the distinct ids, those of each partition together and in the order of their first
 * occurrence, `counts` with how many each partition has, and `places` with where in `unique` each id stands.
 *
 * unique has room for `count` ids, counts for `partitions`.  Return how many are distinct, -1 without memory.
 */
ptrdiff_t edlz_group_ids(const int64_t *ids, ptrdiff_t count, uint32_t partitions, int64_t *unique,
                         int64_t *counts, int32_t *places);

/* The index of the first place that is not in [0, rows); -1 if there is none. */
ptrdiff_t edlz_first_outside(const int32_t *places, ptrdiff_t count, ptrdiff_t rows);

/* Add row i of `gradients` to row places[i] of `sums`, in the order of i; the places have been checked. */
void edlz_add_rows(float *sums, const float *gradients, const int32_t *places, ptrdiff_t count, ptrdiff_t dim);

#endif
