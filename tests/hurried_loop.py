"""An event loop whose clock does not wait: where nothing happens until the next timer, it is that time at once.

The sockets are real, so nothing is known to happen only once they have been listened to for a moment.  Whatever takes
time takes as long on this clock as on every other.
"""

import asyncio
import selectors

__all__ = ["HurriedLoop"]

LISTEN_S = 0.003  # more than a message takes between two sockets of a process


class HurriedLoop(asyncio.SelectorEventLoop):
    """An event loop for real services that mostly wait for each other."""

    def __init__(self) -> None:
        self._skipped_s = 0.0
        super().__init__(_Selector(self))

    def time(self) -> float:
        return super().time() + self._skipped_s

    def skip(self, seconds: float) -> None:
        """Let it be so much later."""
        self._skipped_s += seconds


class _Selector(selectors.DefaultSelector):  # type: ignore[misc,valid-type]  # it is one of several, by the platform
    def __init__(self, loop: HurriedLoop) -> None:
        super().__init__()
        self._loop = loop

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None or timeout <= LISTEN_S:
            return super().select(timeout)  # type: ignore[no-any-return]
        found = super().select(LISTEN_S)
        if not found:
            self._loop.skip(timeout - LISTEN_S)
        return found  # type: ignore[no-any-return]
