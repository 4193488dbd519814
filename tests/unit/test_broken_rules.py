"""Each rule of the protocol is there for a reason: without it, the simulation finds a broken promise."""

from typing import Any

import pytest
from schedules import random_schedule
from simulated_job import Schedule, SimulatedJob, Violation

from edlz.services.errors import EdlzError
from edlz.services.master.job import MasterCore
from edlz.services.master.task_queue import TaskQueue
from edlz.services.ps.instructions import Reply
from edlz.services.ps.partition import Partition
from edlz.services.ps.store import Store
from edlz.services.worker.task_runner import TaskRunner

SCHEDULES = 1500  # looked through for one that fails


def breaks(schedule: Schedule) -> bool:
    try:
        SimulatedJob(schedule).run()
    except (Violation, AssertionError, EdlzError, ValueError):
        return True
    return False


def always_due(partition: Partition, to: Any, pull: Any, knows: bool, store: Store) -> Any:
    return [Reply(to, partition._exchanged(pull.task, store.values(), -1))]


def never_asks_while_it_waits(runner: TaskRunner) -> bool:
    return runner._is_ready and not runner._runs


RULES: dict[str, tuple[str, type, str, Any]] = {
    "a report names the partitions' lives": ("async", MasterCore, "_is_true", lambda *_: True),
    "a report names the era": ("sync", MasterCore, "_is_true", lambda *_: True),
    "a new life takes back what its ledger lacks": ("async", TaskQueue, "keep", lambda *_: None),
    "a partition keeps the version before": ("sync", Store, "values_before", lambda *_: None),
    "a pull is held until it is due": ("sync", Partition, "_pull_sync", always_due),
    "a worker that waits asks for slots": ("sync", TaskRunner, "_wants_task", never_asks_while_it_waits),
}


@pytest.mark.parametrize("rule", RULES)
def test_without_the_rule_a_promise_breaks(rule: str, monkeypatch: pytest.MonkeyPatch) -> None:
    mode, cls, name, broken = RULES[rule]
    monkeypatch.setattr(cls, name, broken)
    assert any(breaks(random_schedule(seed, mode)) for seed in range(SCHEDULES))
