"""How the C library keeps memory that was freed: message after message takes and frees blocks of one size.

By itself glibc gives such a block back to the operating system each time, and each time its pages have to be
made again: a tenth of the time of a pull of 8,192 rows.
"""

import ctypes
from typing import Final

__all__ = ["keep_freed_memory"]

M_TRIM_THRESHOLD: Final = -1  # malloc.h
M_MMAP_THRESHOLD: Final = -3
LARGEST_KEPT_BYTES: Final = 32 << 20  # the most that glibc takes; larger blocks are given back at once
MOST_KEPT_BYTES: Final = 128 << 20  # of one thread


def keep_freed_memory() -> None:
    """Keep freed memory for the next messages in this process; does nothing where malloc is not glibc's."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(M_MMAP_THRESHOLD, LARGEST_KEPT_BYTES)
        mallopt(M_TRIM_THRESHOLD, MOST_KEPT_BYTES)
