# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False
# (No array is indexed here; buffers are handed to C by their address, after their size was checked.)
"""Thin face of table.c: checks arguments once, releases the GIL, turns error codes into exceptions.

table.py documents the classes.
"""

from cpython.buffer cimport (
    PyBUF_C_CONTIGUOUS, PyBUF_FORMAT, PyBUF_WRITABLE, PyBuffer_Release, PyObject_GetBuffer,
)
from cpython.mem cimport PyMem_Calloc, PyMem_Free
from libc.math cimport isfinite
from libc.stdint cimport int32_t, int64_t, uint64_t, uintptr_t
from libc.string cimport memcpy, memset

import operator

import numpy as np


cdef extern from "table.h" nogil:
    enum:
        EDLZ_MAX_SLOTS
        EDLZ_KINDS
    enum edlz_error:
        EDLZ_DONE
        EDLZ_NO_MEMORY
        EDLZ_FULL
        EDLZ_PENDING
        EDLZ_COUNT
        EDLZ_KNOWN_ID
        EDLZ_CLOSED
    enum edlz_distribution:
        EDLZ_CONSTANT
        EDLZ_UNIFORM
        EDLZ_NORMAL
        EDLZ_TRUNCATED_NORMAL
    ctypedef struct edlz_initializer:
        pass
    ctypedef struct edlz_step:
        int32_t kind
    ctypedef struct edlz_slot:
        Py_ssize_t size
        float initial
    ctypedef struct edlz_region:
        char *base
    ctypedef struct edlz_table:
        Py_ssize_t dim
        Py_ssize_t width
        Py_ssize_t stride
        int slot_count
        edlz_slot *slots
        edlz_initializer initializer
        uint64_t row_limit
        uint64_t pending_count
        uint64_t bucket_count
        edlz_region rows
        edlz_region ids
    void edlz_initializer_set(
        edlz_initializer *initializer, int distribution, double a, double b, uint64_t seed
    ) noexcept
    int edlz_slot_count(int32_t kind) noexcept
    int edlz_is_single_slot(int32_t kind, int slot) noexcept
    int edlz_table_open(edlz_table *table) noexcept
    void edlz_table_close(edlz_table *table) noexcept
    uint64_t edlz_table_row_count(const edlz_table *table) noexcept
    size_t edlz_table_memory_bytes(edlz_table *table) noexcept
    Py_ssize_t edlz_table_gather(
        edlz_table *table, const int64_t *ids, Py_ssize_t count, float *out
    ) noexcept
    int edlz_table_apply(
        edlz_table *table, const edlz_step *step, const int64_t *ids, Py_ssize_t count,
        const float *gradients, float *before, uint64_t *created
    ) noexcept
    int edlz_table_extend(edlz_table *table, uint64_t count, float **first) noexcept
    int edlz_table_index(edlz_table *table, const int64_t *ids, uint64_t count, uint64_t *failed) noexcept
    void edlz_table_digest(edlz_table *table, uint64_t *sum) noexcept


cdef extern from "table_index.h" nogil:
    enum:
        EDLZ_BUCKET_IDS


cdef extern from "table_image.h" nogil:
    ctypedef struct edlz_image:
        uint64_t row_count
    int edlz_image_open(edlz_image *image, edlz_table *table) noexcept
    void edlz_image_close(edlz_image *image) noexcept
    int edlz_image_read(edlz_image *image, uint64_t first, uint64_t count, float *out) noexcept
    int edlz_image_release_below(edlz_image *image, uint64_t stop) noexcept


MAX_DIM = 4096
MAX_ROWS = 2**32 - 2
_DISTRIBUTIONS = {
    "constant": EDLZ_CONSTANT,
    "uniform": EDLZ_UNIFORM,
    "normal": EDLZ_NORMAL,
    "truncated_normal": EDLZ_TRUNCATED_NORMAL,
}
_FLOATS, _INT64S = "float32", "int64"


cdef class EmbeddingTable:
    cdef edlz_table table
    cdef bint is_made

    def __cinit__(self, dim, slots, initializer, seed, row_limit=MAX_ROWS):
        self.is_made = False
        memset(&self.table, 0, sizeof(self.table))
        self.table.dim = _checked_int("dim", dim, 1, MAX_DIM)
        self.table.row_limit = _checked_int("row_limit", row_limit, 1, MAX_ROWS)
        _set_slots(&self.table, tuple(slots))
        cdef uint64_t seed_bits = _checked_int("seed", seed, 0, 2**64 - 1)
        cdef int distribution = _DISTRIBUTIONS[initializer.kind]
        edlz_initializer_set(&self.table.initializer, distribution, initializer.a, initializer.b, seed_bits)
        if edlz_table_open(&self.table):
            raise MemoryError(
                f"no address space for an embedding table with rows of {self.table.stride * 4} bytes; raise "
                f"the limit of this process's address space (ulimit -v) or of mappings (vm.max_map_count)"
            )
        self.is_made = True

    def __dealloc__(self):
        if self.is_made:
            edlz_table_close(&self.table)

    @property
    def dim(self):
        return self.table.dim

    @property
    def width(self):
        return self.table.width

    @property
    def row_count(self):
        return edlz_table_row_count(&self.table)

    @property
    def row_limit(self):
        return self.table.row_limit

    @property
    def capacity(self):
        return self.table.bucket_count * EDLZ_BUCKET_IDS

    @property
    def memory_bytes(self):
        cdef size_t size
        with nogil:
            size = edlz_table_memory_bytes(&self.table)
        return size

    def gather(self, ids, out):
        cdef Py_buffer id_buffer, out_buffer
        cdef Py_ssize_t unknown
        _borrow(&id_buffer, "ids", ids, _INT64S, False)
        try:
            _borrow(&out_buffer, "out", out, _FLOATS, True)
            try:
                _check_size("out", &out_buffer, &id_buffer, self.table.dim)
                _check_apart("ids", &id_buffer, "out", &out_buffer)
                with nogil:
                    unknown = edlz_table_gather(
                        &self.table, <const int64_t *>id_buffer.buf, id_buffer.len // 8, <float *>out_buffer.buf
                    )
            finally:
                PyBuffer_Release(&out_buffer)
        finally:
            PyBuffer_Release(&id_buffer)
        return unknown

    def apply(self, bytes step not None, ids, gradients, before=None):
        cdef edlz_step ready = self._checked_step(step)
        cdef Py_buffer id_buffer, gradient_buffer
        _borrow(&id_buffer, "ids", ids, _INT64S, False)
        try:
            _borrow(&gradient_buffer, "gradients", gradients, _FLOATS, False)
            try:
                _check_size("gradients", &gradient_buffer, &id_buffer, self.table.dim)
                return self._apply(&ready, &id_buffer, &gradient_buffer, before)
            finally:
                PyBuffer_Release(&gradient_buffer)
        finally:
            PyBuffer_Release(&id_buffer)

    cdef object _apply(self, edlz_step *step, Py_buffer *ids, Py_buffer *gradients, before):
        cdef Py_buffer before_buffer
        if before is None:
            return self._apply_checked(step, ids, gradients, NULL)
        _borrow(&before_buffer, "before", before, _FLOATS, True)
        try:
            _check_size("before", &before_buffer, ids, self.table.dim)
            _check_apart("ids", ids, "before", &before_buffer)
            _check_apart("gradients", gradients, "before", &before_buffer)
            return self._apply_checked(step, ids, gradients, <float *>before_buffer.buf)
        finally:
            PyBuffer_Release(&before_buffer)

    cdef object _apply_checked(self, edlz_step *step, Py_buffer *ids, Py_buffer *gradients, float *before):
        cdef uint64_t created = 0
        cdef int error
        with nogil:
            error = edlz_table_apply(
                &self.table, step, <const int64_t *>ids.buf, ids.len // 8, <const float *>gradients.buf,
                before, &created,
            )
        if error:
            self._raise(error, ids.len // 8)
        return created

    def digest(self):
        cdef uint64_t[2] total
        with nogil:
            edlz_table_digest(&self.table, total)
        return int(total[1]) << 64 | int(total[0])

    def freeze(self):
        return TableImage.__new__(TableImage, self)

    def extend(self, count):
        cdef uint64_t wanted = _checked_int("count", count, 0, MAX_ROWS)
        cdef float *first = NULL
        cdef int error
        with nogil:
            error = edlz_table_extend(&self.table, wanted, &first)
        if error:
            self._raise(error, count)
        return np.asarray(_Memory.rows(self, first, wanted, self.table.width, self.table.stride))

    def index(self, ids):
        cdef Py_buffer id_buffer
        cdef uint64_t failed = 0
        cdef int error
        _borrow(&id_buffer, "ids", ids, _INT64S, False)
        try:
            with nogil:
                error = edlz_table_index(
                    &self.table, <const int64_t *>id_buffer.buf, id_buffer.len // 8, &failed
                )
            if error == EDLZ_KNOWN_ID:
                raise ValueError(
                    f"id {(<const int64_t *>id_buffer.buf)[failed]} at place {failed} is in the table already "
                    f"or comes twice; give every row an id of its own"
                )
            if error:
                self._raise(error, id_buffer.len // 8)
        finally:
            PyBuffer_Release(&id_buffer)

    def ids(self):
        return np.asarray(_Memory.ids(self, self.row_count))

    cdef edlz_step _checked_step(self, bytes step) except *:
        cdef edlz_step ready
        cdef int slot
        cdef Py_ssize_t size
        if len(step) != sizeof(edlz_step):
            raise ValueError(
                f"step has {len(step)} bytes instead of {sizeof(edlz_step)}; give Step.packed"
            )
        memcpy(&ready, <const char *>step, sizeof(edlz_step))
        if ready.kind < 0 or ready.kind >= EDLZ_KINDS:
            raise ValueError(f"step is of kind {ready.kind}; there are kinds 0 to {EDLZ_KINDS - 1}")
        if edlz_slot_count(ready.kind) != self.table.slot_count:
            raise ValueError(
                f"step of kind {ready.kind} needs {edlz_slot_count(ready.kind)} slots, the table has "
                f"{self.table.slot_count}; make the table with the slots of its optimizer"
            )
        for slot in range(self.table.slot_count):
            size = 1 if edlz_is_single_slot(ready.kind, slot) else self.table.dim
            if self.table.slots[slot].size != size:
                raise ValueError(
                    f"step of kind {ready.kind} needs {size} elements in slot {slot}, the table has "
                    f"{self.table.slots[slot].size}; make the table with the slots of its optimizer"
                )
        return ready

    cdef object _raise(self, int error, count):
        cdef Py_ssize_t row_bytes = self.table.stride * sizeof(float) + sizeof(int64_t)
        if error == EDLZ_FULL:
            raise MemoryError(
                f"up to {count} more rows after {self.row_count} exceed the {self.table.row_limit} of {row_bytes} "
                f"bytes that this table can hold; use more parameter servers or a larger machine"
            )
        if error == EDLZ_NO_MEMORY:
            raise MemoryError(
                f"the operating system gives no memory for up to {count} more rows of {row_bytes} bytes after "
                f"{self.row_count} in {self.memory_bytes} bytes; use more parameter servers or more memory"
            )
        if error == EDLZ_PENDING:
            raise ValueError(
                f"{self.table.pending_count} rows of extend() wait for their index(); give them ids first"
            )
        if error == EDLZ_COUNT:
            raise ValueError(f"{count} ids for {self.table.pending_count} rows of the last extend()")
        raise ValueError("the image was closed, or these rows of it were released; freeze the table again")


cdef class TableImage:
    cdef EmbeddingTable owner
    cdef edlz_image *image

    def __cinit__(self, EmbeddingTable table not None):
        cdef int error
        self.owner = table
        self.image = <edlz_image *>PyMem_Calloc(1, sizeof(edlz_image))
        if self.image == NULL:
            raise MemoryError("no memory for an image of an embedding table")
        with nogil:
            error = edlz_image_open(self.image, &table.table)
        if error:
            PyMem_Free(self.image)
            self.image = NULL
            raise MemoryError(f"no memory for an image of {table.row_count} rows")

    def __dealloc__(self):
        # `owner` is alive here still: Cython lets go of attributes after this.
        if self.image != NULL:
            with nogil:
                edlz_image_close(self.image)
            PyMem_Free(self.image)

    @property
    def row_count(self):
        return self.image.row_count

    @property
    def width(self):
        return self.owner.table.width

    @property
    def ids(self):
        return np.asarray(_Memory.ids(self.owner, self.image.row_count))

    def read(self, first, count, out):
        cdef uint64_t begin = _checked_int("first", first, 0, self.image.row_count)
        cdef uint64_t n = _checked_int("count", count, 0, self.image.row_count - begin)
        cdef Py_buffer out_buffer
        cdef int error
        _borrow(&out_buffer, "out", out, _FLOATS, True)
        try:
            if <uint64_t>out_buffer.len != n * self.owner.table.width * 4:
                raise ValueError(
                    f"out has {out_buffer.len // 4} elements for {n} rows of {self.owner.table.width}; "
                    f"give {n * self.owner.table.width}"
                )
            with nogil:
                error = edlz_image_read(self.image, begin, n, <float *>out_buffer.buf)
        finally:
            PyBuffer_Release(&out_buffer)
        if error:
            self.owner._raise(error, n)

    def release_below(self, stop):
        cdef uint64_t end = _checked_int("stop", stop, 0, self.image.row_count)
        cdef int error
        with nogil:
            error = edlz_image_release_below(self.image, end)
        if error:
            self.owner._raise(error, 0)

    def close(self):
        with nogil:
            edlz_image_close(self.image)

    def __enter__(self):
        return self

    def __exit__(self, *exc_info):
        self.close()


cdef class _Memory:
    """Memory of a table as a buffer, which keeps the table alive.

    A table's rows and ids never move when it grows (region.h), so a view stays good.
    """

    cdef EmbeddingTable owner
    cdef char *data
    cdef const char *format
    cdef Py_ssize_t itemsize
    cdef int n_dimensions
    cdef bint is_read_only
    cdef Py_ssize_t[2] shape
    cdef Py_ssize_t[2] strides

    @staticmethod
    cdef _Memory rows(EmbeddingTable owner, float *first, uint64_t count, Py_ssize_t width, Py_ssize_t stride):
        cdef _Memory memory = _Memory.__new__(_Memory)
        memory.owner, memory.data, memory.format = owner, <char *>first, b"f"
        memory.itemsize, memory.n_dimensions, memory.is_read_only = sizeof(float), 2, False
        memory.shape[0], memory.shape[1] = count, width
        memory.strides[0], memory.strides[1] = stride * sizeof(float), sizeof(float)
        return memory

    @staticmethod
    cdef _Memory ids(EmbeddingTable owner, uint64_t count):
        cdef _Memory memory = _Memory.__new__(_Memory)
        memory.owner, memory.data, memory.format = owner, owner.table.ids.base, b"q"
        memory.itemsize, memory.n_dimensions, memory.is_read_only = sizeof(int64_t), 1, True
        memory.shape[0], memory.strides[0] = count, sizeof(int64_t)
        return memory

    def __getbuffer__(self, Py_buffer *buffer, int flags):
        if self.is_read_only and flags & PyBUF_WRITABLE:
            raise BufferError("the ids of a table are read-only")
        buffer.obj = self
        buffer.buf = self.data
        buffer.itemsize = self.itemsize
        buffer.format = <char *>self.format
        buffer.ndim = self.n_dimensions
        buffer.shape = self.shape
        buffer.strides = self.strides
        buffer.suboffsets = NULL
        buffer.readonly = self.is_read_only
        buffer.internal = NULL
        buffer.len = self.itemsize * self.shape[0] * (self.shape[1] if self.n_dimensions == 2 else 1)


cdef object _set_slots(edlz_table *table, tuple slots):
    cdef int place
    if len(slots) > EDLZ_MAX_SLOTS:
        raise ValueError(f"{len(slots)} slots; no optimizer has more than {EDLZ_MAX_SLOTS}")
    table.slot_count = len(slots)
    for place in range(table.slot_count):
        size, initial = slots[place]
        table.slots[place].size = _checked_int(f"size of slot {place}", size, 1, MAX_DIM)
        table.slots[place].initial = initial
        if not isfinite(table.slots[place].initial):
            raise ValueError(f"initial value {initial} of slot {place} is not finite in float32")


cdef object _checked_int(name, value, smallest, largest):
    number = operator.index(value)
    if not smallest <= number <= largest:
        raise ValueError(f"{name}={number} is not within {smallest} and {largest}")
    return number


cdef object _borrow(Py_buffer *buffer, name, array, dtype, bint is_written):
    """Take the buffer of a C-contiguous array of native float32 or int64, to be released by the caller."""
    cdef int flags = PyBUF_C_CONTIGUOUS | PyBUF_FORMAT
    if is_written:
        flags |= PyBUF_WRITABLE
    try:
        PyObject_GetBuffer(array, buffer, flags)
    except (BufferError, ValueError) as error:
        need = "writable and C-contiguous" if is_written else "C-contiguous"
        raise ValueError(f"{name} must be {need}: {error}") from error
    try:
        _check_elements(name, buffer, dtype)
    except ValueError:
        PyBuffer_Release(buffer)
        raise


cdef object _check_elements(name, Py_buffer *buffer, dtype):
    cdef bint is_float = dtype is _FLOATS
    found = buffer.format.decode("ascii").lstrip("@=") if buffer.format != NULL else "B"
    # An int64 of NumPy is a long where that has 8 bytes; where it has 4, its size is refused below.
    if found not in ("f",) if is_float else found not in ("q", "l"):
        raise ValueError(f"{name} has elements of format {found!r}; give {dtype}")
    if buffer.itemsize != (4 if is_float else 8):
        raise ValueError(f"{name} has elements of {buffer.itemsize} bytes; give {dtype}")
    if <uintptr_t>buffer.buf % <uintptr_t>buffer.itemsize:
        raise ValueError(f"{name} is not aligned to {buffer.itemsize} bytes; copy it first")
    if dtype is _INT64S and buffer.ndim != 1:
        raise ValueError(f"{name} has {buffer.ndim} dimensions; give one")


cdef object _check_size(name, Py_buffer *values, Py_buffer *ids, Py_ssize_t dim):
    cdef Py_ssize_t count = ids.len // 8
    if values.len // 4 != count * dim or values.ndim > 2 or (values.ndim == 2 and values.shape[1] != dim):
        shape = tuple([values.shape[axis] for axis in range(values.ndim)])
        raise ValueError(
            f"{name} has shape {shape} for {count} ids of dim {dim}; give ({count}, {dim}) or ({count * dim},)"
        )


cdef object _check_apart(read_name, Py_buffer *read, written_name, Py_buffer *written):
    # What is read after the first write would not be what the caller gave.
    cdef uintptr_t one = <uintptr_t>read.buf, other = <uintptr_t>written.buf
    if one < other + written.len and other < one + read.len:
        raise ValueError(
            f"{read_name} and {written_name} overlap in memory; an array that is written must stand apart"
        )
