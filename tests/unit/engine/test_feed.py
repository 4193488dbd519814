"""Minibatches: the same for (task, index) whatever came before, in any lane, in any form of feed."""

import itertools
import logging
import queue
import random
import textwrap
import threading
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from edlz.api.mode import Mode
from edlz.services.configuration.job_config import JobConfig
from edlz.services.errors import DataError, ModelError
from edlz.services.protocol.plan import TaskRange
from edlz.services.protocol.seeds import permutation
from edlz.services.worker.engine.contract.model_module import load_contract
from edlz.services.worker.engine.feed import bad_record
from edlz.services.worker.engine.feed.batch_structure import row_count
from edlz.services.worker.engine.feed.feed import FeedSettings, open_feed
from edlz.services.worker.engine.feed.minibatch_streams import Lanes
from edlz.services.worker.engine.tensorflow.backend import tf
from edlz.services.worker.engine.user_code.user_code import TaskError, UserCodeError

pytestmark = pytest.mark.filterwarnings("ignore:Seed .* from outer graph:UserWarning")


@pytest.fixture(autouse=True)
def _busy_machine(monkeypatch):
    """On one, the search for a bad record may take longer than users would wait."""
    monkeypatch.setattr(bad_record, "_LIMIT_S", 600.0)


BATCH, TASK = 4, 10  # ten records a task: minibatches of 4, 4 and 2
HEAD = """
import keras
import tensorflow as tf

def custom_model():
    return keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])

def loss(labels, predictions):
    return tf.reduce_mean(tf.square(predictions - labels))

def optimizer():
    return keras.optimizers.SGD(0.1)

"""

PLAIN = """
def feed(dataset, mode, metadata):
    def parse(record):
        values = tf.strings.to_number(tf.strings.split(record, ","))
        return values[:2], values[2]
    return dataset.map(parse)
"""
CHUNKED = """
def feed(dataset, mode, metadata):
    def parse(records):
        values = tf.strings.to_number(tf.strings.split(records, ",").to_tensor(shape=(None, 3)))
        return values[:, :2], values[:, 2]
    return dataset.batch(3).map(parse).unbatch()
"""
NOISY = PLAIN.replace("values[2]\n", "values[2] + tf.random.uniform([])\n")
OLDEST = """
def input_fn(records):
    values = [[float(x) for x in record.decode().split(",")] for record in records]
    return tf.constant([v[:2] for v in values]), tf.constant([v[2] for v in values])
"""


def feed_that(returns, before=""):
    """The plain feed with other last lines."""
    return PLAIN.replace("return dataset.map(parse)", f"{before}return {returns}")


FORMS = {
    "plain": PLAIN,
    "shuffled": feed_that("dataset.map(parse).shuffle(256)"),
    "noisy": NOISY,
    "parallel noise": NOISY.replace("map(parse)", "map(parse, num_parallel_calls=2)"),
    "listed": feed_that("dataset.map(parse)", "records = list(dataset)\n    "),
    "branched": feed_that(
        "dataset.map(parse)", "assert mode == 'training' and metadata.column_names is None\n    "
    ),
    "unordered": feed_that(
        "dataset.map(parse, num_parallel_calls=4).with_options(o)",
        "o = tf.data.Options()\n    o.deterministic = False\n    ",
    ),
    "chunked": CHUNKED,
    "chunked, each as long": CHUNKED.replace("batch(3)", "batch(2, drop_remainder=True)"),
    "oldest": OLDEST,
}


def record(task, place):
    return f"{task},{place},{task * 100 + place}".encode()


def read(assignment):
    order = permutation(assignment.records.count, 5, 1, assignment.task)
    return [record(assignment.task, int(place)) for place in order]


@pytest.fixture
def make(tmp_path):
    """make(source) -> Lanes over tasks of ten records each; they are closed at the end."""
    made = []
    tf.config.experimental.enable_op_determinism()  # as in a worker

    def build(source, *, head=HEAD, codec=False, **settings):
        path = tmp_path / f"model{len(made)}.py"
        path.write_text(head + textwrap.dedent(source))
        contract = load_contract(JobConfig(model_file=str(path)))
        standard = FeedSettings(
            mode=Mode.TRAINING,
            minibatch_size=BATCH,
            seed=5,
            threads=2,
            read=read,
            number=lambda assignment, place: int(permutation(TASK, 5, 1, assignment.task)[place]),
            sample=lambda: [record(0, place) for place in range(BATCH)],
            is_example=codec,
        )
        lanes = Lanes(open_feed(contract, replace(standard, **settings)), contract.code, contract.feed)
        made.append(lanes)
        return lanes

    yield build
    for lanes in made:
        lanes.close()


def begin(lanes, task, lane=0, first=0, count=TASK, end=None):
    lanes.begin(task, TaskRange(name="data", first=0, count=count), lane, first, end)


def bits(minibatch):
    tensors = tf.nest.flatten(minibatch.element, expand_composites=True)
    return [tensor.numpy().tobytes() for tensor in tensors]


def run(lanes, task, first=0):
    """All minibatches of a task from one on, as bits."""
    found, index = [], first
    while True:
        minibatch = lanes.minibatch(task, index)
        assert (minibatch.task, minibatch.index) == (task, index)
        found.append(bits(minibatch))
        if minibatch.is_last:
            lanes.drop(task)
            return found
        index += 1


def values(lanes, task):
    """The labels of a task's minibatches."""
    found, index, is_last = [], 0, False
    while not is_last:
        minibatch = lanes.minibatch(task, index)
        if minibatch.element is not None:
            found.append(minibatch.element[1].numpy().tolist())
        index, is_last = index + 1, minibatch.is_last
    lanes.drop(task)
    return found


def joined(lists):
    return list(itertools.chain.from_iterable(lists))


# ---------------------------------------------------------------- what is in a minibatch


def test_a_task_gives_its_records_in_its_order_and_marks_the_last_minibatch(make):
    lanes = make(PLAIN)
    begin(lanes, 3)
    minibatches = [lanes.minibatch(3, index) for index in range(3)]
    assert [m.is_last for m in minibatches] == [False, False, True]
    assert [row_count(m.element) for m in minibatches] == [4, 4, 2]
    labels = np.concatenate([m.element[1].numpy() for m in minibatches])
    assert labels.tolist() == [300.0 + place for place in permutation(TASK, 5, 1, 3)]


def test_a_full_last_minibatch_is_the_last(make):
    lanes = make(PLAIN)
    begin(lanes, 0, count=8)
    assert [lanes.minibatch(0, index).is_last for index in range(2)] == [False, True]


@pytest.mark.parametrize(
    "chunks",
    [
        "batch(3)",
        "batch(2, drop_remainder=True)",  # of one known length, which divides a minibatch's
        "batch(3).map(lambda records: records[:0]).concatenate(dataset.batch(7))",
        "batch(100)",
    ],
)
def test_a_feed_that_decodes_in_chunks_gives_what_one_by_one_gives(make, chunks):
    plain, chunked = make(PLAIN), make(CHUNKED.replace("batch(3)", chunks))
    for lanes in (plain, chunked):
        begin(lanes, 3)
    assert run(chunked, 3) == run(plain, 3)


@pytest.mark.parametrize(("after", "is_whole"), [("", True), (".prefetch(1)", False)])
def test_chunks_at_the_end_of_a_feed_are_not_taken_apart_record_by_record(make, after, is_whole):
    """Reading each value of each record by itself would cost as much as a small model's step."""
    lanes = make(CHUNKED.replace(".unbatch()", f".unbatch(){after}"))
    graph = lanes._feed._minibatches.get_concrete_function().graph
    assert ("RebatchDatasetV2" in {op.type for op in graph.get_operations()}) == is_whole


def test_feeds_that_drop_or_repeat_records(make):
    filtered = make(feed_that("dataset.map(parse).filter(lambda x, y: x[1] < 5)"))
    begin(filtered, 1)
    assert sorted(joined(values(filtered, 1))) == [100.0, 101.0, 102.0, 103.0, 104.0]
    repeated = make(feed_that("dataset.map(parse).repeat(2)"))
    begin(repeated, 1)
    assert [len(v) for v in values(repeated, 1)] == [4, 4, 4, 4, 4]


def test_a_task_without_minibatches_has_an_empty_last_one(make):
    lanes = make(feed_that("dataset.map(parse).filter(lambda x, y: x[0] != 2.0)"))
    for task in (1, 2, 3):
        begin(lanes, task)
    assert len(run(lanes, 1)) == 3
    empty = lanes.minibatch(2, 0)
    assert (empty.index, empty.is_last, empty.element) == (0, True, None)
    assert lanes.minibatch(2, 0) == empty
    lanes.drop(2)
    assert len(run(lanes, 3)) == 3


# ---------------------------------------------------------------- the same, whatever came before


@pytest.mark.parametrize("form", FORMS)
def test_minibatches_follow_from_task_and_index_alone(make, form):
    lanes = make(FORMS[form])
    first = {}
    for task in (4, 0, 7):
        begin(lanes, task)
        first[task] = run(lanes, task)
    assert len({str(minibatches) for minibatches in first.values()}) == 3
    other = make(FORMS[form])
    for task, lane in ((7, 2), (4, 0), (0, 1)):
        begin(other, task, lane)
    found = {task: [] for task in first}
    for index in range(3):  # in turns, as a worker fills several slots
        for task in (0, 4, 7):
            found[task].append(bits(other.minibatch(task, index)))
    assert found == first


@pytest.mark.parametrize("form", FORMS)
def test_a_task_can_be_resumed_and_begun_again(make, form):
    lanes = make(FORMS[form])
    begin(lanes, 1)
    whole = run(lanes, 1)
    begin(lanes, 1, first=2)
    assert run(lanes, 1, 2) == whole[2:]
    begin(lanes, 1)
    lanes.minibatch(1, 0)
    lanes.drop(1)
    begin(lanes, 1)
    assert run(lanes, 1) == whole
    begin(lanes, 1)
    assert bits(lanes.minibatch(1, 2)) == whole[2]  # skips ahead
    assert bits(lanes.minibatch(1, 2)) == whole[2]  # again, for older parameters
    assert bits(lanes.minibatch(1, 1)) == whole[1]  # back: a partition lost it
    assert run(lanes, 1, 2) == whole[2:]


def test_the_users_shuffle_shuffles(make):
    lanes = make(FORMS["shuffled"])
    begin(lanes, 1)
    shuffled = joined(values(lanes, 1))
    assert shuffled != [100.0 + place for place in permutation(TASK, 5, 1, 1)]
    assert sorted(shuffled) == [100.0 + place for place in range(TASK)]


def test_random_ops_differ_from_task_to_task(make):
    lanes = make(NOISY)
    noise = []
    for task in (1, 2):
        begin(lanes, task)
        noise.append([label % 1 for label in joined(values(lanes, task))])
    assert len(set(np.round(noise[0] + noise[1], 5))) > 15


def test_tasks_in_any_order_of_calls(make):
    """A lane's second task before its first, back and forth, dropped and begun: always the same bits."""
    lanes, chooser = make(FORMS["shuffled"]), random.Random(1)
    whole = {}
    for task in range(4):
        begin(lanes, task)
        whole[task] = run(lanes, task)
    in_hand = set()
    for _ in range(60):
        task = chooser.randrange(4)
        if task not in in_hand:
            begin(lanes, task, lane=chooser.randrange(2))
            in_hand.add(task)
        elif chooser.random() < 0.2:
            lanes.drop(task)
            in_hand.remove(task)
        else:
            index = chooser.randrange(3)
            minibatch = lanes.minibatch(task, index)
            assert bits(minibatch) == whole[task][index]
            assert minibatch.is_last is (index == 2)


@pytest.mark.parametrize("form", ["plain", "listed", "oldest"])
def test_dropping_one_task_leaves_the_others_in_its_lane(make, form):
    lanes = make(FORMS[form])
    begin(lanes, 5)
    whole = run(lanes, 5)
    for task in (4, 5, 6):
        begin(lanes, task)
    lanes.minibatch(4, 0)
    lanes.drop(4)
    lanes.drop(6)
    lanes.drop(99)
    assert run(lanes, 5) == whole


@pytest.mark.parametrize("form", ["plain", "shuffled"])
def test_reading_ahead_crosses_tasks(make, form):
    asked = queue.SimpleQueue()

    def noted(assignment):
        asked.put(assignment.task)
        return read(assignment)

    lanes = make(FORMS[form], read=noted)
    begin(lanes, 0, count=4)
    assert asked.get(timeout=10) == 0  # before anybody wants a minibatch
    begin(lanes, 1, count=4)
    lanes.minibatch(0, 0)
    assert asked.get(timeout=10) == 1


def test_evaluation_has_no_training_shuffle(make):
    source = feed_that("dataset.map(parse).shuffle(99) if mode == 'training' else dataset.map(parse)")
    lanes = make(source, mode=Mode.EVALUATION, read=lambda a: [record(a.task, i) for i in range(TASK)])
    begin(lanes, 0)
    assert joined(values(lanes, 0)) == list(range(TASK))


# ---------------------------------------------------------------- forms


@pytest.mark.parametrize(
    ("form", "reason"), [("noisy", "RandomUniform"), ("listed", "iterates over the dataset")]
)
def test_a_feed_that_cannot_be_one_stream_is_built_for_each_task(make, form, reason, caplog):
    with caplog.at_level(logging.INFO):
        make(FORMS[form])
    assert reason in caplog.text
    assert "it is built anew for each task" in caplog.text


@pytest.mark.parametrize("form", ["plain", "shuffled", "branched"])
def test_an_ordinary_feed_is_one_stream(make, form, caplog):
    with caplog.at_level(logging.INFO):
        make(FORMS[form])
    assert not caplog.records


def test_a_feed_that_calls_python_is_one_stream_with_a_remark(make, caplog):
    source = """
    def feed(dataset, mode, metadata):
        def parse(record):
            values = tf.numpy_function(lambda r: tf.compat.as_bytes(r).count(b","), [record], tf.int64)
            return tf.zeros([2]), tf.cast(tf.reshape(values, []), tf.float32)
        return dataset.map(parse)
    """
    with caplog.at_level(logging.INFO):
        lanes = make(source)
    assert "calls Python" in caplog.text
    begin(lanes, 0)
    assert values(lanes, 0)[0] == [2.0] * 4


def test_sparse_and_ragged_features_in_a_dict(make):
    source = """
    def feed(dataset, mode, metadata):
        def parse(record):
            values = tf.strings.to_number(tf.strings.split(record, ","))
            sparse = tf.sparse.from_dense(tf.stack([values[1], 0.0]))
            ragged = tf.RaggedTensor.from_row_lengths(values, [1, 2])
            return {"s": sparse, "r": ragged, "t": record}, values[2], values[0] + 1.0
        return dataset.map(parse)
    """
    lanes = make(source)
    for task in (1, 2):
        begin(lanes, task)
    minibatch = lanes.minibatch(1, 2)
    features, labels, weights = minibatch.element
    assert row_count(minibatch.element) == 2
    assert isinstance(features["s"], tf.SparseTensor)
    assert isinstance(features["r"], tf.RaggedTensor)
    assert weights.numpy().tolist() == [2.0, 2.0]
    assert features["t"].numpy()[0] == record(1, int(labels[0]) - 100)
    assert len(run(lanes, 2)) == 3


EXAMPLES = """
def feature_columns():
    return [tf.feature_column.numeric_column("x", shape=(2,), dtype=tf.float32)]

def label_columns():
    return [tf.feature_column.numeric_column("y", shape=(1,), dtype=tf.int64)]

def input_fn(records):
    import numpy as np
    features = np.stack([record["x"].numpy() for record in records])
    return {"x": features}, np.array([record["y"].numpy()[0] for record in records])
"""


def example(task, place):
    floats = tf.train.Feature(float_list=tf.train.FloatList(value=[task, place]))
    label = tf.train.Feature(int64_list=tf.train.Int64List(value=[place]))
    return tf.train.Example(features=tf.train.Features(feature={"x": floats, "y": label})).SerializeToString()


@pytest.mark.filterwarnings("ignore:.*feature_column.*")
def test_the_oldest_form_gets_decoded_examples(make):
    def examples(assignment):
        return [example(assignment.task, place) for place in range(TASK)]

    lanes = make(EXAMPLES, codec=True, read=examples, sample=lambda: [example(0, 0)])
    begin(lanes, 2)
    minibatch = lanes.minibatch(2, 1)
    assert minibatch.element[0]["x"].numpy()[0].tolist() == [2.0, 4.0]
    assert minibatch.element[1].numpy().tolist() == [4, 5, 6, 7]


def test_examples_without_columns_say_what_is_missing(make):
    with pytest.raises(ModelError, match=r"defines neither feature_columns\(\) nor label_columns\(\)"):
        make(OLDEST, codec=True)


def test_the_oldest_form_may_give_sparse_and_ragged_tensors(make):
    lanes = make(
        """
        def input_fn(records):
            values = tf.RaggedTensor.from_row_lengths(tf.range(len(records)), [1] * len(records))
            features = {"r": values, "s": tf.sparse.from_dense(values.to_tensor()), "d": tf.ones([len(records), 1])}
            return features, tf.zeros([len(records)])
        """
    )
    features = lanes._feed.spec[0]
    assert [features[name].shape.as_list() for name in "rsd"] == [[None, None], [None, 1], [None, 1]]
    begin(lanes, 0)
    assert row_count(lanes.minibatch(0, 2).element) == 2


# ---------------------------------------------------------------- errors


def test_a_feed_without_end(make):
    lanes = make(feed_that("dataset.map(parse).repeat()"))
    begin(lanes, 0)
    with pytest.raises(ModelError, match="repeats its records without end"):
        lanes.minibatch(0, 0)
    with pytest.raises(ModelError, match="repeats its records without end"):
        make(NOISY.replace("map(parse)", "map(parse).repeat()"))


def test_chunks_without_end(make):
    lanes = make(CHUNKED.replace(".map(parse)", ".map(parse).repeat()"))
    begin(lanes, 0)
    with pytest.raises(ModelError, match="repeats its records without end"):
        lanes.minibatch(0, 0)


def test_an_input_fn_must_give_the_same_shapes_for_all_records(make):
    lanes = make(OLDEST.replace("v[:2] for", "v[:2] + [0.0] * (len(values) == 2) for"))
    begin(lanes, 0)
    assert lanes.minibatch(0, 0).element[0].shape == (4, 2)
    with pytest.raises(TaskError, match=r"gave \[\(2, 3\) float32, \(2,\) float32\] for these 2 records"):
        lanes.minibatch(0, 2)


def test_a_cache_file_would_mix_tasks_up(make, tmp_path):
    with pytest.raises(ModelError, match="caches records in a file"):
        make(feed_that(f"dataset.map(parse).cache('{tmp_path}/cache')"))
    lanes = make(feed_that("dataset.map(parse).cache()"))
    for task in (0, 1):
        begin(lanes, task)
    assert run(lanes, 0) != run(lanes, 1)


def test_a_feed_that_raises_on_anything_has_its_frame(make):
    with pytest.raises(UserCodeError, match=r"feed\(\) raised AttributeError") as error:
        make("def feed(dataset, mode, metadata):\n    return dataset.no_such_thing()\n")
    assert error.value.where.endswith("model0.py:15 in feed")


@pytest.mark.parametrize(
    ("source", "message"),
    [
        (PLAIN.replace("values[:2], values[2]", "values[:2]"), r"feed\(\) yields .*not \(features"),
        (
            "def feed(dataset, mode, metadata):\n    return 3\n",
            r"feed\(\) returned int, not a tf.data.Dataset",
        ),
        ("def input_fn(records):\n    return tf.zeros([2])\n", "gets a list of records; it returned .*, not"),
    ],
)
def test_a_feed_that_yields_something_else(make, source, message):
    with pytest.raises(ModelError, match=message):
        make(source)


@pytest.mark.parametrize("form", ["plain", "noisy", "oldest"])
def test_a_bad_record_fails_its_task_and_no_other(make, form):
    def bad(assignment):
        records = read(assignment)
        return [*records[:5], b"1,2,oops", *records[6:]] if assignment.task == 1 else records

    lanes = make(FORMS[form], read=bad)
    for task in (0, 1, 2):
        begin(lanes, task)
    good = run(lanes, 0)
    with pytest.raises(TaskError, match="oops") as error:
        run(lanes, 1)
    assert (error.value.task, error.value.index) == (1, 1)
    assert "model0.py" in error.value.where
    assert "oops" in error.value.traceback
    assert f"(record {permutation(TASK, 5, 1, 1)[5]} of data)" in error.value.error
    assert len(run(lanes, 2)) == 3
    begin(lanes, 1)  # tried again: the same
    with pytest.raises(TaskError, match="oops"):
        run(lanes, 1)
    begin(lanes, 0)
    assert run(lanes, 0) == good


@pytest.mark.parametrize("form", ["plain", "noisy", "oldest"])
def test_what_is_before_the_end_of_a_bad_task_can_be_had(make, form):
    """The minibatch that raises is not even looked at to see whether the one before is the last."""

    def bad(assignment):
        records = read(assignment)
        return [*records[:5], b"1,2,oops", *records[6:]] if assignment.task == 1 else records

    lanes = make(FORMS[form], read=bad)
    begin(lanes, 0)
    begin(lanes, 1, end=1)
    begin(lanes, 2)
    assert len(run(lanes, 0)) == 3
    found = lanes.minibatch(1, 0)
    assert (found.index, found.is_last) == (0, False)
    assert bits(lanes.minibatch(1, 0)) == bits(found)
    lanes.drop(1)
    assert len(run(lanes, 2)) == 3
    begin(lanes, 1, end=1)
    assert lanes.ahead(1, 0).is_last is False
    assert bits(lanes.minibatch(1, 0)) == bits(found)


@pytest.mark.parametrize(("end", "last"), [(2, None), (3, None), (5, 2)])
def test_a_task_that_is_ended_may_end_by_its_records_before(make, end, last):
    lanes = make(PLAIN)
    begin(lanes, 1, end=end)
    count = min(end, 3)
    assert [lanes.minibatch(1, index).is_last for index in range(count)] == [i == last for i in range(count)]


def test_a_bad_record_is_told_with_its_line(make):
    lanes = make(PLAIN, read=lambda a: [b"x,y,z"] * TASK)
    begin(lanes, 6)
    with pytest.raises(TaskError) as error:
        lanes.minibatch(6, 0)
    place, _, function = error.value.where.partition(" in ")
    path, _, line = place.rpartition(":")
    assert function == "parse"
    assert "to_number" in Path(path).read_text().splitlines()[int(line) - 1]


@pytest.mark.parametrize("form", ["plain", "noisy", "oldest"])
def test_records_that_cannot_be_read_fail_their_task(make, form):
    def unreadable(assignment):
        if assignment.task == 1:
            raise DataError("part-0 is damaged (records 0 to 9)")
        return read(assignment)

    lanes = make(FORMS[form], read=unreadable)
    for task in (1, 2):
        begin(lanes, task)
    with pytest.raises(TaskError) as error:
        lanes.minibatch(1, 0)
    assert error.value.error == "part-0 is damaged (records 0 to 9)"
    assert len(run(lanes, 2)) == 3


@pytest.mark.parametrize("form", ["plain", "noisy", "oldest"])
def test_fewer_minibatches_than_are_applied(make, form):
    lanes = make(FORMS[form])
    begin(lanes, 1, first=3)
    with pytest.raises(TaskError, match="must be a function of the records alone"):
        lanes.minibatch(1, 3)
    begin(lanes, 1)
    lanes.minibatch(1, 0)
    with pytest.raises(TaskError, match="gave no minibatch 7"):
        lanes.minibatch(1, 7)
    begin(lanes, 1)
    assert len(run(lanes, 1)) == 3


def test_what_the_master_is_told_of_a_failed_task(make):
    lanes = make(PLAIN, read=lambda a: [b"x,y,z"] * TASK)
    begin(lanes, 6)
    with pytest.raises(TaskError) as error:
        lanes.minibatch(6, 0)
    failed = error.value.record("training", attempt=3)
    assert (failed.kind, failed.task, failed.index, failed.attempt) == ("training", 6, 0, 3)
    assert failed.error.startswith(
        "InvalidArgumentError: StringToNumberOp could not correctly convert string"
    )
    assert "\n" not in failed.error


def test_closing_does_not_wait_for_a_read(make):
    reading, go = threading.Event(), threading.Event()

    def slow(assignment):
        reading.set()
        go.wait(10)
        return read(assignment)

    lanes = make(PLAIN, read=slow)
    begin(lanes, 0)
    assert reading.wait(10)
    lanes.close()
    assert not go.is_set()
    go.set()
