"""The zoo's building blocks: ids, layers against their formulas, parsing in batches."""

from itertools import combinations

import keras
import numpy as np
import pytest
import tensorflow as tf

from edlz.api.example import encode_example
from edlz.model_zoo.blocks import binary_label
from edlz.model_zoo.blocks.feeds import parse_examples
from edlz.model_zoo.blocks.ids import crossed_ids, field_ids, mixed, text_values
from edlz.model_zoo.blocks.interactions import (
    CrossNetwork,
    FactorizationMachine,
    InteractionNetwork,
    MaskedMean,
)
from edlz.model_zoo.conversion import mixing
from tests.rounding import near

RNG = np.random.default_rng(0)


def numbers(*shape):
    return RNG.normal(size=shape).astype(np.float32)


# --- ids ---


def test_both_mixing_functions_are_the_same():
    values = RNG.integers(-(2**63), 2**63 - 1, (50, 3))
    assert np.array_equal(mixed(tf.constant(values)).numpy().view(np.uint64), mixing.mixed(values))


def test_each_field_and_value_has_an_id_of_its_own():
    values = tf.constant([[n] * 5 for n in range(-100, 100)], tf.int64)
    ids = field_ids(values).numpy()
    assert ids.shape == (200, 5)
    assert len(np.unique(ids)) == ids.size
    assert np.array_equal(field_ids(values[:, 2:], first_field=2).numpy(), ids[:, 2:])
    assert np.array_equal(field_ids(values[:3]).numpy(), ids[:3])


def test_crosses_depend_on_all_columns_their_order_and_the_field():
    a = tf.constant(np.repeat(np.arange(30), 30))
    b = tf.constant(np.tile(np.arange(30), 30))
    ids = np.concatenate([crossed_ids(field, a, b).numpy() for field in (0, 1)])
    assert len(np.unique(ids)) == 1800
    swapped = crossed_ids(0, b, a).numpy()
    assert set(swapped) == set(ids[:900])  # all pairs occur in both
    assert (swapped == ids[:900]).sum() == 30  # of equal columns
    wide = crossed_ids(0, a[:4, tf.newaxis], b[tf.newaxis, :6])
    assert wide.shape == (4, 6)
    assert np.array_equal(wide[2], crossed_ids(0, tf.repeat(a[2], 6), b[:6]))


def test_texts_become_numbers():
    values = text_values(tf.constant(["a", "b", "", "a"])).numpy()
    assert values[0] == values[3]
    assert len(set(values.tolist())) == 3
    assert (values >= 0).all()


# --- layers ---


def test_factorization_machine_is_the_sum_over_pairs():
    vectors = numbers(4, 5, 3)
    expected = sum((vectors[:, i] * vectors[:, j]).sum(axis=1) for i, j in combinations(range(5), 2))
    # Squares of sums of 5, less sums of squares, of 3 columns.
    size = np.square(np.abs(vectors).sum(axis=1)).sum(axis=1).max()
    assert np.asarray(FactorizationMachine()(vectors)) == near(expected, 40, size=size)


@pytest.mark.parametrize("rank", [None, 2])
def test_cross_layers_follow_their_formula(rank):
    x0 = numbers(4, 5)
    layer = CrossNetwork(depth=2, rank=rank)
    out = layer(x0)
    weights = [variable.numpy() for variable in layer.trainable_variables]
    assert len(weights) == (4 if rank is None else 6)
    dense = {w.shape: [v for v in weights if v.shape == w.shape] for w in weights}
    x, size = x0, np.abs(x0)
    for number in range(2):
        inner = x if rank is None else x @ dense[5, 2][number]
        kernel = dense[5, 5] if rank is None else dense[2, 5]
        width = size if rank is None else size @ np.abs(dense[5, 2][number])
        x = x0 * (inner @ kernel[number] + dense[5,][number]) + x
        size = np.abs(x0) * (width @ np.abs(kernel[number]) + np.abs(dense[5,][number])) + size
    assert np.asarray(out) == near(x, 2 * 24, size=size.max())  # two layers of two sums of 5 products


def test_interaction_network_follows_its_formula():
    vectors = numbers(3, 4, 2)
    layer = InteractionNetwork([3, 2])
    out = layer(vectors).numpy()
    first, second = (w.numpy() for w in layer.trainable_variables)
    assert (first.shape, second.shape, out.shape) == ((16, 3), (12, 2), (3, 5))
    x1 = np.einsum("nid,njd,ijh->nhd", vectors, vectors, first.reshape(4, 4, 3))
    x2 = np.einsum("nid,njd,ijh->nhd", x1, vectors, second.reshape(3, 4, 2))
    expected = np.concatenate([x1.sum(axis=2), x2.sum(axis=2)], axis=1)
    # Sums of 16 and of 12 products of three, and of 2 columns.
    size = np.abs(vectors).max() ** 3 * np.abs(first).sum(axis=0).max() * np.abs(second).sum(axis=0).max() * 2
    assert out == near(expected, 100, size=max(1.0, size))


def test_masked_mean_leaves_filling_out():
    vectors, weights = numbers(3, 2, 4, 5), np.array([[1, 1, 0, 0], [0, 0, 0, 0], [1, 1, 1, 1]], np.float32)
    out = MaskedMean()(vectors, weights).numpy()
    assert out[0] == near(vectors[0, :, :2].mean(axis=1), 8, size=np.abs(vectors).max())
    assert not out[1].any()
    assert out[2] == near(vectors[2].mean(axis=1), 12, size=np.abs(vectors).max())


@pytest.mark.parametrize(
    ("layer", "shapes"),
    [
        (FactorizationMachine(), [(4, 3)]),
        (CrossNetwork(2, 3), [(6,)]),
        (InteractionNetwork([3]), [(4, 3)]),
        (MaskedMean(), [(2, 4, 3), (4,)]),
    ],
    ids=lambda value: type(value).__name__,
)
def test_layers_in_functional_models(layer, shapes):
    inputs = [keras.Input(shape) for shape in shapes]
    model = keras.Model(inputs, layer(*inputs))
    values = [numbers(2, *shape) for shape in shapes]
    expected = model(values).numpy()
    assert model.output_shape[1:] == expected.shape[1:]
    copy = keras.Model.from_config(model.get_config())
    copy.set_weights(model.get_weights())
    # The same operations, perhaps in another order.
    assert np.asarray(copy(values)) == near(expected, 50, size=max(1.0, np.abs(expected).max()))


# --- loss and metrics ---


def test_loss_and_metrics_of_a_binary_label():
    labels, logits = tf.constant([1.0, 0.0, 1.0, 0.0]), tf.constant([2.0, -1.0, -0.5, 0.3])
    shares = 1 / (1 + np.exp(-logits.numpy()))
    expected = -np.log(np.where(labels.numpy() == 1, shares, 1 - shares))
    metrics = binary_label.eval_metrics_fn()
    # Exponential and logarithm, each off by 4 units, and a few sums.
    assert np.asarray(metrics["logloss"](labels, logits)) == near(expected, 16, size=2.0)
    assert float(binary_label.loss(labels, logits)) == near(expected.mean(), 24, size=2.0)
    metrics["auc"].update_state(labels, logits)
    assert float(metrics["auc"].result()) == near(0.75, 1000)  # of 200 thresholds


# --- parsing ---

SCHEMA = {"number": tf.io.FixedLenFeature([], tf.int64)}
RECORDS = [encode_example({"number": n, "label": n % 2}) for n in range(3_000)]


def features(parsed):
    return {"double": tf.stack([parsed["number"], 2 * parsed["number"]], axis=1)}


def parsed(mode, records=RECORDS):
    minibatches = tf.data.Dataset.from_tensor_slices(records).batch(700)
    return list(parse_examples(minibatches, mode, SCHEMA, features).as_numpy_iterator())


@pytest.mark.parametrize("mode", ["training", "evaluation"])
def test_minibatches_keep_their_records_in_order(mode):
    batches = parsed(mode)
    assert [len(labels) for _, labels in batches] == [700] * 4 + [200]
    assert np.concatenate([x["double"] for x, _ in batches]).tolist() == [[n, 2 * n] for n in range(3_000)]
    labels = np.concatenate([labels for _, labels in batches])
    assert labels.dtype == np.float32
    assert np.array_equal(labels, np.arange(3_000) % 2)


def test_records_to_predict_need_no_label():
    batches = parsed("prediction", [encode_example({"number": n}) for n in range(5)])
    assert batches[0]["double"][:, 0].tolist() == [0, 1, 2, 3, 4]
