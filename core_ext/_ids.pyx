# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False
# (Element 0 alone is indexed, and only after the length was found to be positive.)
"""Thin face of ids.c: checks the arrays once, releases the GIL, calls the loops.

Each kernel is described in ids_numpy.py.
"""

from libc.stdint cimport int32_t, int64_t, uint32_t, uintptr_t

import numpy as np

from edlz.core_ext.dense import divide
from edlz.core_ext.memory import aligned_empty, aligned_zeros


cdef extern from "ids.h" nogil:
    void edlz_partitions_of(
        const int64_t *ids, Py_ssize_t count, uint32_t partitions, int32_t *owners
    ) noexcept
    Py_ssize_t edlz_group_ids(
        const int64_t *ids, Py_ssize_t count, uint32_t partitions, int64_t *unique, int64_t *counts,
        int32_t *places
    ) noexcept
    Py_ssize_t edlz_first_outside(const int32_t *places, Py_ssize_t count, Py_ssize_t rows) noexcept
    void edlz_add_rows(
        float *sums, const float *gradients, const int32_t *places, Py_ssize_t count, Py_ssize_t dim
    ) noexcept


cdef Py_ssize_t MAX_IDS = 2**31 - 1


def partition_of(const int64_t[::1] ids not None, partitions):
    cdef uint32_t n_partitions = _checked_partitions(partitions)
    cdef const int64_t *id_data = _checked_ids(ids)
    cdef Py_ssize_t count = ids.shape[0]
    owners = aligned_empty(count, np.int32)
    cdef int32_t[::1] owner_view = owners
    if count > 0:
        with nogil:
            edlz_partitions_of(id_data, count, n_partitions, &owner_view[0])
    return owners


def group_ids(const int64_t[::1] ids not None, partitions):
    cdef uint32_t n_partitions = _checked_partitions(partitions)
    cdef const int64_t *id_data = _checked_ids(ids)
    cdef Py_ssize_t distinct, count = ids.shape[0]
    unique, places = aligned_empty(count, np.int64), aligned_empty(count, np.int32)
    counts = np.zeros(n_partitions, np.int64)
    cdef int64_t[::1] unique_view = unique, count_view = counts
    cdef int32_t[::1] place_view = places
    if count == 0:
        return unique, counts, places
    with nogil:
        distinct = edlz_group_ids(
            id_data, count, n_partitions, &unique_view[0], &count_view[0], &place_view[0]
        )
    if distinct < 0:
        raise MemoryError(f"no memory to group {count} ids")
    return unique[:distinct], counts, places


def sum_rows(const float[:, ::1] gradients not None, const int32_t[::1] places not None, Py_ssize_t rows):
    if rows < 0:
        raise ValueError(f"rows={rows} is negative; ask for 0 or more")
    if places.shape[0] != gradients.shape[0]:
        raise ValueError(f"{places.shape[0]} places for {gradients.shape[0]} gradients; give one for each")
    cdef Py_ssize_t outside, count = places.shape[0], dim = gradients.shape[1]
    cdef const int32_t *place_data = NULL
    if count > 0:
        place_data = &places[0]
        _check_alignment("places", <uintptr_t>place_data, sizeof(int32_t))
        with nogil:
            outside = edlz_first_outside(place_data, count, rows)
        if outside >= 0:
            raise IndexError(f"places[{outside}]={places[outside]} is not within the {rows} rows")
    flat = aligned_zeros(rows * dim, np.float32)
    _add_rows(flat, gradients, place_data)
    return flat.reshape(rows, dim)


def merge_rows(parts, float divisor):
    if divisor == 0:
        raise ZeroDivisionError("divisor is 0 in float32; divide by the number of parts that were to come")
    cdef list ids = [], gradients = []
    for part_ids, part_gradients in parts:
        ids.append(part_ids)
        gradients.append(part_gradients)
    cdef Py_ssize_t dim = _checked_dim(ids, gradients)
    unique, _, places = group_ids(ids[0] if len(ids) == 1 else np.concatenate(ids), 1)
    flat = aligned_zeros(len(unique) * dim, np.float32)
    cdef float[::1] sums = flat
    cdef const int32_t[::1] place_view = places
    cdef Py_ssize_t begin = 0
    for part_gradients in gradients:
        if len(part_gradients):
            _add_rows(sums, part_gradients, &place_view[begin])
        begin += len(part_gradients)
    divide(flat, divisor)
    return unique, flat.reshape(len(unique), dim)


cdef int _add_rows(float[::1] sums, const float[:, ::1] gradients, const int32_t *places) except -1:
    """Add all rows; the places are within `sums`."""
    cdef Py_ssize_t count = gradients.shape[0], dim = gradients.shape[1]
    if count == 0 or dim == 0:
        return 0
    _check_alignment("gradients", <uintptr_t>&gradients[0, 0], sizeof(float))
    with nogil:
        edlz_add_rows(&sums[0], &gradients[0, 0], places, count, dim)
    return 0


cdef Py_ssize_t _checked_dim(list ids, list gradients) except -1:
    """Check that all parts have one dtype each, one gradient an id and rows of one length."""
    if not ids:
        raise ValueError("there are no parts, so the length of a row is not known; give one or more")
    cdef Py_ssize_t dim = -1
    cdef const int64_t[::1] part_ids
    cdef const float[:, ::1] part_gradients
    for part, (of_ids, of_gradients) in enumerate(zip(ids, gradients)):
        if of_ids is None or of_gradients is None:
            raise TypeError(f"part {part} must not have None for an array")
        part_ids, part_gradients = of_ids, of_gradients
        if part_ids.shape[0] != part_gradients.shape[0]:
            raise ValueError(
                f"part {part} has {part_ids.shape[0]} ids and {part_gradients.shape[0]} gradients; "
                f"give one for each"
            )
        if dim not in (-1, part_gradients.shape[1]):
            raise ValueError(f"part {part} has rows of {part_gradients.shape[1]} and those before of {dim}")
        dim = part_gradients.shape[1]
        if part_gradients.shape[0] > 0 and dim > 0:
            _check_alignment("gradients", <uintptr_t>&part_gradients[0, 0], sizeof(float))
    return dim


cdef uint32_t _checked_partitions(object partitions) except? 0:
    if not 1 <= partitions <= MAX_IDS:
        raise ValueError(f"partitions={partitions} is not within 1 and {MAX_IDS}")
    return partitions


cdef const int64_t *_checked_ids(const int64_t[::1] ids) except? NULL:
    if ids.shape[0] == 0:
        return NULL
    if ids.shape[0] > MAX_IDS:
        raise ValueError(f"{ids.shape[0]} ids are more than {MAX_IDS} at once; split them")
    _check_alignment("ids", <uintptr_t>&ids[0], sizeof(int64_t))
    return &ids[0]


cdef int _check_alignment(str name, uintptr_t address, size_t size_bytes) except -1:
    if address % size_bytes != 0:
        raise ValueError(f"{name} is not aligned to {size_bytes} bytes; copy it first")
    return 0
