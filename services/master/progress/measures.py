"""What a job's metrics are made of: counts that only rise while this master lives, whatever begins anew below them.

Theory of operation.  Workers tell what they did since they told last; partitions tell counts of their own lives, which
begin at nothing with each of them.  Here a count that has fallen is of a new life, and all of it is new.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from edlz.services.protocol.buckets import STALENESS, quantile
from edlz.services.protocol.messages import OperationTelemetry, PartitionStatus, WorkerTelemetry

if TYPE_CHECKING:  # who shows what was counted need not import it
    from edlz.services.master.core.master import MasterCore

__all__ = ["Measured", "Measures", "OperationCount", "measured"]

# The parts of a step by the names that they are shown with, and where workers tell them.
_OF_WORKER = {name: f"{name}_s" for name in ("read", "pull", "compute", "push", "sum", "wait")}
_OF_MEMBER = {"read": "read_s", "compute": "compute_s", "send": "push_s", "sum": "sum_s", "wait": "wait_s"}
_WINDOW = 10  # looks at staleness that its quantiles are of


@dataclass(frozen=True, slots=True)
class OperationCount:
    """Requests of one kind that a partition has answered, by how long that took."""

    counts: tuple[int, ...]
    seconds: float


@dataclass(frozen=True, slots=True)
class Measured:
    """The counts at one moment; see `Measures`."""

    records: int = 0
    minibatches: int = 0
    duplicates: int = 0
    rejected: dict[str, int] = field(default_factory=dict)
    steps: int = 0
    step_s: dict[str, float] = field(default_factory=dict)
    staleness: tuple[int, ...] = ()
    staleness_sum: float = 0.0
    task_s: tuple[int, ...] = ()  # counts by DURATIONS_S
    task_total_s: float = 0.0
    task_failures: dict[str, int] = field(default_factory=dict)
    restarts: dict[str, int] = field(default_factory=dict)
    recovery_s: dict[str, float] = field(default_factory=dict)
    worker_records: dict[str, int] = field(default_factory=dict)
    operations: dict[tuple[str, str], OperationCount] = field(default_factory=dict)  # by partition and name
    table_rows: dict[tuple[str, str], int] = field(default_factory=dict)
    network: dict[tuple[str, str], int] = field(default_factory=dict)  # by role and direction
    checkpoint_at: float | None = None
    checkpoint_s: float | None = None


class Rising:
    """A count that never falls, of one that does with each new life."""

    def __init__(self) -> None:
        self.count = 0.0
        self._seen = 0.0

    def note(self, seen: float) -> None:
        """Take what the present life counts."""
        self.count += seen - self._seen if seen >= self._seen else seen
        self._seen = seen


class Measures:
    """Counts of one master's life.

    Parameters
    ----------
    are_members : bool, optional
        Whether its workers are members of a group, which send each other what others push.
    """

    def __init__(self, *, are_members: bool = False) -> None:
        self._rising: dict[tuple[str, ...], Rising] = {}
        self._parts = _OF_MEMBER if are_members else _OF_WORKER
        self.steps, self.step_s = 0, dict.fromkeys(self._parts, 0.0)
        self.members_bytes = {"in": 0, "out": 0}  # of a group's
        self._looks: list[tuple[int, ...]] = []  # counts of staleness, lately

    def on_worker(self, told: WorkerTelemetry) -> None:
        """A worker has done so much since it told last."""
        self.steps += told.minibatches
        for name, field_name in self._parts.items():
            self.step_s[name] += max(0.0, getattr(told, field_name))
        self.members_bytes["in"] += max(0, told.bytes_in)
        self.members_bytes["out"] += max(0, told.bytes_out)

    def rise(self, seen: float, *name: str) -> None:
        """Take a count, by its name."""
        rising = self._rising.get(name)
        if rising is None:
            rising = self._rising[name] = Rising()
        rising.note(seen)

    def count(self, *name: str) -> float:
        """Return how far a count has risen."""
        rising = self._rising.get(name)
        return rising.count if rising is not None else 0.0

    def sample(self, statuses: Iterable[PartitionStatus], records: int, minibatches: int) -> None:
        """Take what partitions tell; called about once a second."""
        self.rise(records, "records")
        self.rise(minibatches, "minibatches")
        for status in statuses:
            told, ident = status.telemetry, str(status.partition)
            self.rise(told.duplicates, "duplicates", ident)
            self.rise(told.bytes_in, "network", "ps", "in", ident)
            self.rise(told.bytes_out, "network", "ps", "out", ident)
            self.rise(told.staleness_sum, "staleness", "sum", ident)
            for reason, count in told.rejected:
                self.rise(count, "rejected", reason, ident)
            for bucket, count in enumerate(told.staleness):
                self.rise(count, "staleness", str(bucket), ident)
            for operation in told.operations:
                self._rise_operation(ident, operation)
        self._looks = [*self._looks[-_WINDOW:], self.staleness]

    def _rise_operation(self, ident: str, told: OperationTelemetry) -> None:
        self.rise(told.seconds, "operation", ident, told.name, "sum")
        for bucket, count in enumerate(told.counts):
            self.rise(count, "operation", ident, told.name, str(bucket))

    # -- what has come of it

    def summed(self, *prefix: str) -> dict[str, int]:
        """Return the counts below a name, by the next part of their own, summed over the rest."""
        found: Counter[str] = Counter()
        for name, rising in self._rising.items():
            if name[: len(prefix)] == prefix and len(name) > len(prefix):
                found[name[len(prefix)]] += int(rising.count)
        return dict(found)

    @property
    def staleness(self) -> tuple[int, ...]:
        """Return how many gradients were how stale."""
        by_bucket = self.summed("staleness")
        return tuple(by_bucket.get(str(bucket), 0) for bucket in range(len(STALENESS) + 1))

    @property
    def staleness_now(self) -> tuple[float, float] | None:
        """The median and the 95th percentile of the last seconds; None if nothing was applied."""
        if len(self._looks) < 2:
            return None
        lately = [now - before for before, now in zip(self._looks[0], self._looks[-1], strict=True)]
        median, high = quantile(STALENESS, lately, 0.5), quantile(STALENESS, lately, 0.95)
        return None if median is None or high is None else (median, high)

    @property
    def mean_staleness(self) -> float | None:
        """The mean of all gradients that were applied; None if there are none of which it is known."""
        counts = self.summed("staleness")
        total, count = counts.pop("sum", 0), 0
        count = sum(counts.values())
        return total / count if count else None

    def operations(self) -> dict[tuple[str, str], OperationCount]:
        """Return what each partition has answered, by its id and the kind of request."""
        found: dict[tuple[str, str], list[int]] = {}
        seconds: dict[tuple[str, str], float] = {}
        for name, rising in self._rising.items():
            if name[0] != "operation":
                continue
            _, ident, kind, bucket = name
            if bucket == "sum":
                seconds[ident, kind] = rising.count
                continue
            counts = found.setdefault((ident, kind), [])
            counts += [0] * (int(bucket) + 1 - len(counts))
            counts[int(bucket)] = int(rising.count)
        return {key: OperationCount(tuple(counts), seconds.get(key, 0.0)) for key, counts in found.items()}


def p99(operations: Iterable[OperationCount], bounds: Sequence[float]) -> float | None:
    """Return within how many seconds 99 of 100 requests were answered."""
    rows = [each.counts for each in operations]
    width = max((len(row) for row in rows), default=0)
    return quantile(
        bounds, [sum(row[place] for row in rows if place < len(row)) for place in range(width)], 0.99
    )


def measured(
    core: "MasterCore",
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
            **{("worker", way): count for way, count in measures.members_bytes.items()},
        },
        checkpoint_at=checkpoint[0],
        checkpoint_s=checkpoint[1],
    )
