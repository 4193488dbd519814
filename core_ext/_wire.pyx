# cython: language_level=3
"""Whole ZeroMQ messages, each in one call, on a socket that somebody else has made and will close.

pyzmq makes an object a frame and takes a microsecond or two for each; here small frames are bytes, and only large
ones objects of their own.  libzmq's functions are called through addresses that the caller has found in the very
library that made the socket, so nothing is linked and no header is needed.

A large frame that is sent is lent to ZeroMQ, whose thread gives it back at some later time.  That thread has no
business with Python: it puts the loan into a list, and whoever calls here next releases what lies there.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_FillInfo, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_FromStringAndSize
from cpython.mem cimport PyMem_Free, PyMem_Malloc
from cpython.memoryview cimport PyMemoryView_FromObject
from cpython.ref cimport Py_DECREF, Py_INCREF
from libc.errno cimport EAGAIN, EHOSTUNREACH, EINTR
from libc.stdint cimport uintptr_t
from libc.string cimport memcpy

import os

cdef extern from *:
    """
    /* zmq.h: the size and the alignment are part of libzmq's binary interface since 4.1. */
    typedef struct edlz_message {
        _Alignas(void *) unsigned char opaque[64];
    } edlz_message;

    typedef struct edlz_loan {
        Py_buffer buffer;
        PyObject *departure;
        struct edlz_loan *next;
    } edlz_loan;

    static edlz_loan *edlz_returned; /* the newest first; of all sockets */

    /* Called by ZeroMQ, on any thread. */
    static void edlz_return_loan(void *data, void *hint)
    {
        edlz_loan *loan = (edlz_loan *)hint;
        (void)data;
        loan->next = __atomic_load_n(&edlz_returned, __ATOMIC_RELAXED);
        while (!__atomic_compare_exchange_n(&edlz_returned, &loan->next, loan, 1, __ATOMIC_RELEASE, __ATOMIC_RELAXED))
            ;
    }

    static edlz_loan *edlz_take_returned(void)
    {
        if (__atomic_load_n(&edlz_returned, __ATOMIC_RELAXED) == NULL)
            return NULL;
        return __atomic_exchange_n(&edlz_returned, NULL, __ATOMIC_ACQUIRE);
    }
    """
    ctypedef struct edlz_message:
        pass
    ctypedef struct edlz_loan:
        Py_buffer buffer
        void *departure
        edlz_loan *next
    void edlz_return_loan(void *data, void *hint) noexcept nogil
    edlz_loan *edlz_take_returned() noexcept


ctypedef int (*on_message)(edlz_message *) noexcept nogil
ctypedef void *(*data_of)(edlz_message *) noexcept nogil
ctypedef size_t (*size_of)(const edlz_message *) noexcept nogil
ctypedef int (*init_size)(edlz_message *, size_t) noexcept nogil
ctypedef int (*init_data)(edlz_message *, void *, size_t, void (*)(void *, void *) noexcept nogil, void *) noexcept nogil
ctypedef int (*move)(edlz_message *, edlz_message *) noexcept nogil
ctypedef int (*pass_message)(edlz_message *, void *, int) noexcept nogil
ctypedef int (*get_option)(void *, int, void *, size_t *) noexcept nogil
ctypedef int (*last_error)() noexcept nogil

cdef struct Library:
    on_message init
    on_message close
    on_message more
    data_of data
    size_of size
    init_size init_size
    init_data init_data
    move move
    pass_message send
    pass_message receive
    get_option get_option
    last_error error

cdef Library zmq  # of this process; the same for all sockets

SYMBOLS = (
    "zmq_msg_init", "zmq_msg_close", "zmq_msg_more", "zmq_msg_data", "zmq_msg_size", "zmq_msg_init_size",
    "zmq_msg_init_data", "zmq_msg_move", "zmq_msg_send", "zmq_msg_recv", "zmq_getsockopt", "zmq_errno",
)
cdef int WAIT_NEVER = 1  # zmq.h: ZMQ_DONTWAIT, ZMQ_SNDMORE, ZMQ_EVENTS
cdef int MORE_FOLLOWS = 2
cdef int EVENTS = 15


def load(addresses):
    zmq.init = <on_message><uintptr_t>addresses["zmq_msg_init"]
    zmq.close = <on_message><uintptr_t>addresses["zmq_msg_close"]
    zmq.more = <on_message><uintptr_t>addresses["zmq_msg_more"]
    zmq.data = <data_of><uintptr_t>addresses["zmq_msg_data"]
    zmq.size = <size_of><uintptr_t>addresses["zmq_msg_size"]
    zmq.init_size = <init_size><uintptr_t>addresses["zmq_msg_init_size"]
    zmq.init_data = <init_data><uintptr_t>addresses["zmq_msg_init_data"]
    zmq.move = <move><uintptr_t>addresses["zmq_msg_move"]
    zmq.send = <pass_message><uintptr_t>addresses["zmq_msg_send"]
    zmq.receive = <pass_message><uintptr_t>addresses["zmq_msg_recv"]
    zmq.get_option = <get_option><uintptr_t>addresses["zmq_getsockopt"]
    zmq.error = <last_error><uintptr_t>addresses["zmq_errno"]


cdef class Departure:
    """How many frames of a message ZeroMQ still holds."""

    cdef Py_ssize_t lent

    @property
    def done(self):
        collect()
        return self.lent == 0


cdef Departure COPIED = Departure.__new__(Departure)  # of all messages without a large frame
cdef Py_ssize_t loans = 0  # of all sockets


cpdef Py_ssize_t collect() except -1:
    """Release what ZeroMQ has given back; return how many frames it still has."""
    global loans
    cdef edlz_loan *loan = edlz_take_returned()
    cdef edlz_loan *next
    cdef Departure departure
    while loan != NULL:
        next = loan.next
        loans -= 1
        departure = <Departure>loan.departure
        departure.lent -= 1
        Py_DECREF(departure)
        PyBuffer_Release(&loan.buffer)
        PyMem_Free(loan)
        loan = next
    return loans


cdef class Frame:
    """A large frame that was received; its memory is ZeroMQ's."""

    cdef edlz_message message

    def __cinit__(self):
        zmq.init(&self.message)

    def __dealloc__(self):
        zmq.close(&self.message)

    def __getbuffer__(self, Py_buffer *buffer, int flags):
        PyBuffer_FillInfo(buffer, self, zmq.data(&self.message), zmq.size(&self.message), 1, flags)


cdef class MessageSocket:
    cdef void *socket
    cdef Py_ssize_t large_bytes, most_frames
    cdef Departure departure  # of the message that is being sent

    def __cinit__(self, uintptr_t address, *, Py_ssize_t large_bytes, Py_ssize_t most_frames):
        if zmq.error == NULL:
            raise RuntimeError("libzmq's functions are not known; call load() first")
        self.socket = <void *>address
        self.large_bytes = large_bytes
        self.most_frames = most_frames

    def close(self):
        self.socket = NULL

    def events(self):
        cdef int found = 0
        cdef size_t size = sizeof(found)
        self._check_open()
        while zmq.get_option(self.socket, EVENTS, &found, &size) < 0:
            if zmq.error() != EINTR:
                raise _os_error(zmq.error())
        return found

    def receive(self):
        cdef edlz_message message
        cdef list frames = []
        cdef bint is_between = True, is_last = False  # of no message yet; of the frame in hand
        cdef int error
        self._check_open()
        collect()
        zmq.init(&message)
        try:
            while not is_last:
                if zmq.receive(&message, self.socket, WAIT_NEVER) < 0:
                    error = zmq.error()
                    if error == EINTR:
                        continue
                    if error == EAGAIN and is_between:
                        return None
                    raise _os_error(error)
                is_between = False
                is_last = not zmq.more(&message)
                # A message is taken to its end: what were left would be taken for the next one.
                if len(frames) < self.most_frames:
                    frames.append(self._content(&message))
        finally:
            zmq.close(&message)
        return frames

    cdef object _content(self, edlz_message *message):
        cdef size_t size = zmq.size(message)
        cdef Frame frame
        if size < <size_t>self.large_bytes:
            return PyBytes_FromStringAndSize(<char *>zmq.data(message), size)
        frame = Frame.__new__(Frame)
        zmq.move(&frame.message, message)
        return PyMemoryView_FromObject(frame)

    def send(self, frames, peer=None):
        cdef Py_ssize_t left = len(frames)
        cdef bint is_first = True, is_refused = False
        cdef int error
        self._check_open()
        collect()
        self.departure = COPIED
        if peer is not None:
            error = self._pass_on(peer, left > 0)
            if error:
                return _not_sent(error)
            is_first = False
        for frame in frames:
            left -= 1
            error = self._pass_on(frame, left > 0)
            if error and is_first:
                return _not_sent(error)
            if error and error != EAGAIN:
                raise _os_error(error)
            # The connection broke between two frames.  ZeroMQ now swallows frames up to the end of the message,
            # so it must be shown the end, or it would swallow the next message.
            is_refused |= error == EAGAIN
            is_first = False
        return None if is_refused else self.departure

    cdef int _pass_on(self, frame, bint is_more) except -1:
        """Return an error number of libzmq, or 0."""
        cdef edlz_message message
        cdef Py_buffer buffer
        cdef bint is_large
        cdef int error = 0
        PyObject_GetBuffer(frame, &buffer, PyBUF_SIMPLE)
        is_large = buffer.len >= self.large_bytes
        if not is_large:
            error = self._copy(&buffer, &message)
        PyBuffer_Release(&buffer)
        if is_large:
            error = self._lend(frame, &message)
        if error:
            return error
        while zmq.send(&message, self.socket, WAIT_NEVER | (MORE_FOLLOWS if is_more else 0)) < 0:
            error = zmq.error()
            if error != EINTR:
                zmq.close(&message)  # gives back what was lent
                return error
        return 0

    cdef int _copy(self, Py_buffer *buffer, edlz_message *message) noexcept:
        if zmq.init_size(message, buffer.len) < 0:
            return zmq.error()
        memcpy(zmq.data(message), buffer.buf, buffer.len)
        return 0

    cdef int _lend(self, frame, edlz_message *message) except -1:
        global loans
        cdef edlz_loan *loan = <edlz_loan *>PyMem_Malloc(sizeof(edlz_loan))
        cdef int error
        if loan == NULL:
            raise MemoryError("no memory for a frame to be sent")
        try:
            PyObject_GetBuffer(frame, &loan.buffer, PyBUF_SIMPLE)
        except BaseException:
            PyMem_Free(loan)
            raise
        if self.departure is COPIED:
            self.departure = Departure.__new__(Departure)
        loan.departure = <void *>self.departure
        Py_INCREF(self.departure)  # C's reference, which `collect` gives up
        self.departure.lent += 1
        loans += 1
        if zmq.init_data(message, loan.buffer.buf, loan.buffer.len, edlz_return_loan, loan) < 0:
            error = zmq.error()  # before anything else can change it
            edlz_return_loan(NULL, loan)
            return error
        return 0

    cdef int _check_open(self) except -1:
        if self.socket == NULL:
            raise RuntimeError("the socket was closed")
        return 0


cdef object _not_sent(int error):
    if error == EAGAIN or error == EHOSTUNREACH:
        return None
    raise _os_error(error)


cdef object _os_error(int error):
    return OSError(error, os.strerror(error))
