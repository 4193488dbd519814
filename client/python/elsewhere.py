"""Calls that block, made from a thread that may have an event loop: a notebook's has one."""

import asyncio
import threading
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

from edlz.services.errors import EdlzError

__all__ = ["apart", "awaited"]

POLL_S = 0.2  # how long a signal may take to be heard

P = ParamSpec("P")
Found = TypeVar("Found")


def apart(call: Callable[P, Found], *args: P.args, **more: P.kwargs) -> Found:
    """Make a call in a thread of its own, and wait for what comes of it; Ctrl-C ends the waiting.

    Errors carry their help line as a note, which a traceback shows.
    """
    results: list[Found] = []
    errors: list[BaseException] = []
    is_over = threading.Event()

    def work() -> None:
        try:
            results.append(call(*args, **more))
        except BaseException as error:  # whoever has asked gets it
            errors.append(error)
        finally:
            is_over.set()

    threading.Thread(target=work, name="edlz", daemon=True).start()
    while not is_over.wait(POLL_S):
        pass
    if errors:
        raise _with_help(errors[0])
    return results[0]


async def awaited(call: Callable[P, Found], *args: P.args, **more: P.kwargs) -> Found:
    """Make a call in another thread, while the loop goes on."""
    return await asyncio.to_thread(lambda: apart(call, *args, **more))


def _with_help(error: BaseException) -> BaseException:
    if isinstance(error, EdlzError):
        problems: Any = getattr(error, "problems", ())
        if len(problems) > 1:
            texts = [
                text for each in problems for text in (f"error: {each.message}", _help(each.help)) if text
            ]
        else:
            texts = [_help(error.help)]
        for text in texts:
            if text and text not in getattr(error, "__notes__", ()):
                error.add_note(text)
    return error


def _help(text: str) -> str:
    return f"help: {text}" if text else ""
