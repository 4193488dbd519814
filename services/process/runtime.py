"""How a service process runs: its event loop, its signals, its thread for long kernels, its memory, its exit code."""

import asyncio
import ctypes
import faulthandler
import logging
import signal
import sys
import traceback
from collections import deque
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final, TypeVar

from edlz.services.errors import EdlzError, LocalProtocolError
from edlz.services.process.descriptors import raise_descriptor_limit

__all__ = [
    "END_SIGNAL",
    "EventQueue",
    "Stop",
    "keep_freed_memory",
    "run_service",
    "when_failed",
    "when_told_to_end",
]

END_SIGNAL = signal.SIGUSR2  # a supervisor's word to its services; SIGTERM may have been sent to it as well
M_TRIM_THRESHOLD: Final = -1  # malloc.h
M_TOP_PAD: Final = -2
M_MMAP_THRESHOLD: Final = -3
LARGEST_KEPT_BYTES: Final = 32 << 20  # the most that glibc takes; larger blocks are given back at once
MOST_KEPT_BYTES: Final = 128 << 20  # of one thread
HEAP_BYTES: Final = 64 << 20  # of which a thread other than the first one has as many as it needs

logger = logging.getLogger(__name__)

Answer = TypeVar("Answer")


class Stop:
    """How a service learns that it should end, and with which code; the first reason counts."""

    def __init__(self) -> None:
        self._event = asyncio.Event()
        self.code = 0
        self.reason = ""

    def set(self, code: int, reason: str) -> None:
        if not self._event.is_set():
            self.code, self.reason = code, reason
            self._event.set()

    @property
    def is_set(self) -> bool:
        return self._event.is_set()

    async def wait(self) -> None:
        await self._event.wait()


class EventQueue:
    """Feeds a core one event at a time, long ones on a thread.

    While a long event runs, the loop goes on (heartbeats, sockets), and further events wait here.

    Parameters
    ----------
    executor : ThreadPoolExecutor
        For the long ones.
    on_error : callable
        Told of what an event, or what follows it, raised.

    Attributes
    ----------
    is_busy : bool
        Whether an event is under way, and others may wait.  If not, the loop's thread may set it, run a short
        event itself and call `end`, which costs less than `put`.
    """

    def __init__(self, executor: ThreadPoolExecutor, on_error: Callable[[BaseException], None]) -> None:
        self._executor, self._on_error = executor, on_error
        self._waiting: deque[tuple[Callable[[], Any], Callable[[Any], None], bool]] = deque()
        self.is_busy = False

    def put(
        self, event: Callable[[], Answer], then: Callable[[Answer], None], *, is_long: bool = False
    ) -> None:
        """Run `event` when all earlier ones are over, then `then` with what it returned, on the loop."""
        self._waiting.append((event, then, is_long))
        self._run()

    def end(self) -> None:
        """Give the turn back that was taken by setting `is_busy`."""
        self.is_busy = False
        if self._waiting:
            self._run()

    def _run(self) -> None:
        while self._waiting and not self.is_busy:
            event, then, is_long = self._waiting.popleft()
            self.is_busy = True
            if is_long:
                future = asyncio.get_running_loop().run_in_executor(self._executor, event)
                future.add_done_callback(lambda done, then=then: self._finish(done, then))  # type: ignore[misc]
                return
            try:
                then(event())
            except Exception as error:
                self._on_error(error)
            finally:
                self.is_busy = False

    def _finish(self, done: "asyncio.Future[Any]", then: Callable[[Any], None]) -> None:
        try:
            then(done.result())
        except Exception as error:
            self._on_error(error)
        finally:
            self.is_busy = False
        self._run()


def when_failed(future: "asyncio.Future[None]", on_error: Callable[[BaseException], None]) -> None:
    """Call `on_error` with the exception that ends a server or a line, if one does."""

    def on_done(done: "asyncio.Future[None]") -> None:
        error = None if done.cancelled() else done.exception()
        if error is not None:
            on_error(error)

    future.add_done_callback(on_done)


def when_told_to_end(end: Callable[[], None], patience_s: float = 0.0) -> None:
    """Call `end` at SIGTERM, and at a hangup that nobody ignores.

    Parameters
    ----------
    end : callable
    patience_s : float
        Who runs this process may have been told as well, and have the job saved first: it is ended so many seconds
        later if nobody ends it before, or at the next SIGTERM.
    """
    loop = asyncio.get_running_loop()
    waiting: list[asyncio.TimerHandle] = []

    def on_signal() -> None:
        if not patience_s or waiting:
            end()
        else:
            logger.info(
                "told to end: it ends in %.0fs at the latest, if the job is not ended before", patience_s
            )
            waiting.append(loop.call_later(patience_s, end))

    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is not signal.SIG_IGN:  # nohup; a supervisor heeds it for its services
            loop.add_signal_handler(number, on_signal)


def run_service(main: Callable[[Stop], Coroutine[Any, Any, int]], patience_s: float = 0.0) -> int:
    """Run a service until it ends or is told to by a signal (`when_told_to_end`); return its exit code.

    An EdlzError ends it with one `error:` and one `help:` line; anything else, a bug of ours, with a traceback and 70.
    """
    faulthandler.enable()
    if hasattr(faulthandler, "register"):
        faulthandler.register(signal.SIGUSR1, all_threads=True)
    raise_descriptor_limit()
    try:
        with asyncio.Runner(loop_factory=_loop_factory()) as runner:
            return runner.run(_with_signals(main, patience_s))
    except (Exception, BaseExceptionGroup) as raised:
        error = _first(raised)
        if error is None:  # not raised further: at its end the interpreter would wait for threads
            traceback.print_exception(raised)
            return LocalProtocolError.exit_code
        sys.stderr.write(f"error: {error.message}\n" + (f"help: {error.help}\n" if error.help else ""))
        return error.exit_code


def _first(raised: BaseException) -> EdlzError | None:
    """The error inside a task group's group, if it is one of ours."""
    while isinstance(raised, BaseExceptionGroup):
        raised = raised.exceptions[0]
    return raised if isinstance(raised, EdlzError) else None


async def _with_signals(main: Callable[[Stop], Coroutine[Any, Any, int]], patience_s: float) -> int:
    stop = Stop()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, END_SIGNAL):
        loop.add_signal_handler(number, stop.set, 128 + number, f"signal {number}")
    when_told_to_end(
        lambda: stop.set(128 + signal.SIGTERM, f"signal {signal.SIGTERM:d}"),
        patience_s,
    )
    try:
        return await main(stop)
    finally:  # its code is decided: a supervisor's word that comes while the process closes down does not change it
        loop.remove_signal_handler(END_SIGNAL)
        signal.signal(END_SIGNAL, signal.SIG_IGN)


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    try:
        import uvloop
    except ImportError:  # not on every platform; the standard loop does the same, slower
        return None
    factory: Callable[[], asyncio.AbstractEventLoop] = uvloop.new_event_loop
    return factory


def keep_freed_memory(*, whole_heaps: bool = False) -> None:
    """Keep freed memory for the next messages in this process; does nothing where malloc is not glibc's.

    Message after message takes and frees blocks of one size.  By itself glibc gives such a block back to the operating
    system each time, and each time its pages have to be made again: a tenth of the time of a pull of 8,192 rows, a third of
    that of an all-reduce step of 100 MB.

    Parameters
    ----------
    whole_heaps : bool
        Whether threads other than the first one keep whatever they have freed.  That is for messages that all come
        again: else a heap that is quite empty is given back, however small MOST_KEPT_BYTES leaves it.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(M_MMAP_THRESHOLD, LARGEST_KEPT_BYTES)
        mallopt(M_TRIM_THRESHOLD, MOST_KEPT_BYTES)
        if whole_heaps:
            mallopt(M_TOP_PAD, HEAP_BYTES)
