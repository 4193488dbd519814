"""Whether a model can be exported, found out before it is trained: the graph is made, and no variable is written."""

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass

from edlz.core_ext.table import Initializer
from edlz.services.export.served import Served
from edlz.services.export.table_lookup import IdTable, WholeTable
from edlz.services.messages import TableSpec
from edlz.services.seeds import table_seed
from edlz.services.worker.embedding_replacement import TableEmbedding
from edlz.services.worker.job_model import JobModel

__all__ = ["check_export"]


@dataclass(frozen=True, slots=True)
class _Untrained:
    """A table that has no rows yet."""

    dim: int
    initializer: Initializer
    seed: int


def check_export(model: JobModel, specs: Sequence[TableSpec], seed: int) -> tuple[str, ...]:
    """Return the names of the signatures that a SavedModel of this model has.

    Parameters
    ----------
    specs : sequence of TableSpec
        Of the model's tables.
    seed : int
        The job's.

    Raises
    ------
    ModelError
        If the model cannot be traced for it, or uses what cannot be saved.
    """
    tables: list[IdTable | WholeTable] = []
    for place, (spec, layer) in enumerate(zip(specs, model.built.tables, strict=True)):
        about = spec.initializer
        content = _Untrained(spec.dim, Initializer(about.kind, about.a, about.b), table_seed(seed, place))
        is_plain = isinstance(layer, TableEmbedding)
        tables.append(WholeTable(content) if is_plain else IdTable(content, "initial"))
    served = Served(model, tables)
    with tempfile.TemporaryDirectory(prefix="edlz-check-") as folder:
        served.save(folder, with_variables=False)
    return tuple(served.signatures)
