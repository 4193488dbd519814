"""Whether a model can be exported, found out before it is trained: the graph is made, and no variable is written."""

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass

from edlz.core_ext.table import Initializer
from edlz.services.errors import ConfigError, ModelError
from edlz.services.export.keras_file import refuse_unfit_model
from edlz.services.export.safetensors_files import refuse_unfit_variables
from edlz.services.export.served import Served
from edlz.services.export.tables.table_lookup import IdTable, WholeTable
from edlz.services.protocol.messages import ExportWish, TableSpec
from edlz.services.protocol.seeds import table_seed
from edlz.services.worker.engine.model.embedding_replacement import TableEmbedding
from edlz.services.worker.engine.model.job_model import JobModel

__all__ = ["check_export"]


@dataclass(frozen=True, slots=True)
class _Untrained:
    """A table that has no rows yet."""

    dim: int
    initializer: Initializer
    seed: int


def check_export(model: JobModel, specs: Sequence[TableSpec], seed: int, wish: ExportWish) -> tuple[str, ...]:
    """Return the names of the signatures that a SavedModel of this model has, if there is to be one.

    Parameters
    ----------
    specs : sequence of TableSpec
        Of the model's tables.
    seed : int
        The job's.
    wish : ExportWish
        What is to come out.

    Raises
    ------
    ModelError
        If the model cannot be traced for it, or uses what cannot be saved; if another format cannot have it.
    """
    try:
        if "keras" in wish.formats:
            refuse_unfit_model(model.built, wish.unknown_ids or None)  # type: ignore[arg-type]  # a flag, checked
        if "safetensors" in wish.formats:
            refuse_unfit_variables(model.built)
    except ConfigError as e:
        raise ModelError(f"it cannot be exported at the end: {e.message}", e.help) from e
    return _signatures(model, specs, seed) if "saved_model" in wish.formats else ()


def _signatures(model: JobModel, specs: Sequence[TableSpec], seed: int) -> tuple[str, ...]:
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
