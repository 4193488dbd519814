"""Writes predictions, or statistics, in threads of its own, while the next task is computed."""

import errno
import itertools
import logging
import os
import secrets
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from edlz.services.errors import ConfigError
from edlz.services.predictions.formats import check_format, write_table
from edlz.services.predictions.kinds import PREDICTIONS, STATISTICS
from edlz.services.predictions.output import part_name, write_part
from edlz.services.predictions.table import PredictionTable
from edlz.services.protocol.messages import PartFile
from edlz.services.protocol.plan import Plan
from edlz.services.statistics.parts import EXTENSION, TaskStatistics, write_statistics
from edlz.services.storage.durable import NO_ROOM
from edlz.services.valid_text import valid_text

__all__ = ["PartWriter"]

WRITERS = 4  # a disk makes several files durable in the time of one
FULL_DISK_S = 300.0  # how long a full disk is waited for
PAUSE_S = 1.0
MOST_TRIES = 5  # of a file that is cleared away while it is written

logger = logging.getLogger(__name__)


@dataclass
class _Wait:
    """Of one file for room: since when."""

    began_s: float | None = None


class PartWriter:
    """Writes the files of tasks, waiting for room where the disk is full.

    Parameters
    ----------
    folder : Path
    kind : str
        The format of predictions.
    run : str
        Of the job.
    patience_s : float
        How long a full disk is waited for.
    tell : callable (str)
        Told, in a thread of the writer's, what is waited for, and nothing once it is over.

    Raises
    ------
    ConfigError
        If this installation cannot write the format.
    """

    def __init__(
        self,
        folder: Path,
        kind: str,
        plan: Plan,
        run: str,
        patience_s: float = FULL_DISK_S,
        *,
        tell: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._output = STATISTICS if plan.analyzes else PREDICTIONS
        if not plan.analyzes:
            check_format(kind)
        self._folder, self._kind, self._run = folder, EXTENSION if plan.analyzes else kind, run
        self._tasks, self._patience_s = len(plan.evaluation_ranges), patience_s
        self._tell, self._waiting, self._lock = tell, 0, threading.Lock()
        self._is_closed = threading.Event()
        self._threads = ThreadPoolExecutor(WRITERS, "predictions")
        self._tag, self._numbers = f"{os.getpid()}-{secrets.token_hex(4)}", itertools.count()

    def submit(
        self,
        task: int,
        content: PredictionTable | TaskStatistics,
        then: Callable[[PartFile], None],
        on_error: Callable[[BaseException], None],
    ) -> None:
        """Write a task's file; one of the others is called, in a thread of the writer's, when that is over."""

        def work() -> None:
            try:
                part = self.write(task, content)
            except BaseException as error:  # whoever waits is told whatever it is
                on_error(error)
            else:
                then(part)

        self._threads.submit(work)

    def write(self, task: int, content: PredictionTable | TaskStatistics) -> PartFile:
        """Write a task's file; its content is durable when this returns.

        Raises
        ------
        ModelError
            If the format has no place for what the model gives.
        ConfigError
            If the folder cannot be written, or had no room for too long.
        """
        name = part_name(task, self._tasks, self._kind)
        if isinstance(content, TaskStatistics):
            write = partial(write_statistics, statistics=content)
        else:
            write = partial(write_table, name=self._kind, table=content)
        # The task may be written a second time beside this.
        tag, tries, wait = f"{self._tag}-{next(self._numbers)}", 0, _Wait()
        try:
            while True:
                try:
                    return write_part(self._folder, name, self._run, tag, write, self._output)
                except FileNotFoundError as error:
                    tries += 1
                    if tries == MOST_TRIES:
                        self._pause(wait, error)
                except OSError as error:
                    self._pause(wait, error)
        finally:
            if wait.began_s is not None:
                self._count_waiting(-1)

    def close(self) -> None:
        """Wait for nothing: what is under way may end, or not."""
        self._is_closed.set()
        self._threads.shutdown(wait=False, cancel_futures=True)

    def _pause(self, wait: "_Wait", error: OSError) -> None:
        """Wait a little, if the disk is full."""
        flag = f'{self._output.flag} "{self._folder}"'
        if error.errno not in NO_ROOM:
            reason = error.strerror or str(error)
            raise ConfigError(f"{flag} cannot be written: {reason}", "name a folder that can") from error
        now_s = time.monotonic()
        if wait.began_s is None:
            wait.began_s = now_s
            self._count_waiting(+1)
        if now_s - wait.began_s > self._patience_s or self._is_closed.wait(PAUSE_S):
            text = f"{flag} had no room within {self._patience_s:.0f}s: {os.strerror(error.errno or errno.ENOSPC)}"
            raise ConfigError(text, "make room, then: edlz resume") from error

    def _count_waiting(self, more: int) -> None:
        """Tell when the first file begins to wait for room, and when none waits any more."""
        with self._lock:
            before, self._waiting = self._waiting, self._waiting + more
            if not before:
                text = f"no room on the disk for {self._folder}: it is waited for"
                logger.warning("%s", text)
                self._tell(valid_text(text))
            elif not self._waiting:
                logger.warning("no file waits for room in %s any more", self._folder)
                self._tell("")
