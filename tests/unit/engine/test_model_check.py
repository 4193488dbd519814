"""A model is tried on a minibatch before training: mistakes are told with their line and what to write."""

import re

import pytest

from edlz.services.errors import ModelError
from edlz.services.worker.engine.user_code.user_code import UserCodeError, failure_of
from tests.checked_models import opened
from tests.unit.engine.model_mistakes import MISTAKES

pytestmark = [
    pytest.mark.filterwarnings("ignore:Seed .* from outer graph:UserWarning"),
    pytest.mark.filterwarnings(r"ignore:.*(unbuilt state|`build\(\)`):UserWarning"),
]


def check(trainer):
    trainer.build()
    return trainer.check()


@pytest.mark.parametrize(
    ("source", "text", "line", "advice"), [m[1:] for m in MISTAKES], ids=[m[0] for m in MISTAKES]
)
def test_a_mistake_is_told_with_its_line_and_what_to_write(tmp_path, source, text, line, advice):
    with opened(tmp_path, source) as (trainer, _), pytest.raises(ModelError) as error:
        check(trainer)
    assert isinstance(error.value, UserCodeError), error.value
    failure = failure_of(error.value, is_mistake=True)
    told = f"{failure.message} {failure.error}"
    assert re.search(text, told), told
    assert line in failure.source, (failure.where, failure.source)
    assert re.search(advice, failure.help), failure.help
    assert failure.where
    assert failure.where not in failure.message, "the place would be told twice"


def test_a_sound_model_is_tried_and_nothing_of_it_is_seen(tmp_path):
    with opened(tmp_path, "") as (trainer, _):
        built = trainer.build()
        tried = trainer.check()
        assert (tried.records, tried.learning_rate) == (8, pytest.approx(0.1))
        first = trainer.compute(0, 0)
        assert first.loss == tried.loss
    with opened(tmp_path, "") as (trainer, _):
        assert trainer.build().dense.tobytes() == built.dense.tobytes()
        assert trainer.compute(0, 0).gradient.tobytes() == first.gradient.tobytes()


def odd_first_record(number):
    return b"?,?,?" if number == 0 else f"{number % 7},1,1".encode()


def test_one_odd_record_is_no_mistake_of_the_models(tmp_path):
    """It is left to training, which tells of the task, or leaves it out."""
    with opened(tmp_path, "", odd_first_record) as (trainer, _):
        assert check(trainer).records == 8


def test_one_minibatch_that_is_not_finite_is_no_mistake_of_the_models(tmp_path):
    def record(number):
        return b"nan,1,1" if number == 0 else f"{number % 7},1,1".encode()

    with opened(tmp_path, "", record) as (trainer, _):
        assert check(trainer).records == 8


SUBCLASSED = """
class CustomModel(keras.Model):
    def __init__(self):
        super().__init__()
        self.last = layers.Dense(1, activation="sigmoid")
    def call(self, numbers):
        return self.last(numbers)
def custom_model():
    return CustomModel()
"""
IDS = """
def feed(dataset, mode, metadata):
    def parse(line):
        a, b, label = tf.io.decode_csv(line, [0.0, 0.0, 0])
        return tf.cast(tf.stack([a, b]) * 100, tf.int64), label
    return dataset.map(parse)
"""
POOLED = f"""{IDS}
def custom_model():
    ids = keras.Input((2,), dtype="int64", name="ids")
    x = Embedding(3, mask_zero=True, name="table")(ids)
    return keras.Model(ids, layers.Dense(1, activation="sigmoid")(layers.GlobalAveragePooling1D()(x)))
"""
FLAT = f"""{IDS}
def custom_model():
    ids = keras.Input((2,), dtype="int64", name="ids")
    x = layers.Flatten()(Embedding(3, embeddings_initializer="normal", name="table")(ids))
    return keras.Model(ids, layers.Dense(1, activation="sigmoid")(x))
"""
HIDDEN = f"""{IDS}
class Own(layers.Layer):
    def __init__(self):
        super().__init__()
        self.table = Embedding(3, name="table")
    def call(self, ids):
        return tf.reduce_sum(self.table(ids), 1)
    def compute_output_shape(self, shape):
        return (shape[0], 3)
def custom_model():
    ids = keras.Input((2,), dtype="int64", name="ids")
    return keras.Model(ids, layers.Dense(1, activation="sigmoid")(Own()(ids)))
"""
COMPLEX = """
class Turn(layers.Layer):
    def build(self, shape):
        self.by = self.add_weight(shape=(2,), dtype="complex64", initializer="ones", trainable=False)
    def call(self, x):
        return tf.math.real(tf.cast(x, tf.complex64) * self.by.value)
def custom_model():
    x = keras.Input((2,), name="numbers")
    return keras.Model(x, layers.Dense(1, activation="sigmoid")(Turn()(x)))
"""


@pytest.mark.parametrize(
    ("source", "flags", "text"),
    [
        (SUBCLASSED, {"output": "m.keras"}, "CustomModel is not a class of Keras"),
        (POOLED, {"output": "out", "output_format": "keras,safetensors"}, "layer table has mask_zero"),
        (
            FLAT,
            {"output": "m.keras", "unknown_ids": "initial"},
            "unknown_ids=initial: the initial values of table",
        ),
        (HIDDEN, {"output": "m.keras"}, "table table is inside a layer of the model's own code"),
        (COMPLEX, {"output": "out", "output_format": "safetensors"}, "safetensors cannot have this model"),
        (
            f"{SUBCLASSED}\ndef callbacks():\n    from edlz.api.callbacks import SavedModelExporter\n"
            "    return [SavedModelExporter('m.keras')]\n",
            {},
            "CustomModel is not a class of Keras",
        ),
    ],
    ids=["subclassed", "mask_zero", "unknown ids", "hidden table", "complex", "by a callback"],
)
def test_an_export_that_no_format_can_have_is_refused_before_training(tmp_path, source, flags, text):
    with opened(tmp_path, source, **flags) as (trainer, _), pytest.raises(UserCodeError) as error:
        check(trainer)
    failure = failure_of(error.value, is_mistake=True)
    assert failure.message.startswith("it cannot be exported at the end: "), failure.message
    assert text in failure.message
    assert "a SavedModel takes any model" in failure.help
    assert "model.py" in failure.where, failure.where


@pytest.mark.parametrize("source", ["", FLAT], ids=["dense", "table"])
def test_an_export_that_is_possible_is_said_to_be(tmp_path, source):
    flags = {"output": "out", "output_format": "keras,safetensors"}
    with opened(tmp_path, source, **flags) as (trainer, _):
        tried = check(trainer)
    assert (tried.formats, tried.signatures) == (("keras", "safetensors"), ())
