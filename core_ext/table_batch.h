/* Batches of ids, under a lock that the caller holds, in a table that has room for them; see table.h for what
 * gather and apply do. */
#ifndef EDLZ_TABLE_BATCH_H
#define EDLZ_TABLE_BATCH_H

#include "table.h"

ptrdiff_t edlz_batch_gather(edlz_table *table, const int64_t *ids, ptrdiff_t count, float *out);
void edlz_batch_apply(edlz_table *table, const edlz_step *step, const int64_t *ids, ptrdiff_t count,
                      const float *gradients, float *before);

/* How many of the ids are not there; one that repeats counts each time. */
uint64_t edlz_batch_count_unknown(edlz_table *table, const int64_t *ids, ptrdiff_t count);

/* Give ids the rows after the last one, in order.  Returns how many went in before one that was there. */
uint64_t edlz_batch_insert(edlz_table *table, const int64_t *ids, ptrdiff_t count);

#endif
