"""What synchronous mode must end with: one worker, one partition, no faults."""

import math

import msgspec

from edlz.services.parameters.store import Store
from edlz.services.protocol.concluded_rounds import ConcludedRound, LossSum
from edlz.services.protocol.messages import Push
from edlz.services.worker.partition_traffic import join_rows, split_gradients
from tests.simulation.callbacks import decide, loss_of, seen
from tests.simulation.model import (
    compute_gradient,
    compute_rows,
    final_bytes,
    initial_state,
    make_push,
    trained_vectors,
    with_rows,
)
from tests.simulation.schedule import Schedule, ids_of

__all__ = ["barriers_of", "reference_run", "reference_values", "version_behind"]


def reference_values(schedule: Schedule, ends: dict[int, int]) -> bytes:
    """One worker, one partition, no faults: what synchronous mode must end with."""
    return reference_run(schedule, ends)[0]


def reference_run(schedule: Schedule, ends: dict[int, int]) -> tuple[bytes, list[ConcludedRound]]:
    """The same, and what callbacks that decide must have decided."""
    plan = schedule.plan
    initial = initial_state(plan, trained_vectors() if schedule.begins_from else None, schedule.tables)
    store = Store(msgspec.structs.replace(initial, version=schedule.begins_from), plan.seed)
    first, rate = 0, 0.01
    ends = {
        task: end for task, end in ends.items() if end <= schedule.lengths[task]
    }  # others end by themselves
    count = schedule.task_count
    rounds: list[ConcludedRound] = []
    barriers = set(barriers_of(schedule)) if schedule.decides else set()
    barriers = {*(task for task in barriers if task < count), *([count - 1] if schedule.decides else [])}
    while first < count:
        tasks = range(first, min(plan.round_tasks(first).stop, count))
        steps = [ends[task] + 1 if task in ends else schedule.lengths[task] for task in tasks]
        for index in range(max(1, *steps)):
            pushes = [reference_push(schedule, store, task, index, ends.get(task), rate) for task in tasks]
            present = [push for push in pushes if push is not None]
            store.commit(present, [push.task - first for push in present])
        first = tasks[-1] + 1
        if tasks[-1] in barriers:
            rounds.append(_decided(schedule, store, tasks[-1], rounds))
            rate = rounds[-1].decision.learning_rate or rate
            if rounds[-1].decision.stop:
                break
    return final_bytes([store.capture((0, 0))]), rounds


def barriers_of(schedule: Schedule) -> list[int]:
    """The last tasks before barriers; of data that grows they are counted here, task by task."""
    plan, every = schedule.plan, schedule.evaluation_steps
    if schedule.endless_tasks:
        plan = msgspec.structs.replace(plan, epochs=len(schedule.lengths) // schedule.endless_tasks)
    if not schedule.files:
        return plan.barriers(every).tolist()
    grown, version, found = schedule.grown_plan, 0, []
    for first in range(0, grown.known if every else 0, plan.slots):
        tasks = range(first, first + plan.slots)
        records = [grown.task_range(task).count for task in tasks]
        before, version = version, version + (max(records) if plan.is_sync else sum(records))
        found += [tasks[-1]] if version // every > before // every else []
    return found


def version_behind(schedule: Schedule, task: int) -> int:
    """The version at which this task, and those before it, are in the model; none is ended before its records."""
    version, first = schedule.begins_from, 0
    while first <= task:
        tasks = range(first, min(schedule.plan.round_tasks(first).stop, len(schedule.lengths)))
        version += max(1, *(min(schedule.lengths[each], _most_steps(schedule, each)) for each in tasks))
        first = tasks.stop
    return version


def _most_steps(schedule: Schedule, task: int) -> int:
    """How many minibatches of a task the job may take."""
    if task >= schedule.task_count:
        return 0
    end = schedule.last_end
    return end[1] if end is not None and end[0] == task else schedule.lengths[task]


def _decided(schedule: Schedule, store: Store, task: int, before: list[ConcludedRound]) -> ConcludedRound:
    values, last = store.values(), before[-1].losses if before else LossSum()
    is_measured = schedule.evaluation_tasks > len(schedule.bad_evaluations)
    measured = seen(values.dense.tobytes(), values.state.tobytes()) if is_measured else 0.0
    loss, is_end = store.losses.mean_since(last), task == schedule.task_count - 1
    decision = decide(schedule, store.version, measured, loss, before, is_end=is_end)
    return ConcludedRound(task=task, version=store.version, decision=decision, losses=store.losses)


def reference_push(
    schedule: Schedule, store: Store, task: int, index: int, end: int | None, rate: float = 0.01
) -> Push | None:
    asked, length = ids_of(schedule, task, index, 1), schedule.lengths[task]
    if end is not None and index >= end:
        return make_push(task, index, 0) if index == end else None
    if asked is None:
        return None
    values = store.values()
    joined = join_rows(asked, [store.tables.gather(asked[0])], [table.dim for table in schedule.tables])
    seen, row_gradients = compute_rows(asked, joined, task, index)
    parts = compute_gradient(values.dense, values.state, values.counters, task, index, seen)
    loss = math.nan if (task, index) in schedule.nonfinite else loss_of(task, index)
    loss = loss if schedule.has_callbacks else None
    push = make_push(task, index, length, *parts, rate=rate, loss=loss)
    if end is not None:
        push = msgspec.structs.replace(push, is_last=False)
    return with_rows(push, asked[0], split_gradients(asked, row_gradients)[0]) if schedule.tables else push
