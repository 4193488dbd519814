"""Calls that may block for long, made in a thread that nobody waits for: neither the loop nor the process when it ends."""

import asyncio
import contextlib
import threading
from collections.abc import Callable
from typing import Any, TypeVar

__all__ = ["in_thread"]

_T = TypeVar("_T")


async def in_thread(call: Callable[[], _T], name: str) -> _T:
    """Return what a call gives.

    A loop that ends waits for threads of `asyncio.to_thread`, however long they take; not for this one.

    Parameters
    ----------
    call : callable
        It must be no harm if it is never done.
    name : str
        The thread's.

    Raises
    ------
    Exception
        Whatever the call raises.
    """
    loop = asyncio.get_running_loop()
    answer: asyncio.Future[_T] = loop.create_future()

    def give(tell: Callable[[Any], None], value: Any) -> None:
        if not answer.done():
            tell(value)

    def run() -> None:
        try:
            told: tuple[Callable[[Any], None], Any] = answer.set_result, call()
        except Exception as error:
            told = answer.set_exception, error
        with contextlib.suppress(RuntimeError):  # the loop has ended meanwhile
            loop.call_soon_threadsafe(give, *told)

    threading.Thread(target=run, name=name, daemon=True).start()
    return await answer
