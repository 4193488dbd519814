"""Calls in threads that nobody waits for."""

import asyncio
import threading

import pytest

from edlz.services.process.late_thread import in_thread


def test_what_a_call_gives_or_raises_comes_back() -> None:
    async def main() -> None:
        assert await in_thread(threading.current_thread, "some name") is not threading.main_thread()
        with pytest.raises(ZeroDivisionError):
            await in_thread(lambda: 1 / 0, "some name")

    asyncio.run(main())


def test_a_loop_that_ends_does_not_wait_for_a_late_call() -> None:
    is_awaited, may_end, has_ended = threading.Event(), threading.Event(), threading.Event()
    patience = threading.Timer(20.0, may_end.set)
    patience.start()

    def work() -> None:
        is_awaited.set()
        may_end.wait()
        has_ended.set()

    async def main() -> None:
        task = asyncio.ensure_future(in_thread(work, "late"))
        await asyncio.to_thread(is_awaited.wait)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(main())
    assert not has_ended.is_set(), "the loop has waited"
    may_end.set()
    assert has_ended.wait(20.0)  # with nobody to tell
    patience.cancel()
