"""How the gradients of a model become updates: optimizers, learning rates and clipping, of tables as well."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from edlz.core_ext.table import MAX_DIM
from edlz.services.configuration.export_flags import chosen_formats
from edlz.services.errors import ModelError
from edlz.services.protocol.messages import ExportWish, OptimizerSpec, TableSpec
from edlz.services.protocol.plan import Plan
from edlz.services.worker.engine.callbacks.kinds import SortedCallbacks
from edlz.services.worker.engine.contract.gradient_clipping import GradientClipping
from edlz.services.worker.engine.contract.learning_rates import LearningRate, constant_rate, scheduled_rate
from edlz.services.worker.engine.contract.model_module import ModelContract
from edlz.services.worker.engine.contract.optimizer import ModelOptimizer
from edlz.services.worker.engine.model.initializers import initializer_spec
from edlz.services.worker.engine.model.keras_features import computes_in_float16
from edlz.services.worker.engine.model.keras_model import BuiltModel
from edlz.services.worker.engine.model.tables import table_path
from edlz.services.worker.engine.tensorflow.backend import keras

__all__ = ["ModelUpdates"]

_FLOAT16_SCALE = 2.0**15  # what Keras' LossScaleOptimizer begins with


class ModelUpdates:
    """What follows from the user's optimizers and schedules.

    Parameters
    ----------
    callbacks : SortedCallbacks, optional
        Some of them schedule the learning rate, or export.

    Attributes
    ----------
    keras : keras.optimizers.Optimizer
        The user's.
    optimizer : OptimizerSpec
    tables : tuple of TableSpec
    clipping : GradientClipping
    export_wish : ExportWish, or None
        Of a SavedModelExporter among the callbacks.
    loss_scale : float or None
        What the loss is multiplied by where gradients are computed in float16, as `compile` would arrange it.

    Raises
    ------
    ModelError
        If partitions have no such optimizer, initial values or options.
    """

    def __init__(
        self, contract: ModelContract, built: BuiltModel, plan: Plan, callbacks: SortedCallbacks | None = None
    ) -> None:
        with contract.code.blaming(contract.optimizer):
            model = ModelOptimizer(contract.make_optimizer())
        callbacks = callbacks or SortedCallbacks()
        self.keras, self.export_wish = model.keras, _export_wish(callbacks.exporters)
        self.loss_scale = model.loss_scale or (_FLOAT16_SCALE if computes_in_float16(built.model) else None)
        scheduled = scheduled_rate(callbacks.schedulers, model.keras, plan, contract.code)
        self._rate = LearningRate(model.keras, scheduled)
        own = [_own_optimizer(layer) for layer in built.tables]
        self._table_rates = [_own_rate(layer, o) for layer, o in zip(built.tables, own, strict=True)]
        self.optimizer: OptimizerSpec = model.dense_spec(built.dense)
        with contract.code.blaming(contract.model_definition):
            self.tables = tuple(_table(layer, o or model) for layer, o in zip(built.tables, own, strict=True))
        clips = [None if o is None else o.clip for o in own]
        self.clipping = GradientClipping(built.layout.dense, model.clip, clips)

    @property
    def constant_rate(self) -> float | None:
        """The model's learning rate, if it does not follow from the version."""
        return self._rate.constant

    def learning_rate(self, version: int) -> float:
        """Return the learning rate of the step from `version` (updates so far) to version + 1."""
        return self._rate.at(version)

    def table_rates(self, version: int, rate: float | None = None) -> tuple[float, ...]:
        """Return the learning rate of each table, or nothing if all have the model's; `rate`: in its place."""
        if not any(self._table_rates):
            return ()
        models = self._rate.at(version) if rate is None else rate
        return tuple(models if own is None else own.at(version) for own in self._table_rates)


def _export_wish(exporters: Sequence[Any]) -> ExportWish | None:
    """Return what the last exporter wishes for; one without a place waits for --output."""
    places = [exporter.output for exporter in exporters]
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
    if layer.output_dim > MAX_DIM:
        raise ModelError(
            f"layer {layer.name}: rows of output_dim={layer.output_dim:,} are longer than those of parameter servers, "
            f"{MAX_DIM:,} at most",
            "is it the number of ids? That is input_dim; or look the ids up in several layers, side by side",
        )
    try:
        initializer = initializer_spec(layer.embeddings_initializer, layer.input_dim, layer.output_dim)
    except ModelError as e:
        raise ModelError(f"layer {layer.name}: {e.message}", e.help) from e
    path = table_path(layer)
    spec = optimizer.table_spec(path)
    return TableSpec(path=path, dim=layer.output_dim, initializer=initializer, optimizer=spec)
