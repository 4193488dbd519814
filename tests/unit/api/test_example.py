"""The Example encoder against TensorFlow's own messages and parser."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edlz.api.example import encode_example
from edlz.api.feeds import Mode


def test_known_bytes():
    # Example{features{feature{"a": int64_list [1, 300]}}} by hand, from the wire format's description.
    assert encode_example({"a": [1, 300]}) == bytes.fromhex("0a0e 0a0c 0a0161 1207 1a05 0a03 01ac02")


def test_tensorflow_reads_it_back():
    import tensorflow as tf

    image = np.arange(784, dtype=np.float32).reshape(28, 28) / 3
    ids = np.array([0, 1, 127, 128, 16_383, 16_384, 2**63 - 1, -1, -(2**63)])
    record = encode_example(
        {
            "image": image,
            "label": 7,
            "ids": ids,
            "text": [b"ab", b"", b"x" * 300],
            "none": np.zeros(0, np.int64),
        }
    )
    parsed = tf.io.parse_single_example(
        record,
        {
            "image": tf.io.FixedLenFeature([28, 28], tf.float32),
            "label": tf.io.FixedLenFeature([], tf.int64),
            "ids": tf.io.VarLenFeature(tf.int64),
            "text": tf.io.VarLenFeature(tf.string),
            "none": tf.io.VarLenFeature(tf.int64),
        },
    )
    assert np.array_equal(parsed["image"].numpy(), image)
    assert parsed["label"].numpy() == 7
    assert np.array_equal(parsed["ids"].values.numpy(), ids)
    assert parsed["text"].values.numpy().tolist() == [b"ab", b"", b"x" * 300]
    assert parsed["none"].values.shape == (0,)


@pytest.mark.parametrize("dtype", ["int64", "float32", "string"])
def test_a_list_of_nothing_is_an_empty_list_of_whatever_is_expected(dtype):
    import tensorflow as tf

    record = encode_example({"list": [], "tuple": (), "objects": np.array([], object)})
    assert not any(
        f.WhichOneof("kind") for f in tf.train.Example.FromString(record).features.feature.values()
    )
    parsed = tf.io.parse_single_example(
        record,
        {
            "list": tf.io.VarLenFeature(dtype),
            "tuple": tf.io.RaggedFeature(tf.as_dtype(dtype)),
            "objects": tf.io.FixedLenSequenceFeature([], dtype, allow_missing=True),
        },
    )
    assert [parsed[name].shape for name in ("tuple", "objects")] == [(0,), (0,)]
    assert parsed["list"].values.shape == (0,)


feature_values = st.one_of(
    st.lists(st.integers(-(2**63), 2**63 - 1), min_size=1, max_size=8).map(lambda v: np.array(v, np.int64)),
    st.lists(st.floats(width=32, allow_nan=False), max_size=8).map(lambda v: np.array(v, np.float32)),
    st.lists(st.binary(max_size=150), min_size=1, max_size=4),
)


@settings(deadline=None)
@given(st.dictionaries(st.text(min_size=3, max_size=3), feature_values, max_size=4))
def test_bytes_are_those_of_the_deterministic_serialisation(features):
    import tensorflow as tf

    train = tf.train
    messages = {}
    for name, value in features.items():
        if isinstance(value, list):
            messages[name] = train.Feature(bytes_list=train.BytesList(value=value))
        elif value.dtype == np.float32:
            messages[name] = train.Feature(float_list=train.FloatList(value=value))
        else:
            messages[name] = train.Feature(int64_list=train.Int64List(value=value))
    message = train.Example(features=train.Features(feature=messages))
    assert encode_example(features) == message.SerializeToString(deterministic=True)


@pytest.mark.parametrize(
    ("value", "same"),
    [
        (1.5, np.array([1.5], np.float32)),
        ([1, 2.5], np.array([1, 2.5], np.float64)),
        (np.float32(2), np.array([2], np.float16)),
        (True, np.array([1], np.int64)),
        ([], np.zeros(0, object)),
        (np.array([200], np.uint8), [200]),
        (np.arange(12).reshape(3, 4).T, np.arange(12).reshape(3, 4).T.copy().ravel()),
        (b"ab", [b"ab"]),
        (bytearray(b"ab"), (b"ab",)),
        (memoryview(b"ab"), np.array([b"ab"], object)),
    ],
)
def test_kinds_of_values(value, same):
    assert encode_example({"x": value}) == encode_example({"x": same})


@pytest.mark.parametrize("value", ["text", ["text"], None, [b"a", "b"], np.array([1j]), {"a": 1}])
def test_other_values_are_refused_by_name(value):
    with pytest.raises(TypeError, match="feature 'x'"):
        encode_example({"x": value})


def test_unsigned_integers_that_do_not_fit():
    with pytest.raises(OverflowError, match="feature 'x': 9223372036854775808 does not fit int64"):
        encode_example({"x": np.array([2**63], np.uint64)})


def test_mode_is_its_string():
    assert [str(mode) for mode in Mode] == ["training", "evaluation", "prediction"]
    assert Mode("training") is Mode.TRAINING
    assert Mode.EVALUATION == "evaluation"
    assert f"{Mode.PREDICTION}" == "prediction"
