"""What a command changes in this process by configuring logging."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["logging_restored"]


@contextmanager
def logging_restored() -> Iterator[None]:
    """Take back what a command that watches does to logging."""
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    try:
        yield
    finally:
        root.handlers[:] = handlers
        root.setLevel(level)
        logging.captureWarnings(False)
