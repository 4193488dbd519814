"""The core that ends a job before it is done, when somebody asks for it.

Theory of operation.  A stop first has a checkpoint taken, to go on from, and waits for it for a while; when it
is there, or cannot be had soon, the job is stopped.  Training goes on until then, or there would be no cut.
Where no step is known of, it first hears from all partitions: they tell of their steps in their own time.
"""

from edlz.services.master.core.checkpoints import Checkpoints
from edlz.services.master.core.vocabulary.instructions import Announce, Journal
from edlz.services.master.core.vocabulary.verdict import Verdict

__all__ = ["Stopping"]

STOP_S = 15.0  # how long a stop waits for its checkpoint
WORDS = 2  # of each partition, until there is nothing to save: one may have been on its way already


class Stopping:
    """The stop of one job.

    Parameters
    ----------
    checkpoints : Checkpoints
        Asked for one.
    verdict : Verdict
        Told when the job is stopped.
    can_checkpoint : bool
        Whether whoever writes parts of a checkpoint and the master see the same folder of them.

    Attributes
    ----------
    keeps_snapshots : bool
        Whether recovery snapshots are there when the job's processes have gone.
    """

    def __init__(
        self,
        checkpoints: Checkpoints,
        verdict: Verdict,
        *,
        can_checkpoint: bool = True,
        keeps_snapshots: bool = True,
    ) -> None:
        self._checkpoints, self._verdict = checkpoints, verdict
        self._can_checkpoint, self.keeps_snapshots = can_checkpoint, keeps_snapshots
        self._until_s: float | None = None  # somebody has asked for it, and waits until then
        self._version = 0  # what the checkpoint has to have at least; 0 while none is asked for
        self._heard: tuple[int, ...] = ()  # the partitions' words when it began
        self._has_not_begun = False  # it trains, and no step is known of

    @property
    def has_begun(self) -> bool:
        return self._until_s is not None

    def begin(self, version: int | None, heard: tuple[int, ...], now: float) -> list[Announce]:
        """Stop soon, with a checkpoint of this version or a later one.

        Parameters
        ----------
        version : int or None
            The job's, as far as is known; None if it does not train.
        heard : tuple of int
            The number of the last word of each partition.
        """
        self._until_s, self._heard = now if version is None else now + STOP_S, heard
        self._has_not_begun = version == 0
        return self._save(version) if version and self._can_checkpoint else []

    def _save(self, version: int) -> list[Announce]:
        self._version, self._has_not_begun = version, False
        self._checkpoints.ask(version, is_training=True)
        return [Announce("job", "stopping: a checkpoint is saved first.")]

    def on_tick(self, version: int, heard: tuple[int, ...], now: float) -> list[Journal | Announce]:
        """Stop, if the time has come; `version` and `heard` as for `begin`."""
        if self._until_s is None or self._verdict.is_over:
            return []
        is_late = now >= self._until_s
        if version and self._can_checkpoint and not self._version and not is_late:
            return [*self._save(version)]
        is_answered = self._checkpoints.is_answered if self._version else self._have_told(heard)
        if not is_answered and not is_late:
            return []
        self._checkpoints.withdraw()
        newest = self._checkpoints.newest
        is_saved = bool(self._version) and newest is not None and newest >= self._version
        self._verdict.stop(newest if is_saved and newest is not None else 0)
        if is_saved:
            text = f"stopped; the checkpoint of v{newest} is complete."
            return [Journal({"saved": newest}), Announce("job", text)]
        if self._has_not_begun:
            return [Announce("job", "stopped; nothing was trained yet.")]
        if not self.keeps_snapshots:
            return [Announce("job", "stopped; nothing remains: its processes share no folder.")]
        return [Announce("job", "stopped; the recovery snapshots remain.")]

    def _have_told(self, heard: tuple[int, ...]) -> bool:
        return all(now - before >= WORDS for now, before in zip(heard, self._heard, strict=False))
