/* One step of each optimizer, over `count` elements: the formulas of Keras 3, rounded to float32 where it rounds.
 *
 * The same functions serve flat dense vectors (dense.c) and single rows of embedding tables, so both give the
 * same bits.  They are inlined into their callers' loops, whose instruction set they take; build with
 * -ffp-contract=off and -fno-math-errno.  steps.py packs the scalars.
 *
 *     edlz_step_adam(out, values, slots, gradient, step, count)
 *
 * out       written; may be exactly `values`, otherwise overlaps nothing
 * slots     edlz_slot_count(kind) arrays of `count` elements, updated in place; one that
 *           edlz_is_single_slot() names has one element for all `count`
 * gradient  read only
 *
 * Element-wise only: an element's result depends on no other one, hence not on the vector width.  The exception
 * is row-wise Adagrad, whose squares are added up in the order of the elements.  No function of libm but sqrtf
 * is used: the others may differ in the last bit from one C library to the next.
 */
#ifndef EDLZ_STEPS_H
#define EDLZ_STEPS_H

#include <math.h>
#include <stddef.h>
#include <stdint.h>

/* Every kind with the last part of its function's name; new ones go to the end. */
#define EDLZ_EACH_KIND(X)                                                                                      \
    X(EDLZ_SGD, sgd)                                                                                           \
    X(EDLZ_MOMENTUM, momentum)                                                                                 \
    X(EDLZ_NESTEROV, nesterov)                                                                                 \
    X(EDLZ_ADAM, adam)                                                                                         \
    X(EDLZ_AMSGRAD, amsgrad)                                                                                   \
    X(EDLZ_ADAGRAD, adagrad)                                                                                   \
    X(EDLZ_ROWWISE_ADAGRAD, rowwise_adagrad)                                                                   \
    X(EDLZ_RMSPROP, rmsprop)                                                                                   \
    X(EDLZ_RMSPROP_MOMENTUM, rmsprop_momentum)                                                                 \
    X(EDLZ_RMSPROP_CENTERED, rmsprop_centered)                                                                 \
    X(EDLZ_RMSPROP_CENTERED_MOMENTUM, rmsprop_centered_momentum)                                               \
    X(EDLZ_ADADELTA, adadelta)                                                                                 \
    X(EDLZ_ADAMAX, adamax)                                                                                     \
    X(EDLZ_NADAM, nadam)                                                                                       \
    X(EDLZ_FTRL, ftrl)                                                                                         \
    X(EDLZ_LION, lion)

#define EDLZ_KIND_NAME(kind, function) kind,
enum edlz_kind { EDLZ_EACH_KIND(EDLZ_KIND_NAME) EDLZ_KINDS };
#undef EDLZ_KIND_NAME

/* The scalars of one step, ready-made in float32, 64 bytes.
 *
 * decay  weight decay (0: none), applied first: value -= value * decay * p[0], in this order
 * p      p[0] is the learning rate for every kind; unused places are 0.  t is the number of this step, from 1.
 *
 *                     slots                             p[1], p[2], ...
 * SGD                 -
 * MOMENTUM, NESTEROV  momentum                          momentum
 * ADAM                m, v                              alpha, 1 - beta_1, 1 - beta_2, epsilon
 * AMSGRAD             m, v, v_hat                       as ADAM
 *                       alpha = lr * sqrt(1 - beta_2^t) / (1 - beta_1^t)
 * ADAGRAD             accumulator                       epsilon
 * ROWWISE_ADAGRAD     accumulator (one element)         epsilon
 * RMSPROP             velocity                          rho, 1 - rho, epsilon, momentum
 *  _MOMENTUM          velocity, momentum
 *  _CENTERED          velocity, average_gradient
 *  _CENTERED_MOMENTUM velocity, average_gradient, momentum
 * ADADELTA            accumulated_grad,                 rho, 1 - rho, epsilon
 *                     accumulated_delta_var
 * ADAMAX              m, u                              1 - beta_1, beta_2, epsilon, 1 - beta_1^t
 * NADAM               m, v                              1 - beta_1, 1 - beta_2, epsilon, mu_{t+1},
 *                                                       1 - P_{t+1}, 1 - mu_t, 1 - P_t, 1 - beta_2^t
 *                       mu_t = beta_1 * (1 - 0.96^t / 2), P_t = mu_1 * ... * mu_t
 * FTRL                accumulator, linear               l1, 2 * l2 + beta / lr, 2 * l2_shrinkage
 * LION                m                                 beta_1, 1 - beta_1, beta_2, 1 - beta_2
 */
typedef struct edlz_step {
    int32_t kind;
    float decay;
    float p[14];
} edlz_step;

_Static_assert(sizeof(edlz_step) == 64, "steps.py packs 64 bytes");

enum { EDLZ_MAX_SLOTS = 3 };

/* Number of slots of a kind; -1 if there is no such kind. */
static inline int edlz_slot_count(int32_t kind)
{
    switch (kind) {
    case EDLZ_SGD:
        return 0;
    case EDLZ_MOMENTUM:
    case EDLZ_NESTEROV:
    case EDLZ_ADAGRAD:
    case EDLZ_ROWWISE_ADAGRAD:
    case EDLZ_RMSPROP:
    case EDLZ_LION:
        return 1;
    case EDLZ_ADAM:
    case EDLZ_RMSPROP_MOMENTUM:
    case EDLZ_RMSPROP_CENTERED:
    case EDLZ_ADADELTA:
    case EDLZ_ADAMAX:
    case EDLZ_NADAM:
    case EDLZ_FTRL:
        return 2;
    case EDLZ_AMSGRAD:
    case EDLZ_RMSPROP_CENTERED_MOMENTUM:
        return 3;
    default:
        return -1;
    }
}

/* Whether a slot holds one element for a whole row, instead of one an element. */
static inline int edlz_is_single_slot(int32_t kind, int slot)
{
    return kind == EDLZ_ROWWISE_ADAGRAD && slot == 0;
}

/* "omp simd" promises that iterations do not depend on each other.  That holds for out == values too, where
 * "restrict" would be a lie. */
#define EDLZ_INDEPENDENT _Pragma("omp simd")

#define EDLZ_STEP(function)                                                                                    \
    static inline __attribute__((always_inline)) void edlz_step_##function(                                    \
        float *out, const float *values, float *const *slots, const float *gradient, const edlz_step *step,    \
        ptrdiff_t count)

/* `decay` is the same for all elements: the compiler takes the question out of the loop. */
static inline __attribute__((always_inline)) float edlz_decayed(float value, float decay, float learning_rate)
{
    return decay == 0.0f ? value : value - value * decay * learning_rate;
}

/* The second one if they cannot be compared: a NaN that comes in goes on. */
static inline __attribute__((always_inline)) float edlz_larger(float old, float incoming)
{
    return old > incoming ? old : incoming;
}

EDLZ_STEP(sgd)
{
    const float decay = step->decay, learning_rate = step->p[0];
    (void)slots;
    EDLZ_INDEPENDENT
    for (ptrdiff_t i = 0; i < count; i++)
        out[i] = edlz_decayed(values[i], decay, learning_rate) - gradient[i] * learning_rate;
}

EDLZ_STEP(momentum)
{
    const float decay = step->decay, learning_rate = step->p[0], momentum = step->p[1];
    float *const slot = slots[0];
    EDLZ_INDEPENDENT
    for (ptrdiff_t i = 0; i < count; i++) {
        const float moved = slot[i] * momentum - gradient[i] * learning_rate;
        slot[i] = moved;
        out[i] = edlz_decayed(values[i], decay, learning_rate) + moved;
    }
}

EDLZ_STEP(nesterov)
{
    const float decay = step->decay, learning_rate = step->p[0], momentum = step->p[1];
    float *const slot = slots[0];
    EDLZ_INDEPENDENT
    for (ptrdiff_t i = 0; i < count; i++) {
        const float move = gradient[i] * learning_rate;
        const float moved = slot[i] * momentum - move;
        slot[i] = moved;
        out[i] = edlz_decayed(values[i], decay, learning_rate) + (moved * momentum - move);
    }
}

EDLZ_STEP(adam)
{
    const float decay = step->decay, learning_rate = step->p[0], alpha = step->p[1];
    const float one_minus_beta_1 = step->p[2], one_minus_beta_2 = step->p[3], epsilon = step->p[4];
    float *const m = slots[0], *const v = slots[1];
    EDLZ_INDEPENDENT
    for (ptrdiff_t i = 0; i < count; i++) {
        const float g = gradient[i];
        const float first = m[i] + (g - m[i]) * one_minus_beta_1;
        const float second = v[i] + (g * g - v[i]) * one_minus_beta_2;
        m[i] = first;
        v[i] = second;
        out[i] = edlz_decayed(values[i], decay, learning_rate) - first * alpha / (sqrtf(second) + epsilon);
    }
}

EDLZ_STEP(amsgrad)
{
    const float decay = step->decay, learning_rate = step->p[0], alpha = step->p[1];
    const float one_minus_beta_1 = step->p[2], one_minus_beta_2 = step->p[3], epsilon = step->p[4];
    float *const m = slots[0], *const v = slots[1], *const v_hat = slots[2];
    EDLZ_INDEPENDENT
    for (ptrdiff_t i = 0; i < count; i++) {
        const float g = gradient[i];
        const float first = m[i] + (g - m[i]) * one_minus_beta_1;
        const float second = v[i] + (g * g - v[i]) * one_minus_beta_2;
        const float largest = edlz_larger(v_hat[i], second);
        m[i] = first;
        v[i] = second;
        v_hat[i] = largest;
        out[i] = edlz_decayed(values[i], decay, learning_rate) - first * alpha / (sqrtf(largest) + epsilon);
    }
}

EDLZ_STEP(adagrad)
{
    const float decay = step->decay, learning_rate = step->p[0], epsilon = step->p[1];
    float *const accumulator = slots[0];
    EDLZ_INDEPENDENT
    for (ptrdiff_t i = 0; i < count; i++) {
        const float g = gradient[i];
        const float sum = accumulator[i] + g * g;
        accumulator[i] = sum;
        out[i] = edlz_decayed(values[i], decay, learning_rate) - learning_rate * g / sqrtf(sum + epsilon);
    }
}

EDLZ_STEP(rowwise_adagrad)
{
    const float decay = step->decay, learning_rate = step->p[0], epsilon = step->p[1];
    float squares = 0.0f;
    if (count == 0)
        return;
    for (ptrdiff_t i = 0; i < count; i++)
        squares += gradient[i] * gradient[i];
    slots[0][0] += squares / (float)count;
    const float root = sqrtf(slots[0][0] + epsilon);
    EDLZ_INDEPENDENT
    for (ptrdiff_t i = 0; i < count; i++)
        out[i] = edlz_decayed(values[i], decay, learning_rate) - learning_rate * gradient[i] / root;
}

EDLZ_STEP(rmsprop)
{
    const float decay = step->decay, learning_rate = step->p[0];
    const float rho = step->p[1], one_minus_rho = step->p[2], epsilon = step->p[3];
    float *const velocity = slots[0];
    EDLZ_INDEPENDENT
    for (ptrdiff_t i = 0; i < count; i++) {
        const float g = gradient[i];
        const float second = rho * velocity[i] + one_minus_rho * (g * g);
        velocity[i] = second;
        out[i] = edlz_decayed(values[i], decay, learning_rate) - learning_rate * g / sqrtf(second + epsilon);
    }
}

EDLZ_STEP(rmsprop_momentum)
{
    const float decay = step->decay, learning_rate = step->p[0];
    const float rho = step->p[1], one_minus_rho = step->p[2], epsilon = step->p[3], momentum = step->p[4];
    float *const velocity = slots[0], *const slot = slots[1];
    EDLZ_INDEPENDENT
    for (ptrdiff_t i = 0; i < count; i++) {
        const float g = gradient[i];
        const float second = rho * velocity[i] + one_minus_rho * (g * g);
        const float moved = momentum * slot[i] + learning_rate * g / sqrtf(second + epsilon);
        velocity[i] = second;
        slot[i] = moved;
        out[i] = edlz_decayed(values[i], decay, learning_rate) - moved;
    }
}

EDLZ_STEP(rmsprop_centered)
{
    const float decay = step->decay, learning_rate = step->p[0];
    const float rho = step->p[1], one_minus_rho = step->p[2], epsilon = step->p[3];
    float *const velocity = slots[0], *const average = slots[1];
    EDLZ_INDEPENDENT
    for (ptrdiff_t i = 0; i < count; i++) {
        const float g = gradient[i];
        const float second = rho * velocity[i] + one_minus_rho * (g * g);
        const float first = rho * average[i] + one_minus_rho * g;
        const float variance = second - first * first + epsilon;
        velocity[i] = second;
        average[i] = first;
        out[i] = edlz_decayed(values[i], decay, learning_rate) - learning_rate * g / sqrtf(variance);
    }
}

EDLZ_STEP(rmsprop_centered_momentum)
{
    const float decay = step->decay, learning_rate = step->p[0];
    const float rho = step->p[1], one_minus_rho = step->p[2], epsilon = step->p[3], momentum = step->p[4];
    float *const velocity = slots[0], *const average = slots[1], *const slot = slots[2];
    EDLZ_INDEPENDENT
    for (ptrdiff_t i = 0; i < count; i++) {
        const float g = gradient[i];
        const float second = rho * velocity[i] + one_minus_rho * (g * g);
        const float first = rho * average[i] + one_minus_rho * g;
        const float variance = second - first * first + epsilon;
        const float moved = momentum * slot[i] + learning_rate * g / sqrtf(variance);
        velocity[i] = second;
        average[i] = first;
        slot[i] = moved;
        out[i] = edlz_decayed(values[i], decay, learning_rate) - moved;
    }
}

EDLZ_STEP(adadelta)
{
    const float decay = step->decay, learning_rate = step->p[0];
    const float rho = step->p[1], one_minus_rho = step->p[2], epsilon = step->p[3];
    float *const squares = slots[0], *const moves = slots[1];
    EDLZ_INDEPENDENT
    for (ptrdiff_t i = 0; i < count; i++) {
        const float g = gradient[i];
        const float square = rho * squares[i] + one_minus_rho * (g * g);
        const float move = -(sqrtf(moves[i] + epsilon) * g / sqrtf(square + epsilon));
        squares[i] = square;
        moves[i] = rho * moves[i] + one_minus_rho * (move * move);
        out[i] = edlz_decayed(values[i], decay, learning_rate) + learning_rate * move;
    }
}

EDLZ_STEP(adamax)
{
    const float decay = step->decay, learning_rate = step->p[0];
    const float one_minus_beta_1 = step->p[1], beta_2 = step->p[2], epsilon = step->p[3];
    const float correction = step->p[4];
    float *const m = slots[0], *const u = slots[1];
    EDLZ_INDEPENDENT
    for (ptrdiff_t i = 0; i < count; i++) {
        const float g = gradient[i];
        const float first = m[i] + (g - m[i]) * one_minus_beta_1;
        const float norm = edlz_larger(beta_2 * u[i], fabsf(g));
        m[i] = first;
        u[i] = norm;
        out[i] = edlz_decayed(values[i], decay, learning_rate) -
                 learning_rate * first / (correction * (norm + epsilon));
    }
}

EDLZ_STEP(nadam)
{
    const float decay = step->decay, learning_rate = step->p[0];
    const float one_minus_beta_1 = step->p[1], one_minus_beta_2 = step->p[2], epsilon = step->p[3];
    const float next_momentum = step->p[4], next_correction = step->p[5];
    const float one_minus_momentum = step->p[6], correction = step->p[7], second_correction = step->p[8];
    float *const m = slots[0], *const v = slots[1];
    EDLZ_INDEPENDENT
    for (ptrdiff_t i = 0; i < count; i++) {
        const float g = gradient[i];
        const float first = m[i] + (g - m[i]) * one_minus_beta_1;
        const float second = v[i] + (g * g - v[i]) * one_minus_beta_2;
        const float ahead = next_momentum * first / next_correction + one_minus_momentum * g / correction;
        m[i] = first;
        v[i] = second;
        out[i] = edlz_decayed(values[i], decay, learning_rate) -
                 ahead * learning_rate / (sqrtf(second / second_correction) + epsilon);
    }
}

EDLZ_STEP(ftrl)
{
    const float decay = step->decay, learning_rate = step->p[0];
    const float l1 = step->p[1], twice_l2 = step->p[2], twice_shrinkage = step->p[3];
    float *const accumulator = slots[0], *const linear = slots[1];
    EDLZ_INDEPENDENT
    for (ptrdiff_t i = 0; i < count; i++) {
        const float g = gradient[i], value = edlz_decayed(values[i], decay, learning_rate);
        const float sum = accumulator[i] + g * g;
        const float root = sqrtf(sum);
        const float sigma = (root - sqrtf(accumulator[i])) / learning_rate;
        const float z = linear[i] + (g + twice_shrinkage * value - sigma * value);
        const float above = z > l1 ? l1 : z;
        const float clipped = above < -l1 ? -l1 : above;
        accumulator[i] = sum;
        linear[i] = z;
        out[i] = (clipped - z) / (root / learning_rate + twice_l2);
    }
}

EDLZ_STEP(lion)
{
    const float decay = step->decay, learning_rate = step->p[0];
    const float beta_1 = step->p[1], one_minus_beta_1 = step->p[2];
    const float beta_2 = step->p[3], one_minus_beta_2 = step->p[4];
    float *const m = slots[0];
    EDLZ_INDEPENDENT
    for (ptrdiff_t i = 0; i < count; i++) {
        const float g = gradient[i];
        const float blend = m[i] * beta_1 + g * one_minus_beta_1;
        const float sign = fabsf(blend) > 0.0f ? copysignf(1.0f, blend) : blend; /* 0 and NaN stay so */
        m[i] = m[i] * beta_2 + g * one_minus_beta_2;
        out[i] = edlz_decayed(values[i], decay, learning_rate) - learning_rate * sign;
    }
}

#endif
