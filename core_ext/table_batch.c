/* What is done to batches of ids: gather, apply, insertion.
 *
 * A batch is cut into blocks, and each block goes through four stages, some blocks apart:
 *
 *     call for the buckets  >  look into them, call for the rows  >  look further for the ids whose bucket
 *     was full  >  use the rows
 *
 * "Call for" is a prefetch: many cache misses are under way at once and none is waited for.  A block has about
 * as many cache lines of rows as a processor can have under way, and no branch hangs on what cannot be predicted.
 */
#include "table_batch.h"

#include "table_image.h"
#include "table_index.h"
#include "variants.h"

enum {
    BUCKETS_AHEAD = 6, /* blocks between a stage and the use of the rows */
    ROWS_AHEAD = 4,
    REST_AHEAD = 2,
    RING = 8, /* blocks that are under way, rounded up to a power of two */
    LINES_PER_BLOCK = 16,
    MOST_ROWS = 16, /* of a block */
    MOST_LINES = 16 /* called for of one row; the processor itself goes on with longer ones */
};

/* What is known of the block that has this place in the ring. */
typedef struct stage_block {
    uint64_t homes[MOST_ROWS];
    float *rows[MOST_ROWS];
    uint32_t rest[MOST_ROWS]; /* places in the block of ids that were not in their home */
    uint32_t rest_count;
} stage_block;

typedef struct pipeline {
    edlz_table *table;
    edlz_bucket *buckets;
    uint64_t bucket_count;
    const int64_t *ids;
    ptrdiff_t count;
    stage_block ring[RING];
} pipeline;

EDLZ_PART void begin(pipeline *p, edlz_table *table, const int64_t *ids, ptrdiff_t count)
{
    p->table = table;
    p->buckets = edlz_buckets(table);
    p->bucket_count = table->bucket_count;
    p->ids = ids;
    p->count = count;
}

/* In what follows, `lines` is how many cache lines of a row are used: a constant for short rows, so that each
 * loop over them is straight code. */

EDLZ_PART ptrdiff_t lines_of(ptrdiff_t floats)
{
    return (floats + EDLZ_LINE_FLOATS - 1) / EDLZ_LINE_FLOATS;
}

EDLZ_PART ptrdiff_t block_rows(ptrdiff_t lines)
{
    return lines < LINES_PER_BLOCK ? LINES_PER_BLOCK / lines : 1;
}

/* Rows of a block; 0 before the first and after the last one. */
EDLZ_PART ptrdiff_t rows_of(const pipeline *p, ptrdiff_t block, ptrdiff_t lines)
{
    const ptrdiff_t left = p->count - block * block_rows(lines);
    if (block < 0 || left <= 0)
        return 0;
    return left < block_rows(lines) ? left : block_rows(lines);
}

EDLZ_PART void call(const void *memory, ptrdiff_t lines)
{
    for (ptrdiff_t i = 0; i < lines && i < MOST_LINES; i++)
        __builtin_prefetch((const float *)memory + i * EDLZ_LINE_FLOATS);
}

EDLZ_PART void call_buckets(pipeline *p, ptrdiff_t block, ptrdiff_t lines)
{
    const ptrdiff_t count = rows_of(p, block, lines);
    if (count == 0)
        return;
    stage_block *stage = &p->ring[block % RING];
    const int64_t *ids = p->ids + block * block_rows(lines);
    for (ptrdiff_t i = 0; i < count; i++) {
        stage->homes[i] = edlz_home(ids[i], p->bucket_count);
        __builtin_prefetch(p->buckets + stage->homes[i]);
    }
}

/* Find the rows whose ids are in their homes.  The rest: what a full home has sent on; if rows are to be made,
 * everything else. */
EDLZ_PART void call_rows(pipeline *p, ptrdiff_t block, ptrdiff_t lines, int is_making)
{
    const ptrdiff_t count = rows_of(p, block, lines);
    if (count == 0)
        return;
    stage_block *stage = &p->ring[block % RING];
    const int64_t *ids = p->ids + block * block_rows(lines);
    uint32_t rest_count = 0;
    for (ptrdiff_t i = 0; i < count; i++) {
        const edlz_bucket *home = p->buckets + stage->homes[i];
        const uint64_t place = edlz_place_in(home, ids[i]);
        float *row = place ? edlz_row(p->table, place - 1) : NULL;
        const int is_rest = (place == 0) & (is_making | edlz_is_full(home));
        stage->rows[i] = row;
        stage->rest[rest_count] = (uint32_t)i;
        rest_count += (uint32_t)is_rest;
        call(is_rest ? (const void *)(home + 1) : row, lines);
    }
    stage->rest_count = rest_count;
}

EDLZ_PART float *make_row(pipeline *p, int64_t id, uint64_t at)
{
    const uint64_t number = p->table->row_count;
    edlz_row_make(p->table, number, id);
    edlz_put(p->buckets, p->bucket_count, at, id, number + 1);
    __atomic_store_n(&p->table->row_count, number + 1, __ATOMIC_RELEASE);
    return edlz_row(p->table, number);
}

EDLZ_PART void find_rest(pipeline *p, ptrdiff_t block, ptrdiff_t lines, int is_making)
{
    if (rows_of(p, block, lines) == 0)
        return;
    stage_block *stage = &p->ring[block % RING];
    const int64_t *ids = p->ids + block * block_rows(lines);
    for (uint32_t r = 0; r < stage->rest_count; r++) {
        const uint32_t i = stage->rest[r];
        uint64_t at = stage->homes[i];
        const uint64_t place = edlz_find(p->buckets, p->bucket_count, ids[i], &at);
        if (place) {
            stage->rows[i] = edlz_row(p->table, place - 1);
            call(stage->rows[i], lines);
        } else if (is_making) {
            stage->rows[i] = make_row(p, ids[i], at);
        }
    }
}

EDLZ_PART void advance(pipeline *p, ptrdiff_t block, ptrdiff_t lines, int is_making)
{
    call_buckets(p, block + BUCKETS_AHEAD, lines);
    call_rows(p, block + ROWS_AHEAD, lines, is_making);
    find_rest(p, block + REST_AHEAD, lines, is_making);
}

EDLZ_PART edlz_row_block ready_block(const pipeline *p, ptrdiff_t block, ptrdiff_t lines)
{
    return (edlz_row_block){p->ring[block % RING].rows, p->ids + block * block_rows(lines),
                            rows_of(p, block, lines), p->table};
}

/* -- the batches ----------------------------------------------------------------------------------------- */

EDLZ_PART ptrdiff_t gather(edlz_table *table, const int64_t *ids, ptrdiff_t count, float *out, ptrdiff_t lines)
{
    pipeline p;
    ptrdiff_t unknown = 0;
    begin(&p, table, ids, count);
    for (ptrdiff_t block = -BUCKETS_AHEAD; block * block_rows(lines) < count; block++) {
        advance(&p, block, lines, 0);
        if (block < 0)
            continue;
        const edlz_row_block ready = ready_block(&p, block, lines);
        unknown += edlz_rows_copy(&ready, out + block * block_rows(lines) * table->dim);
    }
    return unknown;
}

EDLZ_KERNEL
ptrdiff_t edlz_batch_gather(edlz_table *table, const int64_t *ids, ptrdiff_t count, float *out)
{
    switch (lines_of(table->dim)) {
    case 1:
        return gather(table, ids, count, out, 1);
    case 2:
        return gather(table, ids, count, out, 2);
    case 4:
        return gather(table, ids, count, out, 4);
    default:
        return gather(table, ids, count, out, lines_of(table->dim));
    }
}

/* What happens to a batch's rows. */
typedef struct change {
    const edlz_step *step;
    const float *gradients;
    float *before; /* or NULL */
} change;

EDLZ_PART void apply(edlz_table *table, const int64_t *ids, ptrdiff_t count, const change *change,
                     ptrdiff_t lines)
{
    pipeline p;
    edlz_rows_step *const step_rows = edlz_rows_stepper(change->step->kind);
    begin(&p, table, ids, count);
    for (ptrdiff_t block = -BUCKETS_AHEAD; block * block_rows(lines) < count; block++) {
        advance(&p, block, lines, 1);
        if (block < 0)
            continue;
        const edlz_row_block ready = ready_block(&p, block, lines);
        const ptrdiff_t first_float = block * block_rows(lines) * table->dim;
        if (table->images)
            edlz_images_save(table, &ready);
        if (change->before)
            edlz_rows_copy(&ready, change->before + first_float);
        step_rows(&ready, change->step, change->gradients + first_float);
    }
}

EDLZ_KERNEL
void edlz_batch_apply(edlz_table *table, const edlz_step *step, const int64_t *ids, ptrdiff_t count,
                      const float *gradients, float *before)
{
    const change change = {step, gradients, before};
    switch (lines_of(table->width)) {
    case 1:
        apply(table, ids, count, &change, 1);
        break;
    case 2:
        apply(table, ids, count, &change, 2);
        break;
    case 4:
        apply(table, ids, count, &change, 4);
        break;
    default:
        apply(table, ids, count, &change, lines_of(table->width));
    }
}

EDLZ_KERNEL
uint64_t edlz_batch_count_unknown(edlz_table *table, const int64_t *ids, ptrdiff_t count)
{
    pipeline p;
    uint64_t unknown = 0;
    begin(&p, table, ids, count);
    for (ptrdiff_t block = -BUCKETS_AHEAD; block * block_rows(1) < count; block++) {
        call_buckets(&p, block + BUCKETS_AHEAD, 1);
        for (ptrdiff_t i = 0; i < rows_of(&p, block, 1); i++) {
            uint64_t at = p.ring[block % RING].homes[i];
            unknown += edlz_find(p.buckets, p.bucket_count, ids[block * block_rows(1) + i], &at) == 0;
        }
    }
    return unknown;
}

EDLZ_KERNEL
uint64_t edlz_batch_insert(edlz_table *table, const int64_t *ids, ptrdiff_t count)
{
    pipeline p;
    begin(&p, table, ids, count);
    for (ptrdiff_t block = -BUCKETS_AHEAD; block * block_rows(1) < count; block++) {
        call_buckets(&p, block + BUCKETS_AHEAD, 1);
        for (ptrdiff_t i = 0; i < rows_of(&p, block, 1); i++) {
            const uint64_t number = (uint64_t)(block * block_rows(1) + i);
            uint64_t at = p.ring[block % RING].homes[i];
            if (edlz_find(p.buckets, p.bucket_count, ids[number], &at))
                return number;
            edlz_put(p.buckets, p.bucket_count, at, ids[number], table->row_count + number + 1);
        }
    }
    return (uint64_t)count;
}
