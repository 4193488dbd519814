"""`python -m edlz.k8s.log_copy --file=FILE -- COMMAND …`: run a command, and keep what it prints in a file too.

Stands before a service in its container if `--log_file_path` is given.  It is process 1 there in place of a
shell: it passes signals on and leaves with the command's exit code.  What is printed goes to standard output as
well, in the order in which it came, so the pod's log has all of it; a file that cannot be written costs one line
there, and never the service.  What does not fit on a full disk is left out, until there is room again.
"""

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from types import FrameType

from edlz.services.storage.durable import NO_ROOM

__all__ = ["main", "run"]

_SIGNALS = (
    signal.SIGTERM,
    signal.SIGINT,
    signal.SIGHUP,
    signal.SIGQUIT,
    signal.SIGABRT,
    signal.SIGUSR1,
    signal.SIGUSR2,
)
_STDOUT = 1
_CHUNK_BYTES = 1 << 16
_CODE_OF_SIGNAL = 128  # a container tells a signal as this much more
_DRAIN_S = (
    1.0  # what the command left behind is read for so long, should a child of its own hold the pipe open
)
_USAGE = "usage: python -m edlz.k8s.log_copy --file=FILE -- COMMAND [ARGUMENT …]"


def run(path: Path, command: Sequence[str]) -> int:
    """Run a command to its end with its output copied to a file; return its exit code."""
    child: subprocess.Popen[bytes] | None = None
    early: list[int] = []  # signals that came before there was a child

    def pass_on(number: int, _frame: FrameType | None) -> None:
        if child is None:
            early.append(number)
        else:
            child.send_signal(number)

    for known in _SIGNALS:
        signal.signal(known, pass_on)
    child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    for number in early:
        child.send_signal(number)
    assert child.stdout is not None
    copying = threading.Thread(target=_copy, args=(child.stdout.fileno(), path), name="copy", daemon=True)
    copying.start()
    code = child.wait()
    copying.join(_DRAIN_S)
    return code if code >= 0 else _CODE_OF_SIGNAL - code


def main(argv: Sequence[str]) -> int:
    """Run the command line above."""
    if len(argv) < 3 or not argv[0].startswith("--file=") or argv[1] != "--":
        print(_USAGE, file=sys.stderr)
        return 2
    try:
        return run(Path(argv[0].removeprefix("--file=")), argv[2:])
    except OSError as e:
        print(f"error: {argv[2]} cannot be started: {e.strerror}", file=sys.stderr)
        return 127


def _copy(source: int, path: Path) -> None:
    target = _Target(path)
    while chunk := os.read(source, _CHUNK_BYTES):
        with suppress(OSError):  # a service whose output nobody reads would stand still
            _write(_STDOUT, chunk)
        target.write(chunk)
    target.close()


class _Target:
    """The file.  It gets whole lines, so those of several pods in one file do not mix."""

    def __init__(self, path: Path) -> None:
        self._path, self._file, self._waiting = path, -1, b""
        self._is_short = False  # there was no room for the last lines
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        except OSError as e:
            self._give_up(e)

    def write(self, chunk: bytes) -> None:
        if self._file < 0:
            return
        lines, newline, self._waiting = (self._waiting + chunk).rpartition(b"\n")
        if len(self._waiting) > _CHUNK_BYTES:
            lines, newline, self._waiting = lines + newline + self._waiting, b"", b""
        try:
            _write(self._file, (b"\n" if self._is_short else b"") + lines + newline)
            self._is_short = False
        except OSError as e:
            if e.errno not in NO_ROOM:
                self._give_up(e)
            elif not self._is_short:
                self._is_short = True
                self._tell(f"cannot be written: {e.strerror}; lines are left out there until there is room")

    def close(self) -> None:
        if self._waiting:
            self.write(b"\n")
        if self._file >= 0:
            os.close(self._file)

    def _give_up(self, e: OSError) -> None:
        if self._file >= 0:
            os.close(self._file)
        self._file, self._waiting = -1, b""
        self._tell(f"cannot be written: {e.strerror}; the pod's log goes on without it")

    def _tell(self, what: str) -> None:
        with suppress(OSError):
            _write(_STDOUT, f"warning: {self._path} {what}\n".encode())


def _write(file: int, content: bytes) -> None:
    view = memoryview(content)
    while view:
        view = view[os.write(file, view) :]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
