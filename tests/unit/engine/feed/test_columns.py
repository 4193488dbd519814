"""Feeds over records with columns, one by one and in minibatches: the same minibatches."""

import dataclasses

import msgspec
import numpy as np
import pytest

from edlz.api.feeds import Mode
from edlz.services.errors import DataError, ModelError
from edlz.services.inputs.reading.records import Columns
from edlz.services.protocol.plan import Column, DataSource
from edlz.services.protocol.seeds import permutation
from edlz.services.worker.engine.contract.model_module import load_contract
from edlz.services.worker.engine.feed.record_form import RecordForm
from edlz.services.worker.engine.tensorflow.backend import tf
from edlz.services.worker.engine.user_code.user_code import TaskError, UserCodeError
from tests.unit.engine.feed.feeds import BATCH, HEAD, TASK, begin, joined, run, values

SOURCE = DataSource(
    format="CSV",
    form="columns",
    columns=(
        Column(name="x", kind="float32", width=2),
        Column(name="city", kind="string"),
        Column(name="label", kind="int64"),
    ),
)

SINGLE = """
def feed(dataset, mode, metadata):
    assert metadata.column_names == ["x", "city", "label"] and metadata.column_dtypes["city"] == tf.string
    def parse(row):
        return row["x"] + tf.cast(tf.strings.length(row["city"]), tf.float32), row["label"]
    return dataset.map(parse)
"""
BATCHED = "from edlz.api import batched\n@batched" + SINGLE.replace(
    'tf.cast(tf.strings.length(row["city"]), tf.float32)',
    'tf.cast(tf.strings.length(row["city"]), tf.float32)[:, tf.newaxis]',
)
FORMS = {
    "single": SINGLE,
    "batched": BATCHED,
    "batched, with random ops": BATCHED.replace(
        "return dataset.map", "tf.random.uniform([])\n    return dataset.map"
    ),
    "oldest": """
def input_fn(records):
    return (
        tf.constant([row["x"] + len(row["city"]) for row in records], tf.float32),
        tf.constant([row["label"] for row in records], tf.int64),
    )
""",
}


def rows(task, order):
    x = np.array([[task, place] for place in order], np.float32).reshape(len(order), 2)
    city = np.array([b"x" * (place % 3) for place in order] + [b""], object)[:-1]
    label = np.array([task * 100 + place for place in order], np.int64)
    return Columns({"x": x, "city": city, "label": label}, len(order))


def read(assignment):
    order = permutation(assignment.records.count, 5, 1, assignment.task)
    return rows(assignment.task, order.tolist())


@pytest.fixture
def make_columns(make):
    def build(source, **settings):
        standard = {"read": read, "sample": lambda: rows(0, range(BATCH)), "form": RecordForm(SOURCE)}
        return make(source, **{**standard, **settings})

    return build


def test_every_form_gives_the_same_minibatches(make_columns):
    found = {}
    for name, source in FORMS.items():
        lanes = make_columns(source)
        for task in (0, 1):
            begin(lanes, task)
        found[name] = [run(lanes, task) for task in (0, 1)]
        begin(lanes, 1, first=1)
        assert run(lanes, 1, first=1) == found[name][1][1:]
    assert all(minibatches == found["single"] for minibatches in found.values())
    assert [len(minibatches) for minibatches in found["single"]] == [3, 3]


@pytest.mark.parametrize(
    ("source", "said"),
    [
        (SOURCE, "a dict of tensors {x: (2,) float32, city: string, label: int64}"),
        (msgspec.structs.replace(SOURCE, form="tuple"), "a tuple of tensors ((2,) float32, string, int64)"),
        (
            DataSource(format="CSV", columns=(Column(name="value", kind="int64"),), form="value"),
            "a tensor, int64",
        ),
        (None, "a byte string"),
    ],
)
def test_what_a_record_is_can_be_told(source, said):
    assert RecordForm(source).text == said


MIXED = (
    Column(name="i1", kind="int64"),
    Column(name="text", kind="string"),
    Column(name="f1", kind="float32"),
    Column(name="x", kind="float32", width=3),
    Column(name="i2", kind="int64"),
    Column(name="flag", kind="bool"),
    Column(name="f2", kind="float32"),
    Column(name="i3", kind="int64"),
)


@pytest.mark.parametrize("count", [0, 1, 16, 37])
@pytest.mark.parametrize("columns", [MIXED, MIXED[:1], MIXED[3:4], MIXED[:1] * 0])
def test_packed_columns_come_out_of_a_graph_as_they_are(columns, count):
    source = DataSource(format="CSV", form="columns", columns=columns) if columns else None
    form = RecordForm(source)
    draw = np.random.default_rng(count)
    values = {
        column.name: draw.integers(0, 2, (count, column.width) if column.width else count).astype(
            object if column.kind == "string" else column.kind
        )
        for column in columns
    }
    if "text" in values:
        values["text"] = np.array([b"x" * int(n) for n in values["text"]] + [b""], object)[:-1]
    records = Columns(values, count) if columns else [b"r"] * count
    if columns == MIXED:
        assert [len(array) for array in form.packed(records) if array.ndim == 2] == [2, count, 3]

    @tf.function
    def unpacked():
        return form.unpacked(tf.numpy_function(lambda: tuple(form.packed(records)), [], form.packed_dtypes))

    found, wanted = unpacked(), form.arrays(records)
    assert [tensor.shape[1:].as_list() for tensor in unpacked.get_concrete_function().outputs] == [
        [column.width] if column.width else [] for column in columns or MIXED[:1]
    ]
    for tensor, array in zip(found, wanted, strict=True):
        assert tensor.numpy().tolist() == array.tolist()
        assert tensor.dtype == (tf.string if array.dtype == object else tf.as_dtype(array.dtype))


def test_a_feed_that_takes_rows_for_byte_strings_is_told_what_they_are(make_columns):
    wrong = """
    def feed(dataset, mode, metadata):
        return dataset.map(lambda record: tf.strings.split(record, ","))
    """
    with pytest.raises(UserCodeError) as error:
        make_columns(wrong)
    assert error.value.help == f"a record comes to feed() as {RecordForm(SOURCE).text}"


def test_a_batched_feed_of_byte_strings_gives_what_the_plain_one_gives(make):
    batched = """
    from edlz.api import batched
    @batched
    def feed(dataset, mode, metadata):
        def parse(records):
            values = tf.strings.to_number(tf.strings.split(records, ",").to_tensor(shape=(None, 3)))
            return values[:, :2], values[:, 2]
        return dataset.map(parse)
    """
    plain = """
    def feed(dataset, mode, metadata):
        def parse(record):
            values = tf.strings.to_number(tf.strings.split(record, ","))
            return values[:2], values[2]
        return dataset.map(parse)
    """
    both = [make(source) for source in (plain, batched)]
    for lanes in both:
        begin(lanes, 4)
    assert run(both[0], 4) == run(both[1], 4)


def test_a_batched_feed_may_leave_records_out(make_columns):
    source = BATCHED.replace(
        "dataset.map(parse)", "dataset.filter(lambda row: row['label'][0] < 105).map(parse)"
    )
    lanes = make_columns(source)
    begin(lanes, 1)
    kept = joined(values(lanes, 1))
    order = (100 + permutation(TASK, 5, 1, 1)).tolist()
    wanted = [order[start : start + BATCH] for start in range(0, TASK, BATCH)]
    assert kept == joined(batch for batch in wanted if batch[0] < 105)


def test_the_row_that_makes_a_batched_feed_raise_is_named(make_columns):
    check = (
        '    def parse(row):\n        tf.debugging.assert_less(row["label"], tf.constant(107, tf.int64))\n'
    )
    lanes = make_columns(BATCHED.replace("    def parse(row):\n", check))
    begin(lanes, 1)
    with pytest.raises(TaskError, match="record "):
        values(lanes, 1)


def test_a_batched_feed_must_give_minibatches(make_columns):
    source = BATCHED.replace("dataset.map(parse)", "dataset.map(parse).unbatch()")
    with pytest.raises(ModelError, match="feed\\(\\) is batched, but yields"):
        make_columns(source)


def test_records_to_predict_come_without_labels(make_columns):
    source = BATCHED.replace(', row["label"]', "")
    lanes = make_columns(source, mode=Mode.PREDICTION, number=lambda assignment, place: place)
    begin(lanes, 0)
    assert len(run(lanes, 0)) == 3


CUSTOM = (
    HEAD
    + """
from edlz.api import AbstractDataReader

class Numbers(AbstractDataReader):
    def __init__(self, count=5, **params):
        super().__init__(**params)
        self.count, self.calls = count, 0

    def create_shards(self):
        return {"low": (0, self.count), "high": (100, 3)}

    def read_records(self, task):
        self.calls += 1
        for i in range(task.start, task.end):
            yield RECORD

    @property
    def records_output_types(self):
        return TYPES

    def default_feed(self):
        return lambda dataset, mode, metadata: dataset.map(lambda x, y: (x, y))

def custom_data_reader(data_origin, records_per_task=None, **params):
    assert data_origin == "numbers"
    return Numbers(**params)
"""
)
SHAPES = {
    "bytes": ("str(i)", "None", [b"2", b"3"]),
    "text": ("str(i).encode()", "tf.string", [b"2", b"3"]),
    "columns": (
        '{"a": i, "b": [i / 2, 1.0]}',
        '{"a": tf.int64, "b": tf.float32}',
        [[2, 3], [[1, 1], [1.5, 1]]],
    ),
    "tuple": ("(i, str(i))", "(tf.int32, tf.string)", [[2, 3], [b"2", b"3"]]),
    "value": ('[str(i), "x"]', "tf.string", [[[b"2", b"x"], [b"3", b"x"]]]),
}


@pytest.fixture
def custom(tmp_path):
    """custom(record, types) -> the model's own reader, and its contract."""
    from edlz.services.configuration.job_config import JobConfig
    from edlz.services.worker.engine.contract.model_module import custom_reader

    def build(record, types, params="count=4"):
        path = tmp_path / "model.py"
        path.write_text(CUSTOM.replace("RECORD", record).replace("TYPES", types))
        config = JobConfig(model_file=str(path), data_reader_params=params)
        return custom_reader(config, "numbers"), load_contract(config)

    return build


@pytest.mark.parametrize("name", SHAPES)
def test_a_models_own_reader_gives_records_of_the_types_that_it_names(custom, name):
    record, types, wanted = SHAPES[name]
    reader, contract = custom(record, types)
    assert reader.shards() == [("low", 0, 4), ("high", 100, 3)]
    form, columns = reader.shape("low", 0)
    source = DataSource(format="custom", form=form, columns=columns, origin="numbers")
    file = reader.open("low", source)
    records = file.read(2, 2)
    found = records if isinstance(records, list) else [a.tolist() for a in records.values.values()]
    assert found == wanted
    backwards = file.read(2, 2, np.array([1, 0]))
    assert len(RecordForm(source).single(backwards)) == 2
    assert contract.with_feed_of(reader).feed is not contract.feed


@pytest.mark.parametrize(
    ("record", "types", "told"),
    [
        ('{"b": i}', '{"a": tf.int64}', "there is no 'a'"),
        ("i", '{"a": tf.int64}', "not subscriptable"),
        ("(i, i)", "(tf.int64,)", "zip"),
        ('{"a": i}', '{"a": "whole"}', "'whole'"),
        ('{"a": "x"}', '{"a": tf.float32}', "could not convert string to float"),
        ('{"a": i}', "None", "dict is no byte string"),
        ("i + 0.5", "tf.int64", "0.5 would be 0 in int64"),
        ("2**40", "tf.int32", "out of bounds"),
    ],
)
def test_a_first_record_that_is_not_what_the_reader_says_is_told_when_a_job_is_planned(
    custom, record, types, told
):
    reader, _ = custom(record, types)
    with pytest.raises(
        UserCodeError, match=r"^read_records\(\) gives .*, and records_output_types is "
    ) as error:
        reader.shape("low", 0)
    assert told in error.value.message
    assert "records_output_types is the TensorFlow type" in error.value.help


def test_a_later_record_that_is_no_whole_number_is_not_cut_off(custom):
    reader, _ = custom("i / 2", "tf.int64")
    form, columns = reader.shape("low", 0)
    with pytest.raises(DataError, match=r"records 0 to 1 .*: 0\.5 would be 0 in int64"):
        reader.open("low", DataSource(format="custom", form=form, columns=columns)).read(0, 2)


def test_a_reader_that_gives_other_records_the_second_time_is_refused(custom):
    reader, _ = custom("str(self.calls)", "None")
    file = reader.open("low", DataSource(format="custom"))
    with pytest.raises(ModelError, match="gives other records for the same range") as error:
        file.read(0, 2)
    assert "no random choice" in error.value.help


def test_a_reader_that_gives_too_few_records_is_named(custom):
    reader, _ = custom("i\n            return", "None")
    with pytest.raises(Exception, match="gives 1 records for 3 from 0 on"):
        reader.open("low", DataSource(format="custom")).read(0, 3)


def test_what_create_shards_may_give(custom):
    reader, _ = custom("i", "None")
    for given, wanted in (
        ([("a", 0, 3), ["b", 5, 1]], [("a", 0, 3), ("b", 5, 1)]),
        ({"a": (1, 2)}, [("a", 1, 2)]),
    ):
        reader._reader.create_shards = lambda given=given: given
        assert reader.shards() == wanted
    for given in (
        7,
        ["a"],
        {"a": 3},
        {"a": (-1, 3)},
        {"a": (0, 2.5)},
        [("a", 0, 5), ("b", 0, 5), ("a", 4, 1)],
    ):
        reader._reader.create_shards = lambda given=given: given
        with pytest.raises(ModelError, match="create_shards\\(\\) gives"):
            reader.shards()
    assert dataclasses.is_dataclass(reader.metadata)
