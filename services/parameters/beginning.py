"""What a job begins with in place of its model's initial values: a checkpoint, if the model goes with it."""

from itertools import zip_longest

import msgspec

from edlz.services import strict_json
from edlz.services.parameters.applied_counts import no_counts
from edlz.services.protocol.concluded_rounds import LossSum
from edlz.services.protocol.layout import Layout
from edlz.services.protocol.ledger import LedgerRecord
from edlz.services.protocol.messages import NO_IDENTITY, ErrorReply, Initialise, OptimizerSpec, TableSpec
from edlz.services.protocol.plan import Plan
from edlz.services.storage.state import State

__all__ = ["begun_from", "difference"]


def begun_from(state: State, plan: Plan) -> State:
    """Return a checkpoint as the state before training: its ledger counts if it is of the same plan."""
    changes: dict[str, object] = {"base_digest": "", "era": NO_IDENTITY, "plan_hash": plan.hash}
    if state.plan_hash != plan.hash:
        changes["ledger"], changes["losses"] = LedgerRecord(), LossSum()
        changes["counts"], changes["folded"] = no_counts(plan.task_count)
    return msgspec.structs.replace(state, **changes)


def difference(begun: State, body: Initialise) -> ErrorReply | None:
    """What keeps a worker's model from going with the state that a partition began with."""
    if not begun.base_digest:  # a checkpoint: its values are not the seed's
        for what, ours, theirs in (
            ("variables", _variables(begun.layout), _variables(body.layout)),
            ("embedding tables", list(map(_shown, begun.tables)), list(map(_shown, body.tables))),
            ("optimizer", [_shown(begun.optimizer)], [_shown(body.optimizer)]),
        ):
            pairs = zip_longest(ours, theirs, fillvalue="nothing")
            differing = next((pair for pair in pairs if pair[0] != pair[1]), None)
            if differing is not None:
                return ErrorReply(
                    code="config",
                    message=f"the checkpoint's {what} are not the model's: {differing[0]} there, "
                    f"{differing[1]} here",
                    help="use the model that wrote the checkpoint, or begin without one",
                )
        return None
    if body.digest == begun.base_digest:
        return None
    return ErrorReply(
        code="config",
        message=f"this worker's initial model differs from the one that partition {begun.partition} began with",
        help="use the same model file, TensorFlow and Keras on all workers, and no randomness outside Keras",
    )


def _variables(layout: Layout) -> list[str]:
    vectors = (layout.dense, layout.state, layout.counters)
    return [f"{v.path} {tuple(v.shape)}" for vector in vectors for v in vector.variables]


def _shown(record: TableSpec | OptimizerSpec) -> str:
    return strict_json.encode(msgspec.structs.asdict(record)).decode()
