"""Tasks that fail: how often each may be attempted, and what the user is told: the first cause, with the place in the data."""

import re
from dataclasses import dataclass, field
from typing import Literal

from edlz.services.protocol.job_status import MISTAKE, FailureView
from edlz.services.protocol.messages import UNKNOWN_INDEX, FailedTask, Failure, Job
from edlz.services.protocol.plan import Plan

__all__ = [
    "MAX_ATTEMPTS",
    "NO_ROUND",
    "Attempts",
    "FailedAttempts",
    "Key",
    "death_text",
    "failed_by_death",
    "failure_of_export",
    "failure_of_exporters",
    "failure_of_loss",
    "failure_of_nothing",
    "failure_of_task",
    "failure_of_worker",
    "skip_text",
]

MAX_ATTEMPTS = 3

Attempts = list[tuple[str, FailedTask]]
"""Failed attempts at one task, each with its worker, in the order in which they were reported."""

Key = tuple[int, int]  # of a task, as `FailedTask.key` gives it
NO_ROUND = -1  # of a training task


def failed_by_death(
    kind: Literal["training", "evaluation"], task: int, reason: str, attempt: int, round_: int = 0
) -> FailedTask:
    """Return a failed attempt at a task that a worker had in hand when it ended."""
    return FailedTask(
        kind=kind,
        task=task,
        index=UNKNOWN_INDEX,
        error=f"its worker ended: {reason}",
        where="",
        traceback="",
        round=round_,
        attempt=attempt,
    )


@dataclass
class FailedAttempts:
    """The failed attempts at training tasks, or at those of evaluation rounds."""

    _by_task: dict[Key, Attempts] = field(default_factory=dict)
    _counted: set[tuple[int, Key, int]] = field(default_factory=set)  # boot, task, number of the attempt

    def count(self, worker: str, boot: int, failed: FailedTask) -> Attempts | None:
        """Count a failed attempt; a repeated report counts once.

        Returns
        -------
        list of (worker, FailedTask), or None
            All attempts at that task, when this was the last one allowed.
        """
        if self.is_counted(boot, failed):
            return None
        self._counted.add((boot, failed.key, failed.attempt))
        attempts = self._by_task.setdefault(failed.key, [])
        attempts.append((worker, failed))
        return attempts if len(attempts) >= MAX_ATTEMPTS else None

    def is_counted(self, boot: int, failed: FailedTask) -> bool:
        """Whether a process of this boot number has reported the attempt before."""
        return (boot, failed.key, failed.attempt) in self._counted

    def forgive_deaths(self, key: Key) -> None:
        """Forget the attempts that ended with their worker."""
        attempts = self._by_task.get(key, [])
        attempts[:] = [attempt for attempt in attempts if attempt[1].index != UNKNOWN_INDEX]

    def forget(self, key: Key) -> None:
        """The attempts at a task start anew."""
        self._by_task.pop(key, None)


_KEPT = "it is trained, and kept"


def failure_of_task(job: Job, attempts: Attempts, *, skips: bool) -> FailureView:
    """Describe a task that has failed as often as it may, and cannot or may not be left out.

    `skips`: whether the job leaves such tasks out, where it can.
    """
    first = next((failed for _, failed in attempts if failed.index != UNKNOWN_INDEX), attempts[0][1])
    is_training = first.kind == "training"
    is_same = all(failed.error == first.error for _, failed in attempts)
    are_deaths = all(failed.index == UNKNOWN_INDEX for _, failed in attempts)
    raised = "ended its worker" if are_deaths else "raised the same error" if is_same else "failed"
    correct = f"correct {_culprit(first)}, then: edlz resume {job.name}"
    if not (
        are_deaths or first.where or first.traceback
    ):  # no code: a file that cannot be read, or is not as it was
        correct = (
            f"correct the data, and begin anew: --fresh; or put it back as it was: edlz resume {job.name}"
        )
    skip = f"or leave these records out: edlz resume {job.name} --skip_bad_tasks"
    return FailureView(
        text=f"{_name(job.plan, first)} {raised} {_how_often(attempts)}",
        data=_place(job.plan, first)
        + ("" if are_deaths or job.plan.analyzes else f", minibatch {first.index}"),
        where=first.where,
        error=first.error,
        help="\n".join(filter(None, (first.help, correct, "" if skips else skip))),
        traceback=first.traceback,
        task=first.task if is_training else None,
    )


def death_text(plan: Plan, worker: str, failed: FailedTask) -> str:
    """Say what is held against a task that was in hand when its worker ended."""
    return (
        f"worker-{worker} had {_name(plan, failed)} in hand, like one that ended before it, without getting on with it: "
        f"{_place(plan, failed)}."
    )


def failure_of_loss(job: Job, failed: FailedTask, *, is_flag: bool) -> FailureView:
    """Describe the loss that a job with `--stop_on_nan`, or the callback TerminateOnNaN, ends at."""
    otherwise = (
        f"edlz resume {job.name} --stop_on_nan=no" if is_flag else "leave TerminateOnNaN out of callbacks()"
    )
    return FailureView(
        text=f"{'--stop_on_nan' if is_flag else 'TerminateOnNaN'}: {failed.error} in "
        f"{_name(job.plan, failed)}, minibatch {failed.index}",
        data=f"{_place(job.plan, failed)}, minibatch {failed.index}",
        error="its gradient is in no parameters",  # what is kept is told by the status
        help=f"a smaller learning rate or other data, then: edlz resume {job.name}\n"
        f"or go on whatever the loss is: {otherwise}",
    )


def failure_of_export(job: Job, failure: Failure) -> FailureView:
    """Describe a finished model that cannot be exported; what was trained is kept."""
    return FailureView(
        text=f"the model could not be exported: {failure.message}",
        error=_KEPT,
        help="\n".join(filter(None, (failure.help, _export_again(job)))),
        traceback=failure.traceback,
    )


def failure_of_exporters(job: Job, workers: list[str]) -> FailureView:
    """Describe an export during which each of these workers has ended."""
    who = ", ".join(workers)
    return FailureView(
        text=f"the model could not be exported: that ended its worker {len(workers)} times (workers {who})",
        error=_KEPT,
        help=f"more memory for the workers, or another --output_format\n{_export_again(job)}",
    )


def _export_again(job: Job) -> str:
    return f"nothing is trained again by: edlz resume {job.name} --output=DIR"


def failure_of_nothing(job: Job, skipped: int) -> FailureView:
    """Describe a job whose tasks are all done, `skipped` of them left out, and that has trained on no minibatch."""
    plan = job.plan
    if skipped == plan.task_count:
        text = "every task was skipped after errors: no minibatch was trained on"
        correct = "correct what they raised"
    else:
        text = "feed() left out every record of the data: no minibatch was trained on"
        correct = "correct feed() (does its filter() keep what it should leave out?)"
    return FailureView(
        text=text,
        data=f"{plan.records_per_epoch:,} records, {plan.task_count:,} tasks, {skipped:,} of them skipped",
        help=f"{correct}, then start the job again",
    )


def skip_text(plan: Plan, attempts: Attempts, end: int | None = None) -> str:
    """Say what is left out of the job, and why; `end`: the first minibatch of a training task that is."""
    first = attempts[0][1]
    which = "" if end is None else f" from minibatch {end} on"
    reason = f"it failed {_how_often(attempts)}: {first.error}"
    where = f" ({first.where})" if first.where else ""
    return f"{_name(plan, first)} is skipped{which}, {_place(plan, first)}: {reason}{where}"


def failure_of_worker(failure: Failure, *, is_mistake: bool) -> FailureView:
    """Describe what no other attempt can mend, as a worker reported it.

    Parameters
    ----------
    is_mistake : bool
        Of the user's, and found before anything ran.
    """
    return FailureView(
        text=failure.message,
        where=failure.where,
        source=failure.source,
        error=failure.error,
        help=failure.help or ("correct that line, then start the job again" if failure.where else ""),
        traceback=failure.traceback,
        exit_code=MISTAKE if is_mistake or failure.code == "config" else 1,
    )


def _name(plan: Plan, failed: FailedTask) -> str:
    return f"task {failed.task}" if failed.kind == "training" else f"{plan.other_work} task {failed.task}"


def _how_often(attempts: Attempts) -> str:
    return f"{len(attempts)} times (workers {', '.join(worker for worker, _ in attempts)})"


def _place(plan: Plan, failed: FailedTask) -> str:
    is_training = failed.kind == "training"
    records = plan.task_range(failed.task) if is_training else plan.evaluation_ranges[failed.task]
    when = f"epoch {plan.epoch(failed.task) + 1}" if is_training else plan.other_work
    return f"{records.name}, records {records.first}..{records.first + records.count - 1}, {when}"


def _culprit(failed: FailedTask) -> str:
    """The user's function that raised, as one would say it."""
    function = re.search(r" in ([A-Za-z_]\w*)$", failed.where)
    return f"{function[1]}()" if function else "the model's code or the data"
