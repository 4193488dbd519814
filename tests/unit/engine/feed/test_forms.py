"""Which feeds are one stream, which are built for each task, and what the oldest form is given."""

import logging

import pytest

from edlz.services.errors import ModelError
from edlz.services.worker.engine.feed.batch_structure import record_count
from edlz.services.worker.engine.tensorflow.backend import tf
from tests.unit.engine.feed.feeds import FORMS, OLDEST, TASK, begin, record, run, values

pytestmark = pytest.mark.filterwarnings("ignore:Seed .* from outer graph:UserWarning")


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
    assert record_count(minibatch.element) == 2
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
    assert record_count(lanes.minibatch(0, 2).element) == 2
