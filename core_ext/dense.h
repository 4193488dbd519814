/* Dense float32 kernels: one pass over flat arrays of `count` elements.
 *
 * The caller has checked the arrays: aligned to 4 bytes, and no array that is written overlaps another one,
 * except that `out` may be exactly `values`.  Each element's result is independent of the vector width, and the
 * one sum across elements has a fixed order, so every instruction set gives the same bits.
 */
#ifndef EDLZ_DENSE_H
#define EDLZ_DENSE_H

#include <stddef.h>
#include <stdint.h>

#include "steps.h"

void edlz_copy(float *out, const float *values, ptrdiff_t count);
void edlz_add(float *accumulator, const float *gradient, ptrdiff_t count);
void edlz_divide(float *accumulator, float divisor, ptrdiff_t count);
void edlz_scale(float *vector, float factor, ptrdiff_t count);
void edlz_clip(float *vector, float limit, ptrdiff_t count);
double edlz_squared_norm(const float *vector, ptrdiff_t count);

/* The sum of `vectors` as a tree, divided; `meets[i]`, from 1 to EDLZ_MAX_HEIGHT, is the height of the lowest node above
 * both vector i and vector i + 1.  There is at least one vector.  `scratch` has EDLZ_TREE_BLOCK elements for each vector but
 * one, and for EDLZ_MAX_HEIGHT at most. */
enum { EDLZ_MAX_HEIGHT = 32, EDLZ_TREE_BLOCK = 4096 };
void edlz_tree_mean(float *out, const float *const *vectors, const uint8_t *meets, ptrdiff_t n_vectors, float divisor,
                    float *scratch, ptrdiff_t count);

/* One step of the optimizer step->kind, which exists and to which the slots fit; see steps.h. */
void edlz_apply(float *out, const float *values, float *const *slots, const float *gradient,
                const edlz_step *step, ptrdiff_t count);

/* The name of a kind without its EDLZ_ prefix; NULL if there is no such kind. */
const char *edlz_kind_name(int32_t kind);

/* The variant that this processor runs: "x86-64-v4", "x86-64-v3" or "baseline". */
const char *edlz_instruction_set(void);

#endif
