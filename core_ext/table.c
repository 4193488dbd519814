/* Life of an embedding table, its growth, and the lock around what is done to it; see table.h. */
#define _GNU_SOURCE /* pthread_rwlockattr_setkind_np */
#include "table.h"

#include "table_batch.h"
#include "table_image.h"
#include "table_index.h"

#include <string.h>
#include <unistd.h>

enum { FEWEST_BUCKETS = 64, LEAST_RESERVED_BYTES = 64 << 20, SMALL_ROWS = 1 << 16 };

/* -- life ------------------------------------------------------------------------------------------------ */

/* A row of up to 16 floats must not straddle two cache lines, a longer one no more of them than it must. */
static ptrdiff_t stride_for(ptrdiff_t width)
{
    if (width >= EDLZ_LINE_FLOATS)
        return (width + EDLZ_LINE_FLOATS - 1) / EDLZ_LINE_FLOATS * EDLZ_LINE_FLOATS;
    ptrdiff_t stride = 1;
    while (stride < width)
        stride *= 2;
    return stride;
}

static void lay_out(edlz_table *table)
{
    table->width = table->dim;
    for (int s = 0; s < table->slot_count; s++) {
        table->slots[s].offset = table->width;
        table->width += table->slots[s].size;
    }
    table->stride = stride_for(table->width);
}

/* Address space for as many rows as this machine's memory could hold, or for as many as we get. */
static int reserve_rows(edlz_table *table)
{
    const size_t row_bytes = (size_t)table->stride * sizeof(float), id_bytes = sizeof(int64_t);
    const size_t memory = (size_t)sysconf(_SC_PHYS_PAGES) * (size_t)sysconf(_SC_PAGESIZE);
    uint64_t rows = memory / (row_bytes + id_bytes);
    for (;; rows /= 2) {
        if (rows > table->row_limit)
            rows = table->row_limit;
        if (edlz_region_reserve(&table->rows, rows * row_bytes, EDLZ_HUGE_PAGE_BYTES) == 0) {
            if (edlz_region_reserve(&table->ids, rows * id_bytes, EDLZ_HUGE_PAGE_BYTES) == 0)
                break;
            edlz_region_release(&table->rows);
        }
        if (rows * row_bytes < LEAST_RESERVED_BYTES)
            return EDLZ_NO_MEMORY;
    }
    table->row_limit = rows;
    return EDLZ_DONE;
}

/* Whoever changes the table must get its turn: readers may come without a pause. */
static int make_lock(edlz_table *table)
{
    pthread_rwlockattr_t attributes;
    if (pthread_rwlockattr_init(&attributes))
        return EDLZ_NO_MEMORY;
#ifdef __GLIBC__
    pthread_rwlockattr_setkind_np(&attributes, PTHREAD_RWLOCK_PREFER_WRITER_NONRECURSIVE_NP);
#endif
    const int error = pthread_rwlock_init(&table->lock, &attributes);
    pthread_rwlockattr_destroy(&attributes);
    return error ? EDLZ_NO_MEMORY : EDLZ_DONE;
}

int edlz_table_open(edlz_table *table)
{
    lay_out(table);
    if (make_lock(table))
        return EDLZ_NO_MEMORY;
    if (reserve_rows(table) == EDLZ_DONE) {
        if (edlz_index_open(&table->buckets, FEWEST_BUCKETS) == EDLZ_DONE) {
            table->bucket_count = FEWEST_BUCKETS;
            return EDLZ_DONE;
        }
        edlz_region_release(&table->rows);
        edlz_region_release(&table->ids);
    }
    pthread_rwlock_destroy(&table->lock);
    return EDLZ_NO_MEMORY;
}

void edlz_table_close(edlz_table *table)
{
    edlz_region_release(&table->rows);
    edlz_region_release(&table->ids);
    edlz_region_release(&table->buckets);
    pthread_rwlock_destroy(&table->lock);
}

uint64_t edlz_table_row_count(const edlz_table *table)
{
    return __atomic_load_n(&table->row_count, __ATOMIC_ACQUIRE);
}

size_t edlz_table_memory_bytes(edlz_table *table)
{
    pthread_rwlock_rdlock(&table->lock);
    const size_t row_bytes = (size_t)table->stride * sizeof(float) + sizeof(int64_t);
    const size_t bytes = table->bucket_count * sizeof(edlz_bucket) +
                         (table->row_count + table->pending_count) * row_bytes;
    pthread_rwlock_unlock(&table->lock);
    return bytes;
}

/* -- growth ---------------------------------------------------------------------------------------------- */

/* Make room for `rows` rows in all. */
static int grow(edlz_table *table, uint64_t rows)
{
    const size_t row_bytes = (size_t)table->stride * sizeof(float), id_bytes = sizeof(int64_t);
    if (rows > table->row_limit)
        return EDLZ_FULL;
    uint64_t ahead = rows + rows / 8; /* fewer calls of the operating system; it is not memory yet */
    if (ahead > table->row_limit)
        ahead = table->row_limit;
    if (edlz_region_commit(&table->rows, ahead * row_bytes) ||
        edlz_region_commit(&table->ids, ahead * id_bytes))
        return EDLZ_NO_MEMORY;
    if ((double)rows > (double)table->bucket_count * EDLZ_ROWS_PER_BUCKET && edlz_index_grow(table, rows))
        return EDLZ_NO_MEMORY;
    uint64_t room = (uint64_t)((double)table->bucket_count * EDLZ_ROWS_PER_BUCKET);
    if (room > table->rows.committed / row_bytes)
        room = table->rows.committed / row_bytes;
    if (room > table->ids.committed / id_bytes)
        room = table->ids.committed / id_bytes;
    table->room = room < table->row_limit ? room : table->row_limit;
    return EDLZ_DONE;
}

/* -- gather and apply ------------------------------------------------------------------------------------ */

ptrdiff_t edlz_table_gather(edlz_table *table, const int64_t *ids, ptrdiff_t count, float *out)
{
    pthread_rwlock_rdlock(&table->lock);
    const ptrdiff_t unknown = edlz_batch_gather(table, ids, count, out);
    pthread_rwlock_unlock(&table->lock);
    return unknown;
}

/* How many rows a batch will make is known only after a search for all of its ids.  A batch that is small beside
 * the table is taken to make as many as it has ids: so the table grows a little early, but does not search at
 * each batch. */
static int make_room(edlz_table *table, const int64_t *ids, uint64_t count)
{
    if (table->row_count + count <= table->room)
        return EDLZ_DONE;
    const int is_small = count < table->row_count / 16 || table->row_count + count < SMALL_ROWS;
    if (is_small && grow(table, table->row_count + count) == EDLZ_DONE)
        return EDLZ_DONE;
    const uint64_t rows = table->row_count + edlz_batch_count_unknown(table, ids, (ptrdiff_t)count);
    return rows > table->room ? grow(table, rows) : EDLZ_DONE;
}

static int prepare_apply(edlz_table *table, const int64_t *ids, uint64_t count)
{
    if (table->pending_count)
        return EDLZ_PENDING;
    const int error = make_room(table, ids, count);
    return error ? error : edlz_images_make_room(table, count);
}

int edlz_table_apply(edlz_table *table, const edlz_step *step, const int64_t *ids, ptrdiff_t count,
                     const float *gradients, float *before, uint64_t *created)
{
    pthread_rwlock_wrlock(&table->lock);
    const int error = prepare_apply(table, ids, (uint64_t)count);
    if (!error) {
        const uint64_t row_count = table->row_count;
        edlz_batch_apply(table, step, ids, count, gradients, before);
        *created = table->row_count - row_count;
    }
    pthread_rwlock_unlock(&table->lock);
    return error;
}

/* -- import ---------------------------------------------------------------------------------------------- */

int edlz_table_extend(edlz_table *table, uint64_t count, float **first)
{
    pthread_rwlock_wrlock(&table->lock);
    int error = EDLZ_DONE;
    if (count > table->row_limit - table->row_count)
        error = EDLZ_FULL;
    else if (table->row_count + count > table->room)
        error = grow(table, table->row_count + count);
    if (!error) {
        table->pending_count = count;
        *first = edlz_row(table, table->row_count);
    }
    pthread_rwlock_unlock(&table->lock);
    return error;
}

int edlz_table_index(edlz_table *table, const int64_t *ids, uint64_t count, uint64_t *failed)
{
    pthread_rwlock_wrlock(&table->lock);
    int error = EDLZ_DONE;
    if (count != table->pending_count) {
        error = EDLZ_COUNT;
    } else {
        const uint64_t inserted = edlz_batch_insert(table, ids, (ptrdiff_t)count);
        if (inserted < count) {
            edlz_index_take_back(table, ids, inserted);
            *failed = inserted;
            error = EDLZ_KNOWN_ID;
        } else {
            memcpy(edlz_row_ids(table) + table->row_count, ids, count * sizeof *ids);
            __atomic_store_n(&table->row_count, table->row_count + count, __ATOMIC_RELEASE);
        }
        table->pending_count = 0;
    }
    pthread_rwlock_unlock(&table->lock);
    return error;
}
