/* Dense float32 kernels: one pass over flat arrays of `count` elements.
 *
 * The caller has checked the arrays: aligned to 4 bytes, and no array that is written overlaps another one,
 * except that `out` may be exactly `values`.  No kernel sums across elements, so each element's result is
 * independent of the vector width, and every instruction set gives the same bits.
 */
#ifndef EDLZ_DENSE_H
#define EDLZ_DENSE_H

#include <stddef.h>

void edlz_copy(float *out, const float *values, ptrdiff_t count);
void edlz_add(float *accumulator, const float *gradient, ptrdiff_t count);
void edlz_divide(float *accumulator, float divisor, ptrdiff_t count);
void edlz_apply_sgd(float *out, const float *values, const float *gradient, float learning_rate,
                    ptrdiff_t count);
void edlz_apply_momentum(float *out, const float *values, float *momentum_slot, const float *gradient,
                         float learning_rate, float momentum, int nesterov, ptrdiff_t count);
void edlz_apply_adam(float *out, const float *values, float *m, float *v, const float *gradient, float alpha,
                     float one_minus_beta_1, float one_minus_beta_2, float epsilon, ptrdiff_t count);

/* The variant that this processor runs: "x86-64-v4", "x86-64-v3" or "baseline". */
const char *edlz_instruction_set(void);

#endif
