"""Everything of one job that touches TensorFlow, put together in the order that its seeds need."""

from typing import Any

import numpy as np
import numpy.typing as npt

from edlz.api.mode import Mode
from edlz.services.config import JobConfig
from edlz.services.errors import ConfigError
from edlz.services.plan import Plan
from edlz.services.worker import backend
from edlz.services.worker.embedding_replacement import replacing
from edlz.services.worker.evaluator import Evaluator
from edlz.services.worker.feed import Feed, FeedSettings, open_feed
from edlz.services.worker.ids_function import IdsFunction
from edlz.services.worker.keras_model import build_model, start_from
from edlz.services.worker.lanes import Lanes
from edlz.services.worker.lookups import without_rows
from edlz.services.worker.model_module import load_contract
from edlz.services.worker.model_updates import ModelUpdates
from edlz.services.worker.row_finder import RowFinder
from edlz.services.worker.step import LoadedVectors, TrainingStep
from edlz.services.worker.task_reader import TaskReader

__all__ = ["Assembly"]


class Assembly:
    """The parts of a trainer.

    Attributes
    ----------
    vectors : LoadedVectors
        What is computed on: the initial values at first.
    """

    def __init__(self, config: JobConfig, plan: Plan, reader: TaskReader, partitions: int = 1) -> None:
        self._partitions = partitions
        self._config, self._plan, self._reader = config, plan, reader
        backend.configure(config.worker_threads)
        start_from(plan.seed)  # a module may build its model while it is imported
        threshold_bytes = config.embedding_threshold_bytes
        with replacing(threshold_bytes), without_rows():
            self._contract = load_contract(config)
        feed = self._open_feed(Mode.TRAINING if plan.is_training else Mode.EVALUATION)
        self.lanes = Lanes(feed, self._contract.code, self._contract.feed)
        start_from(plan.seed)
        self.built = build_model(
            self._contract, feed.spec, plan.minibatch_size, self._first_element, threshold_bytes
        )
        self.initial = self.built.initial_vectors()
        self.updates = ModelUpdates(self._contract, self.built, plan)
        has_tables = bool(self.built.tables)
        ids = IdsFunction(self._contract, self.built, feed.spec, is_training=True) if has_tables else None
        self.finder = RowFinder(self._contract.code, self.built.tables, ids, self.lanes, partitions)
        self.step = TrainingStep(self._contract, self.built, feed.spec, ids)
        self.vectors = LoadedVectors(*self.initial)
        self._evaluator = self._make_evaluator() if plan.evaluation_shards else None

    @property
    def evaluator(self) -> Evaluator:
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
        self.lanes.close()
        if self._evaluator is not None:
            self._evaluator.close()

    def _open_feed(self, mode: Mode) -> Feed:
        is_training, reader = mode is Mode.TRAINING, self._reader
        settings = FeedSettings(
            mode=mode,
            minibatch_size=self._plan.minibatch_size,
            seed=self._plan.seed,
            threads=self._config.worker_threads,
            read=reader.read_training if is_training else reader.read_evaluation,
            number=reader.number_in_training if is_training else reader.number_in_evaluation,
            sample=reader.sample,
            is_example=self._config.codec_type == "tf_example",
        )
        return open_feed(self._contract, settings)

    def _make_evaluator(self) -> Evaluator:
        feed = self._open_feed(Mode.EVALUATION)
        ranges = self._plan.evaluation_ranges
        return Evaluator(self._contract, self.built, feed, self.vectors, ranges, self._partitions)

    def _first_element(self) -> Any:
        plan = self._plan
        if not plan.is_training:
            return self.lanes.first_element(enumerate(plan.evaluation_ranges))
        return self.lanes.first_element((task, plan.task_range(task)) for task in range(plan.tasks_per_epoch))
