/* The distributions of initializers.h; table_numpy.py is their twin, operation for operation. */
#include "initializers.h"

#include "hashing.h"
#include "steps.h"
#include "variants.h"

#include <math.h>
#include <string.h>

/* Part of a kernel: it must be inlined there to be compiled for the same instruction set. */
#define EDLZ_PART static inline __attribute__((always_inline))

/* Elements worked on together, in arrays on the stack. */
enum { CHUNK = 64 };

void edlz_initializer_set(edlz_initializer *initializer, int distribution, double a, double b, uint64_t seed)
{
    const float upper = (float)b;
    float largest = (double)upper < b ? upper : nextafterf(upper, -INFINITY);
    if (largest < (float)a)
        largest = (float)a;
    *initializer = (edlz_initializer){distribution, a, b, largest, edlz_mix64(edlz_mix64(seed))};
}

/* -- uniform numbers ------------------------------------------------------------------------------------- */

EDLZ_PART uint64_t row_key(const edlz_initializer *initializer, int64_t id)
{
    return edlz_mix64(edlz_mix64((uint64_t)id) ^ initializer->mixed_seed);
}

/* (k + 1/2) / 2^52 from the upper 52 bits, exactly: never 0 or 1, as far from 0 as from 1. */
EDLZ_PART double open_uniform(uint64_t bits)
{
    const uint64_t between_1_and_2 = bits >> 12 | UINT64_C(0x3FF0000000000000);
    double value;
    memcpy(&value, &between_1_and_2, sizeof value);
    return value - (1.0 - 0x1p-53);
}

EDLZ_PART void fill_uniform(float *out, const edlz_initializer *initializer, uint64_t key, ptrdiff_t count)
{
    const double a = initializer->a, width = initializer->b - initializer->a;
    const float largest = initializer->largest;
    EDLZ_INDEPENDENT
    for (ptrdiff_t k = 0; k < count; k++) {
        const int32_t bits = (int32_t)(edlz_mix64(key + (uint64_t)k) >> 33);
        const float value = (float)(a + width * ((double)bits * 0x1p-31));
        out[k] = value < largest ? value : largest; /* rounding may have reached b */
    }
}

/* -- the inverse of the normal distribution -------------------------------------------------------------- */

/* Wichura, "Algorithm AS 241: the percentage points of the normal distribution", Applied Statistics 37 (1988),
 * routine PPND16: one rational function for the middle, two for the tails; about 16 digits. */

enum { DEGREE = 7 };
static const double MIDDLE = 0.425, MIDDLE_SQUARED = 0.180625, NEAR_TAIL = 1.6, FAR_TAIL = 5.0;

static const double MIDDLE_OVER[DEGREE + 1] = {
    3.3871328727963666080e0,  1.3314166789178437745e+2, 1.9715909503065514427e+3, 1.3731693765509461125e+4,
    4.5921953931549871457e+4, 6.7265770927008700853e+4, 3.3430575583588128105e+4, 2.5090809287301226727e+3};
static const double MIDDLE_UNDER[DEGREE + 1] = {
    1.0,                      4.2313330701600911252e+1, 6.8718700749205790830e+2, 5.3941960214247511077e+3,
    2.1213794301586595867e+4, 3.9307895800092710610e+4, 2.8729085735721942674e+4, 5.2264952788528545610e+3};
static const double NEAR_OVER[DEGREE + 1] = {
    1.42343711074968357734e0, 4.63033784615654529590e0,  5.76949722146069140550e0,  3.64784832476320460504e0,
    1.27045825245236838258e0, 2.41780725177450611770e-1, 2.27238449892691845833e-2, 7.74545014278341407640e-4};
static const double NEAR_UNDER[DEGREE + 1] = {
    1.0,                       2.05319162663775882187e0,  1.67638483018380384940e0,  6.89767334985100004550e-1,
    1.48103976427480074590e-1, 1.51986665636164571966e-2, 5.47593808499534494600e-4, 1.05075007164441684324e-9};
static const double FAR_OVER[DEGREE + 1] = {
    6.65790464350110377720e0,  5.46378491116411436990e0,  1.78482653991729133580e0,  2.96560571828504891230e-1,
    2.65321895265761230930e-2, 1.24266094738807843860e-3, 2.71155556874348757815e-5, 2.01033439929228813265e-7};
static const double FAR_UNDER[DEGREE + 1] = {
    1.0,                       5.99832206555887937690e-1, 1.36929880922735805310e-1, 1.48753612908506148525e-2,
    7.86869131145613259100e-4, 1.84631831751005468180e-5, 1.42151175831644588870e-7,
    2.04426310338993978564e-15};

EDLZ_PART double polynomial(const double *coefficients, double x)
{
    double sum = coefficients[DEGREE];
#pragma GCC unroll 7 /* or else the loops around it do not vectorise */
    for (int i = DEGREE - 1; i >= 0; i--)
        sum = sum * x + coefficients[i];
    return sum;
}

/* ln x for a normal x in (0, 1), within 2 units in the last place: x = m * 2^e with m from sqrt(1/2) to sqrt(2),
 * and ln m = 2 artanh((m - 1) / (m + 1)) by its series, whose 11th term is below 2^-56 of the first. */
EDLZ_PART double logarithm(double x)
{
    static const double LN_2 = 0.69314718055994530942;
    static const uint64_t ROOT_OF_HALF = UINT64_C(0x3FE6A09E667F3BCD), ONE = UINT64_C(0x3FF0000000000000);
    uint64_t bits;
    memcpy(&bits, &x, sizeof bits);
    const uint64_t biased_exponent = (bits - ROOT_OF_HALF + ONE) >> 52;
    bits -= (biased_exponent << 52) - ONE;
    double m;
    memcpy(&m, &bits, sizeof m);
    const double s = (m - 1.0) / (m + 1.0), square = s * s;
    double series = 0.0;
#pragma GCC unroll 11
    for (int odd = 21; odd >= 1; odd -= 2)
        series = series * square + 1.0 / (double)odd;
    return 2.0 * s * series + ((double)(int32_t)biased_exponent - 1023.0) * LN_2;
}

/* Quantiles outside the middle, in place. */
EDLZ_PART void to_tail_quantiles(double *p, ptrdiff_t count)
{
    double r[CHUNK], z[CHUNK];
    EDLZ_INDEPENDENT
    for (ptrdiff_t k = 0; k < count; k++) {
        const double from_one = 1.0 - p[k];
        r[k] = sqrt(-logarithm(p[k] < from_one ? p[k] : from_one));
        z[k] = polynomial(NEAR_OVER, r[k] - NEAR_TAIL) / polynomial(NEAR_UNDER, r[k] - NEAR_TAIL);
    }
    for (ptrdiff_t k = 0; k < count; k++) {
        if (r[k] > FAR_TAIL)
            z[k] = polynomial(FAR_OVER, r[k] - FAR_TAIL) / polynomial(FAR_UNDER, r[k] - FAR_TAIL);
        p[k] = p[k] < 0.5 ? -z[k] : z[k];
    }
}

/* Turn probabilities into quantiles, in place.  All go the way of the middle, which is short; then the tails, 15
 * in 100, are put together and done again. */
EDLZ_PART void to_quantiles(double *p, ptrdiff_t count)
{
    double tails[CHUNK], middle[CHUNK];
    int32_t tail_places[CHUNK];
    ptrdiff_t tail_count = 0;
    EDLZ_INDEPENDENT
    for (ptrdiff_t k = 0; k < count; k++) {
        const double from_half = p[k] - 0.5;
        const double r = MIDDLE_SQUARED - from_half * from_half;
        middle[k] = from_half * polynomial(MIDDLE_OVER, r) / polynomial(MIDDLE_UNDER, r);
    }
    for (ptrdiff_t k = 0; k < count; k++) { /* no branch: it could not be predicted */
        tails[tail_count] = p[k];
        tail_places[tail_count] = (int32_t)k;
        tail_count += fabs(p[k] - 0.5) > MIDDLE;
    }
    to_tail_quantiles(tails, tail_count);
    memcpy(p, middle, (size_t)count * sizeof *p);
    for (ptrdiff_t t = 0; t < tail_count; t++)
        p[tail_places[t]] = tails[t];
}

EDLZ_PART void fill_normal(float *out, const edlz_initializer *initializer, uint64_t key, ptrdiff_t count)
{
    double z[CHUNK];
    for (ptrdiff_t first = 0; first < count; first += CHUNK) {
        const ptrdiff_t n = count - first < CHUNK ? count - first : CHUNK;
        EDLZ_INDEPENDENT
        for (ptrdiff_t k = 0; k < n; k++)
            z[k] = open_uniform(edlz_mix64(key + (uint64_t)(first + k)));
        to_quantiles(z, n);
        EDLZ_INDEPENDENT
        for (ptrdiff_t k = 0; k < n; k++)
            out[first + k] = (float)(initializer->a + initializer->b * z[k]);
    }
}

/* Within two standard deviations: the uniform number is mapped into [Phi(-2), Phi(2)]; nothing is drawn twice. */
EDLZ_PART void fill_truncated(float *out, const edlz_initializer *initializer, uint64_t key, ptrdiff_t count)
{
    static const double BELOW = 0.022750131948179207, WITHIN = 0.95449973610364159;
    double z[CHUNK];
    for (ptrdiff_t first = 0; first < count; first += CHUNK) {
        const ptrdiff_t n = count - first < CHUNK ? count - first : CHUNK;
        EDLZ_INDEPENDENT
        for (ptrdiff_t k = 0; k < n; k++)
            z[k] = BELOW + WITHIN * open_uniform(edlz_mix64(key + (uint64_t)(first + k)));
        to_quantiles(z, n);
        EDLZ_INDEPENDENT
        for (ptrdiff_t k = 0; k < n; k++) {
            const double not_below = z[k] > -2.0 ? z[k] : -2.0;
            const double clipped = not_below < 2.0 ? not_below : 2.0;
            out[first + k] = (float)(initializer->a + initializer->b * clipped);
        }
    }
}

EDLZ_KERNEL
void edlz_initial_values(float *out, const edlz_initializer *initializer, int64_t id, ptrdiff_t count)
{
    switch (initializer->distribution) {
    case EDLZ_UNIFORM:
        fill_uniform(out, initializer, row_key(initializer, id), count);
        break;
    case EDLZ_NORMAL:
        fill_normal(out, initializer, row_key(initializer, id), count);
        break;
    case EDLZ_TRUNCATED_NORMAL:
        fill_truncated(out, initializer, row_key(initializer, id), count);
        break;
    default:
        for (ptrdiff_t k = 0; k < count; k++)
            out[k] = (float)initializer->a;
    }
}
