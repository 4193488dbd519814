"""The sum of one chunk: parts of all members are staged, added up as a tree, and given back as their mean.

Theory of operation.  The owner of a chunk stages what members send, by version and bucket: for the step in work and
the next one, since members of a group are never more than one step apart.  The first part of a member wins.  When all
are there the mean is made, once, and everybody who has asked gets it, the owner itself last: by its own answer it may
take the step and leave the group.  A mean is kept until that of the next step is made, for a member whose answer was
lost.  Who waits long asks again, by a part without content: a part that is here is large, and no use a second time; of one
that is not here it hears so.  All of it belongs to one generation: `begin` forgets what was before.

Means of a chunk's buckets lie one behind another in one block of memory, in whose pages they are made step after step: it costs
as much to get new ones from the system as to add up.
"""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from edlz.core_ext.dense import tree_mean
from edlz.services.errors import RemoteProtocolError
from edlz.services.parameters.lent_buffers import LentBuffers
from edlz.services.protocol.messages import NO_IDENTITY, GroupRefused, Identity, Reduce, Reduced
from edlz.services.worker.core.groups.instructions import Reply

__all__ = ["OWN", "Reduction", "asked_again", "refusal"]

OWN = "own"  # whom the owner's own part is answered to

Vector = npt.NDArray[np.float32]
Place = tuple[int, int]  # (version, bucket)


@dataclass
class _Staged:
    """The parts of one bucket of one step, by rank, and whom the mean is due to."""

    parts: dict[int, Reduce] = field(default_factory=dict)
    waiting: dict[int, Hashable] = field(default_factory=dict)


class _Room:
    """Where the means of a chunk are made, those of one version at a time.

    Parameters
    ----------
    buckets : sequence of slice
        Of the chunk, one behind another.
    """

    def __init__(self, buckets: Sequence[slice]) -> None:
        first = buckets[0].start
        self._places = [slice(bucket.start - first, bucket.stop - first) for bucket in buckets]
        self._buffers = LentBuffers(self._places[-1].stop)
        self._taken: tuple[Vector, Vector] | None = None  # the block of this version, and its loan

    def begin(self) -> None:
        """The means that follow are another version's."""
        self._taken = None

    def mean(self, bucket: int, nodes: Sequence[Vector], places: Sequence[int], count: int) -> Vector:
        """Return the mean of a bucket; it is not written while anybody has it.  Raises ValueError as `tree_mean`."""
        if self._taken is None:
            block = self._buffers.take()
            self._taken = block, self._buffers.lend(block)
        block, loan = self._taken
        where = self._places[bucket]
        tree_mean(block[where], nodes, places, count)
        return loan[where]


def refusal(theirs: Identity, ours: Identity) -> GroupRefused:
    """Return why somebody of another generation gets nothing."""
    return GroupRefused(reason="generation" if theirs < ours else "not ready", generation=ours)


def asked_again(part: Reduce) -> Reduce:
    """Return what the answer to a part that was sent is asked for with: whoever has the part needs it no second time."""
    where = {name: getattr(part, name) for name in ("generation", "version", "rank", "bucket")}
    return Reduce(headers=(), is_again=True, **where)


class Reduction:
    """What one member owns of the sums of its group.

    Attributes
    ----------
    generation : Identity
    """

    def __init__(self) -> None:
        self.generation: Identity = NO_IDENTITY
        self._count = 0  # members, as soon as that is known
        self._staged: dict[Place, _Staged] = {}
        self._means: dict[Place, Reduced] = {}  # of one version
        self._newest = -1  # that version
        self._dense = self._state = _Room([slice(0, 0)])

    def begin(self, generation: Identity) -> list[Reply]:
        """Belong to a generation; who waits for a mean of the one before hears of it."""
        refused = GroupRefused(reason="generation", generation=generation)
        out = [
            Reply(to, refused)
            for staged in self._staged.values()
            for to in staged.waiting.values()
            if to != OWN
        ]
        self.generation, self._count = generation, 0
        self._staged, self._means, self._newest = {}, {}, -1
        self._dense = self._state = _Room([slice(0, 0)])
        return out

    def form(self, count: int, buckets: Sequence[slice], state: int) -> list[Reply]:
        """Know the group; some members have perhaps sent their parts before, or who is none.

        Parameters
        ----------
        count : int
            Of members.
        buckets : sequence of slice
            Of this member's chunk.
        state : int
            Elements of its slice of the state vector.
        """
        self._count = count
        self._dense, self._state = _Room(buckets), _Room([slice(0, state)])
        for staged in self._staged.values():
            staged.parts = {rank: part for rank, part in staged.parts.items() if 0 <= rank < count}
            staged.waiting = {rank: to for rank, to in staged.waiting.items() if 0 <= rank < count}
        return [reply for place in sorted(self._staged) for reply in self._complete(place)]

    def take(self, to: Hashable, part: Reduce, version: int | None) -> list[Reply]:
        """Stage a member's part; return the answers that are due.

        Parameters
        ----------
        to : hashable
            With what the answer is sent.
        part : Reduce
        version : int or None
            Of the owner's state, if it has the group's.

        Raises
        ------
        RemoteProtocolError
            If the part fits no group of this size; nothing has changed.
        """
        if part.generation != self.generation:
            return [Reply(to, refusal(part.generation, self.generation))]
        if self._count and not 0 <= part.rank < self._count:
            raise RemoteProtocolError(f"a part of rank {part.rank} in a group of {self._count}")
        place = part.version, part.bucket
        if place in self._means:
            return [Reply(to, self._means[place])]
        if version is not None and part.version not in (version, version + 1):
            return [Reply(to, GroupRefused(reason="moved on", generation=self.generation))]
        staged = self._staged.setdefault(place, _Staged())
        if part.is_again and part.rank not in staged.parts:
            return [Reply(to, GroupRefused(reason="not here", generation=self.generation))]
        staged.parts.setdefault(part.rank, part)
        staged.waiting[part.rank] = to
        return self._complete(place)

    def lacks(self, version: int, buckets: int) -> set[int]:
        """Return the ranks of which a part of this step has not come."""
        places = [(version, bucket) for bucket in range(buckets) if (version, bucket) not in self._means]
        empty = _Staged()
        there = [self._staged.get(place, empty).parts for place in places]
        return {rank for parts in there for rank in range(self._count) if rank not in parts}

    def has_means(self, version: int, buckets: int) -> bool:
        return all((version, bucket) in self._means for bucket in range(buckets))

    # -- the sum

    def _complete(self, place: Place) -> list[Reply]:
        """Make the mean when all parts are there, and answer all who wait for it, the owner last."""
        staged = self._staged[place]
        if not self._count or len(staged.parts) < self._count:
            return []
        del self._staged[place]
        if place[0] > self._newest:
            # Who has sent a part of this step has had all means of the one before; their memory is used again.
            self._newest, self._means = place[0], {}
            self._dense.begin()
            self._state.begin()
        mean = self._means[place] = self._mean([staged.parts[rank] for rank in range(self._count)])
        receivers = sorted(staged.waiting.values(), key=lambda to: to == OWN)
        return [Reply(to, mean) for to in receivers]

    def _mean(self, parts: list[Reduce]) -> Reduced:
        first = parts[0]
        headers = sorted((h for part in parts for h in part.headers), key=lambda header: header.slot)
        if any(header.slot == following.slot for header, following in pairwise(headers)):
            raise RemoteProtocolError(f"two members have one slot of v{first.version}: {headers}")
        count = sum(not header.is_empty for header in headers)
        places = [place for part in parts for place in part.places]
        counters = [part.counters for part in parts if part.counters is not None]
        if len({each.shape for each in counters}) > 1:
            raise RemoteProtocolError("parts of a step that do not fit each other: counters of two lengths")
        return Reduced(
            generation=first.generation,
            version=first.version,
            bucket=first.bucket,
            headers=tuple(headers),
            dense=_mean(
                self._dense, first.bucket, [node for part in parts for node in part.dense], places, count
            ),
            state=_mean(self._state, 0, [node for part in parts for node in part.state], places, count),
            counters=np.maximum.reduce(counters) if counters else None,
            learning_rate=first.learning_rate,
            snapshot_at=first.snapshot_at,
            checkpoint_at=first.checkpoint_at,
            checksums=tuple(part.checksum for part in parts) if first.checksum else (),
        )


def _mean(room: _Room, bucket: int, nodes: list[Vector], places: list[int], count: int) -> Vector | None:
    try:
        return room.mean(bucket, nodes, places, count) if nodes else None
    except (ValueError, IndexError, ZeroDivisionError) as error:
        raise RemoteProtocolError(f"parts of a step that do not fit each other: {error}") from error
