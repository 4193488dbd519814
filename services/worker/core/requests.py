"""Requests for a worker's tasks to the partitions, and the vectors that came in answer.

Owns: the newest vectors of each partition, and when they are asked for again.  Does not own: what a task does
next (`Training`'s).
"""

from collections.abc import Callable, Hashable, Iterable

import msgspec

from edlz.services.protocol.message_types import Message
from edlz.services.protocol.messages import (
    ANY_VERSION,
    NO_IDENTITY,
    Exchange,
    Exchanged,
    Identity,
    Pull,
    Push,
)
from edlz.services.protocol.plan import Plan
from edlz.services.worker.core.held_tasks import HeldTask, Phase
from edlz.services.worker.core.instructions import AskPartition, Outcome
from edlz.services.worker.core.partition_directory import PartitionDirectory

__all__ = ["Ask", "Requests", "end_push", "pushes_of"]

Ask = Callable[[int, Hashable, Message], AskPartition]


class Requests:
    """Makes the exchanges of one worker, in one era.

    Parameters
    ----------
    plan : Plan
    partitions : PartitionDirectory
    vectors_every : int
        In asynchronous mode the vectors are pulled once in so many minibatches.
    ask : callable (partition, key, body) -> AskPartition
        Addresses a request to a partition.
    run : str
        The job's.
    """

    def __init__(
        self, plan: Plan, partitions: PartitionDirectory, vectors_every: int, ask: Ask, run: str = ""
    ) -> None:
        self._plan, self._partitions, self._ask, self._run = plan, partitions, ask, run
        self.era = NO_IDENTITY
        self._vectors_every = 1 if plan.is_sync else vectors_every
        self._without_vectors = 0  # async: minibatches computed since vectors were asked for
        self._vectors: dict[int, Exchanged] = {}  # newest vectors received from each partition

    # -- vectors

    @property
    def vectors(self) -> tuple[Exchanged, ...] | None:
        """The vectors in hand, in the order of the partitions; None if some are missing."""
        vectors = tuple(self._vectors[p] for p in range(self._partitions.count) if p in self._vectors)
        return vectors if len(vectors) == self._partitions.count else None

    def enter(self, era: Identity) -> None:
        """Another era: no vector in hand belongs to it."""
        self.era, self._vectors = era, {}

    def note(self, index: int, answer: Exchanged) -> None:
        """Keep an answer's vectors, if it has some."""
        if answer.dense is not None:
            self._vectors[index] = answer

    def drop_dead(self) -> None:
        """Forget vectors of partitions' lives that are over."""
        for p, newest in list(self._vectors.items()):
            if not self._partitions.is_life(p, newest.incarnation):
                del self._vectors[p]

    def note_computed(self) -> None:
        """A minibatch was computed on the vectors in hand."""
        self._without_vectors += 1

    def renew_vectors(self) -> None:
        """The next exchange brings vectors: a local copy of them is gone."""
        self._without_vectors = self._vectors_every

    def wants_vectors(self, held: HeldTask, step: Iterable[HeldTask]) -> bool:
        """Whether the exchange that a task is about to send should bring vectors; sync: beside those of its step."""
        if not self._plan.is_sync:
            if self._without_vectors < self._vectors_every:
                return False
            self._without_vectors = 0
            return True
        # Another slot's pull, sent before, brings this step's vectors.
        return not any(
            other is not held and other.phase is Phase.PULLING and other.wants_vectors for other in step
        )

    # -- requests

    def pull_all(self, held: HeldTask, asked: int | None) -> list[AskPartition]:
        """Ask every partition where it stands with a task, and for its vectors and a minibatch's rows."""
        held.asked, held.wants_vectors = asked, True
        self._without_vectors = 0
        return [self.pull(held, p, asked) for p in range(self._partitions.count)]

    def pull(
        self,
        held: HeldTask,
        index: int,
        asked: int | None,
        *,
        version: int | None = None,
        push: Push | None = None,
    ) -> AskPartition:
        """Ask one partition for what this worker lacks, and give it a push on the way.

        Parameters
        ----------
        asked : int, optional
            The minibatch whose rows are wanted.
        version : int, optional
            Sync: parameters of this version, at once.
        """
        newest = self._vectors.get(index)
        ids = held.ids.get(asked) if asked is not None else None
        wanted = Pull(
            task=held.task,
            index=held.index + (1 if push else 0),
            version=version,
            have_version=newest.version if newest else ANY_VERSION,
            rows=ids[index] if ids else None,
            want_vectors=held.wants_vectors,
        )
        body = Exchange(
            era=self.era,
            incarnation=newest.incarnation if newest else None,
            version=self._base_version(held, index),
            push=push,
            pull=wanted,
            run=self._run,
            snapshot_at=held.snapshot_at,
            checkpoint_at=held.checkpoint_at,
        )
        kind = "ahead" if asked is not None and asked in held.ahead else "params"
        return self._ask(index, ("task", held.task, held.attempt, kind, asked), body)

    def push_all(self, held: HeldTask, pushes: list[Push], kind: str) -> list[AskPartition]:
        """Push to every partition and ask for nothing."""
        return [self._push(held, p, push, kind) for p, push in enumerate(pushes)]

    def _push(self, held: HeldTask, index: int, push: Push, kind: str) -> AskPartition:
        newest = self._vectors.get(index)
        # Gone if the partition has begun a new life meanwhile: it will refuse.
        life = newest.incarnation if newest else None
        body = Exchange(
            era=self.era,
            incarnation=life,
            version=self._base_version(held, index),
            push=push,
            run=self._run,
            snapshot_at=held.snapshot_at,
            checkpoint_at=held.checkpoint_at,
        )
        return self._ask(index, ("task", held.task, held.attempt, kind, None), body)

    def _base_version(self, held: HeldTask, index: int) -> int:
        """The version of a partition that this task's gradient was computed on."""
        answer, newest = held.answers.get(index), self._vectors.get(index)
        if self._plan.is_sync or answer is None:
            return held.version
        return min(answer.version, newest.version) if newest else answer.version


def pushes_of(held: HeldTask, outcome: Outcome) -> list[Push]:
    """Return what is pushed of a minibatch: as it was computed, but for what the master has said meanwhile."""
    pushes = [_at_rate(push, held.learning_rate) for push in outcome.pushes]
    if held.is_last != outcome.is_last:  # a push never ends a task that the master ends
        pushes = [msgspec.structs.replace(push, is_last=held.is_last) for push in pushes]
    return pushes


def _at_rate(push: Push, rate: float | None) -> Push:
    """Return a push at the learning rate that callbacks have set, which may be another one since it was computed."""
    return push if rate in (None, push.learning_rate) else msgspec.structs.replace(push, learning_rate=rate)


def end_push(held: HeldTask) -> Push:
    """Return the push that ends a task before the minibatch that comes next: an empty one."""
    return Push(
        task=held.task,
        index=held.index,
        is_last=True,
        learning_rate=0.0,
        gradient=None,
        state=None,
        counters=None,
    )
