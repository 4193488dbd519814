"""The core that completes a job when every task is done (PROTOCOL: section 7).

Theory of operation.  All partitions have sealed what they hold, so it is durable: the model is evaluated for
the last time, or has predicted all that it should, a last checkpoint is taken if the job takes any, and then the
digest of the parameters is read.
It counts only if every partition still lives in the life that it was read in.  If the model is to be exported, a worker
does that next.  With the journal entry that holds the digest the job is complete; nobody hears of that before.  A loss on
the way puts all this off: the digest is read again, and an export of the model that it names is not repeated.
"""

from edlz.services.master.core.checkpoints import Checkpoints
from edlz.services.master.core.exports import Exports
from edlz.services.master.core.predictions import Predictions
from edlz.services.master.core.processes.partitions import Partitions
from edlz.services.master.core.tasks.evaluation_rounds import EvaluationRounds
from edlz.services.master.core.vocabulary.instructions import (
    Announce,
    Instruction,
    Journal,
    PublishPredictions,
    TakeDigest,
)
from edlz.services.master.core.vocabulary.verdict import Verdict
from edlz.services.protocol.messages import Identity

__all__ = ["Completion"]


class Completion:
    """The end of one job.

    Parameters
    ----------
    partitions, evaluation, checkpoints, exports : Partitions, EvaluationRounds, Checkpoints, Exports
        All but the first are asked for the last of theirs.
    predictions : Predictions
    verdict : Verdict
        Told when the job is complete.
    saves : bool
        Whether a last checkpoint is taken.

    Attributes
    ----------
    is_under_way : bool
        Whether all is sealed, and the rest to be done.
    """

    def __init__(
        self,
        partitions: Partitions,
        evaluation: EvaluationRounds,
        checkpoints: Checkpoints,
        exports: Exports,
        predictions: Predictions,
        verdict: Verdict,
        *,
        saves: bool,
    ) -> None:
        self._partitions, self._evaluation, self._checkpoints = partitions, evaluation, checkpoints
        self._predictions, self._exports, self._saves = predictions, exports, saves
        self._read = ""  # the digest, as it was read of the present lives
        self.is_under_way = False
        self._verdict = verdict
        self._asked_digest: tuple[Identity, ...] | None = None  # the lives of which it is being read

    def advance(self) -> list[Journal | PublishPredictions | TakeDigest]:
        """All partitions are sealed: do what comes next."""
        version = self._partitions.version
        if not self.is_under_way:
            self.is_under_way = True
            if self._saves:
                self._checkpoints.ask(version)
        if self._evaluation.has_data and self._evaluation.concluded_version < version:
            self._evaluation.open_final(version)
        is_idle = self._evaluation.is_idle and self._checkpoints.is_idle
        if is_idle and (out := self._predictions.advance(version)):
            return [*out]
        is_idle = is_idle and self._predictions.is_over
        if not is_idle or self._asked_digest == self._partitions.incarnations:
            return []
        self._asked_digest = self._partitions.incarnations
        return [TakeDigest(self._partitions.addresses)]

    def put_off(self) -> None:
        """Some task is not done after all."""
        self.is_under_way = False
        self.on_new_life()

    def on_new_life(self) -> None:
        """A partition has begun a life: what is read of the one before counts no more."""
        self._asked_digest, self._read = None, ""
        self._exports.put_off()

    def on_digest(self, lives: tuple[Identity, ...], digest: str | None) -> list[Instruction]:
        """The digest of the sealed parameters; None when a partition went away while it was taken.

        Parameters
        ----------
        lives : tuple of Identity
            Of the partitions that it was asked of.
        """
        if self._asked_digest != lives:  # another one is being read, or none
            return []
        if digest is None or lives != self._partitions.incarnations or not self.is_under_way:
            self._asked_digest = None
            return []
        self._read = digest
        begun = (
            self._exports.begin(digest, lives, self._partitions.version) if self._exports.are_wanted else []
        )
        return [*begun, *self.conclude()]

    def conclude(self) -> list[Instruction]:
        """Complete the job, if nothing is left to do but that."""
        lives = self._asked_digest
        is_read = bool(self._read) and self.is_under_way and lives == self._partitions.incarnations
        if (
            self._verdict.is_complete
            or not is_read
            or (self._exports.are_wanted and not self._exports.is_done)
        ):
            return []
        self._verdict.complete(self._read)
        return [
            Journal({"is_complete": True, "digest": self._read, "sealed": lives}),
            Announce("job", f"job complete at v{self._partitions.version}."),
        ]
