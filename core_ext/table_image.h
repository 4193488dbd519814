/* A table as it was at one instant, while the table goes on changing: copy on write.
 *
 * An image costs one bit a row.  Whoever changes a row first saves it for each open image that has not got it
 * yet: to the end of a log, chained from the head of its group of rows.  Reading copies rows from the table and
 * then lays what is chained from their groups over them.
 */
#ifndef EDLZ_TABLE_IMAGE_H
#define EDLZ_TABLE_IMAGE_H

#include "table.h"

enum { EDLZ_IMAGE_GROUP = 256 };

typedef struct edlz_image {
    edlz_table *table;
    struct edlz_image *next;
    int is_open;
    uint64_t row_count;
    uint64_t released;    /* rows below this number are not read any more; a multiple of the group */
    uint64_t saved_count; /* entries in the log, free ones included */
    uint32_t free_entry;  /* chain of entries that can be used again; + 1, 0: none */
    edlz_region is_saved; /* one bit a row */
    edlz_region heads;    /* uint32 a group: its newest entry + 1, 0: none */
    edlz_region log;      /* entries of {uint32 row, uint32 next entry + 1, float[width]} */
} edlz_image;

/* `image` is zeroed memory that outlives everything done with it.  Excludes whatever changes the table. */
int edlz_image_open(edlz_image *image, edlz_table *table);
void edlz_image_close(edlz_image *image);

/* Copy rows [first, first + count), without padding.  EDLZ_CLOSED also if some of them were released. */
int edlz_image_read(edlz_image *image, uint64_t first, uint64_t count, float *out);

/* Rows below `stop` will not be read again: they need not be saved. */
int edlz_image_release_below(edlz_image *image, uint64_t stop);

/* Under the table's exclusive lock: make sure that `count` rows can be saved; then save some before a change. */
int edlz_images_make_room(edlz_table *table, uint64_t count);
void edlz_images_save(edlz_table *table, const edlz_row_block *block);

#endif
