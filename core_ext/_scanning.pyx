# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False
# (Element 0 alone is indexed, and only after the length was found to be positive.)
"""Thin face of scanning.c: checks the arguments once, releases the GIL, calls the loops.

Each kernel is described in scanning_numpy.py.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t
from libc.string cimport memcmp

import numpy as np

cdef enum:
    TEXTS_SEEN = 1024


cdef extern from "scanning.h" nogil:
    ctypedef struct edlz_row_count:
        int64_t rows
        int64_t end
        int32_t is_open

    ctypedef struct edlz_record_count:
        int64_t records
        int64_t end
        uint32_t checksum
        int32_t error

    void edlz_count_rows(
        const uint8_t *data, int64_t size, int quote, int skip_empty, edlz_row_count *found
    ) noexcept
    int64_t edlz_row_bounds(
        const uint8_t *data, int64_t size, int quote, int skip_empty, int64_t first, int64_t count,
        int64_t *starts, int64_t *ends, int32_t *is_open
    ) noexcept
    uint32_t edlz_crc32c(const uint8_t *data, int64_t size) noexcept
    void edlz_hop_records(
        const uint8_t *data, int64_t size, int64_t begin, int64_t limit, edlz_record_count *found
    ) noexcept
    void edlz_record_bounds(
        const uint8_t *data, int64_t size, int64_t first, int64_t count, int64_t *starts, int64_t *ends,
        edlz_record_count *found
    ) noexcept


def count_rows(const uint8_t[::1] data not None, int quote, bint skip_empty):
    cdef edlz_row_count found
    cdef const uint8_t *start = _start(data)
    cdef int64_t size = data.shape[0]
    _check_quote(quote)
    with nogil:
        edlz_count_rows(start, size, quote, skip_empty, &found)
    return found.rows, found.end, bool(found.is_open)


def row_bounds(const uint8_t[::1] data not None, int quote, bint skip_empty, int64_t first, int64_t count):
    cdef const uint8_t *start = _start(data)
    cdef int64_t found, size = data.shape[0]
    cdef int32_t is_open = 0
    _check_quote(quote)
    _check_range(first, count)
    starts, ends = np.empty(count + 1, np.int64), np.empty(count + 1, np.int64)
    cdef int64_t[::1] start_view = starts, end_view = ends
    with nogil:
        found = edlz_row_bounds(
            start, size, quote, skip_empty, first, count, &start_view[0], &end_view[0], &is_open
        )
    return starts[:found], ends[:found], bool(is_open)


def crc32c(const uint8_t[::1] data not None):
    cdef const uint8_t *start = _start(data)
    cdef int64_t size = data.shape[0]
    cdef uint32_t crc
    with nogil:
        crc = edlz_crc32c(start, size)
    return crc


def hop_records(const uint8_t[::1] data not None, int64_t begin, int64_t limit):
    cdef edlz_record_count found
    cdef const uint8_t *start = _start(data)
    cdef int64_t size = data.shape[0]
    if not 0 <= begin <= size:
        raise ValueError(f"begin={begin} is not within the {size} bytes")
    with nogil:
        edlz_hop_records(start, size, begin, limit, &found)
    return found.records, found.end, found.checksum, found.error


def record_bounds(const uint8_t[::1] data not None, int64_t first, int64_t count):
    cdef edlz_record_count found
    cdef const uint8_t *start = _start(data)
    cdef int64_t size = data.shape[0]
    _check_range(first, count)
    starts, ends = np.empty(count + 1, np.int64), np.empty(count + 1, np.int64)
    cdef int64_t[::1] start_view = starts, end_view = ends
    with nogil:
        edlz_record_bounds(start, size, first, count, &start_view[0], &end_view[0], &found)
    return starts[:found.records], ends[:found.records], found.end, found.error


def slices(const uint8_t[::1] data not None, const int64_t[::1] starts not None, const int64_t[::1] ends not None):
    cdef Py_ssize_t place, count = starts.shape[0]
    cdef int64_t size = data.shape[0]
    cdef const char *base = <const char *>_start(data)
    if ends.shape[0] != count:
        raise ValueError(f"{count} starts and {ends.shape[0]} ends; give one for each")
    cdef list found = [None] * count
    for place in range(count):
        if not 0 <= starts[place] <= ends[place] <= size:
            raise IndexError(f"bytes {starts[place]} to {ends[place]} are not within the {size}")
        found[place] = PyBytes_FromStringAndSize(base + starts[place], ends[place] - starts[place])
    return found


def texts(const uint8_t[::1] data not None, const int64_t[::1] ends not None):
    cdef Py_ssize_t place, length, count = ends.shape[0] - 1
    cdef int64_t size = data.shape[0]
    cdef const char *base = <const char *>_start(data)
    cdef const char *at
    cdef uint32_t slot
    cdef bytes text
    # Texts of a column repeat: the one seen last with the same length and letters here and there is given again.
    cdef list seen = [b""] * TEXTS_SEEN
    if count < 0 or ends[0] < 0:
        raise IndexError("there are no places, or they begin before the data")
    found = np.empty(count, object)
    cdef object[::1] view = found
    for place in range(count):
        length = ends[place + 1] - ends[place]
        if length < 0 or ends[place + 1] > size:
            raise IndexError(f"bytes {ends[place]} to {ends[place + 1]} are not within the {size}")
        at = base + ends[place]
        slot = <uint32_t>length
        if length > 0:
            slot = slot * 31 + <uint8_t>at[0]
            slot = slot * 31 + <uint8_t>at[length >> 1]
            slot = slot * 31 + <uint8_t>at[length - 1]
        slot %= TEXTS_SEEN
        text = <bytes>seen[slot]
        if PyBytes_GET_SIZE(text) != length or memcmp(PyBytes_AS_STRING(text), at, length) != 0:
            text = PyBytes_FromStringAndSize(at, length)
            seen[slot] = text
        view[place] = text
    return found


cdef const uint8_t *_start(const uint8_t[::1] data) noexcept:
    return &data[0] if data.shape[0] > 0 else <const uint8_t *>b""


cdef int _check_quote(int quote) except -1:
    if not -1 <= quote <= 255 or quote in (10, 13):
        raise ValueError(f"quote={quote} is neither -1 nor a byte other than a line end")
    return 0


cdef int _check_range(int64_t first, int64_t count) except -1:
    if first < 0 or count < 0:
        raise ValueError(f"{count} from number {first} on: neither may be negative")
    return 0
