"""Preprocessing layers: what they give, in each form of tensor and each place where a layer can stand."""

import re
from pathlib import Path

import numpy as np
import pytest

from edlz.services.worker.engine.tensorflow.backend import keras, tf

# After Keras' backend is chosen.
from edlz.api import preprocessing as pre  # isort: skip

PAGE = Path(__file__).parents[3] / "docs" / "preprocessing.md"
NAN, INF = float("nan"), float("inf")

CASES = {
    "round": (
        pre.RoundIdentity(4),
        [0.4, 0.6, 2.5, 3.4, 4.0, -0.6, NAN, INF, 1e30],
        [0, 1, 2, 3, 0, 0, 0, 0, 0],
    ),
    "round integers": (pre.RoundIdentity(4, default_value=7), np.array([3, 4, -1]), [3, 7, 7]),
    "log": (pre.LogRound(3), [1.0, 2.8, 7.0, 30.0, 0.0, -1.0, NAN], [0, 1, 2, 0, 0, 0, 0]),
    "log of base 10": (pre.LogRound(4, default_value=3, base=10), [1.0, 90.0, 1e9], [0, 2, 3]),
    "normalizer": (pre.Normalizer(1.0, 2.0), [3.0, 5.0, NAN], [1.0, 2.0, NAN]),
    "normalizer of integers": (pre.Normalizer(2**40, 1.0), np.array([2**40 + 1, 2**40]), [1.0, 0.0]),
    "to float": (
        pre.ToNumber(default_value=-1.0),
        ["1.5", "", " 2 ", "1e3", "nan", "  "],
        [1.5, -1, 2, 1e3, NAN, -1],
    ),
    "to int": (pre.ToNumber("int64", 5), ["12", "", str(2**62)], [12, 5, 2**62]),
    "lookup": (pre.IndexLookup(["a", "b", "c"]), ["c", "a", "z", ""], [2, 0, 3, 3]),
    "lookup without unknown": (
        pre.IndexLookup([30, 10], num_oov_tokens=0),
        np.array([10, 20, 30]),
        [1, -1, 0],
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_values_whatever_form_they_have(name):
    layer, given, expected = CASES[name]
    values, expected = tf.constant(given), np.array(expected)
    np.testing.assert_array_equal(layer(values), expected)
    np.testing.assert_array_equal(layer(values[tf.newaxis, :, tf.newaxis])[0, :, 0], expected)
    ragged = tf.RaggedTensor.from_row_lengths(values, [1, 0, len(expected) - 1])
    assert layer(ragged).row_lengths().numpy().tolist() == [1, 0, len(expected) - 1]
    np.testing.assert_array_equal(layer(ragged).flat_values, expected)
    sparse = ragged.to_sparse()
    np.testing.assert_array_equal(layer(sparse).values, expected)
    np.testing.assert_array_equal(layer(sparse).indices, sparse.indices)


@pytest.mark.parametrize("name", CASES)
def test_values_within_a_dataset(name):
    layer, given, expected = CASES[name]
    dataset = tf.data.Dataset.from_tensor_slices(tf.constant(given))
    for one_by_one in (dataset.map(layer), dataset.batch(2).map(layer).unbatch()):
        np.testing.assert_array_equal([item.numpy() for item in one_by_one], np.array(expected))


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("form", ["dense", "ragged", "sparse"])
def test_the_symbolic_tensor_is_as_the_real_one(name, form):
    layer, given, _ = CASES[name]
    dtype = tf.constant(given).dtype.name
    symbol = layer(keras.Input((3,), dtype=dtype, ragged=form == "ragged", sparse=form == "sparse"))
    assert (symbol.shape, symbol.ragged, symbol.sparse) == ((None, 3), form == "ragged", form == "sparse")
    assert symbol.dtype == layer(tf.constant(given)).dtype.name


def test_unknown_values_share_numbers_behind_the_vocabulary():
    texts = tf.constant([f"unknown {number}" for number in range(200)])
    found = pre.IndexLookup(["a", "b"], num_oov_tokens=3)(texts).numpy()
    assert sorted(set(found)) == [2, 3, 4]
    numbers = pre.IndexLookup([1, 2], num_oov_tokens=3)(tf.range(3, 203)).numpy()
    assert sorted(set(numbers)) == [2, 3, 4]
    assert pre.IndexLookup(["a", "b"], num_oov_tokens=3).vocabulary_size() == 5


def test_a_vocabulary_in_a_file_becomes_part_of_the_layer(tmp_path):
    path = tmp_path / "towns.txt"
    path.write_text("Łódź\nWarszawa\n", encoding="utf-8")
    layer = pre.IndexLookup(path)
    path.unlink()
    again = pre.IndexLookup.from_config(layer.get_config())
    assert again(tf.constant(["Warszawa", "Łódź", "Opole"])).numpy().tolist() == [1, 0, 2]


def test_lists_of_values():
    texts = tf.constant(["a|b", "", "c||d"])
    assert pre.ToRagged("|")(texts).to_list() == [[b"a", b"b"], [], [b"c", b"d"]]
    assert pre.ToRagged(None)(texts).to_list() == [[b"a|b"], [], [b"c||d"]]
    assert pre.ToRagged("|", ignore_value="b")(texts).to_list() == [[b"a"], [b""], [b"c", b"", b"d"]]
    columns = tf.constant([["a,b", "c"], ["", "d"]])
    assert pre.ToRagged()(columns).to_list() == [[b"a", b"b", b"c"], [b"d"]]
    numbers = tf.constant([[3, -1, 5], [-1, -1, -1], [0, 1, 2]])
    assert pre.ToRagged()(numbers).to_list() == [[3, 5], [], [0, 1, 2]]
    assert pre.ToRagged(ignore_value=0)(numbers).to_list() == [[3, -1, 5], [-1, -1, -1], [1, 2]]
    ragged = tf.ragged.constant([["a,b"], [], ["c", ",d"]])
    assert pre.ToRagged()(ragged).to_list() == [[b"a", b"b"], [], [b"c", b"d"]]
    assert pre.ToRagged()(ragged.to_sparse()).to_list() == [[b"a", b"b"], [], [b"c", b"d"]]


def test_sparse_values():
    found = pre.ToSparse()(tf.constant([[3, -1, 5], [-1, -1, -1]]))
    assert found.indices.numpy().tolist() == [[0, 0], [0, 1]]
    assert found.values.numpy().tolist() == [3, 5]
    assert found.dense_shape.numpy().tolist() == [2, 2]
    assert pre.ToSparse(sep="|")(tf.constant(["a|b", ""])).values.numpy().tolist() == [b"a", b"b"]


@pytest.mark.parametrize("form", ["dense", "ragged", "sparse"])
def test_columns_side_by_side(form):
    make = {
        "dense": tf.constant,
        "ragged": tf.RaggedTensor.from_tensor,
        "sparse": lambda ids: tf.RaggedTensor.from_tensor(ids).to_sparse(),
    }[form]
    first, second = make([[1, 2], [0, -1]]), make([[0], [3]])
    found = pre.ConcatenateWithOffset([0, 10])([first, second])
    values = {
        "dense": lambda: found,
        "ragged": lambda: found.to_tensor(),
        "sparse": lambda: tf.sparse.to_dense(found),
    }
    assert values[form]().numpy().tolist() == [[1, 2, 10], [0, -1, 13]]
    plain = pre.ConcatenateWithOffset()([first, second])
    assert plain.dtype == tf.int64


@pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")  # of Keras, with NumPy 2
def test_a_model_of_all_of_them_is_saved_and_exported(tmp_path):
    inputs = {
        "age": keras.Input((1,), name="age"),
        "income": keras.Input((1,), name="income", dtype="string"),
        "town": keras.Input((1,), name="town", dtype="string"),
        "tags": keras.Input((1,), name="tags", dtype="string"),
    }
    town = pre.IndexLookup(["a", "b"], name="towns")(inputs["town"])
    tags = pre.Hashing(50)(pre.ToRagged("|")(inputs["tags"]))
    income = pre.ToNumber("float64")(inputs["income"])
    ids = pre.ConcatenateWithOffset([0, 10, 20, 30])(
        [
            town,
            pre.RoundIdentity(9)(inputs["age"]),
            pre.LogRound(9)(income),
            pre.Discretization([10.0, 20.0])(inputs["age"]),
        ]
    )
    rows = keras.layers.Flatten()(keras.layers.Embedding(40, 3)(ids))
    pooled = keras.layers.CategoryEncoding(50, output_mode="multi_hot")(tags)
    numbers = pre.Normalizer(4.0, 2.0)(inputs["age"])
    model = keras.Model(inputs, keras.layers.Concatenate()([rows, pooled, numbers]))
    rows_of_data = {
        "age": tf.constant([[3.0], [25.0]]),
        "income": tf.constant([["17.5"], [""]]),
        "town": tf.constant([["b"], ["nowhere"]]),
        "tags": tf.constant([["x|y"], [""]]),
    }
    expected = model(rows_of_data)
    model.save(tmp_path / "model.keras")
    again = keras.models.load_model(tmp_path / "model.keras", safe_mode=False)
    np.testing.assert_array_equal(again(rows_of_data), expected)
    model.export(tmp_path / "exported", verbose=False)
    exported = tf.saved_model.load(tmp_path / "exported")
    served = exported.serve(rows_of_data)
    np.testing.assert_array_equal(served, expected)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: pre.RoundIdentity(0), "0 bins hold nothing"),
        (lambda: pre.LogRound(3, base=1), "a logarithm has no base 1"),
        (lambda: pre.Normalizer(1.0, 0.0), "is no finite number"),
        (lambda: pre.Normalizer(NAN, 1.0), "is no finite number"),
        (lambda: pre.ToNumber("uint8"), "out_type=uint8 is none of float32, float64, int32, int64"),
        (lambda: pre.ToNumber("int32", 0.5), "default_value=0.5 is no int32"),
        (lambda: pre.IndexLookup([]), "the vocabulary is empty"),
        (lambda: pre.IndexLookup(["a", "b", "a"]), "has more than once: 'a'"),
        (lambda: pre.IndexLookup(["a", 1]), "either texts or integers, and not int and str"),
        (lambda: pre.IndexLookup(["a"], num_oov_tokens=-1), "num_oov_tokens=-1"),
        (lambda: pre.ToRagged(""), "sep is empty"),
        (lambda: pre.ToRagged()(tf.zeros([2, 2, 2])), "of rank 3"),
        (lambda: pre.ConcatenateWithOffset([0])([tf.constant([[1]])] * 2), "has 1 offsets and got 2 inputs"),
        (
            lambda: pre.ConcatenateWithOffset()([tf.constant([["a"]])] * 2),
            "ids of type string: number them first",
        ),
        (
            lambda: pre.ConcatenateWithOffset()([tf.constant([[1]]), tf.ragged.constant([[1]])]),
            "dense, ragged and sparse ids do not mix",
        ),
        (
            lambda: pre.RoundIdentity(3)(tf.constant(["a"])),
            "values of type string: convert them with ToNumber",
        ),
        (
            lambda: pre.Normalizer(0.0, 1.0)(tf.constant(["a"])),
            "values of type string: convert them with ToNumber",
        ),
        (lambda: pre.ToNumber()(tf.constant([1])), "they are numbers already"),
        (lambda: pre.IndexLookup(["a"])(tf.constant([1])), "of type int32; its vocabulary has texts"),
        (lambda: pre.IndexLookup([1])(tf.constant(["a"])), "of type string; its vocabulary has integers"),
        (lambda: pre.IndexLookup([1])(tf.constant([1.5])), "of type float32: round them first"),
    ],
)
def test_what_makes_no_sense_is_refused(make, message):
    with pytest.raises((ValueError, TypeError), match=message):
        make()


def test_a_text_that_is_no_number_is_named():
    with pytest.raises(tf.errors.InvalidArgumentError, match="twelve"):
        pre.ToNumber()(tf.constant(["12", "twelve"]))


def test_the_page_about_them_is_code_that_runs():
    blocks = re.findall(r"^```python\n(.*?)^```$", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    assert len(blocks) == 2
    for block in blocks:
        exec(block, {})
    for name in pre.__all__:
        assert f"`{name}(" in PAGE.read_text(encoding="utf-8"), name
