"""Everything of one job that touches TensorFlow, put together in the order that its seeds need."""

import numpy as np
import numpy.typing as npt

from edlz.api.feeds import Mode
from edlz.services.configuration.export_flags import chosen_formats
from edlz.services.configuration.job_config import JobConfig
from edlz.services.errors import ConfigError
from edlz.services.protocol.messages import ExportWish
from edlz.services.protocol.plan import Plan
from edlz.services.worker.engine.callbacks.calls import CallbackCalls
from edlz.services.worker.engine.callbacks.kinds import SortedCallbacks, check_monitors, sort_callbacks
from edlz.services.worker.engine.evaluator import Evaluator
from edlz.services.worker.engine.feed.feed import SlowFeed
from edlz.services.worker.engine.feed.task_reader import TaskReader
from edlz.services.worker.engine.model.job_model import JobModel
from edlz.services.worker.engine.model.keras_model import Vectors
from edlz.services.worker.engine.model.model_updates import ModelUpdates
from edlz.services.worker.engine.predictor import Predictor
from edlz.services.worker.engine.rows.ids_function import IdsFunction
from edlz.services.worker.engine.rows.row_finder import RowFinder
from edlz.services.worker.engine.step import LoadedVectors, TrainingStep

__all__ = ["Assembly"]


class Assembly:
    """The parts of an engine.

    Parameters
    ----------
    config, plan : JobConfig, Plan
    reader : TaskReader
        Of the job's records.
    partitions : int
        Among which rows are divided.

    Attributes
    ----------
    contract : ModelContract
    spec : tuple of TensorSpec structures
        Of what the feed yields.
    vectors : LoadedVectors
        What is computed on: the initial values at first.
    slow_feed : SlowFeed or None
        For a feed of single records.
    callbacks : CallbackCalls or None
        If there are any to be called.
    max_steps : int
        Minibatches after which callbacks end the job; 0: none.
    stops_on_nan : bool
        Whether callbacks end the job at a loss that is not finite.
    """

    def __init__(self, config: JobConfig, plan: Plan, reader: TaskReader, partitions: int = 1) -> None:
        self._partitions, self._plan, self._config = partitions, plan, config
        self._model = JobModel(config, plan, reader)
        contract, spec = self._model.contract, self._model.feed.spec
        self.contract, self.spec = contract, spec
        self.lanes, self.built = self._model.lanes, self._model.built
        self.slow_feed = None if contract.is_batched else SlowFeed(contract.feed)
        self._initial: Vectors | None = self.built.initial_vectors()
        found = SortedCallbacks()
        if plan.is_training:
            with contract.code.blaming(contract.callbacks):
                found = sort_callbacks(contract, is_sync=plan.is_sync, is_told=True)
        self.updates = ModelUpdates(contract, self.built, plan, found)
        has_tables = bool(self.built.tables)
        is_traced = has_tables and not plan.predicts
        ids = IdsFunction(contract, self.built, spec, is_training=True) if is_traced else None
        self.finder = RowFinder(contract.code, self.built.tables, ids, self.lanes, partitions)
        scale = self.updates.loss_scale
        self._step = None if plan.predicts else TrainingStep(contract, self.built, spec, ids, scale)
        self.vectors = LoadedVectors(*self._initial)
        is_evaluated = plan.evaluation_shards and not plan.predicts
        has_some = bool(found.deciders or found.observers)
        self._evaluator = self._make_evaluator(with_loss=has_some) if is_evaluated else None
        self._predictor = self._make_predictor(config) if plan.predicts else None
        self.stops_on_nan, self.max_steps = found.stops_on_nan, found.max_steps
        self.callbacks = self._make_calls() if has_some else None

    def take_initial(self) -> Vectors:
        """Return the initial values, once: they are as large as the model, and not kept."""
        initial, self._initial = self._initial, None
        assert initial is not None, "they have been taken"
        return initial

    @property
    def step(self) -> TrainingStep:
        assert self._step is not None, "a job that predicts trains nothing"
        return self._step

    @property
    def predictor(self) -> Predictor:
        assert self._predictor is not None, "this job predicts nothing"
        return self._predictor

    @property
    def model(self) -> JobModel:
        """The model, and what it was built from."""
        return self._model

    @property
    def export_wish(self) -> ExportWish | None:
        """What the finished model is to come out as: the flags say so, or else a callback."""
        output, formats = self._config.output, self._config.output_format
        if not output:
            return self.updates.export_wish
        unknown_ids = self._config.unknown_ids
        return ExportWish(output=output, formats=chosen_formats(output, formats), unknown_ids=unknown_ids)

    @property
    def evaluator(self) -> Evaluator:
        """What evaluates; raises ConfigError if the job has no validation data."""
        if self._evaluator is None:
            raise ConfigError("this job has no validation data", "name some: --validation_data=PATH")
        return self._evaluator

    def load(
        self,
        dense: npt.NDArray[np.float32],
        state: npt.NDArray[np.float32],
        counters: npt.NDArray[np.int64],
    ) -> None:
        self.vectors = LoadedVectors(dense, state, counters)

    def close(self) -> None:
        self._model.close()
        if self._evaluator is not None:
            self._evaluator.close()
        if self._predictor is not None:
            self._predictor.close()

    def _make_calls(self) -> CallbackCalls:
        contract, updates = self._model.contract, self.updates
        metrics = None if self._evaluator is None else self._evaluator.metric_names

        def make() -> SortedCallbacks:
            return check_monitors(sort_callbacks(contract, is_sync=self._plan.is_sync), metrics)

        about = (self.built.model, updates.keras, updates.constant_rate, self._plan.epochs)
        return CallbackCalls(contract.code, make, *about, is_sync=self._plan.is_sync)

    def _make_evaluator(self, *, with_loss: bool) -> Evaluator:
        feed = self._model.open_feed(Mode.EVALUATION)
        ranges = self._plan.evaluation_ranges
        about = (self._model.contract, self.built, feed, self.vectors, ranges, self._partitions)
        return Evaluator(*about, with_loss=with_loss)

    def _make_predictor(self, config: JobConfig) -> Predictor:
        model, ranges = self._model, self._plan.evaluation_ranges
        return Predictor(
            model.contract,
            self.built,
            model.feed,
            self.vectors,
            ranges,
            self._partitions,
            has_files=bool(config.prediction_output),
            worker_id=config.worker_id,
        )
