"""Asynchronous training: a gradient is applied when it comes (PROTOCOL: sections 4, 5 and 8).

A push is applied only if the ledger says that its minibatch comes next.  With a version tolerance (sync mode
that gave up its bits for speed) gradients are added up until there are enough of them, and those on too
old parameters are sent back.  For a checkpoint the partitions are levelled: pushes are held, then taken
up to the same marks everywhere.
"""

from collections.abc import Hashable
from dataclasses import dataclass

from edlz.services.parameters.store import Store
from edlz.services.protocol.ledger import Ledger, LedgerRecord
from edlz.services.protocol.messages import ANY_VERSION, Exchange, Identity, Push, Refused
from edlz.services.protocol.plan import Plan
from edlz.services.ps.core.exchanges import Exchanges
from edlz.services.ps.core.instructions import Reply

__all__ = ["AsyncSettings", "Asynchronous"]

HOLD_S = 0.5  # how long a push waits for the end of a cut before it is refused


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
    """Exchanges of asynchronous mode.

    Parameters
    ----------
    plan, store, incarnation
        As of `Exchanges`.
    settings : AsyncSettings, optional
        How gradients are taken.

    Attributes
    ----------
    frozen : int
        The newest checkpoint for which pushes were held.
    """

    def __init__(
        self, plan: Plan, store: Store, incarnation: Identity, settings: AsyncSettings | None = None
    ) -> None:
        super().__init__(plan, store, incarnation)
        self._settings = settings or AsyncSettings()
        self.frozen = 0  # the checkpoint for which pushes are held
        self._ceiling: Ledger | None = None  # what the ledger may become while they are
        self._waiting: dict[Hashable, tuple[Exchange, float]] = {}  # held exchanges, and since when

    def exchange(self, to: Hashable, body: Exchange, now: float) -> list[Reply]:
        """Answer an exchange at once, unless its push is held.

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
            staleness = self.store.version - body.version
            rate_scale = 1 / staleness if self._settings.modulates_rate and staleness > 1 else 1.0
            self.check(push, rate_scale)
            task = push.task
            if body.incarnation != self.incarnation:
                return [Reply(to, Refused(reason="incarnation"))]
            if not self.task_ends.are_none and self.task_ends.bars(push, self.store.received):
                return [Reply(to, Refused(reason="held" if self.task_ends.are_known else "not ready"))]
            if self._ceiling is not None and self._is_held(push):
                self._waiting[to] = (body, now)
                return []
            refusal = self._take(push, staleness, rate_scale)
            if refusal is not None:
                return [Reply(to, refusal)]
        if pull is None:
            return [Reply(to, self._exchanged(task))]
        have = pull.have_version if body.incarnation == self.incarnation else ANY_VERSION
        return [Reply(to, self._exchanged(pull.task, pull, have))]

    def _take(self, push: Push, staleness: int, rate_scale: float) -> Refused | None:
        """Apply a push if its minibatch comes next."""
        ledger, tolerance = self.store.received, self._settings.tolerance
        mark = ledger.marks.get(push.task, 0)
        if push.index < mark or (not mark and push.task in ledger.finished):
            self.duplicates += 1
            return None
        if push.index > mark:
            return Refused(reason="gap")
        if not tolerance:
            self._new_staleness.append(staleness)
            self.store.apply(push, rate_scale)
            return None
        if staleness > tolerance:
            return Refused(reason="stale")
        self._new_staleness.append(staleness)
        waiting = self.store.receive(push)
        if waiting >= self.plan.slots or self._has_all or self.is_level:
            self.store.flush()
        return None

    @property
    def _has_all(self) -> bool:
        return self.store.received.finished.first_missing() >= self.task_count

    def end_behind(self, task_count: int) -> list[Reply]:
        """The job ends behind so many tasks: what waits for more of them waits no longer."""
        self.task_count = task_count
        if self._has_all and self._ceiling is None:
            self.store.flush()
        return []

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
        self.store.flush()  # what waits to be added up is in no ledger yet
        self.frozen, self._ceiling = number, Ledger(self.store.ledger.record())
        return True

    def level(self, number: int, marks: LedgerRecord) -> list[Reply]:
        """Take pushes up to these marks, those that were held as well."""
        if number != self.frozen or self._ceiling is None:
            return []
        self._ceiling = Ledger(marks)
        waiting, self._waiting = self._waiting, {}
        return [reply for to, (body, since) in waiting.items() for reply in self.exchange(to, body, since)]

    def lift(self, now: float) -> list[Reply]:
        """Take pushes again, those that were held first."""
        self._ceiling = None
        waiting, self._waiting = self._waiting, {}
        return [reply for to, (body, _) in waiting.items() for reply in self.exchange(to, body, now)]

    def refuse_waiting(self, now: float) -> list[Reply]:
        """Refuse what has been held for long: who asked may be needed for another task."""
        old = [to for to, (_, since) in self._waiting.items() if now - since > HOLD_S]
        for to in old:
            del self._waiting[to]
        return [Reply(to, Refused(reason="held")) for to in old]

    def _is_held(self, push: Push) -> bool:
        """Whether a push that comes next would take the ledger past the ceiling."""
        ceiling, ledger = self._ceiling, self.store.received
        if ceiling is None or push.task in ceiling.finished or push.task in ledger.finished:
            return False  # taken up to the end, or a repetition, which changes nothing
        return push.index == ledger.mark(push.task) >= ceiling.mark(push.task)
