"""Figures of the workers that are alive, as they tell them, and how they move."""

from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass

import msgspec

from edlz.services.master.progress.rates import Rate
from edlz.services.protocol.job_status import WorkerView
from edlz.services.protocol.messages import Identity, WorkerStatus, WorkerTelemetry

__all__ = ["WorkerFigures"]

WINDOW_S = 10.0


@dataclass
class _Row:
    """One life of a worker; `records`: how many it has told of since its first status that was heard here."""

    life: tuple[Identity, int]  # and the number of its newest status
    telemetry: WorkerTelemetry
    rate: Rate
    joined_s: float
    restarts: int = 0
    records: int = 0


class WorkerFigures:
    """A row for each worker, of its newest life."""

    def __init__(self) -> None:
        self._rows: dict[str, _Row] = {}

    def __len__(self) -> int:
        """How many of them have told anything."""
        return len(self._rows)

    # -- what happens

    def is_news(self, status: WorkerStatus) -> bool:
        """Whether a status is newer than those that were heard of this worker."""
        row = self._rows.get(status.worker)
        if status.incarnation is None:
            return False
        return row is None or (status.incarnation, status.seq) > row.life

    def take(self, status: WorkerStatus, now: float) -> str:
        """Take the figures of a status that is news.

        Returns
        -------
        str
            What is to be told of what keeps the worker from its work; nothing if that is as before.
        """
        assert status.incarnation is not None
        row, told, life = self._rows.get(status.worker), status.telemetry, (status.incarnation, status.seq)
        if row is None or status.incarnation > row.life[0]:
            restarts = 0 if row is None else row.restarts + 1
            row = self._rows[status.worker] = _Row(life, told, Rate(WINDOW_S), now, restarts)
            row.rate.note(0, now)
            return _wait_news(status, "")
        row.life = life
        row.records += told.records
        row.rate.note(row.records, now)
        if not told.minibatches:  # the last known times of a step say more than zeros
            kept = row.telemetry
            told = msgspec.structs.replace(
                kept,
                state=told.state,
                task=told.task,
                loss=told.loss,
                memory_bytes=told.memory_bytes,
                waits_for=told.waits_for,
                learning_rate=told.learning_rate,
            )
        news = _wait_news(status, row.telemetry.waits_for)
        row.telemetry = told
        return news

    def keep(self, live: Collection[str]) -> None:
        """Forget all workers but these."""
        self._rows = {worker: row for worker, row in self._rows.items() if worker in live}

    def restart_rates(self) -> None:
        """The clock stood still, and the workers did not."""
        for row in self._rows.values():
            row.rate.restart()

    # -- over all of them

    @property
    def records(self) -> dict[str, int]:
        """How many records each has told of."""
        return {worker: row.records for worker, row in self._rows.items()}

    @property
    def states(self) -> Counter[str]:
        """How many of them are in which state."""
        return Counter(row.telemetry.state for row in self._rows.values())

    @property
    def wait_share(self) -> float | None:
        """The share of their time that workers wait for others, or for parameters."""
        told = [row.telemetry for row in self._rows.values() if row.telemetry.minibatches]
        waited_s = sum(each.wait_s for each in told)
        all_s = waited_s + sum(each.read_s + each.pull_s + each.compute_s + each.push_s for each in told)
        return waited_s / all_s if all_s > 0 else None

    @property
    def learning_rate(self) -> float | None:
        """Of the newest minibatches."""
        rates = [row.telemetry.learning_rate for row in self._rows.values()]
        return max((rate for rate in rates if rate is not None), default=None)

    @property
    def loss(self) -> float | None:
        """The mean of their newest losses."""
        losses = [row.telemetry.loss for row in self._rows.values() if row.telemetry.loss is not None]
        return sum(losses) / len(losses) if losses else None

    # -- of one

    def view(self, worker: str, note: str, rank: int | None, now: float, wall_offset_s: float) -> WorkerView:
        """Return what a screen shows of a worker.

        Parameters
        ----------
        note : str
            What is said of its process.
        rank : int or None
            Its place in an all-reduce job's group.
        wall_offset_s : float
            What the time of day is ahead of the clock.
        """
        row = self._rows.get(worker)
        if row is None:
            return WorkerView(id=worker, state="starting", note=note)
        told = row.telemetry
        ms = 1000 / max(told.minibatches, 1)
        return WorkerView(
            id=worker,
            state=told.state,
            task=told.task,
            records_per_s=row.rate.per_s(now),
            read_ms=told.read_s * ms,
            pull_ms=told.pull_s * ms,
            compute_ms=told.compute_s * ms,
            push_ms=told.push_s * ms,
            wait_ms=told.wait_s * ms,
            memory_bytes=told.memory_bytes,
            note=note or told.waits_for,
            joined_at=row.joined_s + wall_offset_s,
            restarts=row.restarts,
            rank=rank,
            sum_ms=told.sum_s * ms,
            step_bytes_in=told.bytes_in / max(told.minibatches, 1),
            step_bytes_out=told.bytes_out / max(told.minibatches, 1),
        )


def _wait_news(status: WorkerStatus, before: str) -> str:
    """Return what is to be told of a worker that waited for something before, or for nothing."""
    waits_for = status.telemetry.waits_for
    if waits_for == before:
        return ""
    name = f"worker-{status.worker}"
    return f"{name}: {waits_for}." if waits_for else f"{name} goes on: it waits no longer."
