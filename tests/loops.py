"""The event loops and wires that the tests of sockets run on."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
import uvloop

from edlz.services.transport import wire as wire_module

__all__ = ["LOOPS", "Run", "runner_on"]

LOOPS = ("asyncio", "uvloop", "pyzmq's wire")

Run = Callable[[Coroutine[Any, Any, None]], None]


def runner_on(kind: str, monkeypatch: pytest.MonkeyPatch, limit_s: float) -> Run:
    """Return what runs a test's coroutine on one of the loops, within a time limit."""
    loop_factory = uvloop.new_event_loop if kind == "uvloop" else asyncio.new_event_loop
    is_compiled = kind != "pyzmq's wire"
    assert wire_module.is_compiled_usable(), "the compiled wire should be usable wherever tests run"
    monkeypatch.setattr(wire_module, "is_compiled_usable", lambda: is_compiled)

    def run_it(main: Coroutine[Any, Any, None]) -> None:
        problems: list[dict[str, Any]] = []
        with asyncio.Runner(loop_factory=loop_factory) as runner:
            runner.get_loop().set_exception_handler(lambda loop, context: problems.append(context))
            runner.run(asyncio.wait_for(main, limit_s))
        assert problems == []

    return run_it
