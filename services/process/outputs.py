"""Standard output and standard error, which may go away or be full while something still writes to them.

Theory of operation.  Whoever prints does not look at what becomes of it, so this is seen to in one place: below
the text streams, where bytes go to the system.  A reader that has gone (`| head`), a terminal that has gone and a
file on a full disk are told there.  A command that only shows something is ended by it, at once.  What does
something (a job, a service) outlives it: its lines are dropped, and those that fit again are written again.
Standard error never ends anything.
"""

import errno
import io
import os
import select
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, TextIO

from edlz.services.errors import EdlzError

__all__ = ["CLOSED_PIPE", "OutputGone", "guard_outputs", "guarded_outputs", "outlive_output", "output_error"]

CLOSED_PIPE = 141  # what a shell makes of SIGPIPE
_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)  # may be over in a while


class OutputGone(EdlzError):
    """Standard output takes nothing more: its reader has gone, or its disk is full."""

    code = "output-gone"

    def __init__(self, error: OSError) -> None:
        super().__init__(f"standard output cannot be written: {error.strerror or error}")
        self.is_reader_gone = error.errno in (errno.EPIPE, errno.ECONNRESET)

    @property
    def status(self) -> int:
        """The exit code of a command that it has ended."""
        return CLOSED_PIPE if self.is_reader_gone else self.exit_code


class _Sink(io.FileIO):
    """The system's end of a stream: takes everything, and drops what the system does not take.

    Attributes
    ----------
    is_deadly : bool
        The first loss is raised.
    error : the first loss
    """

    def __init__(self, descriptor: int, *, is_deadly: bool) -> None:
        super().__init__(descriptor, "wb", closefd=False)
        self.is_deadly = is_deadly
        self.error: OutputGone | None = None
        self._is_over = False  # nothing will ever be taken again

    def write(self, data: Any, /) -> int:
        """Write what the system takes; return the size of all of it.

        Raises
        ------
        OutputGone
            At the first loss, if that ends the command.
        """
        view = memoryview(data).cast("B")
        size = view.nbytes
        if self._is_over:
            return size
        try:
            while view:
                count: int | None = super().write(view)
                if count is None:  # somebody has made it non-blocking, and its reader is slow
                    select.select((), (self,), ())
                view = view[count or 0 :]
        except OSError as e:
            self._is_over = e.errno not in _NO_ROOM
            if self.error is None:
                self.error = OutputGone(e)
                if self.is_deadly:
                    raise self.error from e
        return size


@contextmanager
def guarded_outputs() -> Iterator[None]:
    """Guard both streams for one command; the first loss of standard output ends it with OutputGone."""
    before = sys.stdout, sys.stderr
    guard_outputs(is_deadly=True)
    try:
        yield
    finally:
        for stream in (sys.stdout, sys.stderr):
            with suppress(OutputGone):  # `output_error` has told
                stream.flush()
        sys.stdout, sys.stderr = before


def guard_outputs(*, is_deadly: bool = False) -> None:
    """Guard both streams of this process from now on; `is_deadly`: a loss of standard output is raised, once."""
    _claim_descriptors()
    sys.stdout = _guarded(sys.stdout, 1, is_deadly=is_deadly)
    sys.stderr = _guarded(sys.stderr, 2, is_deadly=False)


def outlive_output() -> None:
    """Let this command go on, from now on, when its standard output is lost."""
    sink = _sink_of(sys.stdout)
    if sink is not None:
        sink.is_deadly = False


def output_error() -> OutputGone | None:
    """Write out what waits; return why standard output was lost, if it was and that is not outlived."""
    sink = _sink_of(sys.stdout)
    with suppress(OutputGone):
        sys.stdout.flush()
    return sink.error if sink is not None and sink.is_deadly else None


def _guarded(stream: TextIO | None, descriptor: int, *, is_deadly: bool) -> TextIO:
    """Return a stream like this one on a sink; the stream itself if nothing of the system's is behind it."""
    if stream is None:  # it was closed before this process began
        return io.TextIOWrapper(io.BufferedWriter(_Sink(descriptor, is_deadly=False)), "utf-8")
    if _sink_of(stream) is not None:
        return stream
    with suppress(OSError, ValueError):
        stream.flush()
    try:
        sink = _Sink(stream.fileno(), is_deadly=is_deadly)
    except (OSError, ValueError, AttributeError):
        return stream
    return io.TextIOWrapper(
        io.BufferedWriter(sink),
        stream.encoding,
        "backslashreplace" if stream.errors == "strict" else stream.errors,  # a name that it cannot express
        line_buffering=descriptor == 2 or stream.isatty(),
        write_through=getattr(stream, "write_through", False),
    )


def _sink_of(stream: TextIO | None) -> _Sink | None:
    raw = getattr(getattr(stream, "buffer", None), "raw", None)
    return raw if isinstance(raw, _Sink) else None


def _claim_descriptors() -> None:
    """Open what was closed of 0, 1 and 2: a file or socket under such a number would be printed into."""
    while (descriptor := os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)) <= 2:
        pass
    os.close(descriptor)
