"""What the user is told when a job ends without success: the first cause, with the place in the data."""

from edlz.services.messages import FailedTask, Failure, FailureView
from edlz.services.plan import Plan

__all__ = ["failure_of_task", "failure_of_worker"]


def failure_of_task(plan: Plan, attempts: list[tuple[str, FailedTask]]) -> FailureView:
    """Describe a task that has failed as often as it may.

    Parameters
    ----------
    attempts : list of (worker, FailedTask)
        In the order in which they were reported.
    """
    first = attempts[0][1]
    workers = ", ".join(worker for worker, _ in attempts)
    is_training = first.kind == "training"
    place = plan.task_range(first.task) if is_training else plan.evaluation_ranges[first.task]
    when = f"epoch {plan.epoch(first.task) + 1}" if is_training else "evaluation"
    is_same = all(failed.error == first.error for _, failed in attempts)
    raised = "raised the same error" if is_same else "failed"
    last = place.first + place.count - 1
    return FailureView(
        text=f"task {first.task} {raised} {len(attempts)} times (workers {workers})",
        data=f"{place.name}, records {place.first}..{last}, {when}, minibatch {first.index}",
        where=first.where,
        error=first.error,
        help="correct the model code or the data, then start the job again",
        traceback=first.traceback,
    )


def failure_of_worker(failure: Failure) -> FailureView:
    """Describe what no other attempt can mend, as a worker reported it."""
    return FailureView(
        text=failure.message,
        help=failure.help,
        traceback=failure.traceback,
        exit_code=2 if failure.code == "config" else 1,
    )
