"""The check of a model before anything is trained: one minibatch through all that training will use.

Building has traced the model; what only values show is found here: a feed that keeps no record, ids out of range, a loss
that is NaN.  One odd record is no mistake of the model's: only what several tasks have in common is refused.
"""

import math
import time
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from edlz.services.export.export_check import check_export
from edlz.services.parameters.tables import Tables, empty_rows
from edlz.services.protocol.messages import RowIds
from edlz.services.protocol.plan import Plan
from edlz.services.worker.core.computation import Computed, Engine
from edlz.services.worker.engine.assembly import Assembly
from edlz.services.worker.engine.feed.batch_structure import shown, split_element
from edlz.services.worker.engine.user_code.user_code import TaskError, UserCodeError

__all__ = ["ModelCheck", "TriedMinibatch"]

TRIES = 3  # tasks whose first minibatch must all be refused
PATIENCE_S = 5.0  # for a feed that leaves out records to keep some

Rows = npt.NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class TriedMinibatch:
    """What one minibatch gave on the initial values."""

    records: int
    loss: float
    learning_rate: float
    features: str  # shapes and types
    labels: str
    predictions: str
    signatures: tuple[str, ...] = ()  # of the SavedModel, if there is to be one
    formats: tuple[str, ...] = ()  # of the export


class ModelCheck:
    """Tries a model that is built; it changes nothing that training could see.

    Parameters
    ----------
    engine : Engine
        With the initial values loaded.
    assembly : Assembly
        Of the engine.
    """

    def __init__(self, engine: Engine, assembly: Assembly, plan: Plan) -> None:
        self._engine, self._assembly, self._plan = engine, assembly, plan
        self._contract = assembly.contract
        specs = assembly.updates.tables
        self._tables = Tables(specs, plan.seed, [empty_rows(spec) for spec in specs])  # as partitions begin

    def run(self) -> TriedMinibatch | None:
        """Return what a minibatch gave; None if none was found in time.

        Raises
        ------
        ModelError
            If the model cannot be trained; a UserCodeError has the line of the user's code.
        DataError
            If the records cannot be read.
        """
        if not self._plan.is_training:
            return None
        refused: list[UserCodeError] = []
        until = time.monotonic() + PATIENCE_S
        rate = self._engine.learning_rate(0)
        self._engine.table_rates(0)
        for task in range(self._plan.tasks_per_epoch):
            try:
                computed = self._compute(task)
            except TaskError as error:
                refused.append(self._mistake(error))
            else:
                if computed.loss is None:  # the feed leaves out all of this task's records
                    if time.monotonic() > until:
                        return None
                    continue
                if math.isfinite(computed.loss):
                    return self._tried(computed.records, computed.loss, rate)
                refused.append(self._not_finite(computed.loss))
            if len(refused) == TRIES:
                break
        if refused:
            raise refused[0]
        raise UserCodeError(
            "feed() leaves out every record of the data",
            "let it keep some: look at the condition of its filter()",
            where=self._contract.code.place(self._contract.feed),
        )

    def _tried(self, records: int, loss: float, rate: float) -> TriedMinibatch:
        features, labels, _ = split_element(self._assembly.spec)
        return TriedMinibatch(
            records=records,
            loss=loss,
            learning_rate=rate,
            features=shown(features, records),
            labels=shown(labels, records),
            predictions=shown(self._assembly.built.predictions, records),
            signatures=self._check_export(),
            formats=() if self._assembly.export_wish is None else self._assembly.export_wish.formats,
        )

    def _check_export(self) -> tuple[str, ...]:
        """See whether the model can come out as it is wanted, before anybody has waited for its training."""
        wish = self._assembly.export_wish
        if wish is None:
            return ()
        with self._contract.code.blaming(self._contract.model_definition):
            return check_export(self._assembly.model, self._assembly.updates.tables, self._plan.seed, wish)

    def _compute(self, task: int) -> Computed:
        try:
            return self._engine.compute(task, 0, self._initial_rows(task))
        finally:
            self._engine.drop(task)

    def _initial_rows(self, task: int) -> tuple[Rows, ...]:
        """Return the rows that a task's first minibatch looks up, as partitions would make them."""
        groups = self._engine.find_ids(task, 0) if len(self._tables) else None
        if groups is None:
            return ()
        counts = tuple(len(group.ids) for group in groups)
        flat = self._tables.gather(RowIds(counts=counts, ids=np.concatenate([group.ids for group in groups])))
        dims = [spec.dim for spec in self._tables.specs]
        ends = np.cumsum([count * dim for count, dim in zip(counts, dims, strict=True)])
        parts = np.split(flat, ends[:-1])
        return tuple(part.reshape(-1, dim) for part, dim in zip(parts, dims, strict=True))

    def _mistake(self, error: TaskError) -> UserCodeError:
        return error.as_mistake("the first minibatch fails", self._contract.model_place)

    def _not_finite(self, loss: float) -> UserCodeError:
        return UserCodeError(
            f"the loss of the first minibatches is {loss}, before anything was trained",
            "every parameter would become NaN: look for log(0), 0/0, or NaN among the features",
            where=self._contract.loss_place,
        )
