"""What the two modes of training have in common: answers to exchanges."""

from collections.abc import Hashable

from edlz.services.errors import RemoteProtocolError
from edlz.services.parameters.store import Store, Values
from edlz.services.protocol.buckets import STALENESS, Buckets
from edlz.services.protocol.messages import ANY_VERSION, Exchanged, Identity, NewestPull, Pull, Push, Refused
from edlz.services.protocol.plan import Plan
from edlz.services.ps.core.instructions import Reply
from edlz.services.ps.core.task_ends import TaskEnds

__all__ = ["Exchanges"]


class Exchanges:
    """The store of one partition's life, as workers see it.

    Parameters
    ----------
    plan : Plan
    store : Store
    incarnation : Identity
        The life.

    Attributes
    ----------
    snapshot_at, checkpoint_at : int
        Sync: versions at which all partitions cut; every answer and push carries them on.
    task_ends : TaskEnds
        Of the partition's life.
    task_count : int
        How many tasks the job has: fewer than its plan, if it has been ended.
    duplicates : int
        Pushes that came again.
    """

    def __init__(self, plan: Plan, store: Store, incarnation: Identity) -> None:
        self.plan, self.store, self.incarnation = plan, store, incarnation
        self.snapshot_at = self.checkpoint_at = 0
        self.task_ends = TaskEnds(are_known=True)
        self._task_count = self.task_count = plan.task_count
        self.duplicates = 0
        self._staleness, self._new_staleness = Buckets(STALENESS), list[int]()  # counted when it is asked for

    @property
    def staleness(self) -> Buckets:
        """Of the pushes that were applied; asynchronous mode."""
        self._staleness.note_all(self._new_staleness)
        self._new_staleness.clear()
        return self._staleness

    def newest(self, to: Hashable, pull: NewestPull) -> list[Reply]:
        """Answer a pull for evaluation.

        Raises
        ------
        RemoteProtocolError
            If its rows do not fit the tables.
        """
        self._check_rows(pull)
        if pull.version not in (ANY_VERSION, self.store.version):  # it is computed again
            return [Reply(to, Refused(reason="not ready"))]
        return [Reply(to, self._exchanged(None, pull, pull.have_version))]

    def standing(self, task: int) -> tuple[int, bool]:
        """Return the mark of a task, and whether it is finished, with all that was taken of it."""
        ledger = self.store.received
        mark = ledger.mark(task)
        return mark, not mark and task in ledger.finished

    def check(self, push: Push, rate_scale: float = 1.0) -> None:
        """Raise RemoteProtocolError if a push could not be applied with this factor to its learning rates.

        It does not fit the plan or the slices, or its optimizer takes no such rate; nothing has changed.
        """
        if not 0 <= push.task < self._task_count or push.index < 0:
            raise RemoteProtocolError(f"the plan has no minibatch ({push.task}, {push.index})")
        try:
            self.store.check(push, rate_scale)
        except ValueError as error:
            raise RemoteProtocolError(f"push of minibatch ({push.task}, {push.index}): {error}") from error

    def _check_rows(self, pull: Pull | NewestPull) -> None:
        if pull.rows is None:
            return
        try:
            self.store.tables.check(pull.rows)
        except ValueError as error:
            raise RemoteProtocolError(f"a pull: {error}") from error

    def _exchanged(
        self,
        task: int | None,
        pull: Pull | NewestPull | None = None,
        have_version: int = ANY_VERSION,
        before: Values | None = None,
    ) -> Exchanged:
        """Where the partition stands with a task, and what a pull asks for: the newest, or of `before`."""
        store, ledger = self.store, self.store.received
        mark = 0 if task is None else ledger.marks.get(task, 0)
        version = store.version if before is None else before.version
        dense = state = counters = rows = None
        if pull is not None:
            if version != have_version and (isinstance(pull, NewestPull) or pull.want_vectors):
                wanted = store.values() if before is None else before
                dense, state, counters = wanted.dense, wanted.state, wanted.counters
            if pull.rows is not None:
                gather = store.tables.gather if before is None else store.tables.gather_before
                rows = gather(pull.rows)
        return Exchanged(
            incarnation=self.incarnation,
            mark=mark,
            finished=not mark and task is not None and task in ledger.finished,
            version=version,
            snapshot_at=self.snapshot_at,
            checkpoint_at=self.checkpoint_at,
            dense=dense,
            state=state,
            counters=counters,
            rows=rows,
        )
