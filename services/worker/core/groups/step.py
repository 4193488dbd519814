"""One step of a member: its slots, the parts that it sends, and the means that come back."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import numpy.typing as npt

from edlz.services.errors import RemoteProtocolError
from edlz.services.parameters.mean_step import MeanStep, NextValues
from edlz.services.parameters.store import Store
from edlz.services.protocol.groups import block_of, buckets_of
from edlz.services.protocol.layout import slice_bounds
from edlz.services.protocol.messages import Identity, Reduce, Reduced, SlotHeader
from edlz.services.protocol.plan import Plan
from edlz.services.worker.core.groups.inputs import SlotComputed
from edlz.services.worker.core.groups.instructions import Slot
from edlz.services.worker.core.groups.node_sums import NO_SUMS, Sums

__all__ = ["Chunks", "Step", "next_step"]

Counters = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Chunks:
    """Who owns what of the vectors in a group of `count` members: the chunks of their ranks, in buckets.

    `dense` and `state` are lengths; `bucket` is that of most elements of one exchange.
    """

    count: int
    dense: int
    state: int
    bucket: int

    def buckets(self, rank: int) -> list[slice]:
        """Return the buckets of a chunk of the dense vector."""
        return self._buckets[rank]

    @cached_property
    def _buckets(self) -> list[list[slice]]:
        return [buckets_of(self.dense, rank, self.count, self.bucket) for rank in range(self.count)]

    def state_slice(self, rank: int) -> slice:
        return slice(*slice_bounds(self.state, rank, self.count))

    @cached_property
    def places(self) -> tuple[tuple[int, int], ...]:
        """(rank, bucket) of each exchange of a step, in the order of what they sum."""
        return tuple(
            (rank, bucket) for rank in range(self.count) for bucket in range(len(self.buckets(rank)))
        )


@dataclass
class Step:
    """The step that follows a version, as one member takes it.

    Attributes
    ----------
    block : range
        Its slots, of `slots`, finished tasks included.
    sums : Sums
        Of what was computed, until it is sent.
    counters : ndarray or None
        The largest of its slots.
    means : dict
        What owners have answered, by (rank, bucket).
    sent_s : float or None
        When its parts were sent.
    is_first : bool
        Whether it is the first one of its group.
    checksum : str
        Of the state that it is taken from, if members compare theirs.
    voters : tuple of int
        The ranks that say which state is right if members' differ; if there are none, all do.
    learning_rate : float
        That of the model, as soon as the block is computed.
    values : NextValues or None
        What it leads to, as soon as all means are there.
    """

    version: int
    block: range
    slots: int
    chunks: Chunks
    headers: list[SlotHeader] = field(default_factory=list)
    sums: Sums = NO_SUMS
    counters: Counters | None = None
    means: dict[tuple[int, int], Reduced] = field(default_factory=dict)
    sent_s: float | None = None
    is_first: bool = False
    checksum: str = ""
    voters: tuple[int, ...] = ()
    learning_rate: float = 0.0
    values: NextValues | None = None

    def note(self, slot: SlotComputed) -> None:
        """Take in what was computed of a slot."""
        self.headers.append(slot.header)
        if slot.counters is not None:
            known = self.counters
            self.counters = slot.counters if known is None else np.maximum(known, slot.counters)

    def parts(
        self, generation: Identity, rank: int, learning_rate: float, snapshot_at: int, checkpoint_at: int = 0
    ) -> Iterator[tuple[int, Reduce]]:
        """Yield the parts that are due to owners, each with the owner's rank."""
        places, dense, state = self.sums
        self.sums = NO_SUMS
        headers = tuple(self.headers)
        for owner in range(self.chunks.count):
            others = self.chunks.state_slice(owner)
            for bucket, where in enumerate(self.chunks.buckets(owner)):
                yield (
                    owner,
                    Reduce(
                        generation=generation,
                        version=self.version,
                        rank=rank,
                        bucket=bucket,
                        headers=headers,
                        places=places,
                        dense=tuple(node[where] for node in dense),
                        state=tuple(node[others] for node in state) if bucket == 0 else (),
                        counters=self.counters if (owner, bucket) == (0, 0) else None,
                        learning_rate=learning_rate if rank == 0 else 0.0,
                        snapshot_at=snapshot_at if rank == 0 else 0,
                        checkpoint_at=checkpoint_at if rank == 0 else 0,
                        checksum=self.checksum,
                    ),
                )

    @property
    def missing(self) -> set[int]:
        """Ranks of owners of which a mean has not come."""
        return {place[0] for place in self.chunks.places if place not in self.means}

    @property
    def is_complete(self) -> bool:
        """Whether all means are there."""
        return len(self.means) == len(self.chunks.places)

    @property
    def checksums(self) -> tuple[str, ...]:
        """Those of all members' states, by rank, when all means are there; empty if they do not compare theirs.

        Raises
        ------
        RemoteProtocolError
            If owners disagree about them.
        """
        found = {mean.checksums for mean in self.means.values()}
        if len(found) > 1 or any(len(checksums) not in (0, self.chunks.count) for checksums in found):
            raise RemoteProtocolError(f"owners have other checksums of v{self.version} than each other")
        [checksums] = found
        return checksums

    def mean(self) -> MeanStep:
        """Return what all means together say, when all are there.

        Raises
        ------
        RemoteProtocolError
            If owners disagree about the slots of the step.
        """
        places = self.chunks.places
        means = [self.means[place] for place in places]
        first = means[0]
        for place, mean in zip(places, means, strict=True):
            if not _are_equal(mean.headers, first.headers) or (mean.dense is None) != (first.dense is None):
                raise RemoteProtocolError(f"owner {place[0]} has other slots of v{self.version} than owner 0")
        others = [mean.state for mean in means if mean.state is not None]
        return MeanStep(
            minibatches=tuple(
                (header.task, header.index, header.is_last, header.is_empty, header.loss)
                for header in first.headers
            ),
            learning_rate=first.learning_rate,
            gradient=tuple(mean.dense for mean in means if mean.dense is not None),
            state=np.concatenate(others) if others else None,
            counters=first.counters,
        )

    def prepare(self, store: Store) -> NextValues:
        """Return what works out the values that the means lead to.

        Raises
        ------
        RemoteProtocolError
            If it is not the next step of this state, or owners disagree about its slots.
        """
        try:
            self.values = store.prepare(self.mean())
        except ValueError as error:
            raise RemoteProtocolError(f"a step that is not the next one: {error}") from error
        return self.values

    def take(self, store: Store) -> None:
        """Change the state that it was prepared for: the values are worked out."""
        assert self.values is not None, "the step is not prepared"
        store.advance(self.values)

    @property
    def snapshot_at(self) -> int:
        """A version that all members write, as rank 0 has said."""
        return max(mean.snapshot_at for mean in self.means.values())

    @property
    def checkpoint_at(self) -> int:
        """The same of a checkpoint out of turn."""
        return max(mean.checkpoint_at for mean in self.means.values())


def next_step(
    plan: Plan, store: Store, rank: int, chunks: Chunks, ends: Mapping[int, int], task_count: int
) -> tuple[Step, tuple[Slot, ...]]:
    """Return the step that follows a state, and what is to be computed for it in the block of a rank.

    Behind the last task it has no slots: then members only compare their states.

    Parameters
    ----------
    ends : mapping of int to int
        Where bad tasks end.
    task_count : int
        The job ends before this task.  Who has which slots of a round does not depend on it.
    """
    ledger = store.ledger
    first = ledger.finished.first_missing()
    tasks = plan.round_tasks(first) if first < task_count else ()
    block = block_of(rank, chunks.count, len(tasks))
    step, slots = Step(store.version, block, len(tasks), chunks), []
    for slot in block:
        task = tasks[slot]
        index, end = ledger.mark(task), ends.get(task)
        if task in ledger.finished or task >= task_count:
            continue
        if end is not None and index >= end:
            header = SlotHeader(slot=slot, task=task, index=index, is_last=True, is_empty=True)
            step.headers.append(header)
        else:
            slots.append(Slot(slot, task, index, end))
    return step, tuple(slots)


def _are_equal(headers: Sequence[SlotHeader], others: Sequence[SlotHeader]) -> bool:
    """Whether these are the same slots; a loss that is NaN equals itself here."""
    return headers == others or repr(headers) == repr(others)
