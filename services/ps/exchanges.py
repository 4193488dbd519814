"""What the two modes of training have in common: answers to exchanges."""

from collections.abc import Hashable

from edlz.services.errors import RemoteProtocolError
from edlz.services.messages import ANY_VERSION, Exchanged, Identity, NewestPull, Pull, Push
from edlz.services.plan import Plan
from edlz.services.ps.instructions import Reply
from edlz.services.ps.store import Store, Values

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
    """

    def __init__(self, plan: Plan, store: Store, incarnation: Identity) -> None:
        self.plan, self.store, self.incarnation = plan, store, incarnation
        self.snapshot_at = self.checkpoint_at = 0

    def newest(self, to: Hashable, pull: NewestPull) -> list[Reply]:
        """Answer a pull for evaluation.

        Raises
        ------
        RemoteProtocolError
            If its rows do not fit the tables.
        """
        self._check_rows(pull)
        values = self.store.values()
        return [Reply(to, self._exchanged(None, values, pull.have_version, pull))]

    def check(self, push: Push) -> None:
        """Raise RemoteProtocolError if a push does not fit the plan or the slices; nothing has changed."""
        if not 0 <= push.task < self.plan.task_count or push.index < 0:
            raise RemoteProtocolError(f"the plan has no minibatch ({push.task}, {push.index})")
        try:
            self.store.check(push)
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
        values: Values | None = None,
        have_version: int = ANY_VERSION,
        pull: Pull | NewestPull | None = None,
    ) -> Exchanged:
        """Where the partition stands with a task, and what is asked for of `values`."""
        is_wanted = values is not None and values.version != have_version
        if isinstance(pull, Pull):
            is_wanted = is_wanted and pull.want_vectors
        wanted = values if is_wanted else None
        ledger = self.store.received
        rows = None
        if pull is not None and pull.rows is not None and values is not None:
            rows = self.store.rows(pull.rows, values.version)
        return Exchanged(
            incarnation=self.incarnation,
            mark=ledger.mark(task) if task is not None else 0,
            finished=task is not None and task in ledger.finished,
            version=values.version if values is not None else self.store.version,
            snapshot_at=self.snapshot_at,
            checkpoint_at=self.checkpoint_at,
            dense=wanted.dense if wanted else None,
            state=wanted.state if wanted else None,
            counters=wanted.counters if wanted else None,
            rows=rows,
        )
