"""What the master refuses of a status: numbers that nothing in the job has, and states that do not fit together.

Whoever holds the job's keys may be broken.  A status is looked at before anything of it is believed, so that one
that does not fit is answered by an error which says what is wrong, and changes nothing.
"""

import math
import re
from collections.abc import Iterator

from edlz.services.errors import RemoteProtocolError
from edlz.services.protocol.concluded_rounds import NO_VERSION, Decision
from edlz.services.protocol.ledger import Ledger, LedgerRecord, TaskSet
from edlz.services.protocol.messages import (
    DoneEvaluation,
    FailedTask,
    Identity,
    Job,
    MetricState,
    PartitionStatus,
    SupervisorStatus,
    WorkerStatus,
)
from edlz.services.protocol.plan import Plan

__all__ = ["check_partition", "check_run", "check_supervisor", "check_worker", "difference"]

MOST = 2**53  # of anything that is counted: no job gets that far, and every JSON reader knows it
_NAME = re.compile("master|(?P<role>worker|ps)-(?P<number>0|[1-9][0-9]{0,15})")
_SHOWN = 40  # characters of a name that no service has


def check_run(job: Job, name: str, run: str, *, has_joined: bool = False) -> None:
    """Look at which run of its job a process belongs to: the numbers of another one may be the same.

    Who has joined knows its run; who has not need not.

    Raises
    ------
    RemoteProtocolError
        If it is another one than this.
    """
    if run != job.run and (run or has_joined):
        raise RemoteProtocolError(
            f'{name} belongs to run {run or "?"} of its job; this master leads run {job.run} of job "{job.name}"',
            "end it; if this is its job's address, start it again",
        )


def check_partition(status: PartitionStatus, plan: Plan, term: int) -> None:
    """Look at what a partition says.

    Raises
    ------
    RemoteProtocolError
        If no partition of this job can be so.
    """
    who = f"ps-{status.partition}"
    _check_life(who, status.incarnation, term)
    _check_life(who, status.era, term)
    recount = status.recount
    _check_counts(who, (status.version, status.finished_tasks, status.minibatches, status.open_minibatches))
    _check_counts(who, (recount.expected, recount.applied, recount.missing, recount.doubled))
    _check_counts(who, (status.near, status.frozen, *(version for _, version in status.snapshots)))
    _check_counts(who, (status.losses.count, status.losses.nonfinite))
    if status.ledger is not None:
        _check_ledger(who, status.ledger, plan.task_count)
    for closed in status.closed:
        _check_task(who, closed.task, plan.task_count)
        _check_counts(who, (closed.mark,))
    for part in status.parts:
        _check_counts(who, (part.number, part.version))
        if part.info is not None and part.info.partition != status.partition:
            raise RemoteProtocolError(f"{who} reports a checkpoint's part of ps-{part.info.partition}")


def check_worker(status: WorkerStatus, plan: Plan, term: int) -> None:
    """Look at what a worker says; errors as for `check_partition`."""
    who = f"worker-{status.worker}"
    _check_life(who, status.incarnation, term)
    _check_counts(who, (status.steps, status.rounds))
    for task in (*status.holding, *status.barred, *(done.task for done in status.done)):
        _check_task(who, task, plan.task_count)
    evaluations = len(plan.evaluation_ranges)
    for done in status.evaluated:
        _check_task(who, done.task, evaluations, "evaluation task")
        _check_counts(who, (done.records, 0 if done.part is None else done.part.bytes))
    for failed in status.failed:
        _check_failed(who, failed, plan.task_count, evaluations)
    if status.callbacks is not None:
        _check_counts(who, (status.callbacks.max_steps,))
    for result in status.results:
        if result.decision is not None:
            _check_decision(who, result.decision)


def _check_decision(who: str, decision: Decision) -> None:
    _check_counts(who, decision.kept)
    rate = decision.learning_rate
    if rate is not None and not (math.isfinite(rate) and rate >= 0):
        raise RemoteProtocolError(
            f"{who} says that callbacks set the learning rate to {rate}", "let them set a number from 0 on"
        )
    if decision.result not in (NO_VERSION, *decision.kept):
        raise RemoteProtocolError(f"{who} says that callbacks put back v{decision.result}, which is not kept")


def check_supervisor(status: SupervisorStatus, partitions: int) -> None:
    """Look at what a supervisor says that it runs; errors as for `check_partition`."""
    _check_counts("a supervisor", (status.seq, status.room or 0, *(exit_.launch for exit_ in status.exits)))
    for name in _names(status):
        found = _NAME.fullmatch(name)
        most = partitions if found and found["role"] == "ps" else MOST
        if found is None or int(found["number"] or 0) >= most:
            raise RemoteProtocolError(
                f"a supervisor names {name[:_SHOWN]!r}; this job's services are called master, worker-N, and ps-N "
                f"up to ps-{partitions - 1}"
            )


def _names(status: SupervisorStatus) -> Iterator[str]:
    yield from (*status.running, *(status.placed or ()), *status.crowded, *status.unreachable, *status.notes)
    yield from (exit_.name for exit_ in status.exits)


def difference(one: DoneEvaluation, other: DoneEvaluation) -> str:
    """Return how the metric states of two tasks of a round differ in kind, so that they cannot be added; or nothing."""
    here, there = _shapes(one.states), _shapes(other.states)
    if here == there:
        return ""
    return f"task {one.task} of the evaluation has metric states {here}, task {other.task} has {there}"


def _shapes(states: MetricState) -> dict[str, list[tuple[int, ...]]]:
    return {name: [part.shape for part in parts] for name, parts in sorted(states.items())}


def _check_life(who: str, life: Identity | None, term: int) -> None:
    if life is not None and not (0 <= life[0] <= term and 0 <= life[1] < MOST):
        raise RemoteProtocolError(
            f"{who} says that it lives in {life}, which no master up to term {term} gave"
        )


def _check_counts(who: str, counts: tuple[int, ...]) -> None:
    for count in counts:
        if not 0 <= count < MOST:
            raise RemoteProtocolError(f"{who} counts {count} of something")


def _check_task(who: str, task: int, count: int, what: str = "task") -> None:
    if not 0 <= task < count:
        raise RemoteProtocolError(f"{who} speaks of {what} {task}; this job has {count} of them")


def _check_failed(who: str, failed: FailedTask, tasks: int, evaluations: int) -> None:
    _check_counts(who, (failed.index,))
    if failed.kind == "training":
        _check_task(who, failed.task, tasks)
    else:
        _check_task(who, failed.task, evaluations, "evaluation task")


def _check_ledger(who: str, record: LedgerRecord, tasks: int) -> None:
    try:
        finished = TaskSet(record.finished)
        Ledger(record)
    except ValueError as error:
        raise RemoteProtocolError(f"{who} has a malformed ledger: {error}") from error
    bounds = finished.bounds
    if bounds and not (bounds[0] >= 0 and bounds[-1] <= tasks):
        raise RemoteProtocolError(
            f"{who} has finished tasks up to {bounds[-1]}; this job has {tasks} of them"
        )
    for task, mark in record.marks:
        _check_task(who, task, tasks)
        _check_counts(who, (mark,))
    _check_counts(who, (record.minibatches,))
