"""File descriptors of this process: as many as it may have, and a few kept back.

Whoever connects to a server takes a descriptor before anybody can ask for a key, and ZeroMQ takes the last one too.
`services/transport/strangers.py` bounds what connections without a key take; should they be faster, or should a job just be
large, files are opened with what `spared` keeps back.
"""

import errno
import functools
import logging
import os
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Final, ParamSpec, TypeVar

if sys.platform != "win32":
    import resource

__all__ = ["SPARE", "descriptor_limit", "is_short_of_descriptors", "raise_descriptor_limit", "spared"]

MOST: Final = 1 << 20  # some systems name no limit, and some libraries count up to it
SPARE: Final = 16

logger = logging.getLogger(__name__)

Arguments = ParamSpec("Arguments")
Answer = TypeVar("Answer")


def descriptor_limit() -> int:
    """Return how many descriptors this process may have."""
    if sys.platform == "win32":
        return MOST
    return _bounded(resource.getrlimit(resource.RLIMIT_NOFILE)[0])


def raise_descriptor_limit() -> int:
    """Raise the limit to what the system lets this process have, keep some back, and return the limit."""
    if sys.platform != "win32":
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        if _bounded(soft) < _bounded(hard):
            # macOS has a lower limit that it does not tell.
            with suppress(ValueError, OSError):
                resource.setrlimit(resource.RLIMIT_NOFILE, (_bounded(hard), hard))
    _reserve.fill()
    return descriptor_limit()


def is_short_of_descriptors(left: int) -> bool:
    """Return whether fewer than `left` are free: the lowest free number is what is given next."""
    try:
        lowest = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return True
    os.close(lowest)
    return lowest >= descriptor_limit() - left


def spared(function: Callable[Arguments, Answer]) -> Callable[Arguments, Answer]:
    """Decorate what opens files or folders: if no descriptor is left, it is called again with those kept back.

    The function must have changed nothing when opening fails.
    """

    @functools.wraps(function)
    def call(*args: Arguments.args, **kwargs: Arguments.kwargs) -> Answer:
        try:
            return function(*args, **kwargs)
        except OSError as error:
            if error.errno not in (errno.EMFILE, errno.ENFILE):
                raise
        with _reserve:
            return function(*args, **kwargs)

    return call


def _bounded(limit: int) -> int:
    return MOST if limit < 0 else min(limit, MOST)


class _Reserve:
    """Descriptors of nothing, closed while somebody needs their places."""

    def __init__(self) -> None:
        self._held: list[int] = []
        self._lock = threading.RLock()  # one at a time, so that its places are there for it

    def fill(self) -> None:
        with self._lock, suppress(OSError):
            while len(self._held) < SPARE:
                self._held.append(os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC))

    def __enter__(self) -> None:
        self._lock.acquire()
        logger.warning(
            "no file descriptor left of %d: opening a file with those kept back; raise the limit (ulimit -Hn)",
            descriptor_limit(),
        )
        while self._held:
            os.close(self._held.pop())

    def __exit__(self, *_: object) -> None:
        try:
            self.fill()
        finally:
            self._lock.release()


_reserve = _Reserve()
