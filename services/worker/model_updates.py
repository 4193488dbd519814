"""How the gradients of a model become updates: optimizers, learning rates and clipping, of tables as well."""

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from edlz.api.callbacks import SavedModelExporter
from edlz.services.configuration.export_flags import chosen_formats
from edlz.services.errors import ModelError
from edlz.services.messages import ExportWish, OptimizerSpec, TableSpec
from edlz.services.plan import Plan
from edlz.services.worker.backend import keras
from edlz.services.worker.gradient_clipping import GradientClipping
from edlz.services.worker.initializers import initializer_spec
from edlz.services.worker.keras_model import BuiltModel
from edlz.services.worker.learning_rates import SCHEDULERS, LearningRate, constant_rate, scheduled_rate
from edlz.services.worker.model_module import ModelContract
from edlz.services.worker.optimizer import ModelOptimizer
from edlz.services.worker.tables import table_path

__all__ = ["ModelUpdates"]

logger = logging.getLogger(__name__)


class ModelUpdates:
    """What follows from the user's optimizers and schedules.

    Attributes
    ----------
    optimizer : OptimizerSpec
    tables : tuple of TableSpec
    clipping : GradientClipping
    export_wish : ExportWish, or None
        Of a SavedModelExporter among the callbacks.

    Raises
    ------
    ModelError
        If partitions have no such optimizer, initial values or options.
    """

    def __init__(self, contract: ModelContract, built: BuiltModel, plan: Plan) -> None:
        model = ModelOptimizer(contract.make_optimizer())
        callbacks = contract.make_callbacks()
        for callback in callbacks:
            if not isinstance(callback, (*SCHEDULERS, SavedModelExporter)):
                logger.warning(
                    "callback=%s is not run: of callbacks() only learning rate schedulers and SavedModelExporter are heeded yet",
                    type(callback).__name__,
                )
        self.export_wish = _export_wish(callbacks)
        scheduled = scheduled_rate(callbacks, model.keras, plan, contract.code)
        self._rate = LearningRate(model.keras, scheduled)
        own = [_own_optimizer(layer) for layer in built.tables]
        self._table_rates = [_own_rate(layer, o) for layer, o in zip(built.tables, own, strict=True)]
        self.optimizer: OptimizerSpec = model.dense_spec(built.dense)
        self.tables = tuple(_table(layer, o or model) for layer, o in zip(built.tables, own, strict=True))
        clips = [None if o is None else o.clip for o in own]
        self.clipping = GradientClipping(built.layout.dense, model.clip, clips)

    def learning_rate(self, version: int) -> float:
        """Return the learning rate of the step from `version` (updates so far) to version + 1."""
        return self._rate.at(version)

    def table_rates(self, version: int) -> tuple[float, ...]:
        """Return the learning rate of each table, or nothing if all have the model's."""
        if not any(self._table_rates):
            return ()
        return tuple((own or self._rate).at(version) for own in self._table_rates)


def _export_wish(callbacks: Sequence[Any]) -> ExportWish | None:
    """Return what the last exporter among the callbacks wishes for; one without a place waits for --output."""
    places = [callback.output for callback in callbacks if isinstance(callback, SavedModelExporter)]
    if not places or not places[-1]:
        return None
    output = str(Path(places[-1]).absolute())
    return ExportWish(output=output, formats=chosen_formats(output, ""))


def _own_optimizer(layer: Any) -> ModelOptimizer | None:
    if not layer.trainable:  # rows are pulled, and never change
        return ModelOptimizer(keras.optimizers.SGD(0.0))
    return None if layer.optimizer is None else ModelOptimizer(layer.optimizer, f"layer {layer.name}")


def _own_rate(layer: Any, optimizer: ModelOptimizer | None) -> LearningRate | None:
    if optimizer is None:
        return None
    return LearningRate(optimizer.keras, None if layer.trainable else constant_rate(0.0))


def _table(layer: Any, optimizer: ModelOptimizer) -> TableSpec:
    try:
        initializer = initializer_spec(layer.embeddings_initializer, layer.input_dim, layer.output_dim)
    except ModelError as e:
        raise ModelError(f"layer {layer.name}: {e.message}", e.help) from e
    path = table_path(layer)
    spec = optimizer.table_spec(path)
    return TableSpec(path=path, dim=layer.output_dim, initializer=initializer, optimizer=spec)
