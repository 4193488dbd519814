"""What synchronous mode must end with: one worker, one partition, no faults."""

import msgspec
from simulation.model import (
    LAYOUT,
    OPTIMIZER,
    compute_gradient,
    compute_rows,
    final_bytes,
    initial_vectors,
    make_push,
    trained_vectors,
    with_rows,
)
from simulation.schedule import Schedule, ids_of

from edlz.services.messages import Push
from edlz.services.ps.store import Store
from edlz.services.worker.row_traffic import join_rows, split_gradients

__all__ = ["reference_values"]


def reference_values(schedule: Schedule, ends: dict[int, int]) -> bytes:
    """One worker, one partition, no faults: what synchronous mode must end with."""
    plan = schedule.plan
    dense, state, counters = trained_vectors() if schedule.begins_from else initial_vectors()
    store = Store(
        Store.initial(
            plan_hash=plan.hash,
            task_count=plan.task_count,
            partition=0,
            partitions=1,
            layout=LAYOUT,
            optimizer=OPTIMIZER,
            dense=dense,
            state=state,
            counters=counters,
            tables=schedule.tables,
        ),
        plan.seed,
    )
    first = 0
    while first < plan.task_count:
        tasks = plan.round_tasks(first)
        steps = [ends[task] + 1 if task in ends else schedule.lengths[task] for task in tasks]
        for index in range(max(1, *steps)):
            pushes = [reference_push(schedule, store, task, index, ends.get(task)) for task in tasks]
            store.commit([push for push in pushes if push is not None])
        first = tasks[-1] + 1
    return final_bytes([store.capture((0, 0))])


def reference_push(schedule: Schedule, store: Store, task: int, index: int, end: int | None) -> Push | None:
    asked, length = ids_of(schedule, task, index, 1), schedule.lengths[task]
    if end is not None and index >= end:
        return make_push(task, index, 0) if index == end else None
    if asked is None:
        return None
    values = store.values()
    joined = join_rows(asked, [store.tables.gather(asked[0])], [table.dim for table in schedule.tables])
    seen, row_gradients = compute_rows(asked, joined, task, index)
    parts = compute_gradient(values.dense, values.state, values.counters, task, index, seen)
    push = make_push(task, index, length, *parts)
    if end is not None:
        push = msgspec.structs.replace(push, is_last=False)
    return with_rows(push, asked[0], split_gradients(asked, row_gradients)[0]) if schedule.tables else push
