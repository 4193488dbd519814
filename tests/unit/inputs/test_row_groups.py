"""Tasks in Parquet whose row groups differ in what is missing: the same values wherever a task begins and ends."""

from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pyarrow
import pytest
from pyarrow import parquet

from edlz.services.errors import DataError
from edlz.services.inputs.data import RecordSource
from edlz.services.inputs.listing import list_data
from edlz.services.inputs.reading.arrow import to_numpy
from edlz.services.protocol.plan import TaskRange

GROUP, COUNT = 50, 200
GAPS = [60, 61, 155]  # the first and the third row group have none
RANGES = [(0, COUNT), (0, 50), (40, 20), (50, 50), (60, 1), (99, 60), (190, 10), (7, 0)]


@pytest.fixture(autouse=True)
def _file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(3)
    gaps = np.zeros(COUNT, bool)
    gaps[GAPS] = True

    def column(kind: Any, mask: Any = None) -> Any:
        return pyarrow.array(rng.integers(0, 9, COUNT)).cast(kind).to_numpy(zero_copy_only=False), mask, kind

    made = {
        "whole": column(pyarrow.int64()),
        "holes": column(pyarrow.int64(), gaps),
        "small": column(pyarrow.int32(), gaps),
        "tiny": column(pyarrow.int8(), gaps),
        "x": column(pyarrow.float32(), gaps),
        "y": column(pyarrow.float64(), rng.random(COUNT) < 0.5),
        "half": column(pyarrow.float16(), gaps),
    }
    columns = {name: pyarrow.array(values, kind, mask=mask) for name, (values, mask, kind) in made.items()}
    columns["text"] = pyarrow.array([None if i % 5 == 0 else f"t{i % 7}" for i in range(COUNT)])
    columns["coded"] = columns["whole"].dictionary_encode()
    columns["pair"] = pyarrow.FixedSizeListArray.from_arrays(pyarrow.array(rng.random(2 * COUNT)), 2)
    parquet.write_table(pyarrow.table(columns), "a.parquet", row_group_size=GROUP)


@pytest.mark.parametrize(
    ("params", "defaults"),
    [
        ("defaults=holes:-1,small:-2,tiny:-3", {"holes": -1, "small": -2, "tiny": -3}),
        ("defaults=holes:-1,small:-2,tiny:-3,x:7.5,y:0", {"holes": -1, "small": -2, "tiny": -3, "x": 7.5, "y": 0.0}),
    ],
)  # fmt: skip
def test_defaults(params: str, defaults: dict[str, Any]) -> None:
    source = list_data("a.parquet", params=params).source
    _same_as_a_whole_table(source, defaults, masks=False)


def test_masks() -> None:
    source = msgspec.structs.replace(list_data("a.parquet").source, masks=True)
    _same_as_a_whole_table(source, {}, masks=True)


def test_a_gap_is_told_by_its_row_and_by_tasks_that_have_it_alone() -> None:
    reader = RecordSource(list_data("a.parquet", params="columns=whole,holes").source)
    assert len(reader.read(TaskRange(name="a.parquet", first=62, count=90))) == 90
    for first, count in [(0, COUNT), (45, 30), (60, 1)]:
        with pytest.raises(DataError, match=r'a\.parquet, row 60: column "holes" has no value'):
            reader.read(TaskRange(name="a.parquet", first=first, count=count))


def test_records_are_read_only() -> None:
    reader = RecordSource(list_data("a.parquet", params="columns=whole,x").source)
    found: Any = reader.read(TaskRange(name="a.parquet", first=0, count=COUNT // 8))
    assert not any(column.flags.writeable for column in found.values.values())


def _same_as_a_whole_table(source: Any, defaults: dict[str, Any], *, masks: bool) -> None:
    reader, table = RecordSource(source), parquet.read_table("a.parquet")
    for first, count in RANGES:
        found: Any = reader.read(TaskRange(name="a.parquet", first=first, count=count))
        for column in source.columns:
            values = table.column(column.name).slice(first, count).combine_chunks()
            if isinstance(values.type, pyarrow.DictionaryType):
                values = values.cast(values.type.value_type)
            wanted = to_numpy(column, values, defaults, masks=masks)
            ours = found.values[column.name]
            assert (ours.dtype, ours.shape) == (wanted.dtype, wanted.shape)
            assert np.ma.getmaskarray(ours).tolist() == np.ma.getmaskarray(wanted).tolist()
            is_text = wanted.dtype == object
            assert ours.tolist() == wanted.tolist() if is_text else _bits(ours) == _bits(wanted)


def _bits(array: Any) -> bytes:
    return np.ma.getdata(array).tobytes()
