"""What a member's status tells of its state."""

from typing import TypedDict

from edlz.services.parameters.store import Store
from edlz.services.protocol.concluded_rounds import LossSum
from edlz.services.protocol.messages import Recount
from edlz.services.protocol.plan import Plan

__all__ = ["ToldState", "told_of"]


class ToldState(TypedDict, total=False):
    """Fields of a `MemberStatus`."""

    finished: tuple[int, ...]
    marks: tuple[tuple[int, int], ...]
    minibatches: int
    losses: LossSum
    recount: Recount


def told_of(store: Store | None, plan: Plan) -> ToldState:
    """Return what is in a state, as far as there is one."""
    if store is None:
        return {"finished": ()}
    return {
        "finished": store.ledger.finished.bounds,
        "marks": tuple(sorted(store.ledger.marks.items())),
        "minibatches": store.ledger.minibatches,
        "losses": store.losses,
        "recount": store.counts.recount(plan),
    }
