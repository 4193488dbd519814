"""TensorFlow's errors of files as those of Python."""

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from edlz.services.worker.engine.tensorflow.backend import tf

__all__ = ["as_os_error"]

_REASONS = {os.strerror(number): number for number in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS)}


@contextmanager
def as_os_error(path: Path) -> Iterator[None]:
    """Turn errors of writing below a path into OSError.

    TensorFlow says in its message what the system said; the number is found by that.

    Raises
    ------
    OSError
        With that number; EIO if the message has none that is known.
    """
    try:
        yield
    except tf.errors.OpError as e:
        text = e.message or type(e).__name__
        number = next((number for reason, number in _REASONS.items() if reason in text), errno.EIO)
        reason = os.strerror(number) if number != errno.EIO else text.partition("\n")[0]
        raise OSError(number, reason, str(path)) from e
