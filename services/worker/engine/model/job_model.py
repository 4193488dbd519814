"""The user's model as every process of a job builds it: its code, its feed, and the model, from the job's seed."""

from functools import partial
from typing import Any

from edlz.api.column_statistics import use_statistics
from edlz.api.feeds import Mode
from edlz.services.configuration.job_config import JobConfig
from edlz.services.errors import ModelError
from edlz.services.inputs.custom_listing import CUSTOM
from edlz.services.protocol.plan import DataSource, Plan
from edlz.services.statistics.kept import unpack
from edlz.services.worker.engine.contract.data_reader import CustomReader
from edlz.services.worker.engine.contract.model_module import load_contract
from edlz.services.worker.engine.feed.feed import Feed, FeedSettings, open_feed
from edlz.services.worker.engine.feed.minibatch_streams import Lanes
from edlz.services.worker.engine.feed.pipeline import refuse_whole_batches
from edlz.services.worker.engine.feed.record_form import RecordForm
from edlz.services.worker.engine.feed.task_reader import TaskReader
from edlz.services.worker.engine.model.embedding_replacement import replacing
from edlz.services.worker.engine.model.keras_model import build_model, start_from
from edlz.services.worker.engine.model.lookups import without_rows
from edlz.services.worker.engine.tensorflow import backend
from edlz.services.worker.engine.user_code.user_code import TaskError, telling_exits

__all__ = ["JobModel"]


class JobModel:
    """A model and what it was built from; the same bits in every process.

    Parameters
    ----------
    config, plan : JobConfig, Plan
    reader : TaskReader
        Of the job's records, the first of which say what the model's inputs are.

    Attributes
    ----------
    contract : ModelContract
    feed : Feed
        In training mode, or in that of evaluation or prediction if that is all that the job does.
    lanes : Lanes
        Of that feed.
    built : BuiltModel

    Raises
    ------
    ModelError
        If the module lacks something, its code raises, or the model is of a kind that cannot be trained.
    DataError
        If the job's first records cannot be read.
    """

    @telling_exits()
    def __init__(self, config: JobConfig, plan: Plan, reader: TaskReader) -> None:
        self._config, self._plan, self._reader = config, plan, reader
        backend.configure(config.worker_threads)
        use_statistics(unpack(plan.statistics))
        start_from(plan.seed)  # a module may build its model while it is imported
        threshold_bytes = config.embedding_threshold_bytes
        with replacing(threshold_bytes), without_rows():
            self.contract = load_contract(config)
        self._metadata: dict[str, Any] = {}  # of the model's own readers, by what the data's flags say
        for source, shards in ((plan.source, plan.shards), (plan.evaluation_source, plan.evaluation_shards)):
            if source is not None and source.format == CUSTOM:
                is_growing = plan.grows and source is plan.source
                self._use_custom(source, [shard.name for shard in shards], is_growing=is_growing)
        other = Mode.PREDICTION if plan.predicts else Mode.EVALUATION
        mode = Mode.TRAINING if plan.is_training else other
        self.feed = self.open_feed(mode)
        self.lanes = Lanes(self.feed, self.contract.code, self.contract.feed)
        start_from(plan.seed)
        try:
            self.built = build_model(
                self.contract,
                self.feed.spec,
                plan.minibatch_size,
                self._first_element,
                threshold_bytes,
                has_labels=not plan.predicts,
            )
        except ModelError:
            refuse_whole_batches(self.contract, self.feed_settings(mode))  # then that is the cause
            raise

    def _use_custom(self, source: DataSource, names: list[str], *, is_growing: bool) -> None:
        """Have shards read by the model's own reader; `is_growing`: also those that will come."""
        make = self.contract.data_reader
        if make is None:
            raise ModelError(
                f"{self.contract.name} defines no {self._config.custom_data_reader}(), by which this job was planned",
                "put it back, or start a new job",
            )
        custom = CustomReader(make, self.contract.code, self._config, source.origin)
        self._reader.use(lambda name: custom.open(name, source), names, uses_for_others=is_growing)
        self._metadata[source.origin] = custom.metadata
        self.contract = self.contract.with_feed_of(custom)

    def open_feed(self, mode: Mode) -> Feed:
        """Make the user's feed ready for a mode."""
        return open_feed(self.contract, self.feed_settings(mode))

    def feed_settings(self, mode: Mode) -> FeedSettings:
        is_training, reader = mode is Mode.TRAINING, self._reader
        plan = self._plan
        source = plan.source if plan.is_training and is_training else plan.evaluation_source or plan.source
        return FeedSettings(
            mode=mode,
            minibatch_size=self._plan.minibatch_size,
            seed=self._plan.seed,
            threads=self._config.worker_threads,
            read=reader.read_training if is_training else reader.read_evaluation,
            number=reader.number_in_training if is_training else reader.number_in_evaluation,
            sample=partial(reader.sample, is_training=is_training),
            form=RecordForm(source, self._metadata.get(source.origin) if source else None),
            is_example=self._config.codec_type == "tf_example",
        )

    def close(self) -> None:
        """Let go of threads and streams; the model stays."""
        self.lanes.close()

    def _first_element(self) -> Any:
        plan = self._plan
        training = ((task, plan.task_range(task)) for task in range(plan.tasks_per_epoch))
        try:
            return self.lanes.first_element(
                training if plan.is_training else enumerate(plan.evaluation_ranges)
            )
        except TaskError as e:
            raise e.as_mistake("the first minibatch fails", self.contract.model_place) from e
