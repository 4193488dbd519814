# cython: language_level=3, wraparound=False
"""A look through a msgpack header before anything is made of it.

An unpacker makes room for what a header claims, a list of so many items in a list of so many, before it sees
whether they are there.  Here the bytes are walked once, without making an object: what comes out of a header that passes
is no more than a few times as large as the header, and as deep as is allowed.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer

cdef enum:
    DEEPEST = 64

cdef enum Kind:
    VALUE, TEXT, BINARY, ARRAY, MAP, NONE

cdef struct Walk:
    const unsigned char *bytes
    Py_ssize_t size, place
    Py_ssize_t length  # of what was met last: bytes, items, or pairs


cdef class HeaderCheck:
    """Checks headers against limits; may be called by several threads."""

    cdef Py_ssize_t depth, containers, texts, array, map, text, binary

    def __cinit__(
        self,
        *,
        int depth,
        Py_ssize_t containers,
        Py_ssize_t array_length,
        Py_ssize_t map_length,
        Py_ssize_t text_bytes,
        Py_ssize_t binary_bytes,
    ):
        if not 0 < depth < DEEPEST:
            raise ValueError(f"depth {depth}; it must be less than {DEEPEST}")
        self.depth, self.containers = depth, containers
        self.array, self.map, self.text, self.binary = array_length, map_length, text_bytes, binary_bytes

    def __call__(self, header):
        """Raise ValueError unless the header is one msgpack value, whole, alone and within the limits."""
        cdef Py_buffer buffer
        cdef Walk walk
        PyObject_GetBuffer(header, &buffer, PyBUF_SIMPLE)
        walk.bytes, walk.size, walk.place = <const unsigned char *>buffer.buf, buffer.len, 0
        try:
            self.check(&walk)
        finally:
            PyBuffer_Release(&buffer)

    cdef int check(self, Walk *walk) except -1:
        cdef Py_ssize_t left[DEEPEST]  # items still to come, of each container that is open
        cdef Py_ssize_t open = 0, containers = 0
        cdef Kind kind
        left[0] = 1
        while True:
            while left[open] == 0:
                if open == 0:
                    if walk.place != walk.size:
                        raise ValueError(f"{walk.size - walk.place} bytes behind its end")
                    return 0
                open -= 1
            left[open] -= 1
            kind = next_of(walk)
            if kind == NONE:
                raise ValueError(self.complaint(walk))
            self.check_length(kind, walk)
            if kind == TEXT or kind == BINARY:
                walk.place += walk.length  # they are there: check_length has seen to it
            elif kind == ARRAY or kind == MAP:
                containers += 1
                if containers > self.containers:
                    raise ValueError(f"more than {self.containers} lists and maps")
                if walk.length == 0:
                    continue
                if open == self.depth:
                    raise ValueError(f"lists within lists, more than {self.depth} deep")
                open += 1
                left[open] = walk.length if kind == ARRAY else 2 * walk.length

    cdef int check_length(self, Kind kind, Walk *walk) except -1:
        cdef Py_ssize_t most
        if kind == VALUE:
            return 0
        most = self.array if kind == ARRAY else self.map if kind == MAP else self.text if kind == TEXT else self.binary
        if walk.length > most:
            raise ValueError(f"{NAMES[kind].format(walk.length)}; at most {most} are taken")
        # Each item takes a byte at least.
        if (2 * walk.length if kind == MAP else walk.length) > walk.size - walk.place:
            raise ValueError(f"truncated: {NAMES[kind].format(walk.length)}, of which some are missing")
        return 0

    cdef object complaint(self, Walk *walk):
        if walk.place > walk.size:
            return "truncated"
        return f"a byte {walk.bytes[walk.place - 1]:#04x}, which is of no type that travels"


cdef dict NAMES = {
    TEXT: "a text of {} bytes", BINARY: "{} bytes of binary data", ARRAY: "a list of {} items", MAP: "a map of {} pairs"
}


cdef Kind next_of(Walk *walk) noexcept nogil:
    """Step over the head of the next value, and over a number whole; NONE if there is none that travels."""
    cdef unsigned char head
    if walk.place >= walk.size:
        walk.place = walk.size + 1  # beyond its end: `complaint` tells by this that something is missing
        return NONE
    head = walk.bytes[walk.place]
    walk.place += 1
    walk.length = 0
    if head <= 0x7F or head >= 0xE0 or head == 0xC0 or head == 0xC2 or head == 0xC3:
        return VALUE
    if head <= 0x8F:
        walk.length = head & 0x0F
        return MAP
    if head <= 0x9F:
        walk.length = head & 0x0F
        return ARRAY
    if head <= 0xBF:
        walk.length = head & 0x1F
        return TEXT
    if head == 0xCA or head == 0xCB:  # floats
        return number(walk, 4 << (head - 0xCA))
    if 0xCC <= head <= 0xCF:
        return number(walk, 1 << (head - 0xCC))
    if 0xD0 <= head <= 0xD3:
        return number(walk, 1 << (head - 0xD0))
    if 0xC4 <= head <= 0xC6:
        return long_one(walk, 1 << (head - 0xC4), BINARY)
    if 0xD9 <= head <= 0xDB:
        return long_one(walk, 1 << (head - 0xD9), TEXT)
    if head == 0xDC or head == 0xDD:
        return long_one(walk, 2 << (head - 0xDC), ARRAY)
    if head == 0xDE or head == 0xDF:
        return long_one(walk, 2 << (head - 0xDE), MAP)
    return NONE  # 0xc1, and extension types, timestamps among them


cdef Kind number(Walk *walk, Py_ssize_t size) noexcept nogil:
    walk.place += size
    return VALUE if walk.place <= walk.size else NONE


cdef Kind long_one(Walk *walk, Py_ssize_t size, Kind kind) noexcept nogil:
    cdef Py_ssize_t i
    if size > walk.size - walk.place:
        walk.place = walk.size + 1
        return NONE
    for i in range(size):
        walk.length = walk.length << 8 | walk.bytes[walk.place + i]
    walk.place += size
    return kind
