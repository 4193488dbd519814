"""The embedding layer by itself: a function of its ids and of the source that it is given."""

import re

import numpy as np
import pytest

from edlz.services.errors import ModelError
from edlz.services.protocol.messages import InitializerSpec
from edlz.services.worker.engine.model.initializers import initializer_spec
from edlz.services.worker.engine.model.lookups import without_rows
from edlz.services.worker.engine.tensorflow.backend import keras, tf
from tests.rounding import TENSORFLOW, near

# After Keras' backend is chosen.
from edlz.api import Embedding, LearningRateScheduler  # isort: skip

TABLE = np.random.default_rng(0).normal(size=(100, 3)).astype(np.float32)
IDS = np.array([[1, -2, 3], [4, 1, -1]])


def layer(*args, **options):
    """A layer whose row of id i is TABLE[i]."""
    made = Embedding(3, *args, **options)
    made.source = lambda layer, ids: tf.gather(TABLE, ids % 100)
    return made


@pytest.mark.parametrize("dtype", ["int32", "int64", "uint8", "float32", "float64"])
@pytest.mark.parametrize("shape", [(6,), (3, 2), (1, 2, 3), (0, 2)])
def test_dense_ids_of_any_type_and_shape(dtype, shape):
    ids = np.arange(np.prod(shape)).reshape(shape).astype(dtype)
    np.testing.assert_array_equal(layer()(ids), TABLE[ids.astype(int)])


def test_the_output_has_a_static_shape():
    @tf.function(input_signature=[tf.TensorSpec([None, None, 2], tf.int64)])
    def call(ids):
        return layer()(ids)

    assert call.get_concrete_function().structured_outputs.shape.as_list() == [None, None, 2, 3]
    assert layer()(keras.Input((5,), dtype="int64")).shape == (None, 5, 3)
    sparse = keras.Input((5,), dtype="int64", sparse=True)
    assert layer(combiner="sum")(sparse).shape == (None, 3)


def test_negative_ids_are_ids_where_they_are_dense():
    np.testing.assert_array_equal(layer()(IDS), TABLE[IDS % 100])


@pytest.mark.parametrize("combiner", ["sum", "mean", "sqrtn"])
@pytest.mark.parametrize("is_weighted", [False, True])
@pytest.mark.parametrize("form", ["sparse", "ragged"])
def test_combiners_are_those_of_tensorflow(combiner, is_weighted, form):
    ids = tf.ragged.constant([[1, 5, 5], [], [7]], dtype=tf.int64)
    weights = tf.ragged.constant([[0.5, 2.0, 0.25], [], [3.0]])
    sparse = ids.to_sparse(), weights.to_sparse()
    given = sparse if form == "sparse" else (ids, weights)
    expected = tf.nn.safe_embedding_lookup_sparse(
        tf.constant(TABLE), sparse[0], sparse[1] if is_weighted else None, combiner=combiner
    )
    found = layer(combiner=combiner)(given[0], weights=given[1] if is_weighted else None)
    # Three products and sums, of weights and of their squares too; a root and a quotient.
    assert np.asarray(found) == near(expected, 12 + TENSORFLOW.root + TENSORFLOW.quotient)


def test_negative_ids_of_sparse_input_are_left_out():
    sparse = tf.sparse.from_dense(tf.constant([[1, -4, 2], [-1, 0, 0]], tf.int64))
    weights = sparse.with_values(tf.constant([1.0, 9.0, 2.0, 9.0]))
    found = layer(combiner="sum")(sparse, weights=weights)
    assert np.asarray(found) == near([TABLE[1] + 2 * TABLE[2], np.zeros(3)], 4)


def test_ragged_ids_without_a_combiner_stay_ragged():
    ids = tf.ragged.constant([[1, 5], [], [7]], dtype=tf.int64)
    found = layer()(ids)
    assert found.row_lengths().numpy().tolist() == [2, 0, 1]
    np.testing.assert_array_equal(found.flat_values, TABLE[[1, 5, 7]])


def test_id_0_is_padding_if_asked_for():
    ids = tf.constant([[1, 0, 2]])
    masked = layer(mask_zero=True)
    assert masked.compute_mask(ids).numpy().tolist() == [[True, False, True]]
    pooled = keras.layers.GlobalAveragePooling1D()(masked(ids))
    assert np.asarray(pooled[0]) == near((TABLE[1] + TABLE[2]) / 2, 4 + TENSORFLOW.quotient)
    assert layer().compute_mask(ids) is None


def test_mixed_precision_rounds_the_output_and_not_the_ids():
    ids = np.array([2**24 + 1])
    mixed = Embedding(1, dtype="mixed_bfloat16")
    mixed.source = lambda layer, ids: tf.cast(ids == 2**24 + 1, tf.float32)[:, tf.newaxis]
    assert mixed(ids).dtype == tf.bfloat16
    assert mixed(ids).numpy().tolist() == [[1.0]]


@pytest.mark.parametrize(
    ("options", "ids", "message"),
    [
        ({}, tf.sparse.from_dense(IDS), "got sparse ids: set combiner to one of sum, mean, sqrtn"),
        ({"combiner": "sum", "mask_zero": True}, tf.sparse.from_dense(IDS), "mask_zero=True has no meaning"),
        ({"combiner": "sum"}, tf.ragged.constant([[[1], [2]]]), "rank 3"),
        ({}, tf.constant(["a"]), "ids of type string: hash or number them first"),
    ],
)
def test_ids_that_make_no_sense_here(options, ids, message):
    with pytest.raises((ValueError, TypeError), match=message):
        layer(**options)(ids)


def test_weights_need_a_combiner():
    with pytest.raises(ValueError, match="need sparse or ragged ids, and a combiner"):
        layer()(IDS, weights=np.ones((2, 3)))
    ragged = tf.RaggedTensor.from_tensor(IDS)
    with pytest.raises(ValueError, match="weights need a combiner"):
        layer()(ragged, weights=tf.cast(ragged, tf.float32))


def test_outside_of_a_job_there_are_no_rows():
    with pytest.raises(RuntimeError, match="outside of jobs"):
        Embedding(3)(IDS)
    with without_rows():
        assert not Embedding(3)(IDS).numpy().any()
    with pytest.raises(RuntimeError, match="has no rows"):
        Embedding(3)(IDS)


def test_a_layer_is_its_configuration():
    optimizer = keras.optimizers.Adagrad(0.25)
    made = Embedding(3, 50, "glorot_normal", combiner="mean", optimizer=optimizer, name="words")
    again = Embedding.from_config(made.get_config())
    assert again.get_config() == made.get_config()
    assert (again.name, again.output_dim, again.input_dim, again.combiner) == ("words", 3, 50, "mean")
    assert float(again.optimizer.learning_rate) == 0.25
    copied = keras.layers.deserialize(keras.layers.serialize(made))
    assert copied.get_config() == made.get_config()
    plain = Embedding.from_config(Embedding(3).get_config())
    assert (plain.input_dim, plain.optimizer, plain.mask_zero) == (None, None, False)


def test_the_older_arguments_are_taken():
    made = Embedding(3, input_dim=0, input_length=7)
    assert made.input_dim is None


# ---------------------------------------------------------------- initial rows


@pytest.mark.parametrize(
    "name",
    [
        "uniform",
        "random_normal",
        "truncated_normal",
        "zeros",
        "ones",
        "glorot_uniform",
        "glorot_normal",
        "he_uniform",
        "he_normal",
        "lecun_uniform",
        "lecun_normal",
    ],
)
def test_initializers_are_the_distributions_of_keras(name):
    """Drawn by Keras for a table of this size, and bounds and deviation by the spec."""
    initializer = keras.initializers.get(name)
    drawn = np.asarray(initializer((2000, 16)))
    spec = initializer_spec(initializer, 2000, 16)
    if spec.kind == "constant":
        assert np.all(drawn == spec.a)
        return
    if spec.kind == "uniform":
        low, high, deviation = spec.a, spec.b, (spec.b - spec.a) / np.sqrt(12)
    else:
        shrink = 0.87962566 if spec.kind == "truncated_normal" else 1.0
        reach = 2 if spec.kind == "truncated_normal" else 9
        low, high, deviation = spec.a - reach * spec.b, spec.a + reach * spec.b, spec.b * shrink
    assert low <= drawn.min() < drawn.max() <= high
    # Of 32,000 draws: 0.02 is five times what chance makes of a normal distribution, 1 / sqrt(64,000).
    assert np.std(drawn) == pytest.approx(deviation, rel=0.02)
    if spec.kind != "normal":  # as wide as it says
        assert drawn.max() > high - 0.02 * (high - low)


def test_initializers_with_arguments():
    kinds = keras.initializers
    assert initializer_spec(kinds.RandomUniform(-1, 2), None, 4) == InitializerSpec(kind="uniform", a=-1, b=2)
    assert initializer_spec(kinds.RandomNormal(1, 3), None, 4) == InitializerSpec(kind="normal", a=1, b=3)
    assert initializer_spec(kinds.Constant(0.5), None, 4) == InitializerSpec(kind="constant", a=0.5)
    untruncated = kinds.VarianceScaling(4.0, "fan_out", "untruncated_normal")
    assert initializer_spec(untruncated, 100, 16) == InitializerSpec(kind="normal", a=0, b=0.5)


@pytest.mark.parametrize(
    ("initializer", "message"),
    [
        (keras.initializers.Orthogonal(), "Orthogonal does not make rows one by one"),
        (keras.initializers.Constant([1.0, 2.0]), "not one number"),
        (lambda shape, dtype: tf.zeros(shape, dtype), "does not make rows one by one"),
        (keras.initializers.HeNormal(), "give the layer its input_dim"),
    ],
)
def test_initializers_that_rows_cannot_have(initializer, message):
    with pytest.raises(ModelError) as error:
        initializer_spec(initializer, None, 4)
    assert re.search(message, f"{error.value.message} {error.value.help}")


def test_a_schedule_by_version_under_fit():
    seen = []
    scheduler = LearningRateScheduler(lambda version: seen.append(version) or 1.0 / (1 + version))
    model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1)])
    model.compile(keras.optimizers.SGD(1.0), "mse")
    model.fit(np.ones((6, 1)), np.ones((6, 1)), batch_size=2, verbose=0, callbacks=[scheduler])
    assert seen == [0, 1, 2]
    assert float(model.optimizer.learning_rate) == np.float32(1 / 3)
