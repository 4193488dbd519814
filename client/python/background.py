"""A command that goes on when the process that began it has ended: a notebook's kernel is restarted now and then."""

import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from typing import IO

from edlz.services.errors import LaunchError

__all__ = ["begin_in_background"]

POLL_S = 0.05
_TAIL_BYTES = 16384
_begun: list[subprocess.Popen[bytes]] = []  # waited for when they end: nobody else does


def begin_in_background(arguments: Sequence[str], has_begun: Callable[[int], bool]) -> None:
    """Start `edlz ARGUMENTS` in a session of its own; return when it has begun, or has ended well.

    Parameters
    ----------
    has_begun : callable (pid) -> bool
        Whether what it is to do is under way, so that it can be found by its name.

    Raises
    ------
    LaunchError
        If it fails before that, with what it said.
    """
    _begun[:] = [process for process in _begun if process.poll() is None]
    with tempfile.TemporaryFile() as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "edlz.client", *arguments],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
        _begun.append(process)
        while (code := process.poll()) is None and not has_begun(process.pid):
            time.sleep(POLL_S)
        if code:
            raise _error_of(output, arguments[0])


def _error_of(output: IO[bytes], command: str) -> LaunchError:
    """Return what a command has said last."""
    output.seek(0, 2)
    output.seek(max(0, output.tell() - _TAIL_BYTES))
    lines = output.read().decode(errors="replace").strip().splitlines()
    first = max((place for place, line in enumerate(lines) if line.startswith("error: ")), default=None)
    if first is None:
        return LaunchError("\n".join(lines[-20:]) or f"edlz {command} ended without a word")
    said, _, advice = "\n".join(lines[first:]).partition("\nhelp: ")
    return LaunchError(said.removeprefix("error: "), advice)
