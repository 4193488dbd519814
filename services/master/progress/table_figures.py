"""Figures of the embedding tables over all partitions, and how they move."""

import math
from collections.abc import Iterable
from dataclasses import dataclass, field

from edlz.services.master.progress.rates import Rate
from edlz.services.protocol.job_status import TableView
from edlz.services.protocol.messages import PartitionStatus, TableTelemetry

__all__ = ["TableFigures"]

WINDOW_S = 10.0


@dataclass
class _Flow:
    """Counts of one table when last looked at, and the rates since."""

    read: int = 0
    unknown: int = 0
    created: int = 0
    seen_s: float = 0.0
    hit_rate: float | None = None
    new_rows: Rate = field(default_factory=lambda: Rate(WINDOW_S))


@dataclass
class TableFigures:
    """Rows and rates by table, in the order of the model."""

    _flows: dict[str, _Flow] = field(default_factory=dict)

    def sample(self, statuses: Iterable[PartitionStatus], now: float) -> None:
        """Take the rates; called about once a second."""
        for path, parts in _by_path(statuses).items():
            read = sum(part.rows_read for part in parts)
            unknown = sum(part.rows_unknown for part in parts)
            created = sum(part.rows_created for part in parts)
            flow = self._flows.get(path)
            if flow is None or read < flow.read or created < flow.created:  # a partition has begun anew
                flow = self._flows[path] = _Flow(read, unknown, created, now)
                continue
            passed = now - flow.seen_s
            if passed <= 0:
                continue
            weight = 1 - math.exp(-passed / WINDOW_S)
            flow.new_rows.note(created, now)
            if read > flow.read:
                hits = 1 - (unknown - flow.unknown) / (read - flow.read)
                flow.hit_rate = (
                    hits if flow.hit_rate is None else flow.hit_rate + weight * (hits - flow.hit_rate)
                )
            flow.read, flow.unknown, flow.created, flow.seen_s = read, unknown, created, now

    def views(self, statuses: Iterable[PartitionStatus], now: float) -> tuple[TableView, ...]:
        views = []
        for path, parts in _by_path(statuses).items():
            flow = self._flows.get(path, _Flow())
            views.append(
                TableView(
                    path=path,
                    rows=sum(part.rows for part in parts),
                    memory_bytes=sum(part.memory_bytes for part in parts),
                    hit_rate=flow.hit_rate,
                    new_rows_per_s=flow.new_rows.per_s(now),
                )
            )
        return tuple(views)


def _by_path(statuses: Iterable[PartitionStatus]) -> dict[str, list[TableTelemetry]]:
    found: dict[str, list[TableTelemetry]] = {}
    for status in statuses:
        for place, table in enumerate(status.telemetry.tables):
            # Two layers may have one name; their places tell them apart.
            path = (
                table.path
                if not any(t.path == table.path for t in status.telemetry.tables[:place])
                else (f"{table.path} ({place})")
            )
            found.setdefault(path, []).append(table)
    return found
