"""Lookups that can be made and lookups that are refused; embeddings of Keras that become tables."""

import logging

import numpy as np
import pytest

from edlz.services.errors import ModelError
from edlz.services.worker.engine.keras_engine import TaskError, UserCodeError
from tests.unit.engine.rows.two_tables import compute_all, find_all, model, plain

pytestmark = [
    pytest.mark.filterwarnings("ignore:Seed .* from outer graph:UserWarning"),
    pytest.mark.filterwarnings("ignore:.*unbuilt state:UserWarning"),
]


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (
            "return self.dense(self.other(tf.argmax(self.table(ids)[:, 0], 1)))",
            "layer other: the ids that it looks up depend on the rows of another lookup",
        ),
        (
            "return self.dense(self.table(ids[:, 0] + tf.cast(self.dense(tf.ones([1, 3]))[0], tf.int64)))",
            "layer table: .* depend on the variable net/dense/bias",
        ),
        (
            "return self.dense(self.table(ids[:, 0] + tf.random.uniform([], 0, 9, tf.int64)))",
            "layer table: .* depend on random numbers",
        ),
        (
            "return self.dense(tf.cond(ids[0, 0] > 1, lambda: self.table(ids[:, 0]), lambda: tf.zeros([4, 3])))",
            "layer table is called inside a tf.cond",
        ),
        ("return self.dense([self.table, self.other][next(calls)](ids[:, 0]))", "the model looked up"),
        ("return self.dense(loose(ids)[:, 0])", "layer loose has no rows"),
    ],
)
def test_lookups_that_cannot_be_made(make, body, message):
    prelude = "import itertools\ncalls = itertools.cycle([0, 0, 0, 1])\nloose = Embedding(3, name='loose')\n"
    with pytest.raises(ModelError, match=message):
        make(prelude + model(body))


def test_ids_may_depend_on_the_shape_of_rows(make):
    body = """
        x = self.table(ids)
        return self.dense(tf.reduce_sum(x + self.other(tf.range(tf.shape(x)[1])), 1))
"""
    trainer, _ = make(model(body.strip()))
    assert sorted(trainer.find_ids(0, 0)[1].ids.tolist()) == list(range(6))


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ("Embedding(3, embeddings_initializer='orthogonal')", "initializer Orthogonal? .*one by one"),
        ("Embedding(3, embeddings_initializer='he_normal')", "HeNormal depends on the table's size"),
        ("Embedding(3, optimizer=keras.optimizers.Lamb())", 'optimizer "Lamb" has no compiled form'),
        ("Embedding(3, embeddings_regularizer='l2')", "has no embeddings_regularizer"),
        ("Embedding(3, embeddings_constraint='non_neg')", "has no embeddings_constraint"),
        ("Embedding(3, combiner='max')", "combiner='max' is none of sum, mean, sqrtn"),
        ("Embedding(0)", "output_dim=0 is not a positive integer"),
        ("Embedding(4097, name='x')", "layer x: rows of output_dim=4,097 are longer than .* 4,096 at most"),
    ],
)
def test_layers_that_cannot_be_kept(make, table, message):
    source = f"def custom_model():\n    return keras.Sequential([{table}, L.Flatten(), L.Dense(1)])\n"
    with pytest.raises(ModelError, match=message):
        make(source)


def test_a_frozen_table_is_read_and_does_not_change(make):
    trainer, built = make(model("return self.dense(self.table(ids[:, 0]))", "self.table.trainable = False"))
    assert built.tables[0].optimizer.name == "SGD"
    assert trainer.table_rates(5) == (0.0, float(np.float32(0.1)))


def test_ids_of_a_plain_embedding_mean_what_they_mean_in_keras(make):
    body = "return self.dense(self.table(ids[:, 0] * 10_000 - 1))"
    trainer, built = make(plain(size=400_000, body=body), change={0: b"0,0,0,0,0,0,1"})
    assert [(table.path, table.dim) for table in built.tables] == [("net/table/embeddings", 3)]
    assert built.dense.size == 32  # the tower only
    task = next(task for task in range(3) if trainer._plan.task_range(task).first == 0)
    assert 399_999 in {id_ for index in range(3) for id_ in trainer.find_ids(task, index)[0].ids.tolist()}
    change = {0: b"41,0,0,0,0,0,1"}
    trainer, _ = make(plain(size=400_000, body=body), change=change)
    with pytest.raises(TaskError, match=r"layer table: id 409999 is not within \[0, 400000\)"):
        find_all(trainer, task)


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        (plain(", embeddings_constraint='non_neg'", body="return self.dense(self.table(ids))"), None),
        (plain(", embeddings_regularizer='l2'"), "it has embeddings_regularizer"),
        (plain(", embeddings_initializer='orthogonal'"), "one by one"),
        (plain(", lora_rank=2"), "it has lora_rank"),
        (plain(", trainable=False"), "it is not trained"),
        (plain(init="self.table.trainable = False"), "it is not trained"),
        (plain(init="self.table.build(); self.table.trainable = False"), "it is not trained"),
        (plain().replace("L.Embedding(4", "Own(4"), "Own is a subclass of it"),
        (plain(", weights=[tf.ones([4_000, 3]).numpy()]"), "its weight is set"),
        (
            plain(
                body="x = self.table(ids); return self.dense(x[:, 0]) + tf.reduce_sum(self.table.embeddings)"
            ),
            "its weight is used outside of lookups",
        ),
    ],
)
def test_plain_embeddings_that_stay_dense_say_why(make, caplog, source, reason):
    with caplog.at_level(logging.INFO):
        if reason is None:  # refused as a weight, as it would be without tables
            with pytest.raises(ModelError, match="has the constraint NonNeg"):
                make(source, embedding_threshold_bytes=40_000)
            reason = "it has embeddings_constraint"
        else:
            trainer, built = make(source, embedding_threshold_bytes=40_000)
            assert built.tables == ()
            weights = trainer._assembly.built.model.weights
            (weight,) = [w for w in weights if tuple(w.shape) == (4000, 3)]
            assert weight.path.endswith("table/embeddings")
            assert trainer.compute(0, 0).gradient.any()
    (line,) = [line for line in caplog.messages if line.startswith("layer=table")]
    assert reason in line


def test_a_weight_made_late_has_the_values_that_it_would_have_had(make):
    tied = plain(body="return self.dense(self.table(ids[:, 0])) + self.table.embeddings[0, 0]")
    _, late = make(tied, embedding_threshold_bytes=40_000)
    _, early = make(tied, embedding_threshold_bytes=50_000)
    assert late.layout == early.layout
    assert np.array_equal(late.dense, early.dense)


def test_an_embedding_of_just_the_threshold_stays_dense(make):
    source = plain(size=2000)
    assert make(source, embedding_threshold_bytes=24_000)[1].tables == ()
    assert len(make(source, embedding_threshold_bytes=23_999)[1].tables) == 1


def test_a_large_table_is_never_allocated(make):
    trainer, built = make(plain(size=2**40))  # 12 TB
    assert built.dense.nbytes < 1000
    assert trainer.find_ids(0, 0)[0].ids.size


def test_errors_of_the_user_show_through_in_a_model_with_tables(make):
    body = (
        "tf.debugging.assert_less(ids, tf.constant(1000, tf.int64)); return self.dense(self.table(ids[:, 0]))"
    )
    trainer, built = make(model(body), change={13: b"1000,0,0,0,0,0,1"})
    task = next(task for task in range(3) if trainer._plan.task_range(task).first == 10)
    with pytest.raises(TaskError, match="InvalidArgumentError") as error:
        compute_all(trainer, built, task)
    assert "model.py" in error.value.where
    with pytest.raises(UserCodeError, match=r"the model's call\(\) raised NameError"):
        make(model("return self.dense(self.table(nothing))"))
