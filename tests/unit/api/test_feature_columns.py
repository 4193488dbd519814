"""Feature columns as the input of a model: the layer `DenseFeatures`."""

import json

import numpy as np
import pytest

from edlz.services.worker.engine.tensorflow.backend import keras, tf
from tests.rounding import near

# After Keras' backend is chosen.
from edlz.api import DenseFeatures, Embedding, concatenated_categorical_column  # isort: skip

columns = tf.feature_column

AGE = columns.numeric_column("age")
TOWN = columns.categorical_column_with_vocabulary_list("town", ["a", "b"])
CODE = columns.categorical_column_with_identity("code", 5)
FEATURES = {
    "age": tf.constant([5.0, 25.0]),
    "town": tf.constant([["b"], ["nowhere"]]),
    "code": tf.sparse.from_dense(tf.constant([[1, 3], [2, 0]], tf.int64)),
}


def table(layer, ids):
    """The row of id i is i, i + 0.5, ..."""
    return tf.cast(ids, tf.float32)[:, tf.newaxis] + 0.5 * tf.range(layer.output_dim, dtype=tf.float32)


def dense(*given):
    layer = DenseFeatures(given)
    for embedding in layer._flatten_layers(include_self=False):
        embedding.source = table
    return layer


def test_columns_are_in_the_order_of_their_names():
    bins = columns.bucketized_column(AGE, [10.0, 20.0])
    found = dense(columns.indicator_column(TOWN), bins, AGE)(FEATURES)
    assert np.asarray(found).tolist() == [[5, 1, 0, 0, 0, 1], [25, 0, 0, 1, 0, 0]]


@pytest.mark.parametrize("combiner", ["sum", "mean", "sqrtn"])
def test_embeddings_are_combined_as_the_column_says(combiner):
    found = dense(columns.embedding_column(CODE, 2, combiner=combiner))(FEATURES)
    parts = {"sum": 1, "mean": 2, "sqrtn": 2**0.5}
    expected = [[4 / parts[combiner], 5 / parts[combiner]], [2, 2.5]]
    assert np.asarray(found) == near(expected, 8)


def test_unknown_values_have_no_row():
    found = dense(columns.embedding_column(TOWN, 2))(FEATURES)
    assert np.asarray(found).tolist() == [[1, 1.5], [0, 0]]


def test_weights_of_ids():
    weighted = columns.weighted_categorical_column(CODE, "weight")
    weights = FEATURES["code"].with_values(tf.constant([1.0, 3.0, 2.0]))
    found = dense(columns.embedding_column(weighted, 1))({**FEATURES, "weight": weights})
    assert np.asarray(found) == near([[2.5], [2.0]], 8)


def test_columns_in_one_table():
    both = concatenated_categorical_column([TOWN, CODE])
    assert (both.num_buckets, both.name) == (7, "town_C_code")
    found = dense(columns.embedding_column(both, 1, combiner="sum"))(FEATURES)
    assert np.asarray(found).tolist() == [[1 + 3 + 5], [4]]
    indicated = dense(columns.indicator_column(both))(FEATURES)
    assert np.asarray(indicated).tolist() == [[0, 1, 0, 1, 0, 1, 0], [0, 0, 0, 0, 1, 0, 0]]


def test_a_table_begins_as_the_column_says():
    made = DenseFeatures(
        [
            columns.embedding_column(TOWN, 4),
            columns.embedding_column(CODE, 4, initializer=keras.initializers.RandomUniform(-2, 3)),
        ]
    )
    town, code = sorted(made._flatten_layers(include_self=False), key=lambda layer: layer.name, reverse=True)
    assert isinstance(town, Embedding)
    assert (town.name, town.combiner) == ("town_embedding", "mean")
    assert isinstance(town.embeddings_initializer, keras.initializers.TruncatedNormal)
    assert town.embeddings_initializer.stddev == 0.5
    assert (code.embeddings_initializer.minval, code.embeddings_initializer.maxval) == (-2, 3)


def test_a_layer_is_its_configuration():
    both = concatenated_categorical_column([TOWN, CODE])
    made = dense(AGE, columns.embedding_column(both, 2), columns.indicator_column(TOWN))
    config = json.loads(json.dumps(made.get_config()))
    again = DenseFeatures.from_config(config)
    for embedding in again._flatten_layers(include_self=False):
        embedding.source = table
    np.testing.assert_array_equal(again(FEATURES), made(FEATURES))


def test_in_a_model_that_is_exported(tmp_path):
    inputs = {
        "age": keras.Input((1,), name="age"),
        "town": keras.Input((1,), name="town", dtype="string"),
    }
    layer = dense(AGE, columns.indicator_column(TOWN))
    assert layer(inputs).shape == (None, 3)
    model = keras.Model(inputs, layer(inputs))
    given = {"age": tf.constant([[5.0]]), "town": tf.constant([["b"]])}
    assert model(given).numpy().tolist() == [[5, 0, 1]]
    model.export(tmp_path / "exported", verbose=False)
    exported = tf.saved_model.load(tmp_path / "exported")
    served = exported.serve(given)
    assert served.numpy().tolist() == [[5, 0, 1]]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda: dense(TOWN),
            r"column town is no dense column: put indicator_column\(\) or embedding_column\(\)",
        ),
        (lambda: dense("age"), "'age' is no dense column"),
        (lambda: dense(), "got no feature columns"),
        (lambda: dense(AGE, AGE), "two columns have the name 'age'"),
        (lambda: dense(columns.embedding_column(TOWN, 2, max_norm=1.0)), "town_embedding has max_norm=1.0"),
        (lambda: dense(columns.embedding_column(TOWN, 2, trainable=False)), "has trainable=False"),
        (
            lambda: dense(columns.embedding_column(TOWN, 2, initializer=lambda shape, dtype: None)),
            "town_embedding has initializer function; take one of keras.initializers",
        ),
        (lambda: dense(AGE)({"years": keras.Input((1,))}), "no feature 'age'; there are years"),
        (lambda: concatenated_categorical_column([]), "got no columns"),
        (lambda: concatenated_categorical_column([AGE]), "column age is no categorical column"),
    ],
)
def test_what_makes_no_sense_is_refused(make, message):
    with pytest.raises((ValueError, TypeError), match=message):
        make()
