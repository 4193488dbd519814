"""What a screen shows of the job, from what the core knows: rates, the time left, rows and events.

For display only: nothing here decides anything.  Progress counts applied records (the ledgers), never
leased ones.
"""

import math
from pathlib import Path
from typing import TypedDict

import msgspec

from edlz.services.master.core.master import MasterCore
from edlz.services.master.core.vocabulary.phase import Phase
from edlz.services.master.core.vocabulary.records import JournalState
from edlz.services.master.progress.curves import Curves, Figures
from edlz.services.master.progress.events import Events
from edlz.services.master.progress.extent import Extent
from edlz.services.master.progress.measures import Measured, Measures, measured
from edlz.services.master.progress.partition_views import noted, partition_views
from edlz.services.master.progress.rates import Rate
from edlz.services.master.progress.saved_states import SavedStates
from edlz.services.master.progress.shown_evaluations import ShownEvaluations
from edlz.services.master.progress.table_figures import TableFigures
from edlz.services.master.progress.worker_figures import WorkerFigures
from edlz.services.predictions.kinds import STATISTICS
from edlz.services.protocol.concluded_rounds import LossSum
from edlz.services.protocol.job_status import (
    JobStatus,
    MasterState,
    WorkerView,
)
from edlz.services.protocol.messages import Identity, PartitionStatus, WorkerStatus

__all__ = ["Progress"]

RATE_WINDOW_S = 30.0
REQUEST_RATE_WINDOW_S = 10.0
FIRST_ETA_S = 20.0
SHORTEST_SPAN_S = 5.0  # of a rate that the time left is told from
STALL_S = 10.0
CURVES_S = 1.0  # between two looks of the curves at the job

_STATES: dict[Phase, MasterState] = {
    Phase.GATHERING: "Starting",
    Phase.RESTORING: "Starting",
    Phase.RUNNING: "Training",
    Phase.SEALING: "Training",
    Phase.CONCLUDING: "Evaluating",
    Phase.EXPORTING: "Exporting",
    Phase.COMPLETE: "Succeeded",
    Phase.FAILED: "Failed",
    Phase.STOPPING: "Stopping",
    Phase.STOPPED: "Stopped",
}


class _Kind(TypedDict):
    """Fields of a `JobStatus`: what the job does, and where that goes."""

    predictions: str
    is_prediction: bool
    is_analysis: bool
    is_allreduce: bool


class _OddTasks(TypedDict):
    """Fields of a `JobStatus`: what was left out, or came again, and which losses are no numbers."""

    skipped_tasks: int
    skipped_minibatches: int
    skipped_evaluation_tasks: int
    nonfinite_losses: int
    first_nonfinite: tuple[int, int] | None
    duplicates_ignored: int
    failed_attempts: int


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
    journal : JournalState
        What earlier masters left: when the job began, what has happened since, how many workers were lost; and how
        a job that is complete looked to the master that completed it, since this one knows no more.
    """

    def __init__(self, core: MasterCore, wall_s: float, now: float, journal: JournalState) -> None:
        self._core, self._final = core, journal.final
        self._extent = Extent(core)
        self._idle_since_s: float | None = None  # nothing is left to train on until more data comes
        self._wall_offset_s = wall_s - now
        self._began_at = journal.began or wall_s
        self._training_since_s: float | None = None
        self._rate, self._records_per_s = Rate(RATE_WINDOW_S), 0.0
        self._life: object = None  # what `records` can be compared within
        self._records = 0
        self._moved_s = now
        self._live_count = 0
        self._live_changed_s = -math.inf
        self._workers = WorkerFigures()
        self._tables = TableFigures()
        self._saved = SavedStates(now)
        self._evaluations = ShownEvaluations(core.work.results)
        self.events = Events(core.term, journal.final.events if journal.final else journal.events)
        self.measures = Measures(are_members=core.settings.is_allreduce)
        self._request_rates: dict[str, Rate] = {}
        self.page = ""  # the address of the status page
        self.curves = Curves(journal.curves, journal.curve_end)
        self._noted_s = -math.inf  # when the curves were told of the job last

    # -- what happens

    def on_pause(self, seconds: float) -> None:
        """The clock stood still for so long, and the others did not."""
        self._wall_offset_s += seconds
        self._rate.restart()
        self._workers.restart_rates()

    def add_event(self, kind: str, text: str, now: float) -> None:
        """Something has happened."""
        self.events.add(kind, text, now + self._wall_offset_s)

    def on_worker(self, status: WorkerStatus, now: float) -> str:
        """Take the figures of a worker's status; those of a status that has been heard are no news.

        Returns
        -------
        str
            What is to be told of what keeps it from its work; nothing if that is as before.
        """
        if not self._workers.is_news(status):
            return ""
        self.measures.on_worker(status.telemetry)
        return self._workers.take(status, now)

    def sample(self, now: float) -> None:
        """Take the rate of applied records; called several times a second."""
        live = self._core.processes.live.workers
        self._workers.keep(live)
        self._tables.sample(self._statuses, now)
        self._saved.sample(self._core, self.records, now)
        if self._is_at_work and self._training_since_s is None:
            self._training_since_s = now
        if len(live) != self._live_count:
            self._live_count, self._live_changed_s = len(live), now
        if not self._core.work.waits_for_data:
            self._idle_since_s = None
        elif self._idle_since_s is None:
            self._idle_since_s = now
        self._sample_rate(now)
        if now - self._noted_s >= CURVES_S and self._has_begun and not self._core.verdict.is_complete:
            self._noted_s = now
            self.measures.sample(self._statuses, self.records, self.minibatches)
            for status in self._statuses:
                rate = self._request_rates.setdefault(str(status.partition), Rate(REQUEST_RATE_WINDOW_S))
                rate.note(status.telemetry.requests, now)
            self.curves.note(self._figures(now), now + self._wall_offset_s)

    def finish(self, now: float) -> None:
        """The master ends: also what has happened since a second ago is in the curves."""
        if self._has_begun:
            self.curves.finish(self._figures(now), now + self._wall_offset_s)

    def _sample_rate(self, now: float) -> None:
        """Take the rate while the job trains; when that is over, the last one stays."""
        core, records = self._core, self.records
        is_under_way = core.phase is Phase.RUNNING or (
            self._state in ("Evaluating", "Predicting", "Analyzing") and not core.plan.is_training
        )
        life = (core.partitions.incarnations, core.eras.newest) if is_under_way else None
        if life != self._life and life is not None:
            self._rate.restart()
        elif records > self._records:
            self._moved_s = now
        self._life, self._records = life, records
        if life is not None:
            self._rate.note(records, now)
            self._records_per_s = self._rate.per_s(now)
        elif core.phase in (Phase.GATHERING, Phase.RESTORING):
            self._records_per_s = 0.0

    # -- figures

    @property
    def _statuses(self) -> list[PartitionStatus]:
        return self._core.partitions.statuses

    @property
    def records(self) -> int:
        """Records whose minibatches are in the ledgers of all partitions; those evaluated, if none is trained on."""
        return self._extent.records

    @property
    def minibatches(self) -> int:
        return self._extent.minibatches

    @property
    def _state(self) -> MasterState:
        state = _STATES[self._core.phase]
        if state not in ("Training", "Evaluating") or self._core.plan.is_training:
            is_held = self._core.phase is Phase.RUNNING and self._core.work.barriers.stands_at
            return "Evaluating" if is_held else state
        if self._core.plan.analyzes:
            return "Analyzing"
        return "Predicting" if self._core.plan.predicts else "Evaluating"

    @property
    def _has_begun(self) -> bool:
        """Whether what partitions say of the job, or what is evaluated of it, is what it has come to."""
        core = self._core
        is_there = core.partitions.are_known and core.phase not in (Phase.GATHERING, Phase.RESTORING)
        return is_there and self._final is None

    def _figures(self, now: float) -> Figures:
        """Return what the curves are made of."""
        statuses = self._statuses
        states = self._workers.states
        starting = states["starting"] + len(self._core.processes.live.workers) - len(self._workers)
        training = len(self._workers) - states["starting"]
        return Figures(
            records=self.records,
            version=self._core.version,
            losses=statuses[0].losses if statuses else LossSum(),
            training=training,
            starting=starting,
            missing=max(0, self._core.processes.target_workers - training - starting),
            loss=self.loss,
            wait=self._workers.wait_share,
            staleness=None if self._core.plan.is_sync else self.measures.staleness_now,
        )

    def measured(self, network: tuple[int, int]) -> Measured:
        """Return what metrics are made of; `network`: bytes that this master has taken and given."""
        at = None if self._saved.checkpoint_at is None else self._saved.checkpoint_at + self._wall_offset_s
        return measured(
            self._core, self.measures, self._workers.records, (at, self._saved.checkpoint_s), network
        )

    @property
    def learning_rate(self) -> float | None:
        """Of the newest minibatches, as workers tell it."""
        return self._workers.learning_rate

    @property
    def loss(self) -> float | None:
        return self._workers.loss

    def status(self, since: int, now: float) -> JobStatus:
        """Return what a screen shows now; events after number `since`."""
        if self._final is not None:
            return msgspec.structs.replace(self._final, events=self.events.since(since))
        core, plan = self._core, self._core.plan
        amounts = self._extent.amounts()
        return JobStatus(
            name=core.job.name,
            state=self._state,
            mode=plan.mode,
            slots=plan.slots,
            started_at=self._began_at,
            now=now + self._wall_offset_s,
            version=core.verdict.stopped_at or core.version,  # what is trained after the cut is trained again
            records_per_s=self._records_per_s,
            eta_s=self._eta_s(amounts["records_total"] - amounts["records"], now),
            is_eta_rough=now - self._live_changed_s < RATE_WINDOW_S,
            stalled_s=self._stalled_s(now),
            loss=self.loss,
            evaluations=self._evaluations.views,
            workers=self._worker_views(now),
            partitions=partition_views(core, self.measures, self._request_rates, now),
            events=self.events.since(since),
            digest=core.verdict.digest,
            failure=core.verdict.failure,
            tables=self._tables.views(self._statuses, now),
            lost_workers=core.processes.lost_workers,
            target_workers=core.processes.target_workers,
            exported=core.work.exports.view,
            threads=core.settings.worker_threads,
            generation=self._generation,
            page=self.page,
            waits_for_data_s=self._waits_for_data_s(now),
            **amounts,
            **self._saved.view(now),
            **self._odd_tasks(),
            **self._kind(),
        )

    @property
    def _generation(self) -> Identity | None:
        """Of the group that trains, in an all-reduce job: the life of what stands for its partition."""
        is_group = self._core.settings.is_allreduce and self._statuses
        return self._statuses[0].incarnation if is_group else None

    def _waits_for_data_s(self, now: float) -> float | None:
        return None if self._idle_since_s is None else now - self._idle_since_s

    def _odd_tasks(self) -> _OddTasks:
        """Return what was left out, or came again, and which losses are no numbers."""
        bad_tasks, losses = self._core.work.bad_tasks, self._core.work.losses
        return _OddTasks(
            skipped_tasks=bad_tasks.training_tasks,
            skipped_minibatches=bad_tasks.minibatches,
            skipped_evaluation_tasks=bad_tasks.evaluation_tasks,
            nonfinite_losses=losses.count,
            first_nonfinite=losses.first,
            duplicates_ignored=sum(self.measures.summed("duplicates").values()),
            failed_attempts=self._core.work.queue.failures.total(),
        )

    def _kind(self) -> _Kind:
        """Return what the job does, and where that goes."""
        plan = self._core.plan
        return _Kind(
            predictions=self._output,
            is_prediction=plan.predicts,
            is_analysis=plan.analyzes,
            is_allreduce=self._core.settings.is_allreduce,
        )

    @property
    def _output(self) -> str:
        """Where the predictions of the job are, or its statistics."""
        settings, plan = self._core.settings, self._core.plan
        if plan.analyzes:
            return str(Path(settings.statistics_output) / STATISTICS.whole)
        return settings.prediction_output if plan.predicts else ""

    @property
    def _is_at_work(self) -> bool:
        """Whether records should be done now: to train on, or to predict or analyze once the first ones are."""
        if not self._core.plan.gives_parts:
            return self._core.phase is Phase.RUNNING
        return self._core.phase is Phase.CONCLUDING and 0 < self.records < self._core.plan.evaluation_records

    def _eta_s(self, left: int, now: float) -> float | None:
        if not self._is_at_work or self._training_since_s is None:
            return None
        is_early = len(self._core.work.queue.done) < 2 and not self._core.plan.gives_parts
        if now - self._training_since_s < FIRST_ETA_S or is_early:
            return None
        if self._extent.is_endless or self._rate.span_s < SHORTEST_SPAN_S or self._stalled_s(now) is not None:
            return None
        return left / self._records_per_s if self._records_per_s else None

    def _stalled_s(self, now: float) -> float | None:
        if not self._is_at_work or self._training_since_s is None:
            return None
        if self._core.work.barriers.stands_at or self._core.work.waits_for_data:  # training waits
            self._moved_s = now
        passed = now - max(self._moved_s, self._training_since_s)
        return passed if passed > STALL_S else None

    def _worker_views(self, now: float) -> tuple[WorkerView, ...]:
        known = {*self._core.processes.live.workers, *noted(self._core, "worker")}
        ranks = {worker: rank for rank, worker in enumerate(self._core.members)}
        notes, offset_s = self._core.processes.notes, self._wall_offset_s
        return tuple(
            self._workers.view(worker, notes.get(f"worker-{worker}", ""), ranks.get(worker), now, offset_s)
            for worker in sorted(known)
        )
