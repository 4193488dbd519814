"""A signal that ends a command: it ends as by an exception, so that what it has not finished writing is removed.

A job's supervisor heeds signals itself, while its event loop runs.
"""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

__all__ = ["Interrupted", "ended_by_signals"]

_ENDING = (signal.SIGTERM, signal.SIGHUP)  # Ctrl-C is a KeyboardInterrupt


class Interrupted(BaseException):
    """The command is to end; not an `Exception`, so that nobody takes it for a failure of what was done.

    Parameters
    ----------
    number : int
        Of the signal.
    work : str
        What was done meanwhile: "converting data.csv"; nothing if it is not worth a word.
    """

    def __init__(self, number: int, work: str = "") -> None:
        super().__init__(number, work)
        self.number, self.work = number, work

    @property
    def exit_code(self) -> int:
        """Return what shells say of a process that a signal has ended."""
        return 128 + self.number

    def __str__(self) -> str:
        work = f" while {self.work}" if self.work else ""
        left = ": nothing unfinished is left" if self.work else ""
        return f"Stopped{work} ({signal.Signals(self.number).name}){left}."


@contextmanager
def ended_by_signals() -> Iterator[None]:
    """Let the first SIGTERM or SIGHUP raise `Interrupted`, unless it is ignored; those that follow do nothing meanwhile.

    Who ends a command may tell it twice: a terminal that goes away, or `timeout`, which tells the whole group, too.
    """
    if threading.current_thread() is not threading.main_thread():  # no other one may ask for signals
        yield
        return
    before = {number: signal.getsignal(number) for number in _ENDING}
    heard = [number for number, how in before.items() if how not in (signal.SIG_IGN, None)]  # nohup

    def end(number: int, _frame: FrameType | None) -> None:
        for each in heard:
            signal.signal(each, signal.SIG_IGN)
        raise Interrupted(number)

    for number in heard:
        signal.signal(number, end)
    try:
        yield
    finally:
        for number in heard:
            signal.signal(number, before[number])
