"""The order of events: one at a time, long ones on a thread, short ones at once where nothing is before them."""

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor

from edlz.services.process.runtime import EventQueue


def test_an_event_run_by_the_caller_holds_others_until_its_end() -> None:
    done: list[str] = []

    async def main() -> None:
        with ThreadPoolExecutor(1) as executor:
            queue = EventQueue(executor, lambda error: done.append(repr(error)))
            queue.is_busy = True
            queue.put(lambda: "put", done.append)
            assert done == []
            queue.end()
            assert done == ["put"]
            assert not queue.is_busy

    asyncio.run(main())


def test_a_caller_has_to_wait_for_a_long_event_and_what_waits_for_it() -> None:
    done: list[str] = []

    async def main() -> None:
        may_end = threading.Event()
        with ThreadPoolExecutor(1) as executor:
            queue = EventQueue(executor, lambda error: done.append(repr(error)))
            queue.put(lambda: str(may_end.wait(5)), done.append, is_long=True)
            queue.put(lambda: "short", done.append)
            assert queue.is_busy
            may_end.set()
            async with asyncio.timeout(5):
                while len(done) < 2:  # noqa: ASYNC110  a thread's doing
                    await asyncio.sleep(0.001)
            assert done == ["True", "short"]
            assert not queue.is_busy

    asyncio.run(main())
