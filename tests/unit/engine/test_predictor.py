"""Predictions of tiny models: a row for each record, whatever the feed and the model look like."""

import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edlz.services.errors import EdlzError, ModelError
from edlz.services.predictions.table import Ragged
from edlz.services.protocol.plan import Plan
from edlz.services.worker.core.computation import Predicted
from edlz.services.worker.engine.keras_engine import KerasEngine
from edlz.services.worker.engine.user_code.user_code import TaskError
from tests import builders
from tests.table_jobs import RECORDS, TASK, job, rows_of, write_job
from tests.tutorials import write_files

pytestmark = pytest.mark.filterwarnings("ignore:Seed .* from outer graph:UserWarning")

MODEL = """
def custom_model():
    ids = keras.Input((6,), dtype="int64", name="ids")
    x = L.Flatten()(Embedding(3, embeddings_initializer="normal", name="table")(ids))
    return keras.Model(ids, {"score": L.Dense(1, name="score")(x), "both": L.Dense(2, name="both")(x)})
"""
DENSE = """
def custom_model():
    ids = keras.Input((6,), dtype="int64", name="ids")
    return keras.Model(ids, L.Dense(2)(L.Rescaling(0.1)(ids)))
"""
PROCESSOR = """
calls = []

class PredictionOutputsProcessor:
    def __init__(self):
        calls.append("made")
    def process(self, predictions, worker_id{more}):
        calls.append((predictions.shape[0], worker_id{told}))
"""


@pytest.fixture
def predict(tmp_path: Path) -> Any:
    """A function from a model's source and flags to a trainer that predicts with it; and its tasks."""
    made: list[KerasEngine] = []

    def begin(
        source: str, change: dict[int, bytes] | None = None, **flags: Any
    ) -> tuple[KerasEngine, Plan, Any]:
        folder = tmp_path / str(len(made))
        write_job(folder, source, change or {})
        config, training = job(folder)
        flags = {"prediction_output": str(tmp_path / "out"), **flags}
        given = {name: getattr(config, name) for name in ("model_file", "minibatch_size", "worker_threads")}
        config = type(config)(**given, prediction_data=str(folder / "data"), **flags)
        plan = builders.plan(
            seed=7,
            records_per_task=TASK,
            minibatch_size=training.minibatch_size,
            epochs=0,
            evaluation_shards=training.shards,
            predicts=True,
        )
        made.append(KerasEngine(config, plan))
        return made[-1], plan, made[-1].build()

    yield begin
    for trainer in made:
        trainer.close()


def predicted(trainer: KerasEngine, plan: Plan, built: Any, attempt: int = 0) -> list[Predicted]:
    """Return the predictions of all tasks, the last one first: none depends on what came before."""
    found = []
    for task, records in reversed(list(enumerate(plan.evaluation_ranges))):
        rows = rows_of(built, trainer.evaluation_ids(task, records)) if built.tables else ()
        found.insert(0, trainer.predict(task, records, rows, attempt))
    return found


def column(found: list[Predicted], name: str) -> Any:
    parts = [each.table.columns[name] for each in found if each.table is not None]
    if isinstance(parts[0], Ragged):
        return [row for part in parts for row in part.rows]
    return np.concatenate(parts)


def test_each_record_has_a_row_of_each_output(predict: Callable[..., Any]) -> None:
    found = predicted(*predict(MODEL))
    assert [each.records for each in found] == [TASK, TASK, RECORDS - 2 * TASK]
    records = [record for each in found for record in each.table.records]
    assert records == [f"part-0:{number}" for number in range(RECORDS)]
    assert list(found[0].table.columns) == ["both", "score"]
    assert column(found, "score").shape == (RECORDS, 1)
    assert column(found, "both").shape == (RECORDS, 2)
    assert np.unique(column(found, "score")).size > RECORDS // 2


FEEDS = {
    "features alone": "return dataset.map(lambda record: parse(record)[0])",
    "labels, too": "return dataset.map(parse)",
    "a tuple of one": "return dataset.map(lambda record: (parse(record)[0],))",
    "batches": "return dataset.batch(7).map(lambda r: tf.map_fn(lambda x: parse(x)[0], r, tf.int64)).unbatch()",
    "built anew": "return dataset.map(lambda r: parse(r)[0] + tf.random.uniform([6], 0, 1, tf.int64))",
}


def test_the_forms_of_a_feed(predict: Callable[..., Any]) -> None:
    found = {
        name: column(
            predicted(*predict(DENSE + f"\ndef feed(dataset, mode, metadata):\n    {body}\n")), "output_0"
        )
        for name, body in FEEDS.items()
    }
    records = "\ndef feed(records):\n    return tf.stack([parse(record)[0] for record in records])\n"
    found["records"] = column(predicted(*predict(DENSE + records)), "output_0")
    for name, values in found.items():
        np.testing.assert_array_equal(values, found["features alone"], err_msg=name)


def test_outputs_of_all_kinds(predict: Callable[..., Any]) -> None:
    source = """
    class CustomModel(keras.Model):
        def __init__(self):
            super().__init__()
            self.dense = L.Dense(1)
        def call(self, ids, training=False):
            ids = tf.reshape(ids, [-1, 6])
            x = tf.cast(ids, tf.float32)
            many = tf.RaggedTensor.from_tensor(ids, lengths=ids[:, 0] % 4)
            open_ = tf.reshape(x, tf.stack([tf.shape(x)[0], -1]))[:, : tf.reduce_max(ids) % 3 + 1]
            texts = tf.strings.as_string(ids[:, 0])
            return {"a": self.dense(x)[:, 0], "many": many, "open": open_, "text": texts, "half": tf.cast(x, tf.bfloat16)}
    """
    found = predicted(*predict(source))
    ids = column(found, "half")
    assert (ids.dtype, ids.shape) == (np.float32, (RECORDS, 6))
    assert column(found, "many") == [row[: int(row[0]) % 4].astype(int).tolist() for row in ids]
    assert column(found, "text").tolist() == [b"%d" % row[0] for row in ids]
    assert column(found, "a").shape == (RECORDS,)
    assert all(
        row == values[: len(row)].tolist() for row, values in zip(column(found, "open"), ids, strict=True)
    )


REFUSED = {
    "drops": (
        DENSE,
        "return dataset.map(parse).filter(lambda ids, label: ids[0] % 2 == 0)",
        r"feed\(\) gives \d rows for the 5 records from number 20 on of .*part-0: .* \(.*model.py:\d+ in feed\)",
    ),
    "repeats": (DENSE, "return dataset.map(parse).repeat(2)", r"feed\(\) gives 10 rows for the 5 records"),
    "shuffles": (DENSE, "return dataset.shuffle(9).map(parse)", r"feed\(\) shuffles the records to predict"),
    "shuffles, anew": (
        DENSE,
        "return dataset.shuffle(9).map(lambda r: parse(r)[0] + tf.random.uniform([6], 0, 1, tf.int64))",
        r"feed\(\) shuffles the records to predict",
    ),
    "four": (
        DENSE,
        "return dataset.map(lambda r: (parse(r)[0], 1, 1, 1))",
        "yields a tuple of 4 in prediction mode",
    ),
    "one value": (
        DENSE.replace(
            "L.Dense(2)(L.Rescaling(0.1)(ids))", "L.Lambda(tf.reduce_sum, output_shape=())(L.Dense(2)(ids))"
        ),
        "return dataset.map(parse)",
        'output "output_0" of the model has a single value for 4 records',
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_has_no_row_for_each_record(name: str, predict: Callable[..., Any]) -> None:
    source, feed, message = REFUSED[name]
    with pytest.raises(EdlzError, match=message) as told:
        predicted(*predict(f"{source}\ndef feed(dataset, mode, metadata):\n    {feed}\n"))
    assert told.value.help
    assert told.value.message.count("model.py") <= 1, "its place is told once"
    assert not isinstance(told.value, TaskError), "no other attempt can mend it"


@pytest.mark.parametrize("takes_context", [False, True])
def test_the_users_code_takes_whole_tasks_in_order(takes_context: bool, predict: Callable[..., Any]) -> None:
    more, told = (", context", ", context.index, context.first_record") if takes_context else ("", "")
    source = PROCESSOR.format(more=more, told=told)
    if takes_context:
        source += "    def commit(self, context):\n        calls.append((context.task, context.attempt))\n"
    drops = "\ndef feed(dataset, mode, metadata):\n    return dataset.map(parse).filter(lambda ids, _: ids[0] % 2 == 0)\n"
    trainer, plan, _ = predict(DENSE + source + drops, prediction_output="")
    found = trainer.predict(0, plan.evaluation_ranges[0], (), 2)
    assert found.table is None, "nobody asks for files: the feed may drop what it likes"
    calls = trainer._ready._model.contract.outputs_processor.__init__.__globals__["calls"]
    assert calls[0] == "made"
    sizes = [call[0] for call in calls[1 : None if not takes_context else -1]]
    assert sum(sizes) == found.records < TASK
    if takes_context:
        starts = [sum(sizes[:place]) for place in range(len(sizes))]
        assert [call[2:] for call in calls[1:-1]] == list(enumerate(starts))
        assert calls[-1] == (0, 2)


def test_the_processor_of_the_tutorial(
    predict: Callable[..., Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_files("predict.md", tmp_path)
    trainer, plan, built = predict(DENSE + (tmp_path / "processor.py").read_text(), prediction_output="")
    predicted(trainer, plan, built)
    told = [line for line in capsys.readouterr().out.splitlines() if line.startswith("task ")]
    sizes = [-(-records.count // plan.minibatch_size) for records in plan.evaluation_ranges]
    counts = [sum(sizes[task:]) for task in (2, 1, 0)]
    assert told == [
        f"task {2 - place} is done: {count} minibatches so far" for place, count in enumerate(counts)
    ]


def test_the_users_code_that_raises_is_told_with_its_line(predict: Callable[..., Any]) -> None:
    source = DENSE + textwrap.dedent(
        """
        class PredictionOutputsProcessor:
            def process(self, predictions, worker_id):
                raise KeyError("no table")
        """
    )
    trainer, plan, _ = predict(source)
    with pytest.raises(TaskError, match="KeyError: no table") as told:
        trainer.predict(1, plan.evaluation_ranges[1])
    assert "model.py" in told.value.where
    assert "in process" in told.value.where
    assert told.value.task == 1


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("", "defines no PredictionOutputsProcessor, and there is no --prediction_output"),
        ("PredictionOutputsProcessor = 3", "3 is no class with a method process"),
        ("class PredictionOutputsProcessor:\n    pass", "is no class with a method process"),
        (
            "class PredictionOutputsProcessor:\n    def __init__(self):\n        raise OSError('no line')\n"
            "    def process(self, predictions, worker_id):\n        pass",
            r"PredictionOutputsProcessor\(\) raised OSError: no line \(.*model.py:\d+ in __init__\)",
        ),
    ],
)
def test_nobody_who_takes_the_outputs(source: str, message: str, predict: Callable[..., Any]) -> None:
    with pytest.raises(ModelError, match=message):
        predict(f"{DENSE}\n{source}\n", prediction_output="")


def test_a_bad_record_is_named(predict: Callable[..., Any]) -> None:
    trainer, plan, _ = predict(DENSE, {13: b"1,x"})
    with pytest.raises(TaskError, match=r"record 13 of .*part-0"):
        trainer.predict(1, plan.evaluation_ranges[1])
    assert trainer.predict(0, plan.evaluation_ranges[0]).records == TASK


def test_the_model_is_that_of_the_training(predict: Callable[..., Any], tmp_path: Path) -> None:
    """Layout and tables do not depend on labels being there."""
    loss = '\ndef loss(labels, predictions):\n    return tf.reduce_mean(predictions["score"])\n'
    _, _, built = predict(MODEL + loss)
    write_job(tmp_path / "training", MODEL + loss, {})
    trainer = KerasEngine(*job(tmp_path / "training"))
    trained = trainer.build()
    trainer.close()
    assert (trained.layout, trained.tables, trained.optimizer) == (
        built.layout,
        built.tables,
        built.optimizer,
    )
