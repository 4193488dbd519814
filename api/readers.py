"""What a model module builds on to read its data itself: `custom_data_reader` returns one of these."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

__all__ = ["AbstractDataReader", "Metadata", "ReaderShard", "ReaderTask", "Shards"]

Shards = Mapping[str, tuple[int, int]] | Sequence[tuple[str, int, int]]
"""Name to (first record, count); or triples of them, in the order in which they are to be cut into tasks."""


@dataclass(frozen=True, slots=True)
class Metadata:
    """What is known of the records' columns.

    Attributes
    ----------
    column_names : list of str or None
        In their order; None if records have no columns.
    column_dtypes : dict of str to object
        TensorFlow's type of each, by name.
    """

    column_names: list[str] | None = None
    column_dtypes: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ReaderShard:
    """The records from `start` to before `end` of what is called `name`."""

    name: str
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class ReaderTask:
    """The records that are to be read: those from `start` to before `end` of `shard_name`."""

    shard: ReaderShard

    @property
    def shard_name(self) -> str:
        return self.shard.name

    @property
    def start(self) -> int:
        return self.shard.start

    @property
    def end(self) -> int:
        return self.shard.end


class AbstractDataReader(ABC):
    """Base of a model's own reader.

    A model module has a function `custom_data_reader(data_origin, records_per_task=None, **params)` that returns one.
    `data_origin` is what `--training_data` (or `--validation_data`, `--prediction_data`) says, `params` are those of
    `--data_reader_params`.  The records of a range must be the same whenever and wherever they are read.
    """

    def __init__(self, **params: Any) -> None:
        """Take whatever parameters there are, and keep them as `params`."""
        self.params = params

    @abstractmethod
    def create_shards(self) -> Shards:
        """Return what there is to read; called once for each flag, when the job is planned."""

    @abstractmethod
    def read_records(self, task: ReaderTask) -> Iterable[Any]:
        """Yield the records of a task in their order: bytes or text, or values as `records_output_types` says."""

    @property
    def records_output_types(self) -> Any:
        """TensorFlow's type of a record, or a dict or tuple of types; None: byte strings."""
        return None

    @property
    def metadata(self) -> Any:
        """What `feed` gets as its third argument."""
        return Metadata()
