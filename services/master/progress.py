"""What a screen shows of the job, from what the core knows: rates, the time left, rows and events.

For display only: nothing here decides anything.  Progress counts applied records (the ledgers), never
leased ones.
"""

import math
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import msgspec

from edlz.services.job_status import EvaluationView, EventView, JobStatus, PartitionView, WorkerView
from edlz.services.launcher import split_name
from edlz.services.master.job import MasterCore, Phase
from edlz.services.master.table_figures import TableFigures
from edlz.services.messages import PartitionStatus, WorkerStatus, WorkerTelemetry

__all__ = ["Progress"]

RATE_WINDOW_S = 30.0
WORKER_RATE_WINDOW_S = 5.0
FIRST_ETA_S = 20.0
STALL_S = 10.0
MAX_EVENTS = 200

_State = Literal["Starting", "Training", "Evaluating", "Stopping", "Succeeded", "Failed", "Stopped"]
_STATES: dict[Phase, _State] = {
    Phase.GATHERING: "Starting",
    Phase.RESTORING: "Starting",
    Phase.RUNNING: "Training",
    Phase.SEALING: "Training",
    Phase.CONCLUDING: "Evaluating",
    Phase.COMPLETE: "Succeeded",
    Phase.FAILED: "Failed",
    Phase.STOPPING: "Stopping",
    Phase.STOPPED: "Stopped",
}


@dataclass
class _WorkerRow:
    telemetry: WorkerTelemetry
    seen_s: float
    records_per_s: float = 0.0


class Progress:
    """Figures over time.

    Parameters
    ----------
    core : MasterCore
        Read, never changed.
    wall_s : float
        Seconds since the epoch, now.
    now : float
        The loop's clock, now.
    final : JobStatus, optional
        How a job that is complete looked to the master that completed it: this one knows no more.
    """

    def __init__(self, core: MasterCore, wall_s: float, now: float, final: JobStatus | None = None) -> None:
        self._core, self._final = core, final
        self._wall_offset_s = wall_s - now
        self._started_s = now
        self._training_since_s: float | None = None
        self._rate = 0.0
        self._sampled: tuple[float, int] | None = None
        self._moved_s = now
        self._crew = 0
        self._crew_changed_s = -math.inf
        self._workers: dict[str, _WorkerRow] = {}
        self._tables = TableFigures()
        self._checkpoint_seen: tuple[int | None, float] = (None, now)
        self.lost_workers = self.target_workers = 0
        self.notes: Mapping[str, str] = {}  # why services do not run (yet), by name: worker-3
        self._snapshot_seen: tuple[int | None, float, float] = (None, now, 0.0)
        self._events: deque[EventView] = deque(maxlen=MAX_EVENTS)
        self._event_count = core.term << 20  # a viewer has seen those of earlier masters

    # -- what happens

    def on_pause(self, seconds: float) -> None:
        """The clock stood still for so long."""
        self._wall_offset_s += seconds
        self._started_s -= seconds

    def add_event(self, kind: str, text: str, now: float) -> None:
        self._event_count += 1
        at = now + self._wall_offset_s
        self._events.append(EventView(seq=self._event_count, at=at, kind=kind, text=text))

    def on_worker(self, status: WorkerStatus, now: float) -> None:
        """Take the figures of a worker's status."""
        row, told = self._workers.get(status.worker), status.telemetry
        if row is None:
            self._workers[status.worker] = _WorkerRow(told, now)
            return
        passed = max(now - row.seen_s, 1e-3)
        weight = 1 - math.exp(-passed / WORKER_RATE_WINDOW_S)
        row.records_per_s += weight * (told.records / passed - row.records_per_s)
        if not told.minibatches:  # the last known times of a step say more than zeros
            kept = row.telemetry
            told = msgspec.structs.replace(
                kept, state=told.state, task=told.task, loss=told.loss, memory_bytes=told.memory_bytes
            )
        row.telemetry, row.seen_s = told, now

    def sample(self, now: float) -> None:
        """Take the rate of applied records; called about once a second."""
        records = self.records
        live = self._core.crew.workers
        self._workers = {worker: row for worker, row in self._workers.items() if worker in live}
        self._tables.sample(self._statuses, now)
        if self._core.checkpoints.newest != self._checkpoint_seen[0]:
            self._checkpoint_seen = (self._core.checkpoints.newest, now)
        if self._snapshot != self._snapshot_seen[0]:
            total = self._core.plan.records_per_epoch * self._core.plan.epochs
            self._snapshot_seen = (self._snapshot, now, records / total if total else 1.0)
        if self._core.phase is Phase.RUNNING and self._training_since_s is None:
            self._training_since_s = now
        if len(self._core.crew.workers) != self._crew:
            self._crew, self._crew_changed_s = len(self._core.crew.workers), now
        if self._sampled is None:
            self._sampled = (now, records)
            return
        at, before = self._sampled
        passed = now - at
        if passed < 0.5:
            return
        if records > before:
            self._moved_s = now
        weight = 1 - math.exp(-passed / RATE_WINDOW_S) if self._rate else 1.0
        self._rate += weight * (max(0, records - before) / passed - self._rate)
        self._sampled = (now, records)

    # -- figures

    @property
    def _statuses(self) -> list[PartitionStatus]:
        return self._core.partitions.statuses

    @property
    def _snapshot(self) -> int | None:
        """The newest version that all partitions could go on from (sync: the very same one)."""
        core = self._core
        names = [set(status.snapshots) for status in self._statuses]
        if len(names) < core.job.partitions:
            return None
        if core.plan.is_sync:
            names = [set.intersection(*names)]
        return min((max((version for _, version in each), default=0) for each in names), default=None)

    @property
    def records(self) -> int:
        """Records whose minibatches are in the ledgers of all partitions; those evaluated, if none is trained on."""
        core, plan = self._core, self._core.plan
        if not plan.is_training:
            return plan.evaluation_records if core.results else core.evaluation.final_records
        if not core.partitions.are_known or not plan.task_count:
            return 0
        per_task = plan.records_per_epoch / plan.tasks_per_epoch
        applied = min(
            s.finished_tasks * per_task + s.open_minibatches * plan.minibatch_size for s in self._statuses
        )
        return min(round(applied), plan.records_per_epoch * plan.epochs)

    @property
    def _state(self) -> _State:
        state = _STATES[self._core.phase]
        return "Evaluating" if state == "Training" and not self._core.plan.is_training else state

    @property
    def minibatches(self) -> int:
        if not self._core.partitions.are_known:
            return 0
        return min(status.minibatches for status in self._statuses)

    @property
    def loss(self) -> float | None:
        losses = [row.telemetry.loss for row in self._workers.values() if row.telemetry.loss is not None]
        return sum(losses) / len(losses) if losses else None

    def status(self, since: int, now: float) -> JobStatus:
        """Return what a screen shows now; events after number `since`."""
        if self._final is not None:
            new = (*self._final.events, *self._events)
            return msgspec.structs.replace(
                self._final, events=tuple(event for event in new if event.seq > since)
            )
        core, plan = self._core, self._core.plan
        total = plan.records_per_epoch * plan.epochs - core.skips.records
        total = total if plan.is_training else plan.evaluation_records
        records = total if core.is_complete else min(self.records, total)
        snapshot, snapshot_s, snapshot_ratio = self._snapshot_seen
        done = plan.task_count if core.is_complete else len(core.queue.done)
        epoch = min(plan.epochs, 1 + done // plan.tasks_per_epoch) if plan.task_count else 0
        return JobStatus(
            name=core.job.name,
            state=self._state,
            mode=plan.mode,
            slots=plan.slots,
            started_at=self._started_s + self._wall_offset_s,
            now=now + self._wall_offset_s,
            ratio=records / total if total else 1.0,
            epoch=epoch,
            epochs=plan.epochs,
            records=records,
            records_total=total,
            minibatches=self.minibatches,
            minibatches_total=plan.minibatches_per_epoch * plan.epochs - core.skips.minibatches,
            version=core.version,
            records_per_s=self._rate,
            eta_s=self._eta_s(total - records, now),
            is_eta_rough=now - self._crew_changed_s < RATE_WINDOW_S,
            stalled_s=self._stalled_s(now),
            loss=self.loss,
            tasks_done=done,
            tasks_total=plan.task_count,
            evaluations=tuple(EvaluationView(version=v, metrics=m) for v, m in core.results),
            workers=tuple(
                self._worker_view(worker) for worker in sorted({*core.crew.workers, *self._noted("worker")})
            ),
            partitions=self._partition_views(),
            events=tuple(event for event in self._events if event.seq > since),
            digest=core.digest,
            failure=core.failure,
            tables=self._tables.views(self._statuses),
            lost_workers=self.lost_workers,
            target_workers=self.target_workers,
            checkpoint=core.checkpoints.newest,
            checkpoint_age_s=None if core.checkpoints.newest is None else now - self._checkpoint_seen[1],
            skipped_tasks=len(core.skips.ends),
            skipped_minibatches=core.skips.minibatches,
            skipped_evaluation_tasks=core.skips.evaluation_tasks,
            snapshot=snapshot,
            snapshot_age_s=None if snapshot is None else now - snapshot_s,
            snapshot_ratio=snapshot_ratio,
            nonfinite_losses=core.losses.count,
            first_nonfinite=core.losses.first,
        )

    def _eta_s(self, left: int, now: float) -> float | None:
        if self._core.phase is not Phase.RUNNING or self._training_since_s is None or self._rate <= 0:
            return None
        if now - self._training_since_s < FIRST_ETA_S or len(self._core.queue.done) < 2:
            return None
        return left / self._rate

    def _stalled_s(self, now: float) -> float | None:
        if self._core.phase is not Phase.RUNNING or self._training_since_s is None:
            return None
        passed = now - max(self._moved_s, self._training_since_s)
        return passed if passed > STALL_S else None

    def _worker_view(self, worker: str) -> WorkerView:
        row, note = self._workers.get(worker), self.notes.get(f"worker-{worker}", "")
        if row is None:
            return WorkerView(id=worker, state="starting", note=note)
        told = row.telemetry
        ms = 1000 / max(told.minibatches, 1)
        return WorkerView(
            id=worker,
            state=told.state,
            task=told.task,
            records_per_s=row.records_per_s,
            read_ms=told.read_s * ms,
            pull_ms=told.pull_s * ms,
            compute_ms=told.compute_s * ms,
            push_ms=told.push_s * ms,
            wait_ms=told.wait_s * ms,
            memory_bytes=told.memory_bytes,
            note=note,
        )

    def _noted(self, role: str) -> list[str]:
        """Return the ids of the services of a role that something keeps from running."""
        return [str(split_name(name)[1]) for name in self.notes if split_name(name)[0] == role]

    def _partition_views(self) -> tuple[PartitionView, ...]:
        views = []
        for status in self._statuses:
            state = "sealed" if status.is_sealed else "serving" if status.has_base else "starting"
            if self._core.silence.is_silent(status.partition) and not self._core.is_over:
                state = "silent"
            views.append(
                PartitionView(
                    id=str(status.partition),
                    state=state,
                    version=status.version,
                    memory_bytes=status.telemetry.memory_bytes,
                    cpu_share=status.telemetry.cpu_share,
                    rows=sum(table.rows for table in status.telemetry.tables),
                    note=self.notes.get(f"ps-{status.partition}", ""),
                    **msgspec.structs.asdict(status.recount),
                )
            )
        for ident in self._noted("ps"):
            if int(ident) not in self._core.partitions.entries:
                views.append(
                    PartitionView(id=ident, state="starting", version=0, note=self.notes[f"ps-{ident}"])
                )
        return tuple(sorted(views, key=lambda view: int(view.id)))
