"""The states of a group as its master completes them."""

import asyncio
import threading
from types import SimpleNamespace
from typing import Any

from edlz.services.master.core.vocabulary.instructions import WriteState
from edlz.services.master.durable_states import GroupStates

CORE: Any = SimpleNamespace(
    term=1,
    job=SimpleNamespace(name="j", run="r"),
    plan=SimpleNamespace(mode="sync"),
    work=SimpleNamespace(bad_tasks=SimpleNamespace(journalled=())),
)


class Files:
    """Counts how many states are completed at once."""

    def __init__(self) -> None:
        self.now = self.most = 0
        self.done: list[int] = []
        self.second = threading.Event()

    def complete(self, version: int, *_: object) -> None:
        self.now += 1
        self.most = max(self.most, self.now)
        if self.now > 1:
            self.second.set()
        self.second.wait(0.2)  # long enough for another one to begin, if it may
        self.now -= 1
        self.done.append(version)


def test_states_are_completed_one_after_another() -> None:
    """A group that has changed seals the state that one member alone has sealed, while that is completed."""
    files: Any = Files()

    async def main() -> list[str]:
        states = GroupStates(files, CORE)
        orders = [WriteState(((1, 1), version), (), 1) for version in (7, 7, 8)]
        return await asyncio.gather(*(states.complete(order, 1) for order in orders))

    assert asyncio.run(main()) == ["", "", ""]
    assert (files.most, files.done) == (1, [7, 7, 8])
