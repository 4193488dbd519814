"""A reader of the model's own that has more each time it is asked."""

from pathlib import Path

import pytest

from edlz.services.errors import ModelError
from edlz.services.inputs.custom_listing import ShardLister
from edlz.services.inputs.job_data import list_job_data
from edlz.services.inputs.watching import watch_of
from edlz.services.protocol.plan import Shard
from tests import builders

pytestmark = pytest.mark.slow  # the model's module imports TensorFlow

MODEL = """
import json
from pathlib import Path

from edlz.api import AbstractDataReader


class Log(AbstractDataReader):
    def __init__(self, origin):
        super().__init__()
        self.path = Path(origin)

    def create_shards(self):
        print("what users print goes elsewhere")
        return {name: (0, count) for name, count in json.loads(self.path.read_text()).items()}

    def read_records(self, task):
        for number in range(task.start, task.end):
            yield f"{task.shard.name} {number}".encode()


def custom_data_reader(data_origin, records_per_task=None, **params):
    return Log(data_origin)


def custom_model():
    ...


def loss(labels, predictions):
    ...


def optimizer():
    ...


def feed(dataset, mode, metadata):
    return dataset
"""


def test_what_is_new_of_shards_is_what_lies_behind_their_known_ends(tmp_path: Path) -> None:
    (tmp_path / "model.py").write_text(MODEL)
    log = tmp_path / "log.json"
    log.write_text('{"a": 5, "b": 0}')
    config = builders.settings(
        model_def="", model_file=str(tmp_path / "model.py"), training_data=str(log), watch_data=True
    )
    listed = list_job_data(config, str(log), "training_data")
    assert listed.shards == (Shard(name="a", first=0, count=5),)
    watching = watch_of(config, listed.source, listed.shards)
    try:
        assert watching.look().shards == ()
        log.write_text('{"a": 8, "b": 2, "c": 1}')
        assert watching.look().shards == (
            Shard(name="a", first=5, count=3),
            Shard(name="b", first=0, count=2),
            Shard(name="c", first=0, count=1),
        )
        assert watching.look().shards == ()
        log.write_text("{")
        with pytest.raises(ModelError, match="create_shards"):
            watching.look()
        log.write_text('{"a": 9}')  # what has gone from the list was read, or never will be
        assert watching.look().shards == (Shard(name="a", first=8, count=1),)
    finally:
        watching.close()


def test_a_reader_whose_process_has_ended_is_started_anew(tmp_path: Path) -> None:
    (tmp_path / "model.py").write_text(MODEL)
    log = tmp_path / "log.json"
    log.write_text('{"a": 5}')
    config = builders.settings(
        model_def="", model_file=str(tmp_path / "model.py"), training_data=str(log), watch_data=True
    )
    lister = ShardLister(config, str(log))
    try:
        assert lister.shards() == [("a", 0, 5)]
        assert lister._process is not None
        lister._process.kill()
        lister._process.wait()
        with pytest.raises(ModelError, match="has ended"):
            lister.shards()
        assert lister.shards() == [("a", 0, 5)]
    finally:
        lister.close()
