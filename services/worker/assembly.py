"""Everything of one job that touches TensorFlow, put together in the order that its seeds need."""

import numpy as np
import numpy.typing as npt

from edlz.api.mode import Mode
from edlz.services.config import JobConfig
from edlz.services.errors import ConfigError
from edlz.services.plan import Plan
from edlz.services.worker.evaluator import Evaluator
from edlz.services.worker.ids_function import IdsFunction
from edlz.services.worker.job_model import JobModel
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
        self._partitions, self._plan = partitions, plan
        self._model = JobModel(config, plan, reader)
        contract, spec = self._model.contract, self._model.feed.spec
        self.lanes, self.built = self._model.lanes, self._model.built
        self.initial = self.built.initial_vectors()
        self.updates = ModelUpdates(contract, self.built, plan)
        has_tables = bool(self.built.tables)
        ids = IdsFunction(contract, self.built, spec, is_training=True) if has_tables else None
        self.finder = RowFinder(contract.code, self.built.tables, ids, self.lanes, partitions)
        self.step = TrainingStep(contract, self.built, spec, ids)
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
        self._model.close()
        if self._evaluator is not None:
            self._evaluator.close()

    def _make_evaluator(self) -> Evaluator:
        feed = self._model.open_feed(Mode.EVALUATION)
        ranges = self._plan.evaluation_ranges
        return Evaluator(self._model.contract, self.built, feed, self.vectors, ranges, self._partitions)
