"""TensorFlow's remarks on its start, which are of no use on a terminal, kept from it.

They are written by C++ code before any setting could stop them, so the stream itself goes through a filter.
"""

import os
import re
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["without_start_up_noise"]

_NOISE = re.compile(
    rb"[IWE]\d{4} \d\d:\d\d:\d+\.\d+ +\d+ \S+\.cc:\d+\]"
    rb"|WARNING: All log messages before absl::InitializeLog"
    rb"|To enable the following instructions:"
)


@contextmanager
def without_start_up_noise() -> Iterator[None]:
    """While this lasts, lines of C++ logs on standard error are dropped; all others come through at once."""
    sys.stderr.flush()
    kept = os.dup(2)
    source, sink = os.pipe()
    filtering = threading.Thread(target=_filter, args=(source, kept), name="start-up-noise", daemon=True)
    os.dup2(sink, 2)
    os.close(sink)
    filtering.start()
    try:
        yield
    finally:
        sys.stderr.flush()
        os.dup2(kept, 2)  # the pipe has no writer any more, but for children that were left behind
        filtering.join(1.0)
        if not filtering.is_alive():
            os.close(kept)


def _filter(source: int, to: int) -> None:
    with open(source, "rb", buffering=0) as lines:
        rest = b""
        while data := lines.read(1 << 16):
            *whole, rest = (rest + data).split(b"\n")
            for line in whole:
                if not _NOISE.match(line):
                    os.write(to, line + b"\n")
        if rest and not _NOISE.match(rest):
            os.write(to, rest)
