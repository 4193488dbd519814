"""What a worker refuses of its master's orders: work that this job does not have, or that nothing is known for yet.

Orders come from whoever holds the master's key, and may come of another version of edlz.  They are looked at before anything
in them is obeyed, so that what does not fit ends this worker by an error that says so.
"""

from edlz.services.errors import RemoteProtocolError
from edlz.services.protocol.messages import EvaluationLease, Job, WorkerOrders

__all__ = ["check_orders"]


def check_orders(orders: WorkerOrders, job: Job | None, known: frozenset[int]) -> None:
    """Look at orders before they are obeyed.

    Parameters
    ----------
    job : Job, optional
        The one that this worker has been given before.
    known : frozenset of int
        Partitions whose addresses it has.

    Raises
    ------
    RemoteProtocolError
        If they do not fit; nothing has changed.
    """
    job = job or orders.job
    if job is None:
        given = (orders.lease, orders.evaluation, orders.conclude, orders.export, orders.released)
        if any(given) or orders.partitions:
            raise RemoteProtocolError("the master gives work of a job that it has not told")
        return
    indices = frozenset(address.index for address in orders.partitions)
    if not all(0 <= index < job.partitions for index in indices):
        raise RemoteProtocolError(
            f"the master names partitions {sorted(indices)}; this job has {job.partitions}"
        )
    tasks = job.plan.task_count
    for task in (*orders.again, *(task for task, _ in orders.ends)):
        _check_task(task, tasks)
    for lease in (*([] if orders.lease is None else [orders.lease]), *orders.released):
        _check_task(lease.task, tasks)
        if lease.records is None and job.plan.grows and lease.task >= job.plan.tasks_per_epoch:
            raise RemoteProtocolError(f"the master leases task {lease.task} without its records")
    if orders.evaluation is not None:
        _check_evaluation(orders.evaluation, job)
        if len(known | indices) < job.partitions:
            raise RemoteProtocolError("the master leases an evaluation before all partitions are there")


def _check_task(task: int, count: int, what: str = "task") -> None:
    if not 0 <= task < count:
        raise RemoteProtocolError(f"the master speaks of {what} {task}; this job has {count} of them")


def _check_evaluation(lease: EvaluationLease, job: Job) -> None:
    ranges = job.plan.evaluation_ranges
    _check_task(lease.task, len(ranges), "evaluation task")
    if lease.records != ranges[lease.task]:
        raise RemoteProtocolError(
            f"the master leases other records for evaluation task {lease.task} than the plan has"
        )
