# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False
# (No array is indexed here.)
"""Thin face of columns.c: takes Arrow's capsules apart.

Each function is described in columns_numpy.py.
"""

from cpython.buffer cimport PyBuffer_FillInfo
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from cpython.pycapsule cimport PyCapsule_GetPointer
from libc.stdint cimport int64_t, uint8_t
from libc.string cimport memcpy

import numpy as np


cdef extern from "columns.h" nogil:
    ctypedef struct edlz_arrow_schema:
        const char *format
        int64_t n_children
        edlz_arrow_schema **children
        edlz_arrow_schema *dictionary

    ctypedef struct edlz_arrow_array:
        int64_t length
        int64_t null_count
        int64_t offset
        int64_t n_children
        const void **buffers
        edlz_arrow_array **children

    int64_t edlz_count_missing(const uint8_t *is_there, int64_t first, int64_t count) noexcept
    void edlz_mark_missing(
        const uint8_t *is_there, int64_t first, int64_t count, int is_double, void *numbers
    ) noexcept


cdef object _INT32 = np.dtype(np.int32), _INT64 = np.dtype(np.int64)
cdef object _FLOAT32 = np.dtype(np.float32), _FLOAT64 = np.dtype(np.float64)
cdef object _frombuffer = np.frombuffer, _empty = np.empty


cdef class _Lent:
    """Memory of Arrow's, for as long as somebody looks at it."""

    cdef object owner  # a capsule: it lets go of all of the array
    cdef const void *start
    cdef Py_ssize_t size

    def __getbuffer__(self, Py_buffer *view, int flags):
        PyBuffer_FillInfo(view, self, <void *>self.start, self.size, True, flags)


def numbers(batch not None):
    pair = batch.__arrow_c_array__()
    schema_capsule, owner = pair
    cdef edlz_arrow_schema *schema = <edlz_arrow_schema *>PyCapsule_GetPointer(schema_capsule, "arrow_schema")
    cdef edlz_arrow_array *array = <edlz_arrow_array *>PyCapsule_GetPointer(owner, "arrow_array")
    cdef Py_ssize_t place
    if schema.format[0] != b"+" or schema.format[1] != b"s" or schema.n_children != array.n_children:
        raise TypeError("it is no record batch")
    cdef list found = [None] * array.n_children
    for place in range(array.n_children):
        found[place] = _column(
            schema.children[place], array.children[place], array.offset, array.length, owner
        )
    return found


def number(values not None):
    pair = values.__arrow_c_array__()
    schema_capsule, owner = pair
    cdef edlz_arrow_schema *schema = <edlz_arrow_schema *>PyCapsule_GetPointer(schema_capsule, "arrow_schema")
    cdef edlz_arrow_array *array = <edlz_arrow_array *>PyCapsule_GetPointer(owner, "arrow_array")
    return _column(schema, array, 0, array.length, owner)


cdef object _column(
    const edlz_arrow_schema *schema, const edlz_arrow_array *array, int64_t offset, int64_t count, object owner
):
    cdef object dtype
    cdef int width = 4, is_float = False
    cdef char letter = schema.format[0]
    if letter == 0 or schema.format[1] != 0 or schema.dictionary != NULL:
        return None
    if letter == b"f":
        dtype, is_float = _FLOAT32, True
    elif letter == b"g":
        dtype, is_float, width = _FLOAT64, True, 8
    elif letter == b"i":
        dtype = _INT32
    elif letter == b"l":
        dtype, width = _INT64, 8
    else:
        return None
    if not count:
        return _empty(0, dtype)
    cdef int64_t first = array.offset + offset, missing = 0
    cdef const uint8_t *is_there = <const uint8_t *>array.buffers[0]
    if array.null_count != 0 and is_there != NULL:
        missing = edlz_count_missing(is_there, first, count)
    cdef const uint8_t *start = <const uint8_t *>array.buffers[1] + first * width
    if missing:
        return _frombuffer(_with_nan(start, is_there, first, count, width), dtype) if is_float else None
    cdef _Lent memory = _Lent.__new__(_Lent)
    memory.owner, memory.start, memory.size = owner, start, count * width
    return _frombuffer(memory, dtype)


cdef bytes _with_nan(
    const uint8_t *start, const uint8_t *is_there, int64_t first, int64_t count, int width
):
    cdef bytes found = PyBytes_FromStringAndSize(NULL, count * width)
    cdef char *copy = PyBytes_AS_STRING(found)
    with nogil:
        memcpy(copy, start, count * width)
        edlz_mark_missing(is_there, first, count, width == 8, copy)
    return found
