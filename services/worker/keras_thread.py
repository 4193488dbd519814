"""The thread that TensorFlow runs in, driven from an event loop.

An executor would do the same by way of two futures, a condition and a chain of callbacks for each piece of work:
60 us, once for each step.
"""

import asyncio
import contextlib
import queue
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from edlz.services.process.runtime import Stop
from edlz.services.worker.pace import Pace

__all__ = ["KerasThread"]


@dataclass(frozen=True, slots=True)
class _Work:
    kind: str
    run: Callable[[], Any]
    then: Callable[[Any], None]
    on_error: Callable[[BaseException], None]


class KerasThread:
    """Runs pieces of work one after another.  Made, and its methods called, in the loop's thread.

    Parameters
    ----------
    stop : Stop
        Once it is set, no work is begun, and nobody is told of what is under way.

    Attributes
    ----------
    pace : Pace
        How long it has been at what.
    """

    def __init__(self, stop: Stop) -> None:
        self._loop, self._stop = asyncio.get_running_loop(), stop
        self._inbox: queue.SimpleQueue[_Work | None] = queue.SimpleQueue()
        self._is_closed = False
        self._thread: threading.Thread | None = None
        self.pace = Pace()

    def submit(
        self,
        kind: str,
        run: Callable[[], Any],
        then: Callable[[Any], None],
        on_error: Callable[[BaseException], None],
    ) -> None:
        """Call `run` in the thread, then one of the others in the loop; `kind` is what its pace is judged by."""
        if self._is_over:
            return
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, name="keras")
            self._thread.start()
        self._inbox.put(_Work(kind, run, then, on_error))

    def close(self) -> None:
        """Let the thread end after what it is at; nothing that waits is begun, and nobody waits for it."""
        self._is_closed = True
        self._inbox.put(None)

    @property
    def _is_over(self) -> bool:
        return self._is_closed or self._stop.is_set

    def _work(self) -> None:
        while (work := self._inbox.get()) is not None and not self._is_over:
            self.pace.begin(work.kind, time.monotonic())
            try:
                callback, result = work.then, work.run()
            except BaseException as error:  # the loop is told whatever it is
                callback, result = work.on_error, error
            self.pace.end(time.monotonic())  # before anybody hears of it, and says how long it has been at it
            self._report(callback, result)
            del work, callback, result  # they may be large, and the wait for more work long

    def _report(self, callback: Callable[[Any], None], value: Any) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody wants to know
            self._loop.call_soon_threadsafe(self._finish, callback, value)

    def _finish(self, callback: Callable[[Any], None], value: Any) -> None:
        if not self._is_over:
            callback(value)
