"""The core of the course of a job: from the first word of its partitions to its end.

Theory of operation.  Whenever something is known that was not, `advance` brings the job as far as that allows:
partitions that stand together let the work begin, with all of it done they are to seal, and when they have, the job is
concluded.  A loss may take it back to any earlier phase but never past its end; see `phase`.  A stop ends it
before it is done.
"""

from edlz.services.configuration.job_settings import JobSettings
from edlz.services.master.core.checkpoints import Checkpoints
from edlz.services.master.core.completion import Completion
from edlz.services.master.core.processes.eras import Eras
from edlz.services.master.core.processes.partitions import Partitions
from edlz.services.master.core.stopping import Stopping
from edlz.services.master.core.tasks.task_failures import failure_of_nothing
from edlz.services.master.core.vocabulary.inputs import DigestRead, Grown, ManifestWritten, Published
from edlz.services.master.core.vocabulary.instructions import Announce, Instruction
from edlz.services.master.core.vocabulary.phase import STEPS, Phase
from edlz.services.master.core.vocabulary.verdict import Verdict
from edlz.services.master.core.work import Work
from edlz.services.protocol.messages import Job

__all__ = ["Course"]


class Course:
    """The course of one job.

    Parameters
    ----------
    job : Job
    settings : JobSettings
    checkpoint_steps : int
        Model versions between checkpoints; 0 for none.
    cores : Partitions, Eras, Checkpoints, Work, Verdict
        Asked for what is known, and told what comes next.

    Attributes
    ----------
    phase : Phase
        How far the job is, as it was settled last.
    """

    def __init__(
        self,
        job: Job,
        settings: JobSettings,
        checkpoint_steps: int,
        cores: tuple[Partitions, Eras, Checkpoints, Work, Verdict],
    ) -> None:
        self._job, self._plan = job, job.plan
        self._partitions, self._eras, self._checkpoints, self._work, self._verdict = cores
        self._is_group = settings.is_allreduce  # its members always stand together
        self._stopping = Stopping(
            self._checkpoints,
            self._verdict,
            can_checkpoint=settings.can_checkpoint,
            keeps_snapshots=not settings.private_job_dir,
        )
        work = self._work
        about = (self._partitions, work.evaluation, self._checkpoints, work.exports, work.predictions)
        saves = checkpoint_steps > 0 or settings.export_from_checkpoint
        self._completion = Completion(*about, self._verdict, saves=saves)
        self.phase = self._phase

    @property
    def _phase(self) -> Phase:
        """How far the job is, by all that is known now."""
        if self._verdict.is_over:
            return self._verdict.phase
        if self._stopping.has_begun:
            return Phase.STOPPING
        if self._completion.is_under_way:
            return Phase.EXPORTING if self._work.exports.is_open else Phase.CONCLUDING
        if self._work.is_open:
            return Phase.SEALING if self._work.is_all_done else Phase.RUNNING
        return Phase.RESTORING if self._partitions.are_known else Phase.GATHERING

    def settle(self) -> None:
        """An event is taken in: the job has stayed in its phase, or gone on to one that may follow it."""
        phase = self._phase
        if phase is not self.phase:
            STEPS.check(self.phase, phase)
            self.phase = phase

    # -- what is known

    def advance(self) -> list[Instruction]:
        """Bring the job as far as what is known allows."""
        if self._verdict.is_over or not self._partitions.are_based:
            return []
        out: list[Instruction] = []
        if self._plan.is_sync and not self._is_group:
            is_reached, announced = self._eras.advance(was_reached=self._work.is_open)
            out += announced
            if not is_reached:  # also if it was open: a loss has begun another era
                self._work.close()
                return out
        if not self._work.is_open:
            out += self._work.open()
        out += self._advance_work()
        if self._verdict.failure is not None:
            return out
        if not self._work.is_all_done:
            self._completion.put_off()  # it may have begun: a lost partition has given tasks back
            return out + self._open_round()
        return out + self._conclude()

    def _advance_work(self) -> list[Instruction]:
        """Decide what the partitions' newest words allow: where bad tasks end, checkpoints, barriers."""
        work, statuses = self._work, self._partitions.statuses
        ended = work.bad_tasks.advance(statuses)
        out: list[Instruction] = [*ended]
        if ended:
            self._checkpoints.rewind(max(status.version for status in statuses))
            work.barriers.on_other_history()
            if not work.barriers.are_used:  # else what was decided by the metrics stays
                work.evaluation.on_other_history()
        if work.bad_tasks.hopeless is not None:
            return out + work.fail_for(work.bad_tasks.hopeless)
        about = (
            self._partitions.version,
            work.bad_tasks.journalled,
            (*self._eras.needed, *work.barriers.kept),
        )
        out += self._checkpoints.advance(self._partitions.entries, *about)
        out += work.growth.advance(statuses, is_sync=self._plan.is_sync)
        out += work.barriers.advance(statuses, self._partitions.version)
        if work.barriers.failure is not None:
            out += self._verdict.fail(work.barriers.failure)
        return out

    def _open_round(self) -> list[Instruction]:
        """Have a version evaluated that is due."""
        work = self._work
        opened = (
            None
            if self._is_group or work.barriers.are_used
            else work.evaluation.on_version(self._partitions.version)
        )
        if opened is None:
            return []
        return [Announce("evaluation", f"Evaluation of v{opened} begins.", 10)]

    def _conclude(self) -> list[Instruction]:
        """Every task is done: end the job, if all partitions have sealed what they hold."""
        statuses, work = self._partitions.statuses, self._work
        if not all(status.is_sealed for status in statuses):
            return []
        if self._plan.is_training and not any(status.minibatches for status in statuses):
            return [*self._verdict.fail(failure_of_nothing(self._job, work.bad_tasks.training_tasks))]
        work.exports.result, work.exports.task_count = work.barriers.result, work.barriers.task_count
        return [*self._completion.advance()]

    def on_grown(self, grown: Grown) -> list[Instruction]:
        """There is more data."""
        if self._verdict.is_over or self._stopping.has_begun:
            return []
        return [*self._work.growth.take(grown.piece, is_open=self._work.is_open), *self.advance()]

    def on_manifest(self, written: ManifestWritten) -> list[Instruction]:
        """A checkpoint is complete, or cannot be."""
        version, error = written.version, written.error
        self._checkpoints.on_manifest(version, is_written=not error)
        if error:
            return [Announce("checkpoint", f"checkpoint v{version} could not be completed: {error}", 30)]
        return [Announce("checkpoint", f"checkpoint v{version} is complete."), *self.advance()]

    def on_published(self, published: Published) -> list[Instruction]:
        """The predictions are whole, or not."""
        if self._verdict.is_over:
            return []
        predictions = self._work.predictions
        if published.failure is not None:
            predictions.on_failed()
            return [*self._verdict.fail(published.failure)]
        return [*predictions.on_published(published.missing), *self.advance()]

    def on_digest(self, read: DigestRead) -> list[Instruction]:
        """The parameters were read, or could not be."""
        return [] if self._verdict.is_over else [*self._completion.on_digest(read.lives, read.digest)]

    def on_export(self) -> list[Instruction]:
        """The model is exported: that may have been the last thing to do."""
        return [] if self._verdict.is_over else [*self._completion.conclude()]

    def on_no_snapshots(self) -> None:
        """Nothing that members write to go on from will be found."""
        self._stopping.keeps_snapshots = False

    def on_new_life(self) -> None:
        """A partition has begun a life: what was read of the one before counts no more."""
        self._completion.on_new_life()

    # -- time

    def on_tick(self, now: float) -> list[Instruction]:
        """See what time alone changes."""
        self._work.on_tick()
        out: list[Instruction] = [*self._checkpoints.on_tick(self._partitions.entries, now)]
        out += [] if self._verdict.is_over else self._work.barriers.on_tick(now)
        out += self.advance()
        out += [] if self._verdict.is_over else self._eras.on_tick(now)
        if self._eras.failure is not None:
            out += self._verdict.fail(self._eras.failure)
        if not self._verdict.is_over:
            out += self._stopping.on_tick(self._partitions.version, self._partitions.heard, now)
            out += self._work.predictions.on_tick(now)
        return out

    def stop(self, now: float) -> list[Instruction]:
        """End the job before it is done, with a checkpoint to go on from if one can be had soon."""
        if self._verdict.is_over or self._stopping.has_begun:
            return []
        is_training = self._work.is_open and not self._work.is_all_done
        version = self._partitions.version if is_training else None
        return [*self._work.predictions.save(), *self._stopping.begin(version, self._partitions.heard, now)]
