"""The records of a job's flags, and whether they are of one kind."""

from pathlib import Path

import pyarrow
from pyarrow import parquet

from edlz.services.configuration.job_config import JobConfig
from edlz.services.inputs.job_data import list_job_data


def test_validation_data_of_other_columns_is_told_of_before_anything_runs(tmp_path: Path) -> None:
    train, other, lines = (str(tmp_path / name) for name in ("train.csv", "other.parquet", "a.txt"))
    Path(train).write_text("id,x,city\n1,0.5,a\n")
    parquet.write_table(pyarrow.table({"id": [1], "x": [0.5], "more": ["m"]}), other)
    Path(lines).write_text("one\n")
    config = JobConfig(model_file="model.py", training_data=train)
    told: list[str] = []
    training = list_job_data(config, train, "training_data", None, told.append)
    list_job_data(config, train, "validation_data", training, told.append)
    assert not told
    list_job_data(config, other, "validation_data", training, told.append)
    list_job_data(config, lines, "validation_data", training, told.append)
    assert told == [
        'column "x" is float64 in validation_data, and float32 in training_data',
        'validation_data has no column "city", and training_data has one',
        "validation_data has byte strings, and training_data columns",
    ]
