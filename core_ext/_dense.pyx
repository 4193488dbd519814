# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False
# (Element 0 alone is indexed, and only after the length was found to be positive.)
"""Thin face of dense.c: checks the arrays once, releases the GIL, calls the loop.

Each kernel is described in dense_numpy.py.
"""

from libc.stdint cimport uintptr_t


cdef extern from "dense.h" nogil:
    void edlz_copy(float *out, const float *values, Py_ssize_t count) noexcept
    void edlz_add(float *accumulator, const float *gradient, Py_ssize_t count) noexcept
    void edlz_divide(float *accumulator, float divisor, Py_ssize_t count) noexcept
    void edlz_apply_sgd(
        float *out, const float *values, const float *gradient, float learning_rate, Py_ssize_t count
    ) noexcept
    void edlz_apply_momentum(
        float *out, const float *values, float *momentum_slot, const float *gradient,
        float learning_rate, float momentum, int nesterov, Py_ssize_t count
    ) noexcept
    void edlz_apply_adam(
        float *out, const float *values, float *m, float *v, const float *gradient, float alpha,
        float one_minus_beta_1, float one_minus_beta_2, float epsilon, Py_ssize_t count
    ) noexcept
    const char *edlz_instruction_set() noexcept


cdef struct Operand:
    const char *name
    float *data
    Py_ssize_t count
    bint is_written


def copy(float[::1] out not None, const float[::1] values not None):
    cdef Operand[2] operands
    operands[0] = _written(b"out", out)
    operands[1] = _read(b"values", values)
    cdef Py_ssize_t count = _checked_count(operands, 2, True)
    with nogil:
        edlz_copy(operands[0].data, operands[1].data, count)


def add(float[::1] accumulator not None, const float[::1] gradient not None):
    cdef Operand[2] operands
    operands[0] = _written(b"accumulator", accumulator)
    operands[1] = _read(b"gradient", gradient)
    cdef Py_ssize_t count = _checked_count(operands, 2, False)
    with nogil:
        edlz_add(operands[0].data, operands[1].data, count)


def divide(float[::1] accumulator not None, float divisor):
    if divisor == 0:
        raise ZeroDivisionError("divisor is 0 in float32; divide by the number of gradients that were added")
    cdef Operand[1] operands
    operands[0] = _written(b"accumulator", accumulator)
    cdef Py_ssize_t count = _checked_count(operands, 1, False)
    with nogil:
        edlz_divide(operands[0].data, divisor, count)


def apply_sgd(
    float[::1] out not None,
    const float[::1] values not None,
    const float[::1] gradient not None,
    float learning_rate,
):
    cdef Operand[3] operands
    operands[0] = _written(b"out", out)
    operands[1] = _read(b"values", values)
    operands[2] = _read(b"gradient", gradient)
    cdef Py_ssize_t count = _checked_count(operands, 3, True)
    with nogil:
        edlz_apply_sgd(operands[0].data, operands[1].data, operands[2].data, learning_rate, count)


def apply_momentum(
    float[::1] out not None,
    const float[::1] values not None,
    float[::1] momentum_slot not None,
    const float[::1] gradient not None,
    float learning_rate,
    float momentum,
    bint nesterov,
):
    cdef Operand[4] operands
    operands[0] = _written(b"out", out)
    operands[1] = _read(b"values", values)
    operands[2] = _written(b"momentum_slot", momentum_slot)
    operands[3] = _read(b"gradient", gradient)
    cdef Py_ssize_t count = _checked_count(operands, 4, True)
    with nogil:
        edlz_apply_momentum(
            operands[0].data, operands[1].data, operands[2].data, operands[3].data,
            learning_rate, momentum, nesterov, count,
        )


def apply_adam(
    float[::1] out not None,
    const float[::1] values not None,
    float[::1] m not None,
    float[::1] v not None,
    const float[::1] gradient not None,
    float alpha,
    double beta_1,
    double beta_2,
    float epsilon,
):
    # 1 - beta is taken in float64 and then rounded, as Keras does; 1 - float32(0.999) is off by 1e-5 of itself.
    cdef float one_minus_beta_1 = <float>(1.0 - beta_1)
    cdef float one_minus_beta_2 = <float>(1.0 - beta_2)
    cdef Operand[5] operands
    operands[0] = _written(b"out", out)
    operands[1] = _read(b"values", values)
    operands[2] = _written(b"m", m)
    operands[3] = _written(b"v", v)
    operands[4] = _read(b"gradient", gradient)
    cdef Py_ssize_t count = _checked_count(operands, 5, True)
    with nogil:
        edlz_apply_adam(
            operands[0].data, operands[1].data, operands[2].data, operands[3].data, operands[4].data,
            alpha, one_minus_beta_1, one_minus_beta_2, epsilon, count,
        )


def instruction_set():
    return edlz_instruction_set().decode("ascii")


cdef inline Operand _written(const char *name, float[::1] view) noexcept:
    cdef Operand operand
    operand.name = name
    operand.data = NULL
    if view.shape[0] > 0:
        operand.data = &view[0]
    operand.count = view.shape[0]
    operand.is_written = True
    return operand


cdef inline Operand _read(const char *name, const float[::1] view) noexcept:
    cdef Operand operand
    operand.name = name
    operand.data = NULL
    if view.shape[0] > 0:
        operand.data = <float *>&view[0]  # the kernels' signatures give the const back
    operand.count = view.shape[0]
    operand.is_written = False
    return operand


cdef Py_ssize_t _checked_count(const Operand *operands, int n_operands, bint is_first_on_second) except -1:
    """Check lengths, alignment and overlap; `is_first_on_second`: operand 0 may be exactly operand 1."""
    cdef Py_ssize_t count = operands[0].count
    cdef int i, j
    for i in range(n_operands):
        if operands[i].count != count:
            raise ValueError(
                f"{operands[i].name.decode()} has {operands[i].count} elements and "
                f"{operands[0].name.decode()} has {count}; give arrays of one length"
            )
        if <uintptr_t>operands[i].data % sizeof(float) != 0:
            raise ValueError(
                f"{operands[i].name.decode()} is not aligned to {sizeof(float)} bytes; copy it first"
            )
    for i in range(n_operands):
        for j in range(i):
            if not (operands[i].is_written or operands[j].is_written):
                continue
            if is_first_on_second and j == 0 and i == 1 and operands[0].data == operands[1].data:
                continue
            if _do_overlap(operands[i].data, operands[j].data, count):
                raise ValueError(
                    f"{operands[j].name.decode()} and {operands[i].name.decode()} overlap in memory; "
                    f"an array that is written must stand apart"
                )
    return count


cdef inline bint _do_overlap(const float *one, const float *other, Py_ssize_t count) noexcept nogil:
    cdef uintptr_t size_bytes = <uintptr_t>count * sizeof(float)
    return <uintptr_t>one < <uintptr_t>other + size_bytes and <uintptr_t>other < <uintptr_t>one + size_bytes
