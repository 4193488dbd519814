"""What a stranger's model module has wrong, and what is said then: three and more for each row of errors of models.

The module is whole, but for what stands behind it.
"""

from pathlib import Path

import pytest

from edlz.api.recordio import Writer
from edlz.client.screen.columns import wrapped
from edlz.client.screen.spans import plain
from edlz.client.screen.verdict_text import Ending, failure_block
from edlz.services.configuration.job_config import JobConfig
from edlz.services.errors import ModelError
from edlz.services.inputs.listing import list_shards
from edlz.services.master.core.tasks.task_failures import failure_of_worker
from edlz.services.worker.engine.keras_engine import KerasEngine
from edlz.services.worker.engine.user_code.user_code import failure_of
from tests import builders

pytestmark = pytest.mark.filterwarnings("ignore")  # what TensorFlow and Keras remark on such models

WHOLE = """
import keras
import tensorflow as tf

def custom_model():
    numbers = keras.Input((2,), name="numbers")
    return keras.Model(numbers, keras.layers.Dense(1, activation="sigmoid")(numbers))

def loss(labels, predictions):
    return tf.reduce_mean(keras.losses.binary_crossentropy(labels[:, None], predictions))

def optimizer():
    return keras.optimizers.Adam(0.01)

def feed(dataset, mode, metadata):
    def parse(line):
        age, income, label = tf.io.decode_csv(line, [0.0, 0.0, 0])
        return tf.stack([age, income]), label
    return dataset.map(parse)

def eval_metrics_fn():
    return {"auc": keras.metrics.AUC()}
"""
LINE = WHOLE.count("\n") + 1  # of what stands behind it

MISTAKES = [
    (
        "import",
        "import no_such_package",
        f'm.py:{LINE}: no module named "no_such_package"',
        "pip install no_such_package;",
    ),
    (
        "import",
        "from sklearn import svm",
        f'm.py:{LINE}: no module named "sklearn"',
        "pip install scikit-learn;",
    ),
    (
        "import",
        "import parts",
        f'm.py:{LINE}: no module named "parts"',
        "lib/parts.py is not where Python looks: move it",
    ),
    ("import", "import keras.nothing", f'm.py:{LINE}: no module named "keras.nothing"', "keras 3"),
    ("import", "RATE = LEARNING_RATE * 2", "m.py raised NameError: name 'LEARNING_RATE' is not defined", ""),
    ("import", "WORDS = open('words.txt')", "No such file or directory: 'words.txt'", ""),
    (
        "first minibatch",
        "def loss(labels, predictions):\n    return keras.losses.binary_crossentropy(labels, predictions)",
        "loss() raised ValueError on the first minibatch: labels (10,) int32, predictions (10, 1) float32",
        "labels need the shape of the predictions: tf.reshape(labels, tf.shape(predictions))",
    ),
    (
        "first minibatch",
        "_model = custom_model\ndef custom_model():\n    return keras.Sequential([keras.layers.Dense(10)])\n"
        "loss = keras.losses.CategoricalCrossentropy()",
        "loss() raised ValueError on the first minibatch: labels (10,) int32, predictions (10, 10) float32",
        "integer labels need a sparse categorical loss",
    ),
    (
        "first minibatch",
        "_feed = feed\ndef feed(*given):\n    return _feed(*given).map(lambda x, y: (x, y, 1.0))",
        "feed() yields sample weights, but loss(labels, predictions) takes none",
        "give loss() a third parameter: loss(labels, predictions, sample_weight)",
    ),
    (
        "first minibatch",
        "_feed = feed\ndef feed(*given):\n    return _feed(*given).map(lambda x, y: x)",
        "feed() yields (None, 2) float32, not (features, labels)",
        "let the function that it maps return a tuple: return features, labels",
    ),
    (
        "first minibatch",
        "_feed = feed\ndef feed(*given):\n    return _feed(*given).repeat()",
        "feed() repeats its records without end: a task would never be done",
        "give repeat() a count, or leave it out: epochs are --num_epochs",
    ),
    (
        "first minibatch",
        "def feed(dataset, mode, metadata):\n"
        "    return dataset.map(lambda line: (tf.stack(tf.io.decode_csv(line, [0.0, 0.0])), 1.0))",
        "Expect 2 fields but have 3 in record 0 (record 0 of people)",
        "",
    ),
    (
        "first minibatch",
        "def eval_metrics_fn():\n    return {'auc': 'AUC'}",
        'metric "auc" is str',
        "use an object of keras.metrics, or a function of (labels, predictions)",
    ),
    (
        "optimizer",
        "def optimizer():\n    return keras.optimizers.Adafactor()",
        'optimizer "Adafactor" has no compiled form',
        "use one of SGD, Adam,",
    ),
    (
        "optimizer",
        "def optimizer():\n    return 'adam'",
        "optimizer() returned str, which is no Keras optimizer",
        "return one of keras.optimizers: SGD, Adam,",
    ),
    (
        "optimizer",
        "class Mine(keras.optimizers.SGD):\n    pass\ndef optimizer():\n    return Mine(0.1)",
        'optimizer "Mine" has no compiled form',
        "use one of SGD, Adam,",
    ),
]


@pytest.mark.parametrize(("row", "wrong", "error", "help_line"), MISTAKES)
def test_a_wrong_model_is_told_once_and_with_what_to_do(row, wrong, error, help_line, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("lib").mkdir()
    Path("lib/parts.py").touch()
    Path("m.py").write_text(f"{WHOLE}{wrong}\n")
    with Writer("people") as writer:
        for number in range(20):
            writer.write(f"{20 + number},{number},{number % 2}".encode())
    shards = list_shards("people")
    plan = builders.plan(shards=shards, records_per_task=10, minibatch_size=10, evaluation_shards=shards)
    trainer = KerasEngine(JobConfig(model_file="m.py", minibatch_size=10, worker_threads=1), plan)
    with pytest.raises(ModelError) as raised:
        trainer.build()
    trainer.close()
    view = failure_of_worker(failure_of(raised.value), is_mistake=True)
    assert error in view.text
    assert view.help.startswith(help_line)
    shown = plain(wrapped(failure_block(view, "job", Ending(1.0, "/logs")), 80))
    assert max(map(len, shown.splitlines())) <= 80
    assert " ".join(shown.split()).count(error) == 1, "once is enough"
