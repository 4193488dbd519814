/* Loops of the dense kernels; dense_numpy.py documents each one and is their twin.
 *
 * Each kernel is compiled three times (AVX-512, AVX2, SSE2) and the loader picks one by the processor.
 * Built with -ffp-contract=off: a fused multiply-add rounds once where SSE2 rounds twice.
 */
#include "dense.h"

#include <math.h>
#include <string.h>

/* GCC 12 is the first that takes the names of the x86-64 levels; musl, macOS and clang have no such clones. */
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && defined(__gnu_linux__) && __GNUC__ >= 12
#define EDLZ_HAS_VARIANTS 1
#define EDLZ_KERNEL __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#else
#define EDLZ_HAS_VARIANTS 0
#define EDLZ_KERNEL
#endif

/* "omp simd" promises that iterations do not depend on each other.  That holds for out == values too, where
 * "restrict" would be a lie. */

void edlz_copy(float *out, const float *values, ptrdiff_t count)
{
    memmove(out, values, (size_t)count * sizeof(float)); /* memcpy forbids out == values */
}

EDLZ_KERNEL
void edlz_add(float *accumulator, const float *gradient, ptrdiff_t count)
{
#pragma omp simd
    for (ptrdiff_t i = 0; i < count; i++)
        accumulator[i] += gradient[i];
}

EDLZ_KERNEL
void edlz_divide(float *accumulator, float divisor, ptrdiff_t count)
{
#pragma omp simd
    for (ptrdiff_t i = 0; i < count; i++)
        accumulator[i] /= divisor;
}

EDLZ_KERNEL
void edlz_apply_sgd(float *out, const float *values, const float *gradient, float learning_rate,
                    ptrdiff_t count)
{
#pragma omp simd
    for (ptrdiff_t i = 0; i < count; i++)
        out[i] = values[i] - learning_rate * gradient[i];
}

EDLZ_KERNEL
void edlz_apply_momentum(float *out, const float *values, float *momentum_slot, const float *gradient,
                         float learning_rate, float momentum, int nesterov, ptrdiff_t count)
{
    if (nesterov) {
#pragma omp simd
        for (ptrdiff_t i = 0; i < count; i++) {
            const float step = learning_rate * gradient[i];
            const float moved = momentum * momentum_slot[i] - step;
            momentum_slot[i] = moved;
            out[i] = values[i] + (momentum * moved - step);
        }
    } else {
#pragma omp simd
        for (ptrdiff_t i = 0; i < count; i++) {
            const float moved = momentum * momentum_slot[i] - learning_rate * gradient[i];
            momentum_slot[i] = moved;
            out[i] = values[i] + moved;
        }
    }
}

EDLZ_KERNEL
void edlz_apply_adam(float *out, const float *values, float *m, float *v, const float *gradient, float alpha,
                     float one_minus_beta_1, float one_minus_beta_2, float epsilon, ptrdiff_t count)
{
#pragma omp simd
    for (ptrdiff_t i = 0; i < count; i++) {
        const float g = gradient[i];
        const float first = m[i] + (g - m[i]) * one_minus_beta_1;
        const float second = v[i] + (g * g - v[i]) * one_minus_beta_2;
        m[i] = first;
        v[i] = second;
        out[i] = values[i] - alpha * first / (sqrtf(second) + epsilon);
    }
}

const char *edlz_instruction_set(void)
{
#if EDLZ_HAS_VARIANTS
    __builtin_cpu_init();
    if (__builtin_cpu_supports("x86-64-v4"))
        return "x86-64-v4";
    if (__builtin_cpu_supports("x86-64-v3"))
        return "x86-64-v3";
#endif
    return "baseline";
}
