"""Each rule of the protocol is there for a reason: without it, the simulation finds a broken promise.

The same schedule must hold with the rule: else it shows a fault of something else.
"""

from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from typing import Any

import msgspec
import pytest

from edlz.services.errors import EdlzError, LocalProtocolError
from edlz.services.master import digest
from edlz.services.master.core.tasks import bad_tasks
from edlz.services.master.core.tasks.task_queue import TaskQueue
from edlz.services.master.core.vocabulary.verdict import Verdict
from edlz.services.master.core.work import Work
from edlz.services.parameters.store import Store
from edlz.services.protocol.messages import ClosedTask, Ends, Job, PartitionStatus
from edlz.services.ps.core.asynchronous import Asynchronous
from edlz.services.ps.core.checkpoint_parts import CheckpointParts
from edlz.services.ps.core.synchronous import Synchronous
from edlz.services.ps.core.task_ends import TaskEnds
from edlz.services.storage import complete_checkpoints
from edlz.services.storage.checkpoint_records import Manifest, Part
from edlz.services.storage.complete_checkpoints import part_of_run
from edlz.services.transport import outbox
from edlz.services.worker.core.worker import WorkerCore
from tests.schedules import contended_schedule, ending_schedule, random_schedule, with_checkpoints
from tests.simulation.job import Schedule, SimulatedJob, Violation

SCHEDULES = 1500  # looked through for one that fails, if that of the seed that did so last holds


def seeds_from(likely: int) -> Iterator[int]:
    """The seed that broke the rule when it was tried last, then all."""
    return chain((likely,), range(SCHEDULES))


def breaks(schedule: Schedule) -> bool:
    try:
        SimulatedJob(schedule).run()
    except (Violation, AssertionError, EdlzError, ValueError):
        return True
    return False


def assert_needed(
    owner: Any, name: str, broken: Any, schedules: Iterable[Schedule], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Fail unless some schedule breaks a promise with this in a rule's place, and none with the rule."""
    with monkeypatch.context() as without:
        without.setattr(owner, name, broken)
        found = next(filter(breaks, schedules), None)
    assert found is not None, "every promise holds without the rule"
    assert not breaks(found), f"a promise breaks with the rule, too: {found}"


def never_asks_while_it_waits(runner: WorkerCore) -> bool:
    return runner._is_ready and not runner.phases


def is_frozen(exchanges: Asynchronous) -> bool:
    return exchanges._ceiling is not None


RULES: dict[str, tuple[str, Any, str, Any, int]] = {
    "a report names the partitions' lives": ("async", Work, "_is_true", lambda *_: True, 106),
    "a report names the era": ("sync", Work, "_is_true", lambda *_: True, 3),
    "a new life takes back what its ledger lacks": ("async", TaskQueue, "keep", lambda *_: None, 2),
    "a partition keeps the version before": ("sync", Store, "values_before", lambda *_: None, 25),
    "a partition cuts when it is level": ("async", Asynchronous, "is_level", property(is_frozen), 0),
    "a pull is held until it is due": ("sync", Synchronous, "_is_due", lambda *_: True, 0),
    "what a server may hold takes no credit": ("sync", outbox, "HELD", frozenset(), 15),
    "a worker that waits asks for slots": ("sync", WorkerCore, "_wants_task", never_asks_while_it_waits, 2),
}


@pytest.mark.parametrize("rule", RULES)
def test_without_the_rule_a_promise_breaks(rule: str, monkeypatch: pytest.MonkeyPatch) -> None:
    mode, owner, name, broken, likely = RULES[rule]
    schedules = (random_schedule(seed, mode) for seed in seeds_from(likely))
    assert_needed(owner, name, broken, schedules, monkeypatch)


def believes_any_piece(partition: int, answer: object, what: str) -> Exception:
    return LocalProtocolError("no piece of a vector")


END_RULES: dict[str, tuple[str, Any, str, Any, int]] = {
    "parameters that cannot be read are read again": ("async", digest, "_unreadable", believes_any_piece, 17),
    "a complete job is not begun again": (
        "async",
        Verdict,
        "is_complete",
        property(lambda verdict: False),
        1,
    ),
}


@pytest.mark.parametrize("rule", END_RULES)
def test_without_the_rule_the_end_goes_wrong(rule: str, monkeypatch: pytest.MonkeyPatch) -> None:
    mode, owner, name, broken, likely = END_RULES[rule]
    schedules = (ending_schedule(seed, mode) for seed in seeds_from(likely))
    assert_needed(owner, name, broken, schedules, monkeypatch)


def closed_at_nothing(status: PartitionStatus, number: int) -> ClosedTask:
    return ClosedTask(task=0, number=number, mark=0, finished=False)


ENDING_RULES: dict[str, tuple[str, Any, str, Any, int]] = {
    "sync: partitions take nothing beyond a task's end": ("sync", TaskEnds, "bars", lambda *_: False, 33),
    "async: partitions take nothing beyond a task's end": ("async", TaskEnds, "bars", lambda *_: False, 27),
    "a task ends where all partitions can end it": ("async", bad_tasks, "_closed", closed_at_nothing, 1),
    "parts of a history that ended otherwise are cut again": (
        "sync",
        CheckpointParts,
        "rewind",
        lambda *_: None,
        21,
    ),
}


@pytest.mark.parametrize("rule", ENDING_RULES)
def test_without_the_rule_partitions_disagree_about_a_bad_task(
    rule: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    mode, owner, name, broken, likely = ENDING_RULES[rule]
    schedules = (contended_schedule(seed, mode) for seed in seeds_from(likely))
    assert_needed(owner, name, broken, schedules, monkeypatch)


def of_any_run(manifest: Manifest, job: Job, partition: int, ends: Ends) -> Part | None:
    return part_of_run(manifest, msgspec.structs.replace(job, run=manifest.run), partition, ends)


RECOVERY_RULES: dict[str, tuple[Callable[[int, str], Schedule], str, Any]] = {
    "sync: only a checkpoint of this run is gone back to": (random_schedule, "sync", of_any_run),
    "async: only a checkpoint of this run is gone back to": (random_schedule, "async", of_any_run),
}


@pytest.mark.parametrize("rule", RECOVERY_RULES)
def test_without_the_rule_a_checkpoint_of_something_else_is_gone_back_to(
    rule: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    schedule, mode, broken = RECOVERY_RULES[rule]
    schedules = (with_checkpoints(schedule(seed, mode)) for seed in range(SCHEDULES))
    assert_needed(complete_checkpoints, "part_of_run", broken, schedules, monkeypatch)
