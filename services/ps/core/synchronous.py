"""Synchronous training: gradients of a step are staged, and committed together (PROTOCOL: section 5).

A partition commits by itself as soon as it has staged every open slot of the step, and keeps the values of
the version before: another partition may still lack a slot whose gradient must be computed from them.
Pulls are held until they are due.
"""

from collections.abc import Callable, Hashable

from edlz.services.errors import RemoteProtocolError
from edlz.services.parameters.store import Store
from edlz.services.protocol.messages import ANY_VERSION, Exchange, Identity, Pull, Push, Refused
from edlz.services.protocol.plan import Plan
from edlz.services.ps.core.exchanges import Exchanges
from edlz.services.ps.core.instructions import Reply

__all__ = ["Synchronous"]


class Synchronous(Exchanges):
    """Exchanges of synchronous mode, in one era.

    Parameters
    ----------
    on_commit : callable
        Called after each step, before anybody is told of it.

    Attributes
    ----------
    last_version : int or None
        No values of it are given out for training, so nobody takes a step from it.
    """

    def __init__(
        self, plan: Plan, store: Store, incarnation: Identity, on_commit: Callable[[], None]
    ) -> None:
        super().__init__(plan, store, incarnation)
        self._on_commit = on_commit
        self._staged: dict[int, Push] = {}  # task -> push, all of the step after the store's version
        self._held: dict[Hashable, tuple[Pull, bool]] = {}  # pulls not due, with "knows this life"
        self.last_version: int | None = None

    def end_behind(self, task_count: int) -> list[Reply]:
        """The job ends behind so many tasks: the last round has no slots for others."""
        self.task_count = task_count
        self._staged = {task: push for task, push in self._staged.items() if task < task_count}
        return self._commit_if_whole(self.open_tasks())

    def open_tasks(self) -> list[int]:
        """The tasks whose minibatches make the next step, in slot order."""
        finished = self.store.ledger.finished
        first = finished.first_missing()
        if first >= self.task_count:
            return []
        tasks = self.plan.round_tasks(first)
        return [task for task in tasks if task not in finished and task < self.task_count]

    @property
    def staged(self) -> tuple[int, ...]:
        """The tasks of which a slot is staged."""
        return tuple(self._staged)

    def standing(self, task: int) -> tuple[int, bool]:
        mark, is_finished = super().standing(task)
        staged = self._staged.get(task)
        if staged is None:
            return mark, is_finished
        return mark + (staged.gradient is not None), staged.is_last

    def exchange(self, to: Hashable, body: Exchange, now: float) -> list[Reply]:
        """Stage a push, answer a pull when it is due.

        Raises
        ------
        RemoteProtocolError
            If it does not fit; nothing has changed.
        """
        out: list[Reply] = []
        push, pull = body.push, body.pull
        if pull is not None:
            self._check_rows(pull)
        if push is not None:
            self.check(push)
            self.snapshot_at = max(self.snapshot_at, body.snapshot_at)
            self.checkpoint_at = max(self.checkpoint_at, body.checkpoint_at)
            if body.version > self.store.version:
                return [Reply(to, Refused(reason="behind"))]
            if body.version == self.store.version:
                is_staged = push.task in self._staged
                self.duplicates += is_staged
                if (
                    not is_staged
                    and not self.task_ends.are_none
                    and self.task_ends.bars(push, self.store.ledger)
                ):
                    return [Reply(to, Refused(reason="held"))]
                out += self._stage(push)
            else:
                self.duplicates += 1
        if pull is None:
            return [*out, Reply(to, self._exchanged(push.task if push else None))]
        return [*out, *self._pull(to, pull, body.incarnation == self.incarnation)]

    def _stage(self, push: Push) -> list[Reply]:
        """Keep a slot of the next step (the first one wins), and commit when all are there."""
        open_tasks = self.open_tasks()
        if push.task not in open_tasks or push.index != self.store.ledger.mark(push.task):
            raise RemoteProtocolError(
                f"minibatch ({push.task}, {push.index}) is not of step {self.store.version}; "
                f"open: {open_tasks}"
            )
        self._staged.setdefault(push.task, push)
        return self._commit_if_whole(open_tasks)

    def _commit_if_whole(self, open_tasks: list[int]) -> list[Reply]:
        if not open_tasks or any(task not in self._staged for task in open_tasks):
            return []
        pushes = [self._staged[task] for task in open_tasks]
        self._staged = {}
        self.store.commit(pushes, [self.plan.slot(task) for task in open_tasks])
        self._on_commit()  # before any answer proves this version: it may have to be saved first
        held, self._held = self._held, {}
        return [reply for to, (pull, knows) in held.items() for reply in self._pull(to, pull, knows)]

    def _pull(self, to: Hashable, pull: Pull, knows: bool) -> list[Reply]:
        store, have = self.store, pull.have_version if knows else ANY_VERSION
        if pull.version is None:
            if not self._is_due(pull):
                self._held[to] = (pull, knows)
                return []
            return [Reply(to, self._exchanged(pull.task, pull, have))]
        if pull.version in (ANY_VERSION, store.version):
            return [Reply(to, self._exchanged(pull.task, pull, have))]
        before = store.values_before()
        if before is not None and pull.version == before.version:
            return [Reply(to, self._exchanged(pull.task, pull, have, before))]
        return [Reply(to, Refused(reason="moved on"))]

    def _is_due(self, pull: Pull) -> bool:
        ledger = self.store.ledger
        if pull.task in ledger.finished:
            return True
        if self.store.version == self.last_version:
            return False
        return pull.task in self.open_tasks() and ledger.mark(pull.task) >= pull.index
