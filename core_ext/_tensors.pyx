# cython: language_level=3, wraparound=False
"""Arrays of a message on their way into frames and out of them; services/transport/codec.py has the form on the wire.

The encoder and the decoder of a message call these objects for each array that they meet, one after another.
Nothing is believed of what came: sizes are checked against the frames that are there before an array is made.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_IsContiguous, PyBuffer_Release, PyObject_GetBuffer
from cpython.memoryview cimport PyMemoryView_FromObject, PyMemoryView_GET_BUFFER
from libc.stdint cimport uintptr_t

import math

import numpy as np

from edlz.core_ext.memory import aligned_empty

MAX_RANK = 16
cdef object ndarray = np.ndarray, frombuffer = np.frombuffer


cpdef Py_ssize_t size_in_bytes(frames) except -1:
    """Return the size of all frames together."""
    cdef Py_ssize_t size = 0
    for frame in frames:
        size += len(frame)
    return size


cdef class TensorWriter:
    """Takes arrays apart: begun with each message, called for each array, then asked for the frames.

    It is called for what else is no plain value, too: `records` has, by class, what makes one of it.
    """

    cdef list descriptors, frames
    cdef dict names
    cdef object records
    cdef Py_ssize_t frame_bytes

    def __cinit__(self, dtypes, records, Py_ssize_t frame_bytes):
        self.records = records
        self.names = {dtype: name for name, dtype in dtypes.items()}
        self.frame_bytes = frame_bytes
        self.begin()

    def begin(self):
        """Return the list that will hold a descriptor of each array."""
        self.descriptors, self.frames = [], []
        return self.descriptors

    def end(self, header):
        """Return the header and the frames of the arrays, and forget them."""
        frames = [header]
        frames += self.frames
        self.descriptors, self.frames = [], []
        return frames

    def __call__(self, value):
        if type(value) is not ndarray:
            return self._other(value)
        dtype = value.dtype
        name = self.names.get(dtype)
        if name is None:
            raise TypeError(f"an array of dtype {dtype}; these travel: {', '.join(d.name for d in self.names)}")
        # A view's chain of references ends at this very array: whoever waits for ZeroMQ to be done with it may
        # watch the array itself.
        view = PyMemoryView_FromObject(value)
        if not PyBuffer_IsContiguous(PyMemoryView_GET_BUFFER(view), b"C"):
            raise ValueError(
                f"an array of shape {value.shape} and strides {value.strides} is not C-contiguous; "
                f"make it so with numpy.ascontiguousarray"
            )
        cdef Py_ssize_t size = PyMemoryView_GET_BUFFER(view).len, start, count = 0
        if size:
            view = view.cast("B")
            if size <= self.frame_bytes:
                self.frames.append(view)
                count = 1
            else:
                for start in range(0, size, self.frame_bytes):
                    self.frames.append(view[start : start + self.frame_bytes])
                    count += 1
        self.descriptors.append((name, value.shape, count))
        return len(self.descriptors) - 1

    cdef object _other(self, value):
        """Return a record as a plain value, a NumPy number as one of Python, an array of a subclass as one of ours."""
        plain = self.records[type(value)]
        if plain is not None:
            return plain(value)
        if isinstance(value, ndarray):
            return self(value.view(ndarray))
        if isinstance(value, (np.bool_, np.integer, np.float32, np.float64)):
            return value.item()
        raise TypeError(f"a value of type {type(value).__name__}")


cdef class TensorReader:
    """Makes the arrays of a message's frames; to be opened, called for each array, and closed."""

    cdef dict dtypes, annotated
    cdef list arrays
    cdef Py_ssize_t taken, most_tensors, most_frames, most_bytes

    def __cinit__(self, dtypes, *, Py_ssize_t most_tensors, Py_ssize_t most_frames, Py_ssize_t most_bytes):
        self.dtypes = dtypes
        self.most_tensors, self.most_frames, self.most_bytes = most_tensors, most_frames, most_bytes
        self.annotated = {}  # by the id of an annotation: itself, so that the id stays its own, and its dtype
        self.arrays = []
        self.taken = 0

    def open(self, descriptors, frames):
        """Make the arrays of all descriptors.

        Raises
        ------
        ValueError
            If there are more of them than may be, if one is no descriptor or does not fit the frames behind the
            first one, or if a frame belongs to none.
        """
        cdef Py_ssize_t place = 1, count, size, frame_count = len(frames), number = 0
        self.taken = 0
        self.arrays = []
        if type(descriptors) is not tuple:
            raise ValueError("no list of tensors")
        if frame_count == 1 and not descriptors:
            return
        self._check_limits(descriptors, frames)
        for descriptor in descriptors:
            if type(descriptor) is not tuple or len(descriptor) < 3:
                raise ValueError(f"tensor {number} is not described by a list")
            name, shape, frames_due = descriptor[0], descriptor[1], descriptor[2]
            if type(name) is not str or type(frames_due) is not int or not is_shape(shape):
                raise ValueError(f"tensor {number} is not described by dtype, shape and frames")
            dtype = self.dtypes.get(name)
            if dtype is None:
                names = ", ".join(d.name for d in self.dtypes.values())
                raise ValueError(f"tensor {number} of dtype {name[:16]!r}; these are taken: {names}")
            if len(shape) != 1 and (len(shape) > MAX_RANK or (shape and min(shape) < 0)):
                raise ValueError(f"tensor {number} of shape {shape[:MAX_RANK + 1]}")
            if not 0 <= frames_due <= frame_count - place:
                raise ValueError(
                    f"tensor {number} in {frames_due} frames, of which {frame_count - place} are there"
                )
            count = frames_due
            pieces = frames[place] if count == 1 else frames[place : place + count]
            size = len(pieces) if count == 1 else size_in_bytes(pieces)
            due = (shape[0] if len(shape) == 1 else math.prod(shape)) * dtype.itemsize
            if due != size or (count and not due):
                raise ValueError(f"tensor {number} of shape {shape} in {size} bytes; {due} are due")
            array = _view(pieces, dtype) if count == 1 else _joined(pieces, size, dtype)
            self.arrays.append(array if len(shape) == 1 else array.reshape(shape))
            place += count
            number += 1
        if place != frame_count:
            raise ValueError(f"{frame_count - place} frames that belong to no tensor")

    cdef int _check_limits(self, descriptors, frames) except -1:
        if len(descriptors) > self.most_tensors:
            raise ValueError(f"{len(descriptors)} tensors; at most {self.most_tensors} are taken")
        if len(frames) > self.most_frames:
            raise ValueError(f"more than {self.most_frames} frames")
        size = size_in_bytes(frames)
        if size > self.most_bytes:
            raise ValueError(f"{size} bytes; at most {self.most_bytes} are taken")
        return 0

    def __call__(self, annotation, number):
        if type(number) is not int or number != self.taken or self.taken >= len(self.arrays):
            raise ValueError(f"tensor {number!r:.20} where tensor {self.taken} is due")
        array = self.arrays[self.taken]
        dtype = self._dtype_of(annotation)
        if array.dtype is not dtype and array.dtype != dtype:
            raise ValueError(f"tensor {number} of dtype {array.dtype}; {dtype} is due")
        self.taken += 1
        return array

    cdef object _dtype_of(self, annotation):
        """Return the dtype that a field's `npt.NDArray[...]` promises."""
        known = self.annotated.get(id(annotation))
        if known is None:
            known = annotation, np.dtype(annotation.__args__[1].__args__[0])
            self.annotated[id(annotation)] = known
        return known[1]

    def forget(self):
        self.arrays = []

    def close(self):
        """Forget the arrays; raises ValueError if the message did not name all of them."""
        cdef Py_ssize_t count = len(self.arrays)
        self.forget()
        if self.taken != count:
            raise ValueError(f"{count} tensors, of which the message names {self.taken}")


cdef bint is_shape(value):
    """Whether a value is a tuple of whole numbers."""
    if type(value) is not tuple:
        return False
    for item in <tuple>value:
        if type(item) is not int:
            return False
    return True


cdef object _view(frame, dtype):
    """Return a flat read-only array over a frame, or over a copy where it is not aligned."""
    cdef Py_buffer buffer
    cdef bint is_aligned, is_read_only
    PyObject_GetBuffer(frame, &buffer, PyBUF_SIMPLE)
    # Small frames may lie where they arrived in ZeroMQ's input buffer.
    is_aligned = <uintptr_t>buffer.buf % <uintptr_t>dtype.itemsize == 0
    is_read_only = buffer.readonly
    PyBuffer_Release(&buffer)
    if not is_aligned:
        return _joined((frame,), len(frame), dtype)
    array = frombuffer(frame, dtype)
    if not is_read_only:
        array.flags.writeable = False
    return array


cdef object _joined(pieces, Py_ssize_t size, dtype):
    """Return a flat read-only array of the bytes of several frames, from a 64-byte boundary on."""
    cdef Py_ssize_t place = 0, count
    if size == 0:
        return frombuffer(b"", dtype)
    room = aligned_empty(size, np.uint8)
    target = room.data
    for piece in pieces:
        count = len(piece)
        target[place : place + count] = piece
        place += count
    array = room.view(dtype)
    array.flags.writeable = False
    return array
