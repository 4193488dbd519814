"""The core that has a finished model exported, once.

Theory of operation.  When the parameters are sealed and their digest is known, one worker gets a lease to export them;
the digest says which model it is.  A worker's leases are what it says it holds, so a worker that is lost, or whose
lease never arrived, frees it, and a master that was started again learns who has it.  Two workers that export the
same model at once cost time and nothing else: one of them finds the other's export in its place.  So does a worker that
follows one which was killed between its rename and its report.

What is reported is journalled, and counts as long as the parameters and the wish are the ones that it was made of: after a
loss the digest is read again, and is another one only if training had to be repeated (asynchronous mode).

An export that raises fails the job: training is kept, and a job that is resumed begins here.  What lies with files (a
full disk, those of a partition that is being started again) is tried three times before, and not counted if a partition
has begun another life meanwhile.
"""

import math

from edlz.services.configuration.export_flags import chosen_formats
from edlz.services.configuration.job_settings import JobSettings
from edlz.services.errors import DataError
from edlz.services.master.core.tasks.task_failures import (
    MAX_ATTEMPTS,
    failure_of_export,
    failure_of_exporters,
)
from edlz.services.master.core.vocabulary.instructions import Announce, Instruction, Journal
from edlz.services.master.core.vocabulary.records import JournalState
from edlz.services.protocol.job_status import ExportView, FailureView
from edlz.services.protocol.messages import (
    ExportLease,
    ExportReport,
    ExportWish,
    FailedExport,
    Identity,
    Job,
    WorkerStatus,
)

__all__ = ["Exports"]

AGAIN_S = 10.0  # between two attempts
_OF_FILES = DataError.code


class Exports:
    """The export of one job's model.

    Parameters
    ----------
    job : Job
    settings : JobSettings
        They may wish for an export.
    journal : JournalState
        The model's callbacks() may have wished for one, and it may be there already.

    Attributes
    ----------
    report : ExportReport, or None
        What was exported last; of the finished model if `is_done`.
    reported : int
        Exports since this master began.
    result : int
        The version whose checkpoint is to be exported, in place of what is sealed; -1: none.
    task_count : int
        Behind so many tasks the job has ended; 0: the plan's.
    """

    def __init__(self, job: Job, settings: JobSettings, journal: JournalState) -> None:
        self._job = job
        wished = _wish_of(settings)
        self._is_chosen = wished is not None or not job.plan.is_training  # then callbacks() have no say
        self._wish = (wished or journal.export_wish) if job.plan.is_training else None
        self.report = journal.exported
        self.reported = 0
        self.result, self.task_count = -1, 0
        self._digest = ""  # of the model that is to be exported now
        self._lives: tuple[Identity, ...] = ()  # of the partitions, when it was read
        self._holders: dict[Identity, str] = {}  # workers -> the digest of what they export
        self._lives_before: dict[Identity, tuple[Identity, ...]] = {}  # and `_lives` when they began
        self._deaths: list[str] = []  # workers that ended while they exported
        self._failures = 0
        self._again_s = -math.inf  # before that nobody tries

    @property
    def are_wanted(self) -> bool:
        """Whether the finished model is to be exported."""
        return self._wish is not None

    @property
    def is_open(self) -> bool:
        """Whether somebody should export now."""
        return bool(self._digest) and not self.is_done

    @property
    def is_done(self) -> bool:
        """Whether the model of the digest is exported."""
        report = self.report
        return report is not None and report.digest == self._digest and report.wish == self._wish

    @property
    def view(self) -> ExportView | None:
        """What a screen shows of the exported model."""
        if self.report is None:
            return None
        found = self.report
        return ExportView(
            place=found.place,
            size_bytes=found.size_bytes,
            formats=found.wish.formats,
            tables=found.tables,
            signatures=found.signatures,
        )

    # -- the model

    def on_wish(self, wish: ExportWish | None) -> list[Instruction]:
        """The model's callbacks() wish for an export; a flag of the job wins over that."""
        if wish is None or self._is_chosen or wish == self._wish:
            return []
        self._wish = wish
        return [Journal({"export_wish": wish})]

    def begin(self, digest: str, lives: tuple[Identity, ...], version: int) -> list[Instruction]:
        """These are the finished parameters, read of these lives."""
        is_new = digest != self._digest
        self._digest, self._lives = digest, lives
        if self.is_done or not is_new or self._wish is None:
            return []
        version = self.result if self.result >= 0 else version
        return [Announce("export", f"export of v{version} to {self._wish.output} begins.")]

    def put_off(self) -> None:
        """The parameters may change again; what is in work goes on, and may yet be what is wanted."""
        self._digest = ""

    # -- leases

    def note(self, incarnation: Identity, exporting: str) -> None:
        """A worker's lease is what it says it holds."""
        if not exporting:
            self.release(incarnation)
        elif self._holders.get(incarnation) != exporting:
            self._holders[incarnation] = exporting
            self._lives_before[incarnation] = self._lives

    def release(self, incarnation: Identity) -> None:
        """A worker is gone, or exports nothing."""
        self._holders.pop(incarnation, None)
        self._lives_before.pop(incarnation, None)

    def lease(self, status: WorkerStatus, checkpoint: int | None, now: float) -> ExportLease | None:
        """Let a worker that is at nothing else export the model, if nobody does.

        Parameters
        ----------
        checkpoint : int, optional
            The newest complete one.
        """
        assert status.incarnation is not None
        is_idle = not (status.holding or status.evaluating or status.exporting or status.failed_export)
        if not self.is_open or not is_idle or now < self._again_s:
            return None
        if self._digest in self._holders.values():
            return None
        assert self._wish is not None
        self.note(status.incarnation, self._digest)
        newest = -1 if checkpoint is None else checkpoint
        return ExportLease(
            digest=self._digest,
            wish=self._wish,
            checkpoint=newest,
            result=self.result,
            task_count=self.task_count,
        )

    # -- reports

    def take(self, report: ExportReport) -> list[Instruction]:
        """A worker has exported the model: it is known from now on where it lies."""
        if report == self.report or report.wish != self._wish:
            return []
        self.report = report
        self.reported += 1
        return [
            Journal({"exported": report}),
            Announce("export", f"exported: {report.place} ({report.size_bytes:,} bytes)."),
        ]

    def fail(self, incarnation: Identity, failed: FailedExport, now: float) -> FailureView | None:
        """A worker could not export the model; return what that makes of the job."""
        is_counted = failed.digest == self._digest and self._lives_before.get(incarnation) == self._lives
        self._lives_before.pop(incarnation, None)  # whatever is told again of it is told already
        if not is_counted:
            return None
        self._failures += 1
        self._again_s = now + AGAIN_S
        is_final = failed.failure.code != _OF_FILES or self._failures >= MAX_ATTEMPTS
        return failure_of_export(self._job, failed.failure) if is_final else None

    def on_death(self, worker: str, exporting: str) -> FailureView | None:
        """A worker has ended while it exported, and nobody explains it; return what that makes of the job."""
        if not exporting or exporting != self._digest:
            return None
        self._deaths.append(worker)
        return failure_of_exporters(self._job, self._deaths) if len(self._deaths) >= MAX_ATTEMPTS else None


def _wish_of(settings: JobSettings) -> ExportWish | None:
    """Return what the flags of a job wish for."""
    output = settings.output
    if not output:
        return None
    formats = chosen_formats(output, settings.output_format)
    return ExportWish(output=output, formats=formats, unknown_ids=settings.unknown_ids)
