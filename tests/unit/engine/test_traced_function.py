"""Structures of tensors made of flat lists."""

import pytest

from edlz.services.worker.engine.tensorflow.backend import tf
from edlz.services.worker.engine.tensorflow.traced_function import (
    DatasetIterator,
    flat_tensors,
    packed,
    packer,
)

ONE = tf.TensorSpec([None], tf.float32)


@pytest.mark.parametrize(
    "spec",
    [
        ONE,
        (ONE,),
        (ONE, {"b": ONE, "a": (ONE, ONE), "c": {}}, ()),
        ({"z": ONE, "y": [ONE, ONE]}, ONE),
        (
            {"r": tf.RaggedTensorSpec([None, None], tf.int64), "d": ONE},
            tf.SparseTensorSpec([None, 3], tf.int64),
        ),
    ],
)
def test_what_is_packed_once_is_packed_the_same_by_heart(spec):
    flat = list(range(len(flat_tensors(spec))))
    if any(isinstance(leaf, tf.RaggedTensorSpec | tf.SparseTensorSpec) for leaf in tf.nest.flatten(spec)):
        values = tf.nest.map_structure(lambda leaf: leaf._to_components(_value(leaf)), spec)
        flat = tf.nest.flatten(values)
        assert repr(packer(spec)(flat)) == repr(packed(spec, flat))
        return
    found, wanted = packer(spec)(flat), packed(spec, flat)
    assert found == wanted
    assert repr(found) == repr(wanted)  # also the order of names


def test_a_dataset_gives_its_elements_whatever_they_are_made_of():
    dense = tf.data.Dataset.from_tensor_slices({"b": [[1, 2], [3, 4]], "a": [b"x", b"y"]})
    dataset = tf.data.Dataset.zip(dense, dense.map(lambda row: tf.sparse.from_dense(row["b"])))
    found = list(DatasetIterator(dataset))
    assert [list(row) for row, _ in found] == [["b", "a"]] * 2
    assert [(row["b"].numpy().tolist(), row["a"].numpy()) for row, _ in found] == [
        ([1, 2], b"x"),
        ([3, 4], b"y"),
    ]
    assert [tf.sparse.to_dense(sparse).numpy().tolist() for _, sparse in found] == [[1, 2], [3, 4]]


def _value(spec):
    if isinstance(spec, tf.RaggedTensorSpec):
        return tf.ragged.constant([[1], [2, 3]], tf.int64)
    if isinstance(spec, tf.SparseTensorSpec):
        return tf.sparse.from_dense(tf.constant([[0, 1, 2]], tf.int64))
    return tf.zeros([2])
