"""All counts of a job's metrics at one moment: those of `Measures`, and those that cores keep themselves."""

from collections.abc import Mapping

from edlz.services.master.core.master import MasterCore
from edlz.services.master.progress.measures import Measured, Measures

__all__ = ["measured"]


def measured(
    core: MasterCore,
    measures: Measures,
    worker_records: Mapping[str, int],
    checkpoint: tuple[float | None, float | None],
    network: tuple[int, int],
) -> Measured:
    """Return them.

    Parameters
    ----------
    worker_records : mapping
        Of the live workers.
    checkpoint : tuple
        When the newest was complete, in seconds since the epoch, and how long it took.
    network : tuple of int
        Bytes that this master has taken and given.
    """
    ps = measures.summed("network", "ps")
    ways = zip(("in", "out"), network, strict=True)
    return Measured(
        records=int(measures.count("records")),
        minibatches=int(measures.count("minibatches")),
        duplicates=sum(measures.summed("duplicates").values()),
        rejected=measures.summed("rejected"),
        steps=measures.steps,
        step_s=dict(measures.step_s),
        staleness=measures.staleness,
        staleness_sum=float(measures.summed("staleness").get("sum", 0)),
        task_s=tuple(core.work.queue.durations.counts),
        task_total_s=core.work.queue.durations.total,
        task_failures=dict(core.work.queue.failures),
        restarts=dict(core.processes.desired.replaced),
        recovery_s=dict(core.processes.recovery_s),
        worker_records=dict(worker_records),
        operations=measures.operations(),
        table_rows={
            (str(status.partition), table.path): table.rows
            for status in core.partitions.statuses
            for table in status.telemetry.tables
        },
        network={
            **{("master", way): count for way, count in ways},
            **{("ps", way): ps.get(way, 0) for way in ("in", "out")},
        },
        checkpoint_at=checkpoint[0],
        checkpoint_s=checkpoint[1],
    )
