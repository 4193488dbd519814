"""The user's model with the values of a cut in its variables, and its tables beside it."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from edlz.services.configuration.job_config import JobConfig
from edlz.services.errors import DataError
from edlz.services.export.tables.table_content import TableContent
from edlz.services.protocol.layout import VectorLayout
from edlz.services.protocol.plan import Plan
from edlz.services.storage.whole_cut import WholeCut
from edlz.services.worker.engine.feed.task_reader import TaskReader
from edlz.services.worker.engine.model.embedding_replacement import TableEmbedding, give_weight
from edlz.services.worker.engine.model.initializers import initializer_spec
from edlz.services.worker.engine.model.job_model import JobModel
from edlz.services.worker.engine.model.tables import table_path

__all__ = ["LoadedModel", "give_plain_weights"]

_MOST_NAMED = 3


class LoadedModel:
    """A model, built from the job's settings, with what was trained.

    Parameters
    ----------
    config, plan : JobConfig, Plan
        Of the job; the plan's data is read for a few records at most.
    cut : WholeCut
        Open as long as the tables are read.
    on_progress : callable, optional
        Called again and again while rows are read, with how many were given out since.

    Attributes
    ----------
    job : JobModel
    tables : tuple of TableContent
        In the order of `job.built.tables`.

    Raises
    ------
    ModelError, DataError
        As JobModel; a DataError also if the cut is of another model.
    """

    def __init__(
        self,
        config: JobConfig,
        plan: Plan,
        cut: WholeCut,
        on_progress: Callable[[int], None] = lambda _: None,
    ) -> None:
        reader = TaskReader(plan)
        try:
            self.job = JobModel(config, plan, reader)
            self.job.close()
            built = self.job.built
            _check_fit(built, cut)
            for variables, layout, name in (
                (built.dense, built.layout.dense, "dense"),
                (built.state, built.layout.state, "state"),
                (built.counters, built.layout.counters, "counters"),
            ):
                _load(variables, layout, cut.vector(name))
        finally:
            reader.close()
        self.tables = tuple(
            TableContent(cut, place, plan.seed, on_progress) for place in range(len(built.tables))
        )

    @property
    def model(self) -> Any:
        """The Keras model."""
        return self.job.built.model

    def layer_of(self, table: TableContent) -> Any:
        """Return the layer whose rows a table has."""
        return self.job.built.tables[table.place]

    def is_plain(self, table: TableContent) -> bool:
        """Whether a table is the weight of a keras.layers.Embedding."""
        return isinstance(self.layer_of(table), TableEmbedding)

    def size_of(self, table: TableContent) -> int:
        """Return how many rows the weight of a plain layer has."""
        return int(self.layer_of(table).input_dim)


def _check_fit(built: Any, cut: WholeCut) -> None:
    """Raise DataError unless the cut is of this model."""
    theirs = [(table.spec.path, table.spec.dim, table.spec.initializer) for table in cut.head.tables]
    ours = [
        (
            table_path(layer),
            layer.output_dim,
            initializer_spec(layer.embeddings_initializer, layer.input_dim, layer.output_dim),
        )
        for layer in built.tables
    ]
    for what, there, here in (
        ("variables", _variables(cut.head.layout), _variables(built.layout)),
        ("embedding tables", [_table(*one) for one in theirs], [_table(*one) for one in ours]),
    ):
        if there != here:
            only_there = [one for one in there if one not in here] or there
            only_here = [one for one in here if one not in there] or here
            raise DataError(
                f"the checkpoint's {what} are not the model's: {_some(only_there)} there, {_some(only_here)} here",
                "use the model, --model_params and --embedding_threshold_bytes that wrote the checkpoint",
            )


def _variables(layout: Any) -> list[str]:
    vectors = (layout.dense, layout.state, layout.counters)
    return [f"{v.path} {tuple(v.shape)}" for vector in vectors for v in vector.variables]


def _table(path: str, dim: int, initializer: Any) -> str:
    return f"{path} of {dim} ({initializer.kind} {initializer.a:g} {initializer.b:g})"


def _some(names: list[str]) -> str:
    more = f" and {len(names) - _MOST_NAMED} more" if len(names) > _MOST_NAMED else ""
    return ", ".join(names[:_MOST_NAMED]) + more if names else "nothing"


def _load(variables: Any, layout: VectorLayout, vector: npt.NDArray[Any]) -> None:
    for variable, place, offset in zip(variables, layout.variables, layout.offsets, strict=False):
        values = vector[offset : offset + place.size].reshape(place.shape)
        variable.assign(values.astype(np.dtype(variable.value.dtype.as_numpy_dtype), copy=False))


def give_plain_weights(model: LoadedModel, scratch: Path) -> None:
    """Give each plain layer of the model its weight, in memory.

    Parameters
    ----------
    scratch : Path
        A folder with room for the largest table.

    Raises
    ------
    DataError
        If the state's files are damaged.
    """
    for content in model.tables:
        if model.is_plain(content):
            _give(model, content, scratch)


def _give(model: LoadedModel, content: TableContent, scratch: Path) -> None:
    layer, size = model.layer_of(content), model.size_of(content)
    values = np.empty((size, content.dim), np.float32)
    for first, block in content.whole(size, scratch):
        values[first : first + len(block)] = block
    give_weight(layer)
    layer.embeddings.assign(values)
