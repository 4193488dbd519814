/* Columns of numbers in Arrow's memory, as the Arrow C data interface describes them, and numbers that are missing among them.
 *
 * The two structs are that interface's: their layout is fixed for good.
 */
#ifndef EDLZ_COLUMNS_H
#define EDLZ_COLUMNS_H

#include <stdint.h>

typedef struct edlz_arrow_schema {
    const char *format;
    const char *name;
    const char *metadata;
    int64_t flags;
    int64_t n_children;
    struct edlz_arrow_schema **children;
    struct edlz_arrow_schema *dictionary; /* the values, where `format` is of places among them */
    void (*release)(struct edlz_arrow_schema *);
    void *private_data;
} edlz_arrow_schema;

typedef struct edlz_arrow_array {
    int64_t length;
    int64_t null_count; /* -1: nobody has counted */
    int64_t offset;     /* in elements, also of the bitmap */
    int64_t n_buffers;
    int64_t n_children;
    const void **buffers; /* of numbers: a bitmap, or NULL if there are all; and the numbers */
    struct edlz_arrow_array **children;
    struct edlz_arrow_array *dictionary;
    void (*release)(struct edlz_arrow_array *);
    void *private_data;
} edlz_arrow_array;

/* How many of `count` bits from number `first` on are not set; each byte's lowest bit comes first. */
int64_t edlz_count_missing(const uint8_t *is_there, int64_t first, int64_t count);

/* Put NaN for each float, or double, whose bit is not set; the first one's is number `first`. */
void edlz_mark_missing(const uint8_t *is_there, int64_t first, int64_t count, int is_double, void *numbers);

#endif
