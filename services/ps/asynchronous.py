"""Asynchronous training: a gradient is applied when it comes (PROTOCOL: sections 4, 5 and 8).

A push is applied only if the ledger says that its minibatch comes next.  With a version tolerance (sync mode
that gave up its bits for speed) gradients are added up until there are enough of them, and those on too
old parameters are sent back.  For a checkpoint the partitions are levelled: pushes are held, then taken
up to the same marks everywhere.
"""

from collections.abc import Hashable
from dataclasses import dataclass

from edlz.services.ledger import Ledger, LedgerRecord
from edlz.services.messages import ANY_VERSION, Exchange, Identity, Push, Refused
from edlz.services.plan import Plan
from edlz.services.ps.exchanges import Exchanges
from edlz.services.ps.instructions import Reply
from edlz.services.ps.store import Store

__all__ = ["AsyncSettings", "Asynchronous"]


@dataclass(frozen=True)
class AsyncSettings:
    """How gradients are taken.

    Attributes
    ----------
    modulates_rate : bool
        Whether a learning rate is divided by the gradient's staleness.
    tolerance : int
        Above 0: gradients up to so many versions old are added up, `slots` of the plan to a step.
    """

    modulates_rate: bool = False
    tolerance: int = 0


class Asynchronous(Exchanges):
    """Exchanges of asynchronous mode."""

    def __init__(
        self, plan: Plan, store: Store, incarnation: Identity, settings: AsyncSettings | None = None
    ) -> None:
        super().__init__(plan, store, incarnation)
        self._settings = settings or AsyncSettings()
        self.frozen = 0  # the checkpoint for which pushes are held
        self._ceiling: Ledger | None = None  # what the ledger may become while they are

    def exchange(self, to: Hashable, body: Exchange) -> list[Reply]:
        """Answer an exchange at once.

        Raises
        ------
        RemoteProtocolError
            If it does not fit; nothing has changed.
        """
        push, pull = body.push, body.pull
        task: int | None = None
        if pull is not None:
            self._check_rows(pull)
        if push is not None:
            self.check(push)
            task = push.task
            if body.incarnation != self.incarnation:
                return [Reply(to, Refused(reason="incarnation"))]
            refusal = self._take(push, self.store.version - body.version)
            if refusal is not None:
                return [Reply(to, refusal)]
        if pull is None:
            return [Reply(to, self._exchanged(task))]
        have = pull.have_version if body.incarnation == self.incarnation else ANY_VERSION
        return [Reply(to, self._exchanged(pull.task, self.store.values(), have, pull))]

    def _take(self, push: Push, staleness: int) -> Refused | None:
        """Apply a push if its minibatch comes next."""
        ledger, settings = self.store.received, self._settings
        mark = ledger.mark(push.task)
        if push.task in ledger.finished or push.index < mark:
            return None
        if push.index > mark:
            return Refused(reason="gap")
        if self._is_held(push):
            return Refused(reason="held")
        if not settings.tolerance:
            scale = 1 / max(1, staleness) if settings.modulates_rate else 1.0
            self.store.apply(push, scale)
            return None
        if staleness > settings.tolerance:
            return Refused(reason="stale")
        waiting = self.store.receive(push)
        is_all = len(self.store.received.finished) == self.plan.task_count
        if waiting >= self.plan.slots or is_all or self.is_level:
            self.store.flush()
        return None

    # -- checkpoints

    @property
    def is_level(self) -> bool:
        """Whether the partition is where the checkpoint that is being taken wants it."""
        ceiling, ledger = self._ceiling, self.store.received
        # Not the minibatches: nobody knows yet how many a task has that others have finished.
        return ceiling is not None and (ledger.finished, ledger.marks) == (ceiling.finished, ceiling.marks)

    def freeze(self, number: int) -> bool:
        """Hold pushes for a checkpoint; whether this is news.  A partition freezes once for each."""
        if number <= self.frozen:
            return False
        self.store.flush()
        self.frozen, self._ceiling = number, Ledger(self.store.ledger.record())
        return True

    def level(self, number: int, marks: LedgerRecord) -> bool:
        """Take pushes up to these marks; whether this partition is there already."""
        if number != self.frozen or self._ceiling is None:
            return False
        self._ceiling = Ledger(marks)
        return self.is_level

    def lift(self) -> None:
        """Take pushes again."""
        self._ceiling = None

    def _is_held(self, push: Push) -> bool:
        ceiling = self._ceiling
        if ceiling is None or push.task in ceiling.finished:
            return False
        return push.index >= ceiling.mark(push.task)
