"""The zoo's MNIST models and the tests' own model modules: loaded by path, fed, trained a little."""

import importlib.util
import inspect
from pathlib import Path

import numpy as np
import pytest

from edlz.api.feeds import Mode
from edlz.model_zoo import datasets
from edlz.model_zoo.conversion.idx import read_idx_folder
from edlz.model_zoo.conversion.images import image_records
from edlz.model_zoo.datasets import SAMPLE_FOLDER
from tests.rounding import near

ZOO = Path(datasets.__file__).parent / "mnist"
TEST_MODELS = Path(__file__).parents[1] / "models"
MODULES = [
    (ZOO / "mnist_functional_api.py", "custom_model"),
    (ZOO / "mnist_subclass.py", "CustomModel"),
    (TEST_MODELS / "tiny_mlp.py", "custom_model"),
    (TEST_MODELS / "subclassed.py", "CustomModel"),
    (TEST_MODELS / "old_spellings.py", "model"),
    (TEST_MODELS / "dataset_fn_form.py", "custom_model"),
]
IDS = [path.stem for path, _ in MODULES]


def load(path):
    spec = importlib.util.spec_from_file_location(f"loaded_{path.stem}", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def records():
    train = read_idx_folder(SAMPLE_FOLDER).train
    return image_records(train, 0, 64), train.labels[:64].astype(np.int64)


def fed(module, records, mode):
    """Return the elements that the module's own feed gives for these records, as one batch."""
    import tensorflow as tf

    if hasattr(module, "input_fn"):
        return module.input_fn(records)
    dataset = tf.data.Dataset.from_tensor_slices(records)
    if hasattr(module, "dataset_fn"):
        dataset = module.dataset_fn(dataset, mode)
    else:
        dataset = module.feed(dataset, mode, None)
    return next(iter(dataset.batch(len(records))))


def image_of(features):
    return (features["image"] if isinstance(features, dict) else features).numpy()


@pytest.mark.parametrize(("path", "symbol"), MODULES, ids=IDS)
def test_a_few_steps_lower_the_loss(path, symbol, records):
    import keras
    import tensorflow as tf

    keras.utils.set_random_seed(1)
    module = load(path)
    model = module.model if symbol == "model" else getattr(module, symbol)()
    features, labels = fed(module, records[0], "evaluation")
    assert np.array_equal(labels.numpy(), records[1])
    optimizer = module.optimizer()
    is_old = list(inspect.signature(module.loss).parameters) == ["output", "labels"]
    losses = []
    for _ in range(6):
        with tf.GradientTape() as tape:
            predictions = model(features, training=True)
            loss = module.loss(predictions, labels) if is_old else module.loss(labels, predictions)
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply(gradients, model.trainable_variables)
        losses.append(float(loss))
    assert losses[-1] < 0.9 * losses[0]
    predictions = model(features, training=False)
    assert predictions.shape == (64, 10)
    expected = float(np.mean(np.argmax(predictions.numpy(), axis=1) == records[1]))
    assert metrics_of(module, labels, predictions)["accuracy"] == near(expected, 64)


def metrics_of(module, labels, predictions):
    if inspect.signature(module.eval_metrics_fn).parameters:
        return {n: float(v) for n, v in module.eval_metrics_fn(predictions, labels).items()}
    values = {}
    for name, metric in module.eval_metrics_fn().items():
        if hasattr(metric, "update_state"):
            metric.update_state(labels, predictions)
            values[name] = float(metric.result())
        else:
            per_record = metric(labels, predictions)
            assert per_record.shape == (len(labels),)
            values[name] = float(np.mean(per_record))
    return values


@pytest.mark.parametrize(
    "path", [p for p, s in MODULES if s != "model"], ids=[i for i in IDS if "old" not in i]
)
def test_feeds_give_scaled_images_and_labels(path, records):
    module = load(path)
    images = read_idx_folder(SAMPLE_FOLDER).train.images[:64].astype(np.float32) / 255
    features, labels = fed(module, records[0], Mode.EVALUATION)
    assert np.array_equal(image_of(features).reshape(images.shape), images)
    assert np.array_equal(labels.numpy(), records[1])
    features, labels = fed(module, records[0], Mode.TRAINING)
    assert sorted(labels.numpy().tolist()) == sorted(records[1].tolist())
    features = fed(module, records[0], Mode.PREDICTION)
    assert np.array_equal(image_of(features).reshape(images.shape), images)


@pytest.mark.parametrize("name", ["mnist_functional_api", "mnist_subclass"])
def test_zoo_feeds_shuffle_in_training_only(name, records):
    module = load(ZOO / f"{name}.py")
    _, shuffled = fed(module, records[0], "training")
    assert not np.array_equal(shuffled.numpy(), records[1])


def test_both_zoo_models_are_the_same_net():
    import keras
    import tensorflow as tf

    x = {"image": np.random.default_rng(0).random((3, 28, 28), np.float32)}
    outputs, shapes = [], []
    for path, symbol in MODULES[:2]:
        keras.utils.set_random_seed(7)
        model = getattr(load(path), symbol)()
        outputs.append(model(tf.nest.map_structure(tf.constant, x), training=False).numpy())
        shapes.append([tuple(v.shape) for v in model.weights])
    assert sorted(shapes[0]) == sorted(shapes[1])
    # 3x3x32, 3x3x32x64, normalisation of 64, 12x12x64 to 10.
    assert sum(int(np.prod(s)) for s in shapes[0]) == 320 + 18_496 + 4 * 64 + 92_170
    assert outputs[0].shape == outputs[1].shape == (3, 10)
