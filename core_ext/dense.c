/* Loops of the dense kernels; dense_numpy.py documents each one and is their twin. */
#include "dense.h"

#include <string.h>

#include "variants.h"

void edlz_copy(float *out, const float *values, ptrdiff_t count)
{
    memmove(out, values, (size_t)count * sizeof(float)); /* memcpy forbids out == values */
}

EDLZ_KERNEL
void edlz_add(float *accumulator, const float *gradient, ptrdiff_t count)
{
    EDLZ_INDEPENDENT
    for (ptrdiff_t i = 0; i < count; i++)
        accumulator[i] += gradient[i];
}

EDLZ_KERNEL
void edlz_divide(float *accumulator, float divisor, ptrdiff_t count)
{
    EDLZ_INDEPENDENT
    for (ptrdiff_t i = 0; i < count; i++)
        accumulator[i] /= divisor;
}

EDLZ_KERNEL
void edlz_scale(float *vector, float factor, ptrdiff_t count)
{
    EDLZ_INDEPENDENT
    for (ptrdiff_t i = 0; i < count; i++)
        vector[i] *= factor;
}

EDLZ_KERNEL
void edlz_clip(float *vector, float limit, ptrdiff_t count)
{
    EDLZ_INDEPENDENT
    for (ptrdiff_t i = 0; i < count; i++) {
        const float bounded_above = vector[i] > limit ? limit : vector[i];
        vector[i] = bounded_above < -limit ? -limit : bounded_above;
    }
}

/* Eight sums that take turns, whatever the processor's width, so that the order is the same everywhere. */
enum { LANES = 8 };

EDLZ_KERNEL
double edlz_squared_norm(const float *vector, ptrdiff_t count)
{
    double sums[LANES] = {0.0};
    const ptrdiff_t whole = count - count % LANES;
    for (ptrdiff_t i = 0; i < whole; i += LANES) {
        EDLZ_INDEPENDENT
        for (int lane = 0; lane < LANES; lane++)
            sums[lane] += (double)vector[i + lane] * (double)vector[i + lane];
    }
    for (ptrdiff_t i = whole; i < count; i++)
        sums[i - whole] += (double)vector[i] * (double)vector[i];
    return ((sums[0] + sums[1]) + (sums[2] + sums[3])) + ((sums[4] + sums[5]) + (sums[6] + sums[7]));
}

/* So many elements at a time go through the whole tree that what is between leaves and root stays in the cache. */
EDLZ_KERNEL
void edlz_tree_mean(float *out, const float *const *vectors, const uint8_t *meets, ptrdiff_t n_vectors, float divisor,
                    float *scratch, ptrdiff_t count)
{
    /* Nodes that wait for what is right of them, the highest one first: so there are no more than heights. */
    const float *open[EDLZ_MAX_HEIGHT + 1];
    uint8_t heights[EDLZ_MAX_HEIGHT + 1]; /* at which open[i] meets what follows it */
    for (ptrdiff_t begin = 0; begin < count; begin += EDLZ_TREE_BLOCK) {
        const ptrdiff_t size = count - begin < EDLZ_TREE_BLOCK ? count - begin : EDLZ_TREE_BLOCK;
        float *const mean = out + begin;
        int depth = 0;
        for (ptrdiff_t v = 0; v < n_vectors; v++) {
            const uint8_t height = v + 1 < n_vectors ? meets[v] : EDLZ_MAX_HEIGHT + 1;
            open[depth] = vectors[v] + begin;
            while (depth > 0 && heights[depth - 1] < height) {
                depth--;
                const float *const left = open[depth], *const right = open[depth + 1];
                float *const sum = depth == 0 ? mean : scratch + (depth - 1) * EDLZ_TREE_BLOCK;
                EDLZ_INDEPENDENT
                for (ptrdiff_t i = 0; i < size; i++)
                    sum[i] = left[i] + right[i];
                open[depth] = sum;
            }
            heights[depth++] = height;
        }
        const float *const root = open[0];
        EDLZ_INDEPENDENT
        for (ptrdiff_t i = 0; i < size; i++)
            mean[i] = root[i] / divisor;
    }
}

EDLZ_KERNEL
void edlz_apply(float *out, const float *values, float *const *slots, const float *gradient,
                const edlz_step *step, ptrdiff_t count)
{
#define APPLY(kind, function)                                                                                  \
    case kind:                                                                                                 \
        edlz_step_##function(out, values, slots, gradient, step, count);                                       \
        return;
    switch (step->kind) {
        EDLZ_EACH_KIND(APPLY)
    }
#undef APPLY
}

const char *edlz_kind_name(int32_t kind)
{
#define NAME(kind, function)                                                                                   \
    case kind:                                                                                                 \
        return &#kind[sizeof("EDLZ_") - 1];
    switch (kind) {
        EDLZ_EACH_KIND(NAME)
    }
#undef NAME
    return NULL;
}

const char *edlz_instruction_set(void)
{
#ifdef EDLZ_ONLY_VARIANT
    return EDLZ_ONLY_VARIANT_NAME;
#elif EDLZ_HAS_VARIANTS
    __builtin_cpu_init();
    if (__builtin_cpu_supports("x86-64-v4"))
        return "x86-64-v4";
    if (__builtin_cpu_supports("x86-64-v3"))
        return "x86-64-v3";
#endif
    return "baseline";
}
