"""The curves of a job in a folder of TensorBoard: the runs `train` and `validation`, with the model's version as the step.

Theory of operation.  Each life of the master has a file of its own in each run; TensorBoard reads those of a folder one
after the other.  A version that is in one of them already is not written again: not one that is computed again, nor one that
the master before has written.  Files of other jobs are left alone: a job's have in their name when it was begun.  Disks may
be slow, or far away, so files are written on a thread.  What does not fit on a disk is written later.
"""

import logging
import math
import os
import socket
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from edlz.services.master.tensorboard.event_file import first_record, last_step, scalars_record
from edlz.services.process.descriptors import spared

__all__ = ["CurveFiles", "Point"]

MOST_WAITING = 1000  # points of a run that have no room; the oldest are left out
TRAIN, VALIDATION = "train", "validation"

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Point:
    """Scalars by tag at a version; `at`: seconds since the epoch."""

    at: float
    version: int
    values: Mapping[str, float]


class CurveFiles:
    """Writes the points of one job.

    Parameters
    ----------
    folder : Path
        --tensorboard_log_dir.
    job : str
        Its name.
    began : float
        When it was begun, in seconds since the epoch: the same for all of its masters.
    """

    def __init__(self, folder: Path, job: str, began: float) -> None:
        name = f"{job}-{int(1000 * began):x}"
        self._runs = {run: _Run(folder / run, name) for run in (TRAIN, VALIDATION)}
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="tensorboard")
        self._writing: Future[None] | None = None
        self._waiting: list[tuple[str, Point]] = []

    def add(self, run: str, points: Sequence[Point]) -> None:
        """Write points, in the order of their versions, soon; never waits."""
        self._waiting += [(run, point) for point in points if point.values]
        del self._waiting[:-MOST_WAITING]
        if self._waiting and (self._writing is None or self._writing.done()):
            waiting, self._waiting = self._waiting, []
            self._writing = self._thread.submit(self._write, waiting)

    def close(self) -> None:
        """Write what waits, and end."""
        waiting, self._waiting = self._waiting, []
        self._thread.submit(self._write, waiting)
        self._thread.shutdown(wait=True)
        for run in self._runs.values():
            run.close()

    def _write(self, points: Sequence[tuple[str, Point]]) -> None:
        for run, point in points:
            self._runs[run].add(point)
        for each in self._runs.values():
            each.write()


class _Run:
    """The file of this master in one folder; used on one thread."""

    def __init__(self, folder: Path, name: str) -> None:
        self._folder, self._name = folder, name
        self._file: int | None = None
        self._bytes = 0  # that are whole in the file
        self._last: int | None = None  # the last version in any of the job's files
        self._waiting: list[Point] = []
        self._has_warned = False

    def add(self, point: Point) -> None:
        self._waiting.append(point)
        del self._waiting[:-MOST_WAITING]

    def write(self) -> None:
        """Write what waits; if that fails, it waits on."""
        while self._waiting:
            try:
                if self._last is None:
                    self._last = self._written_before()
                point = self._waiting[0]
                if point.version > self._last:
                    self._append(point)
                    self._last = point.version
            except OSError as error:
                self._warn(error)
                return
            self._waiting.pop(0)

    def _written_before(self) -> int:
        return max(
            (last_step(path) for path in self._folder.glob(f"events.out.tfevents.*.{self._name}")), default=-1
        )

    def _append(self, point: Point) -> None:
        values = {tag: value for tag, value in point.values.items() if not math.isinf(value)}
        record = scalars_record(point.at, point.version, values)
        if self._file is None:
            self._file = _opened(self._folder, self._name, point.at)
            self._bytes = os.fstat(self._file).st_size
            record = (b"" if self._bytes else first_record(point.at)) + record
        try:
            written = os.write(self._file, record)
            if written < len(record):
                raise OSError(28, os.strerror(28))
        except OSError:
            with suppress(OSError):
                os.ftruncate(self._file, self._bytes)
            if not self._bytes:  # its first record is to be written with the next try
                os.close(self._file)
                self._file = None
            raise
        self._bytes += written
        self._has_warned = False

    def _warn(self, error: OSError) -> None:
        if not self._has_warned:
            logger.warning(
                "curves cannot be written to %s (%s): it is tried again", self._folder, error.strerror
            )
        self._has_warned = True

    def close(self) -> None:
        if self._file is not None:
            os.close(self._file)
            self._file = None


@spared
def _opened(folder: Path, name: str, at: float) -> int:
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / f"events.out.tfevents.{int(at):010}.{socket.gethostname()}.{os.getpid()}.{name}"
    return os.open(file, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o666)
