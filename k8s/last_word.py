"""Why a master's process ended, in the termination message of its container: what its log says of it may be cut off.

Kubernetes keeps 2 KiB of a log for a container that writes nothing there, and the traceback of a task group is longer.
"""

import os
import traceback
from collections.abc import Awaitable
from contextlib import suppress
from pathlib import Path

from edlz.services.errors import EdlzError

__all__ = ["last_word", "with_last_word"]

PLACE = Path("/dev/termination-log")  # where a pod's specification leaves it, and its kubelet makes it
_MOST_BYTES = 4096


async def with_last_word(running: Awaitable[int], place: Path = PLACE) -> int:
    """Return what a service returns; leave a word of what it raises, and raise it further."""
    try:
        return await running
    except Exception as raised:
        with suppress(OSError):  # outside of a container nobody has made it
            file = os.open(place, os.O_WRONLY | os.O_TRUNC)
            try:
                os.write(file, last_word(raised).encode()[:_MOST_BYTES])
            finally:
                os.close(file)
        raise


def last_word(raised: BaseException) -> str:
    """Return the `error:` and `help:` lines of what ended a service, of a group the first of its causes."""
    while isinstance(raised, BaseExceptionGroup):
        raised = raised.exceptions[0]
    if isinstance(raised, EdlzError):
        return f"error: {raised.message}\n" + (f"help: {raised.help}\n" if raised.help else "")
    frames = traceback.extract_tb(raised.__traceback__)
    where = f" ({Path(frames[-1].filename).name}:{frames[-1].lineno} in {frames[-1].name})" if frames else ""
    text = str(raised).partition("\n")[0]
    told = f"{type(raised).__name__}: {text}" if text else type(raised).__name__
    return f"error: edlz itself failed: {told}{where}\nhelp: please report this, with the log of the pod\n"
