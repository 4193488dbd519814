"""What an all-reduce job must end with: what a parameter server of the same job would."""

import numpy as np

from edlz.services.parameters.store import Store
from edlz.services.protocol.messages import Push
from tests.simulation.groups.schedule import GroupSchedule
from tests.simulation.model import (
    compute_gradient,
    final_bytes,
    initial_state,
    make_push,
)

__all__ = ["group_reference", "initial_store", "learning_rate"]


def learning_rate(version: int) -> float:
    """The rate of the step after a version: not the same for all."""
    return 0.01 / (1 + version % 3)


def initial_store(schedule: GroupSchedule) -> Store:
    return Store(initial_state(schedule.plan), schedule.plan.seed)


def group_reference(schedule: GroupSchedule) -> bytes:
    """One parameter server, every slot from one worker, no faults; bad tasks end where they raise."""
    plan, store, ends = schedule.plan, initial_store(schedule), dict(schedule.bad)
    while (first := store.ledger.finished.first_missing()) < plan.task_count:
        tasks = [task for task in plan.round_tasks(first) if task not in store.ledger.finished]
        pushes = [_push(schedule, store, task, ends.get(task)) for task in tasks]
        store.commit(pushes, [plan.slot(task) for task in tasks])
    return final_bytes([store.capture((0, 0))])


def _push(schedule: GroupSchedule, store: Store, task: int, end: int | None) -> Push:
    index, length, rate = store.ledger.mark(task), schedule.lengths[task], learning_rate(store.version)
    if end is not None and index >= end:
        return make_push(task, index, 0, rate=rate)
    values = store.values()
    parts: tuple[np.ndarray, ...] = compute_gradient(values.dense, values.state, values.counters, task, index)
    length = length if end is None else max(length, index + 2)  # an end that is journalled comes by itself
    return make_push(task, index, length, *parts, rate=rate)
