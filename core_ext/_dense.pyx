# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False
# (Element 0 alone is indexed, and only after the length was found to be positive.)
"""Thin face of dense.c: checks the arrays once, releases the GIL, calls the loop.

Each kernel is described in dense_numpy.py.
"""

from libc.math cimport isnan
from libc.stdint cimport int32_t, uint8_t, uintptr_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy


cdef extern from "dense.h" nogil:
    ctypedef struct edlz_step:
        int32_t kind

    enum:
        EDLZ_KINDS
        EDLZ_MAX_HEIGHT
        EDLZ_MAX_SLOTS
        EDLZ_TREE_BLOCK

    int edlz_slot_count(int32_t kind) noexcept
    int edlz_is_single_slot(int32_t kind, int slot) noexcept
    void edlz_copy(float *out, const float *values, Py_ssize_t count) noexcept
    void edlz_add(float *accumulator, const float *gradient, Py_ssize_t count) noexcept
    void edlz_divide(float *accumulator, float divisor, Py_ssize_t count) noexcept
    void edlz_scale(float *vector, float factor, Py_ssize_t count) noexcept
    void edlz_clip(float *vector, float limit, Py_ssize_t count) noexcept
    double edlz_squared_norm(const float *vector, Py_ssize_t count) noexcept
    void edlz_tree_mean(
        float *out, const float *const *vectors, const uint8_t *meets, Py_ssize_t n_vectors, float divisor,
        float *scratch, Py_ssize_t count
    ) noexcept
    void edlz_apply(
        float *out, const float *values, float *const *slots, const float *gradient,
        const edlz_step *step, Py_ssize_t count
    ) noexcept
    const char *edlz_kind_name(int32_t kind) noexcept
    const char *edlz_instruction_set() noexcept


cdef struct Operand:
    const char *name
    float *data
    Py_ssize_t count
    bint is_written
    bint is_single  # one element, however many the others have


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


def scale(float[::1] vector not None, float factor):
    cdef Operand[1] operands
    operands[0] = _written(b"vector", vector)
    cdef Py_ssize_t count = _checked_count(operands, 1, False)
    with nogil:
        edlz_scale(operands[0].data, factor, count)


def clip(float[::1] vector not None, float limit):
    if isnan(limit) or limit < 0:
        raise ValueError(f"limit={limit} is no bound of a size; give 0 or more")
    cdef Operand[1] operands
    operands[0] = _written(b"vector", vector)
    cdef Py_ssize_t count = _checked_count(operands, 1, False)
    with nogil:
        edlz_clip(operands[0].data, limit, count)


def squared_norm(const float[::1] vector not None):
    cdef Operand[1] operands
    operands[0] = _read(b"vector", vector)
    cdef Py_ssize_t count = _checked_count(operands, 1, False)
    cdef double total
    with nogil:
        total = edlz_squared_norm(operands[0].data, count)
    return total


def tree_mean(float[::1] out not None, vectors, places, float divisor):
    if divisor == 0:
        raise ZeroDivisionError("divisor is 0 in float32; divide by the number of gradients that were added")
    cdef tuple given = tuple(vectors), at = tuple(places)
    cdef Py_ssize_t i, n_vectors = len(given)
    if not given or len(at) != n_vectors:
        raise ValueError(f"{n_vectors} vectors at {len(at)} places; give at least one, and each its place")
    cdef list held = []  # views of the vectors, so that their memory stays while the GIL is away
    cdef const float[::1] vector
    cdef Operand[2] operands
    operands[0] = _written(b"out", out)
    cdef Py_ssize_t count = operands[0].count
    cdef float *scratch = <float *>malloc(EDLZ_TREE_BLOCK * sizeof(float) * min(n_vectors, EDLZ_MAX_HEIGHT))
    cdef const float **data = <const float **>malloc(n_vectors * sizeof(float *))
    cdef uint8_t *meets = <uint8_t *>malloc(n_vectors)
    try:
        if scratch == NULL or data == NULL or meets == NULL:
            raise MemoryError()
        _find_meets(meets, at)
        for i in range(n_vectors):
            vector = given[i]
            if vector is None:
                raise TypeError(f"vectors[{i}] must not be None")
            operands[1] = _read(b"a vector", vector)
            _checked_count(operands, 2, False)
            data[i] = operands[1].data
            held.append(vector)
        with nogil:
            edlz_tree_mean(operands[0].data, data, meets, n_vectors, divisor, scratch, count)
    finally:
        free(scratch)
        free(data)
        free(meets)


def apply(
    bytes step not None,
    float[::1] out not None,
    const float[::1] values not None,
    slots,
    const float[::1] gradient not None,
):
    cdef edlz_step scalars = _unpacked(step)
    cdef tuple given = tuple(slots)
    cdef int i, n_slots = edlz_slot_count(scalars.kind)
    if len(given) != n_slots:
        raise ValueError(
            f"{len(given)} slots were given and a step of kind {_kind_name(scalars.kind)} has {n_slots}"
        )
    cdef Operand[6] operands  # out, values, gradient and the slots
    operands[0] = _written(b"out", out)
    operands[1] = _read(b"values", values)
    operands[2] = _read(b"gradient", gradient)
    cdef float[::1] slot_0, slot_1, slot_2  # these hold the memory while the GIL is away
    if n_slots > 0:
        slot_0 = given[0]
        operands[3] = _slot(b"slots[0]", edlz_is_single_slot(scalars.kind, 0), slot_0)
    if n_slots > 1:
        slot_1 = given[1]
        operands[4] = _slot(b"slots[1]", edlz_is_single_slot(scalars.kind, 1), slot_1)
    if n_slots > 2:
        slot_2 = given[2]
        operands[5] = _slot(b"slots[2]", edlz_is_single_slot(scalars.kind, 2), slot_2)
    cdef Py_ssize_t count = _checked_count(operands, 3 + n_slots, True)
    cdef float *data[EDLZ_MAX_SLOTS]
    for i in range(n_slots):
        data[i] = operands[3 + i].data
    with nogil:
        edlz_apply(operands[0].data, operands[1].data, data, operands[2].data, &scalars, count)


def kinds():
    return tuple(
        (
            _kind_name(kind),
            tuple(bool(edlz_is_single_slot(kind, slot)) for slot in range(edlz_slot_count(kind))),
        )
        for kind in range(EDLZ_KINDS)
    )


def instruction_set():
    return edlz_instruction_set().decode("ascii")


cdef int _find_meets(uint8_t *meets, tuple places) except -1:
    """Find at which height each two neighbours meet: where the highest bit that differs is."""
    cdef long long before = -1, place
    cdef unsigned long long differ
    cdef Py_ssize_t i
    cdef uint8_t height
    for i in range(len(places)):
        place = places[i]
        if place <= before or place >> EDLZ_MAX_HEIGHT:
            raise ValueError(f"place {place} follows {before}; they ascend from 0, below 2**{EDLZ_MAX_HEIGHT}")
        if i > 0:
            differ = <unsigned long long>(place ^ before)
            height = 0
            while differ:
                differ >>= 1
                height += 1
            meets[i - 1] = height
        before = place
    return 0


cdef str _kind_name(int32_t kind):
    return edlz_kind_name(kind).decode("ascii")


cdef edlz_step _unpacked(bytes step) except *:
    cdef edlz_step scalars
    if len(step) != sizeof(edlz_step):
        raise ValueError(f"step has {len(step)} bytes, not {sizeof(edlz_step)}; take those of Step.packed")
    memcpy(&scalars, <const char *>step, sizeof(edlz_step))
    if edlz_slot_count(scalars.kind) < 0:
        raise ValueError(f"step is of kind {scalars.kind}, which does not exist; take those of Step.packed")
    return scalars


cdef Operand _slot(const char *name, bint is_single, float[::1] view) except *:
    if view is None:
        raise TypeError(f"{name.decode()} must not be None")
    cdef Operand operand = _written(name, view)
    operand.is_single = is_single
    return operand


cdef inline Operand _written(const char *name, float[::1] view) noexcept:
    cdef Operand operand
    operand.name = name
    operand.data = NULL
    if view.shape[0] > 0:
        operand.data = &view[0]
    operand.count = view.shape[0]
    operand.is_written = True
    operand.is_single = False
    return operand


cdef inline Operand _read(const char *name, const float[::1] view) noexcept:
    cdef Operand operand
    operand.name = name
    operand.data = NULL
    if view.shape[0] > 0:
        operand.data = <float *>&view[0]  # the kernels' signatures give the const back
    operand.count = view.shape[0]
    operand.is_written = False
    operand.is_single = False
    return operand


cdef Py_ssize_t _checked_count(const Operand *operands, int n_operands, bint is_first_on_second) except -1:
    """Check lengths, alignment and overlap; `is_first_on_second`: operand 0 may be exactly operand 1."""
    cdef Py_ssize_t count = operands[0].count
    cdef int i, j
    for i in range(n_operands):
        if operands[i].is_single and operands[i].count != 1:
            raise ValueError(
                f"{operands[i].name.decode()} has {operands[i].count} elements and should have one for the row"
            )
        if not operands[i].is_single and operands[i].count != count:
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
            if _do_overlap(&operands[i], &operands[j]):
                raise ValueError(
                    f"{operands[j].name.decode()} and {operands[i].name.decode()} overlap in memory; "
                    f"an array that is written must stand apart"
                )
    return count


cdef inline bint _do_overlap(const Operand *one, const Operand *other) noexcept nogil:
    cdef uintptr_t one_end = <uintptr_t>one.data + <uintptr_t>one.count * sizeof(float)
    cdef uintptr_t other_end = <uintptr_t>other.data + <uintptr_t>other.count * sizeof(float)
    return <uintptr_t>one.data < other_end and <uintptr_t>other.data < one_end
