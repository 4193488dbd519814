"""A model that is built from statistics gets those of the job's plan."""

from pathlib import Path

import msgspec
import numpy as np
import pytest

from edlz.services.errors import ModelError
from edlz.services.statistics.kept import pack
from edlz.services.worker.engine.keras_engine import KerasEngine
from tests.analyses import encoded
from tests.table_jobs import job, write_job

MODEL = """
from edlz.api import statistics

START = statistics("age").mean

def custom_model():
    ids = keras.Input((6,), dtype="int64")
    start = keras.initializers.Constant(START)
    return keras.Model(ids, L.Dense(1, kernel_initializer=start)(L.Rescaling(1.0)(ids)))

def parse(record):
    return tf.zeros(6, tf.int64), 0.0
"""


def test_every_worker_builds_from_the_figures_in_the_plan(tmp_path: Path) -> None:
    write_job(tmp_path, MODEL, {})
    data = tmp_path / "people.csv"
    data.write_text("age\n20\n23\n")
    path = tmp_path / "statistics.json"
    path.write_bytes(encoded(tmp_path, data))
    config, plan = job(tmp_path)
    known = msgspec.structs.replace(plan, statistics=pack(path))
    assert known.hash == plan.hash, "ledgers and checkpoints are of the records"
    path.unlink()
    engine = KerasEngine(config, known)
    dense = engine.build().dense
    engine.close()
    np.testing.assert_array_equal(dense[:6], np.full(6, 21.5, np.float32))
    with pytest.raises(ModelError, match=r"there are no statistics.*--statistics=.*model\.py:\d+"):
        KerasEngine(config, plan).build()
