"""The core that ends a job before it is done, when somebody asks for it.

Theory of operation.  A stop first has a checkpoint taken, to go on from, and waits for it for a while; when it
is there, or cannot be had soon, the job is stopped.  Training goes on until then, or there would be no cut.
"""

from edlz.services.master.checkpoints import Checkpoints
from edlz.services.master.instructions import Announce, Journal

__all__ = ["Stopping"]

STOP_S = 15.0  # how long a stop waits for its checkpoint


class Stopping:
    """The stop of one job.

    Parameters
    ----------
    checkpoints : Checkpoints
        Asked for one.

    Attributes
    ----------
    is_over : bool
        Whether the job is stopped.
    """

    def __init__(self, checkpoints: Checkpoints) -> None:
        self._checkpoints = checkpoints
        self._until_s: float | None = None  # somebody has asked for it, and waits until then
        self._version = 0  # what the checkpoint has to have at least
        self.is_over = False

    @property
    def has_begun(self) -> bool:
        return self._until_s is not None

    def begin(self, version: int, now: float) -> list[Announce]:
        """Stop soon, with a checkpoint of this version or a later one; 0: there is nothing to save."""
        self._until_s, self._version = now + STOP_S, version
        if not version:
            return []
        self._checkpoints.ask(version)
        return [Announce("job", "stopping: a checkpoint is saved first.")]

    def on_tick(self, now: float) -> list[Journal | Announce]:
        """Stop, if the time has come."""
        if self._until_s is None or self.is_over:
            return []
        is_saved = self._checkpoints.is_idle
        if not is_saved and now < self._until_s:
            return []
        self._checkpoints.withdraw()
        self.is_over = True
        newest = self._checkpoints.newest
        if is_saved and newest is not None and newest >= self._version:
            text = f"stopped; the checkpoint of v{newest} is complete."
            return [Journal({"saved": newest}), Announce("job", text)]
        return [Announce("job", "stopped; the recovery snapshots remain.")]
