/* Images of a table; see table_image.h. */
#include "table_image.h"

#include <string.h>

/* Rows copied under one hold of the lock: an apply waits this long at most. */
enum { READ_BLOCK_BYTES = 256 << 10 };

/* -- entries of the log ---------------------------------------------------------------------------------- */

typedef struct entry_head {
    uint32_t row, next; /* next entry of the group + 1 */
} entry_head;

static size_t entry_bytes(const edlz_image *image)
{
    return sizeof(entry_head) + (size_t)image->table->width * sizeof(float);
}

static char *entry_at(const edlz_image *image, uint64_t entry)
{
    return image->log.base + entry * entry_bytes(image);
}

static entry_head head_of(const edlz_image *image, uint32_t entry_plus_1)
{
    entry_head head;
    memcpy(&head, entry_at(image, entry_plus_1 - 1), sizeof head);
    return head;
}

static uint32_t *group_head(const edlz_image *image, uint64_t row)
{
    return (uint32_t *)image->heads.base + row / EDLZ_IMAGE_GROUP;
}

/* -- life ------------------------------------------------------------------------------------------------ */

static void release_regions(edlz_image *image)
{
    edlz_region_release(&image->is_saved);
    edlz_region_release(&image->heads);
    edlz_region_release(&image->log);
}

/* A region that is usable as a whole; it costs memory only where it is touched. */
static int reserve_all(edlz_region *region, size_t bytes)
{
    return edlz_region_reserve(region, bytes, EDLZ_NEVER_HUGE) || edlz_region_commit(region, bytes);
}

static int reserve_regions(edlz_image *image)
{
    const uint64_t groups = image->row_count / EDLZ_IMAGE_GROUP + 1;
    const size_t log_bytes = image->row_count * entry_bytes(image);
    if (reserve_all(&image->is_saved, image->row_count / 8 + 8) == 0 &&
        reserve_all(&image->heads, groups * sizeof(uint32_t)) == 0 &&
        edlz_region_reserve(&image->log, log_bytes, EDLZ_HUGE_PAGE_BYTES) == 0)
        return EDLZ_DONE;
    release_regions(image);
    return EDLZ_NO_MEMORY;
}

int edlz_image_open(edlz_image *image, edlz_table *table)
{
    pthread_rwlock_wrlock(&table->lock);
    image->table = table;
    image->row_count = table->row_count;
    const int error = reserve_regions(image);
    if (!error) {
        image->is_open = 1;
        image->next = table->images;
        table->images = image;
    }
    pthread_rwlock_unlock(&table->lock);
    return error;
}

void edlz_image_close(edlz_image *image)
{
    pthread_rwlock_wrlock(&image->table->lock);
    const int was_open = image->is_open;
    if (was_open) {
        edlz_image **link = &image->table->images;
        while (*link != image)
            link = &(*link)->next;
        *link = image->next;
        image->is_open = 0;
    }
    pthread_rwlock_unlock(&image->table->lock);
    if (was_open)
        release_regions(image); /* nobody looks at them any more, so the lock need not be held so long */
}

/* -- saving ---------------------------------------------------------------------------------------------- */

int edlz_images_make_room(edlz_table *table, uint64_t count)
{
    for (edlz_image *image = table->images; image; image = image->next) {
        uint64_t entries = image->saved_count + count;
        if (entries > image->row_count)
            entries = image->row_count;
        if (edlz_region_commit(&image->log, entries * entry_bytes(image)))
            return EDLZ_NO_MEMORY;
    }
    return EDLZ_DONE;
}

static uint64_t take_entry(edlz_image *image)
{
    if (!image->free_entry)
        return image->saved_count++;
    const uint64_t entry = image->free_entry - 1;
    image->free_entry = head_of(image, image->free_entry).next;
    return entry;
}

static void save_row(edlz_image *image, uint64_t number, const float *row)
{
    const uint64_t entry = take_entry(image);
    uint32_t *group = group_head(image, number);
    const entry_head head = {(uint32_t)number, *group};
    memcpy(entry_at(image, entry), &head, sizeof head);
    memcpy(entry_at(image, entry) + sizeof head, row, (size_t)image->table->width * sizeof(float));
    *group = (uint32_t)entry + 1;
}

void edlz_images_save(edlz_table *table, const edlz_row_block *block)
{
    const float *rows = (const float *)table->rows.base;
    for (edlz_image *image = table->images; image; image = image->next) {
        uint64_t *is_saved = (uint64_t *)image->is_saved.base;
        for (ptrdiff_t i = 0; i < block->count; i++) {
            const uint64_t number = (uint64_t)((block->rows[i] - rows) / table->stride);
            if (number >= image->row_count || number < image->released)
                continue;
            const uint64_t bit = UINT64_C(1) << number % 64;
            if (is_saved[number / 64] & bit)
                continue;
            is_saved[number / 64] |= bit;
            save_row(image, number, block->rows[i]);
        }
    }
}

/* -- reading --------------------------------------------------------------------------------------------- */

/* Lay what was saved of rows [first, stop) over what was copied of them. */
static void lay_saved(const edlz_image *image, uint64_t first, uint64_t stop, float *out)
{
    const ptrdiff_t width = image->table->width;
    for (uint64_t row = first; row < stop; row = (row / EDLZ_IMAGE_GROUP + 1) * EDLZ_IMAGE_GROUP) {
        for (uint32_t entry = *group_head(image, row); entry;) {
            const entry_head head = head_of(image, entry);
            if (head.row >= first && head.row < stop)
                memcpy(out + (ptrdiff_t)(head.row - first) * width, entry_at(image, entry - 1) + sizeof head,
                       (size_t)width * sizeof(float));
            entry = head.next;
        }
    }
}

static void copy_rows(const edlz_table *table, uint64_t first, uint64_t count, float *out)
{
    const size_t row_bytes = (size_t)table->width * sizeof(float);
    if (table->stride == table->width) {
        memcpy(out, edlz_row(table, first), count * row_bytes);
        return;
    }
    for (uint64_t i = 0; i < count; i++)
        memcpy(out + (ptrdiff_t)i * table->width, edlz_row(table, first + i), row_bytes);
}

int edlz_image_read(edlz_image *image, uint64_t first, uint64_t count, float *out)
{
    edlz_table *table = image->table;
    uint64_t block = READ_BLOCK_BYTES / ((uint64_t)table->width * sizeof(float));
    block = block / EDLZ_IMAGE_GROUP * EDLZ_IMAGE_GROUP + EDLZ_IMAGE_GROUP;
    int error = EDLZ_DONE;
    for (uint64_t begin = first, stop; begin < first + count && !error; begin = stop) {
        stop = (begin / block + 1) * block; /* whole groups, so that each is walked once */
        if (stop > first + count)
            stop = first + count;
        pthread_rwlock_rdlock(&table->lock);
        if (image->is_open && begin >= image->released) {
            float *const block_out = out + (ptrdiff_t)(begin - first) * table->width;
            copy_rows(table, begin, stop - begin, block_out);
            lay_saved(image, begin, stop, block_out);
        } else {
            error = EDLZ_CLOSED;
        }
        pthread_rwlock_unlock(&table->lock);
    }
    return error;
}

static void free_group(edlz_image *image, uint64_t group)
{
    uint32_t *const head = group_head(image, group);
    while (*head) {
        const uint32_t entry = *head;
        entry_head freed = head_of(image, entry);
        *head = freed.next;
        freed.next = image->free_entry;
        memcpy(entry_at(image, entry - 1), &freed, sizeof freed);
        image->free_entry = entry;
    }
}

int edlz_image_release_below(edlz_image *image, uint64_t stop)
{
    pthread_rwlock_wrlock(&image->table->lock);
    const int error = image->is_open ? EDLZ_DONE : EDLZ_CLOSED;
    for (; !error && image->released + EDLZ_IMAGE_GROUP <= stop; image->released += EDLZ_IMAGE_GROUP)
        free_group(image, image->released);
    pthread_rwlock_unlock(&image->table->lock);
    return error;
}
