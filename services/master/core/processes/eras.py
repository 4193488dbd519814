"""The core that has all partitions of a synchronous job in one era (PROTOCOL: section 5).

Theory of operation.  An era is a history that all partitions share: it begins at a snapshot that all of them
have, and ends when a partition begins another life or says that it is elsewhere.  Then a new era is named
and every partition is told to go back to the newest snapshot that is common to all, or to its part of a
complete checkpoint if that is newer; the era is reached when all say that they are in it.  Who finds its target
gone lists it no more, and another era is named.  A restarted master goes on in the era that it finds, if it is
the same everywhere.

The state before training is common to all, unless a disk is lost.  If nothing is, a list may be out of date, or files
are not seen yet from another machine; when that does not change, the job fails rather than begin again by itself:
what one partition cannot read now is perhaps not lost.
"""

from collections.abc import Callable
from dataclasses import dataclass

from edlz.services.master.core.processes.partitions import Partitions
from edlz.services.master.core.vocabulary.instructions import Announce
from edlz.services.protocol.job_status import FailureView
from edlz.services.protocol.messages import Identity, PartitionStatus, SnapshotName

__all__ = ["PATIENCE_S", "Eras"]

PATIENCE_S = 120.0  # with nothing in common; file systems may show new files a minute late
TELL_S = 10.0  # after which somebody should know
LEAST_WORDS = 10  # of each partition meanwhile: the lists are of now


class Eras:
    """The eras of one job.

    Parameters
    ----------
    partitions : Partitions
    new_identity : callable () -> Identity
        Returns another one, later than all before, at each call.

    Attributes
    ----------
    newest : Identity or None
        The era that all partitions should be in, or None until one is known.
    failure : FailureView or None
        Why there will be none, if that is so.
    """

    def __init__(self, partitions: Partitions, new_identity: Callable[[], Identity]) -> None:
        self._partitions, self._new_identity = partitions, new_identity
        self.newest: Identity | None = None
        self._target: SnapshotName | None = None  # where the newest one begins, if it was named here
        self._is_lost = False  # the newest one has ended, and none has been named after it
        self.failure: FailureView | None = None
        self._is_without_target = False  # one should be named, and there is nothing that all could go back to
        self._searching: _Search | None = None  # for that

    @property
    def restore(self) -> SnapshotName | None:
        """What partitions that are not in the newest era should go back to."""
        return None if self._is_lost else self._target

    @property
    def needed(self) -> tuple[int, ...]:
        """The version that partitions may have to go back to again, as long as no snapshot has taken its place."""
        if self._target is None:
            return ()
        newest = max((name[1] for name in self._partitions.common_snapshots()), default=-1)
        return (self._target[1],) if newest < self._target[1] else ()

    @property
    def _is_target_gone(self) -> bool:
        """Whether a partition that is still to go back there does not list it any more."""
        on_the_way = [status for status in self._partitions.statuses if status.era != self.newest]
        return self._target is not None and any(
            self._target not in status.snapshots and self._target not in status.checkpoints
            for status in on_the_way
        )

    def on_new_life(self) -> None:
        """A partition has begun a life: what it lacks of the era is gone."""
        self._is_lost = self._is_lost or self.newest is not None

    def advance(self, *, was_reached: bool) -> tuple[bool, list[Announce]]:
        """See whether all partitions are in one era, and name a new one if need be; all are known.

        Parameters
        ----------
        was_reached : bool
            Whether they were at the last call.

        Returns
        -------
        is_reached : bool
        announcements : list of Announce
        """
        eras = {status.era for status in self._partitions.statuses}
        if self.newest is None and len(eras) == 1:
            [self.newest] = eras
        if (was_reached and eras != {self.newest}) or self._is_target_gone:
            self._is_lost = True
        out: list[Announce] = []
        if self._is_lost or self.newest is None:
            common = self._partitions.common_names()
            self._is_without_target = not common
            if not common:  # a list is out of date: its partition's next status will tell
                return False, []
            self._target = max(common, key=lambda name: (name[1], name[0]))
            if self.newest is not None:
                text = f"all partitions go back to v{self._target[1]}, which all of them have."
                out.append(Announce("ps", text))
            self._is_lost, self.newest = False, self._new_identity()
        return eras == {self.newest}, out

    def on_tick(self, now: float) -> list[Announce]:
        """Tell that the partitions have nothing in common, and give up at last."""
        statuses = self._partitions.statuses
        lives = tuple(status.incarnation for status in statuses)
        if not self._is_without_target or not self._partitions.are_based:
            self._searching = None
            return []
        search = self._searching
        if search is None or search.lives != lives:
            self._searching = _Search(now, lives, self._partitions.heard)
            return []
        words = min(now - then for now, then in zip(self._partitions.heard, search.heard, strict=True))
        passed_s = now - search.since_s
        if passed_s >= PATIENCE_S and words >= LEAST_WORDS:
            self.failure = FailureView(
                text=f"the partitions have nothing in common that they could go back to: {_lists(statuses)}",
                help="make their folders readable, then: edlz resume\n"
                "or begin anew: edlz train --checkpoint_filename_for_init=VERSION, of a complete checkpoint",
            )
        elif passed_s >= TELL_S and not search.is_told:
            search.is_told = True
            text = f"nothing is common to all partitions that they could go back to: {_lists(statuses)}"
            return [Announce("ps", f"{text}; looked for until {PATIENCE_S:.0f}s have passed.", 30)]
        return []


@dataclass
class _Search:
    """For something that all partitions have: since when, in which lives, and their words so far."""

    since_s: float
    lives: tuple[Identity | None, ...]
    heard: tuple[int, ...]
    is_told: bool = False


def _lists(statuses: list[PartitionStatus]) -> str:
    """Say which versions each partition has."""
    versions = [sorted({name[1] for name in (*s.snapshots, *s.checkpoints)}) for s in statuses]
    return "; ".join(
        f"ps-{status.partition} has {', '.join(f'v{v}' for v in found) or 'nothing'}"
        for status, found in zip(statuses, versions, strict=True)
    )
