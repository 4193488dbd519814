/* See columns.h. */
#include "columns.h"

#include <math.h>

/* Ones for what is missing among 64 numbers, of which number `at` of `count` is the first; `at` may be below 0, so that the
 * bit of the first one stands in the middle of a byte. */
static inline uint64_t missing_at(const uint8_t *is_there, int64_t first, int64_t count, int64_t at)
{
    const uint8_t *bytes = is_there + ((first + at) >> 3);
    const int64_t left = count - at;
    uint64_t word = 0;
    if (left > 56) {
        for (int i = 0; i < 8; i++)
            word |= (uint64_t)bytes[i] << (8 * i);
    } else {
        for (int i = 0; 8 * i < left; i++)
            word |= (uint64_t)bytes[i] << (8 * i);
    }
    uint64_t missing = ~word;
    if (at < 0)
        missing &= ~(uint64_t)0 << -at;
    if (left < 64)
        missing &= ((uint64_t)1 << left) - 1;
    return missing;
}

int64_t edlz_count_missing(const uint8_t *is_there, int64_t first, int64_t count)
{
    int64_t found = 0;
    for (int64_t at = -(first & 7); at < count; at += 64)
        found += __builtin_popcountll(missing_at(is_there, first, count, at));
    return found;
}

void edlz_mark_missing(const uint8_t *is_there, int64_t first, int64_t count, int is_double, void *numbers)
{
    for (int64_t at = -(first & 7); at < count; at += 64) {
        for (uint64_t missing = missing_at(is_there, first, count, at); missing != 0; missing &= missing - 1) {
            const int64_t place = at + __builtin_ctzll(missing);
            if (is_double)
                ((double *)numbers)[place] = (double)NAN;
            else
                ((float *)numbers)[place] = NAN;
        }
    }
}
