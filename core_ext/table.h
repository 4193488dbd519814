/* The embedding table: rows of float32 keyed by any int64 id, with their optimizer slots.
 *
 * Three regions that never move, and an index:
 *
 *     rows     [values][slot 0][slot 1]...[padding]  one row after another, in the order of their making
 *     ids      the id of each row
 *     buckets  from ids to row numbers; see table_index.h
 *
 * table.c has their life, their growth and the lock; table_batch.c what is done to batches of ids; table_rows.c
 * the loops over rows; table_image.c frozen images; table_digest.c the hash of all.  The face, _table.pyx,
 * checks all arguments.  Functions that return an int give EDLZ_DONE, or another edlz_error and then have
 * changed nothing.
 */
#ifndef EDLZ_TABLE_H
#define EDLZ_TABLE_H

#include "initializers.h"
#include "region.h"
#include "steps.h"

#include <pthread.h>
#include <stddef.h>
#include <stdint.h>

/* Part of a kernel: it must be inlined there to be compiled for the same instruction set. */
#define EDLZ_PART static inline __attribute__((always_inline))

enum { EDLZ_LINE_FLOATS = 16 }; /* of a cache line */

typedef struct edlz_slot {
    ptrdiff_t size, offset; /* in floats; offset from the start of the row */
    float initial;
} edlz_slot;

struct edlz_image;

typedef struct edlz_table {
    ptrdiff_t dim, width, stride; /* floats: of the values, of all that is in a row, from row to row */
    int slot_count;
    edlz_slot slots[EDLZ_MAX_SLOTS];
    edlz_initializer initializer;

    uint64_t row_limit;
    uint64_t row_count;     /* rows that can be found */
    uint64_t pending_count; /* rows after them, of the last extend */
    uint64_t room;          /* rows that fit without growing anything */
    uint64_t bucket_count;

    edlz_region rows, ids, buckets;
    struct edlz_image *images; /* that are open */
    pthread_rwlock_t lock;     /* shared: reading; exclusive: whatever changes the fields above or a row */
} edlz_table;

enum edlz_error {
    EDLZ_DONE,
    EDLZ_NO_MEMORY,
    EDLZ_FULL,    /* row_limit */
    EDLZ_PENDING, /* rows of an extend wait for their index */
    EDLZ_COUNT,   /* as many ids as rows of the last extend are needed */
    EDLZ_KNOWN_ID,
    EDLZ_CLOSED
};

/* dim, slot_count, the slots' sizes and initials, initializer and row_limit are set, the rest is 0. */
int edlz_table_open(edlz_table *table);
void edlz_table_close(edlz_table *table);

/* Row counts that other threads may be changing. */
uint64_t edlz_table_row_count(const edlz_table *table);
size_t edlz_table_memory_bytes(edlz_table *table);

/* Write the values of `count` rows; initial ones for unknown ids, of which the number is returned. */
ptrdiff_t edlz_table_gather(edlz_table *table, const int64_t *ids, ptrdiff_t count, float *out);

/* One step on each row, after it was made if it was missing.  before: NULL, or gets the values until then. */
int edlz_table_apply(edlz_table *table, const edlz_step *step, const int64_t *ids, ptrdiff_t count,
                     const float *gradients, float *before, uint64_t *created);

/* Give room to `count` rows after the present ones, from *first on. */
int edlz_table_extend(edlz_table *table, uint64_t count, float **first);

/* Make the rows of the last extend findable.  EDLZ_KNOWN_ID: *failed is the place of an id that is there
 * already or comes twice. */
int edlz_table_index(edlz_table *table, const int64_t *ids, uint64_t count, uint64_t *failed);

/* Sum modulo 2**128 of a hash of each row, low half first. */
void edlz_table_digest(edlz_table *table, uint64_t sum[2]);

/* -- inside the table ------------------------------------------------------------------------------------ */

static inline float *edlz_row(const edlz_table *table, uint64_t number)
{
    return (float *)table->rows.base + (ptrdiff_t)number * table->stride;
}

static inline int64_t *edlz_row_ids(const edlz_table *table)
{
    return (int64_t *)table->ids.base;
}

/* Some rows and what is done to them. */
typedef struct edlz_row_block {
    float *const *rows; /* of a table; NULL: an unknown id */
    const int64_t *ids;
    ptrdiff_t count;
    const edlz_table *table;
} edlz_row_block;

/* Copy values out; initial ones for unknown ids, of which the number is returned. */
ptrdiff_t edlz_rows_copy(const edlz_row_block *block, float *out);

typedef void edlz_rows_step(const edlz_row_block *block, const edlz_step *step, const float *gradients);

/* The loop over rows for a kind of step that exists. */
edlz_rows_step *edlz_rows_stepper(int32_t kind);

/* Write a new row. */
void edlz_row_make(const edlz_table *table, uint64_t number, int64_t id);

#endif
