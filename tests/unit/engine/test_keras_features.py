"""Features of Keras that users bring: each gives what plain Keras gives, or is refused by name (`test_model_check`)."""

import numpy as np
import pytest

from edlz.services.worker.engine.tensorflow.backend import keras, tf
from tests.checked_models import line, opened

pytestmark = pytest.mark.filterwarnings("ignore:Seed .* from outer graph:UserWarning")


@pytest.fixture(autouse=True)
def _plain_policy():
    """A module's dtype policy is no other test's business."""
    yield
    keras.config.set_dtype_policy("float32")


def gradients(folder, source, record=line, **compiled):
    """The gradient of a job's first minibatch, and what plain Keras changes by it at a learning rate of 1."""
    with opened(folder, source, record) as (trainer, _):
        built = trainer.build()
        assert trainer.check() is not None
        ours = trainer.compute(0, 0)
        parts = trainer._assembly
        trainer.begin(0)
        element = parts.lanes.minibatch(0, 0).element
        model, variables = parts.built.model, built.layout.dense.variables
        before = []
        for variable, place, offset in zip(
            model.trainable_variables, variables, built.layout.dense.offsets, strict=False
        ):
            before.append(built.dense[offset : offset + place.size].reshape(place.shape))
            variable.assign(before[-1])
        model.compile(keras.optimizers.SGD(1.0), parts.contract.loss.function, **compiled)
        features, labels, *weights = element
        theirs = model.train_on_batch(features, labels, *weights)
        after = [variable.numpy() for variable in model.trainable_variables]
        changes = [old - new for old, new in zip(before, after, strict=True)]
        found = [
            ours.gradient[offset : offset + place.size].reshape(place.shape)
            for place, offset in zip(variables, built.layout.dense.offsets, strict=False)
        ]
        return ours, found, theirs, changes


def check_equal(folder, source, record=line, rtol=2e-4, atol=2e-6, **compiled):
    """Keras' change is a difference of rounded parameters: that bounds how equal it can be."""
    ours, found, theirs, changes = gradients(folder, source, record, **compiled)
    assert ours.loss == pytest.approx(float(np.ravel(theirs)[0]), rel=1e-3)
    for gradient, change in zip(found, changes, strict=True):
        np.testing.assert_allclose(gradient, change, rtol=rtol, atol=atol)
    assert any(np.abs(gradient).max() > 0 for gradient in found)
    return found


def test_losses_that_layers_add(tmp_path):
    check_equal(
        tmp_path,
        """
        class Costly(layers.Layer):
            def call(self, x):
                self.add_loss(0.3 * tf.reduce_mean(tf.square(x)))
                return x
        def custom_model():
            x = keras.Input((2,))
            h = Costly()(layers.Dense(4, activity_regularizer="l2", kernel_regularizer="l1")(x))
            return keras.Model(x, layers.Dense(1, activation="sigmoid")(h))
        """,
    )


def test_masks_that_layers_pass_on_are_heeded_by_the_loss(tmp_path):
    source = """
        def custom_model():
            ids = keras.Input((3,), dtype="int32")
            h = layers.Embedding(9, 4, mask_zero=True)(ids)
            return keras.Model(ids, layers.Dense(1)(layers.LSTM(3, return_sequences=True)(h)))
        def feed(dataset, mode, metadata):
            def parse(line):
                a, b, label = tf.io.decode_csv(line, [0.0, 0.0, 0])
                ids = tf.cast(tf.stack([1.0 + a * 7, b * 5, 0.0]), tf.int32)
                return ids, tf.cast(tf.stack([label, label + 1, 5]), tf.float32)[:, None]
            return dataset.map(parse)
        def eval_metrics_fn():
            return {"mse": keras.metrics.MeanSquaredError()}
        """
    of_function = check_equal(
        tmp_path, source + "\n        def loss(y, p):\n            return tf.square(y - p)[..., 0]\n"
    )
    (tmp_path / "object").mkdir()
    of_object = check_equal(
        tmp_path / "object", source + "\n        loss = keras.losses.MeanSquaredError()\n"
    )
    for one, other in zip(of_function, of_object, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-7)


def test_several_outputs(tmp_path):
    source = """
        def custom_model():
            x = keras.Input((2,))
            h = layers.Dense(4, activation="relu")(x)
            return keras.Model(x, {"click": layers.Dense(1, activation="sigmoid", name="click")(h),
                                   "price": layers.Dense(1, name="price")(h)})
        def feed(dataset, mode, metadata):
            def parse(line):
                a, b, label = tf.io.decode_csv(line, [0.0, 0.0, 0])
                return tf.stack([a, b]), {"click": tf.cast(label, tf.float32)[None], "price": a[None]}
            return dataset.map(parse)
        def loss(labels, predictions):
            click = keras.losses.binary_crossentropy(labels["click"], predictions["click"])
            return tf.reduce_mean(click) + tf.reduce_mean(tf.square(labels["price"] - predictions["price"]))
        def eval_metrics_fn():
            return {"click": {"auc": keras.metrics.AUC()}, "price": {"mae": keras.metrics.MeanAbsoluteError()}}
        """
    with opened(tmp_path, source) as (trainer, plan):
        built = trainer.build()
        tried = trainer.check()
        assert "click: (8, 1) float32, price: (8, 1) float32" in tried.predictions
        ours = trainer.compute(0, 0)
        _, states = trainer.evaluate(0, plan.evaluation_ranges[0])
        assert set(trainer.conclude(states)) == {"click_auc", "price_mae"}
        parts = trainer._assembly
        trainer.begin(0)
        features, labels = parts.lanes.minibatch(0, 0).element
        with tf.GradientTape() as tape:
            loss = parts.contract.loss(labels, parts.built.model(features, training=True))
        plain = tape.gradient(loss, parts.built.model.trainable_variables)
    for gradient, place, offset in zip(
        plain, built.layout.dense.variables, built.layout.dense.offsets, strict=False
    ):
        own = ours.gradient[offset : offset + place.size].reshape(place.shape)
        np.testing.assert_allclose(own, gradient.numpy(), rtol=1e-5, atol=1e-7)


HALF = """
keras.mixed_precision.set_global_policy("mixed_float16")

def custom_model():
    x = keras.Input((2,))
    h = layers.Dense(4, activation="relu")(x)
    return keras.Model(x, layers.Dense(1, activation="sigmoid", dtype="float32")(h))
"""


@pytest.mark.parametrize("optimizer", ["SGD(0.1)", "LossScaleOptimizer(keras.optimizers.SGD(0.1))"])
def test_mixed_precision_scales_the_loss_as_keras_does(tmp_path, optimizer):
    source = f"{HALF}\ndef optimizer():\n    return keras.optimizers.{optimizer}\n"
    check_equal(tmp_path, source, rtol=2e-3, atol=2e-6)


def test_bfloat16_needs_no_scale(tmp_path):
    check_equal(tmp_path, HALF.replace("mixed_float16", "mixed_bfloat16"), rtol=2e-3, atol=2e-6)


def test_a_gradient_too_small_for_16_bits_is_not_lost(tmp_path):
    """Without a scale it would be 0."""
    source = HALF + "\ndef loss(labels, predictions):\n    return 1e-7 * tf.reduce_mean(predictions)\n"
    ours, found, _, _ = gradients(tmp_path, source)
    assert np.isfinite(ours.gradient).all()
    assert np.abs(found[0]).max() > 0


def test_a_gradient_too_large_for_the_scale_is_computed_with_a_smaller_one(tmp_path):
    source = HALF + "\ndef loss(labels, predictions):\n    return 500.0 * tf.reduce_mean(predictions)\n"
    with opened(tmp_path, source) as (trainer, _):
        trainer.build()
        first = trainer.compute(0, 0)
        other = trainer.compute(1, 0)
        again = trainer.compute(0, 0)
    assert np.isfinite(first.gradient).all()
    assert np.abs(first.gradient).max() > 10
    assert np.isfinite(other.gradient).all()
    assert again.gradient.tobytes() == first.gradient.tobytes()


def test_the_scale_that_an_optimizer_names_changes_nothing_in_float32(tmp_path):
    plain = "def optimizer():\n    return keras.optimizers.SGD(0.1)\n"
    (tmp_path / "plain").mkdir()
    _, one, _, _ = gradients(tmp_path / "plain", plain)
    _, other, _, _ = gradients(tmp_path, plain.replace("SGD(0.1)", "SGD(0.1, loss_scale_factor=1024.0)"))
    for gradient, scaled in zip(one, other, strict=True):
        np.testing.assert_array_equal(gradient, scaled)


def test_a_function_compiled_by_xla_in_the_model(tmp_path):
    check_equal(
        tmp_path,
        """
        @tf.function(jit_compile=True)
        def bent(x):
            return tf.nn.silu(x) + 0.1 * tf.square(x)
        class Bent(layers.Layer):
            def call(self, x):
                return bent(x)
        def custom_model():
            x = keras.Input((2,))
            return keras.Model(x, layers.Dense(1, activation="sigmoid")(Bent()(layers.Dense(4)(x))))
        """,
    )
