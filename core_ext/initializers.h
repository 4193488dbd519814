/* Initial values of embedding rows: a pure function of (seed, id, element), the same bits on every processor.
 *
 * A counter-based generator: element k of a row is drawn from mix64(key(seed, id) + k), so rows can be made in
 * any order, on any partition, again and again.  No function of libm but sqrt is used, which IEEE 754 fixes to
 * the last bit; the others differ from one C library to the next.
 */
#ifndef EDLZ_INITIALIZERS_H
#define EDLZ_INITIALIZERS_H

#include <stddef.h>
#include <stdint.h>

enum edlz_distribution { EDLZ_CONSTANT, EDLZ_UNIFORM, EDLZ_NORMAL, EDLZ_TRUNCATED_NORMAL };

typedef struct edlz_initializer {
    int distribution;
    double a, b;         /* constant: a; uniform: [a, b); normal and truncated: mean a, standard deviation b */
    float largest;       /* uniform: the largest float32 below b, or a itself if that is b */
    uint64_t mixed_seed; /* mixed twice, ids once: or else row 0 of seed 1 would be row 1 of seed 0 */
} edlz_initializer;

void edlz_initializer_set(edlz_initializer *initializer, int distribution, double a, double b, uint64_t seed);

/* Write the `count` values of one row. */
void edlz_initial_values(float *out, const edlz_initializer *initializer, int64_t id, ptrdiff_t count);

#endif
