"""Work for the thread that TensorFlow runs in, and the news of it in the loop."""

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable

from edlz.services.process.runtime import Stop
from edlz.services.worker.keras_thread import KerasThread

LIMIT_S = 10.0


def in_loop(run: Callable[[KerasThread, Stop], Awaitable[None]]) -> None:
    async def main() -> None:
        stop = Stop()
        thread = KerasThread(stop)
        try:
            await asyncio.wait_for(run(thread, stop), LIMIT_S)
        finally:
            thread.close()

    asyncio.run(main())


def test_work_runs_in_order_in_one_thread_and_the_loop_is_told() -> None:
    async def run(thread: KerasThread, stop: Stop) -> None:
        seen: list[tuple[int, int, int]] = []
        done = asyncio.Event()

        def then(result: tuple[int, int]) -> None:
            seen.append((*result, threading.get_ident()))
            if len(seen) == 3:
                done.set()

        for number in range(3):
            thread.submit("step", lambda number=number: (number, threading.get_ident()), then, raise_it)
        await done.wait()
        numbers, workers, tellers = zip(*seen, strict=True)
        assert numbers == (0, 1, 2)
        assert len({*workers}) == 1
        assert {*tellers} == {threading.get_ident()} != {*workers}

    in_loop(run)


def test_an_error_is_told_and_later_work_goes_on() -> None:
    async def run(thread: KerasThread, stop: Stop) -> None:
        errors: list[BaseException] = []
        result = asyncio.get_running_loop().create_future()
        for error in (ValueError("bad"), SystemExit(3)):  # users' code may call sys.exit
            thread.submit("step", lambda error=error: raise_it(error), raise_it, errors.append)
        thread.submit("step", lambda: 7, result.set_result, raise_it)
        assert await result == 7
        assert [type(error) for error in errors] == [ValueError, SystemExit]

    in_loop(run)


def test_a_piece_of_work_is_over_before_its_end_is_told() -> None:
    async def run(thread: KerasThread, stop: Stop) -> None:
        told: list[tuple[float, float, bool]] = []
        for _ in range(200):
            done = asyncio.Event()

            def then(_: object, done: asyncio.Event = done) -> None:
                told.append(thread.pace.told(time.monotonic()))
                done.set()

            thread.submit("step", lambda: None, then, raise_it)
            await done.wait()
        assert {*told} == {(0.0, 0.0, False)}

    in_loop(run)


def test_nobody_is_told_of_work_that_ends_after_the_stop_and_none_is_begun() -> None:
    async def run(thread: KerasThread, stop: Stop) -> None:
        told: list[object] = []
        is_at_it, go_on = threading.Event(), threading.Event()

        def work() -> None:
            is_at_it.set()
            go_on.wait(LIMIT_S)

        thread.submit("step", work, told.append, told.append)
        thread.submit("step", lambda: told.append("begun"), told.append, told.append)
        await asyncio.to_thread(is_at_it.wait, LIMIT_S)
        stop.set(0, "enough")
        thread.submit("step", lambda: told.append("begun"), told.append, told.append)
        thread.close()
        go_on.set()
        await asyncio.to_thread(thread._thread.join, LIMIT_S)  # type: ignore[union-attr]
        assert not thread._thread.is_alive()  # type: ignore[union-attr]
        await asyncio.sleep(0)
        assert told == []

    in_loop(run)


def test_a_result_that_comes_when_the_loop_is_gone_is_let_go() -> None:
    is_at_it, go_on = threading.Event(), threading.Event()
    threads: list[threading.Thread] = []

    async def run(thread: KerasThread, stop: Stop) -> None:
        def work() -> None:
            is_at_it.set()
            go_on.wait(LIMIT_S)

        thread.submit("step", work, raise_it, raise_it)
        await asyncio.to_thread(is_at_it.wait, LIMIT_S)
        threads.append(thread._thread)  # type: ignore[arg-type]

    in_loop(run)
    go_on.set()
    threads[0].join(LIMIT_S)
    assert not threads[0].is_alive()


def raise_it(error: object) -> None:
    raise error if isinstance(error, BaseException) else AssertionError(error)
