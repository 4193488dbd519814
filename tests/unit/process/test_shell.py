"""Shells feed their cores, carry out every instruction that there is, and fail once."""

import asyncio
from typing import Any, get_args

import pytest

from edlz.services.errors import ConfigError
from edlz.services.process.runtime import Stop
from edlz.services.process.shell import Instructions, Shell
from edlz.services.ps.core.instructions import Instruction as PartitionInstruction
from edlz.services.ps.service import PartitionService
from edlz.services.worker.core.instructions import Instruction as WorkerInstruction
from edlz.services.worker.service import WorkerService


@pytest.mark.parametrize(
    ("shell", "instruction"),
    [(PartitionService, PartitionInstruction), (WorkerService, WorkerInstruction)],
    ids=["ps", "worker"],
)
def test_a_shell_carries_out_every_instruction_of_its_core(shell: type[Shell], instruction: Any) -> None:
    assert set(shell.carries.methods) == set(get_args(instruction))


class Echo(Shell[Any, Any]):
    """Its core asks for whatever it is told."""

    carries = Instructions["Echo"]()

    def __init__(self, stop: Stop) -> None:
        super().__init__(stop)
        self.done: list[str] = []

    def decide(self, event: Any) -> list[Any]:
        return list(event)

    @carries.out(str)
    def _say(self, word: str) -> None:
        self.done.append(word)

    @carries.out(ConfigError)
    def _raise(self, error: ConfigError) -> None:
        raise error


def with_echo(*events: list[Any]) -> Echo:
    async def run() -> Echo:
        echo = Echo(Stop())
        for event in events:
            echo.feed(event)
        return echo

    return asyncio.run(run())


def test_instructions_are_carried_out_in_order() -> None:
    assert with_echo(["a", "b"], ["c"]).done == ["a", "b", "c"]


def test_the_first_error_counts() -> None:
    first, second = ConfigError("first"), ConfigError("second")
    echo = with_echo(["a", first, "b"], [second])
    assert echo.done == ["a"]
    assert (echo._stop.code, echo._stop.reason) == (2, "first")
    with pytest.raises(ConfigError, match="first"):
        echo.raise_failure()


@pytest.mark.parametrize("bug", [[1.5], None], ids=["an unknown instruction", "a failing core"])
def test_a_bug_ends_the_service_with_code_70(bug: Any) -> None:
    assert with_echo(bug)._stop.code == 70


def test_a_service_without_errors_raises_nothing() -> None:
    with_echo(["a"]).raise_failure()
