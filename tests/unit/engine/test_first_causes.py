"""The first cause of what goes wrong in the user's code reaches them: ours as ours, theirs with their own line."""

import textwrap

import pytest

from edlz.services.errors import EdlzError, ModelError
from edlz.services.master.core.tasks.task_failures import failure_of_worker
from edlz.services.protocol.messages import Failure
from edlz.services.worker.engine.keras_engine import KerasEngine, TaskError, UserCodeError
from edlz.services.worker.engine.user_code.user_code import failure_of
from tests.table_jobs import job, write_job

pytestmark = pytest.mark.filterwarnings("ignore:Seed .* from outer graph:UserWarning")

PLAIN = """
    def custom_model():
        ids = keras.Input((6,), dtype="int64")
        return keras.Model(ids, L.Dense(1)(L.Flatten()(L.Embedding(30, 3, name="items")(ids))))
    """

WEIGHTED = (
    PLAIN
    + """
    def feed(dataset, mode, metadata):
        return dataset.map(lambda record: (*parse(record), 1.0))
    """
)


@pytest.fixture
def make(tmp_path):
    """make(source) -> a trainer that is not built; closed at the end."""
    made = []

    def trainer(source, *, change=None, evaluation=False):
        folder = tmp_path / f"job{len(made)}"
        write_job(folder, source, change or {})
        made.append(KerasEngine(*job(folder, evaluation)))
        return made[-1]

    yield trainer
    for each in made:
        each.close()


def task_at(trainer, first):
    return next(task for task in range(3) if trainer._plan.task_range(task).first == first)


def test_our_own_error_stays_ours_in_code_that_autograph_translates(make):
    with pytest.raises(ModelError) as error:
        make(WEIGHTED).build()
    said = "feed() yields sample weights, but loss(labels, predictions) takes none"
    assert error.value.message.startswith(said)
    assert error.value.help == "give loss() a third parameter: loss(labels, predictions, sample_weight)"


@pytest.mark.parametrize("raised", [EdlzError("x", "do y"), ModelError("x", "do y")])
def test_no_error_of_ours_is_replaced_by_autograph_or_keras(raised):
    from edlz.services.worker.engine.tensorflow.backend import keras, tf

    class Layer(keras.layers.Layer):
        def call(self, inputs):
            inner()
            return inputs

    def inner():
        raise raised

    layer = Layer()
    with pytest.raises(type(raised)) as error:
        tf.function(lambda x: layer(x))(tf.zeros([2, 2]))
    assert error.value is raised


@pytest.mark.parametrize(
    ("loss", "advice"),
    [
        (
            "loss = keras.losses.binary_crossentropy\n",
            "labels need the shape of the predictions: tf.reshape(labels, tf.shape(predictions))",
        ),
    ],
)
def test_the_advice_on_a_loss_is_about_what_is_wrong_with_it(make, loss, advice):
    with pytest.raises(UserCodeError) as error:
        make(textwrap.dedent(PLAIN) + loss).build()
    assert error.value.message.startswith("loss() raised ")
    assert error.value.help == advice


def test_an_id_out_of_the_range_of_a_plain_embedding_names_its_layer(make):
    trainer = make(PLAIN, change={13: b"1,2,3,30,5,6,0.5"}, evaluation=True)
    trainer.build()
    expected = r"ValueError: layer items: id 30 is not within \[0, 30\)$"
    task = task_at(trainer, 10)
    with pytest.raises(TaskError, match=expected) as error:
        [trainer.compute(task, index) for index in range(3)]
    assert error.value.record("training").help == "raise input_dim of the Embedding, or map the ids into it"
    with pytest.raises(TaskError, match=expected):
        trainer.evaluate(1, trainer._plan.evaluation_ranges[1])


def test_the_first_validation_records_are_told_of_as_such(make):
    with pytest.raises(
        UserCodeError, match="the first validation records: ValueError: layer items: id 31 is not"
    ):
        make(PLAIN, change={1: b"1,2,3,31,5,6,0.5"}, evaluation=True).build()


def test_what_nobody_has_foreseen_is_told_once_and_not_tried_again(make):
    trainer = make(
        """
        class CustomModel(keras.Sequential):
            def __init__(self):
                super().__init__([L.Dense(1)])

            @property
            def losses(self):
                return 1 / 0
        """
    )
    with pytest.raises(UserCodeError) as error:
        trainer.build()
    message = error.value.message
    assert message.startswith("building the model raised ZeroDivisionError: division by zero (")
    assert error.value.where.endswith(" in losses")
    view = failure_of_worker(failure_of(error.value), is_mistake=True)
    assert view.text == "building the model raised ZeroDivisionError: division by zero"
    assert view.where == error.value.where
    assert "1 / 0" in view.traceback


def test_a_machine_without_memory_is_no_mistake_of_the_model(make):
    empty = """
    def custom_model():
        raise MemoryError("no room")
    """
    with pytest.raises(MemoryError):
        make(empty).build()


def test_a_failure_without_a_place_is_told_as_it_is():
    assert failure_of_worker(Failure(code="model", message="x (y)"), is_mistake=False).text == "x (y)"
