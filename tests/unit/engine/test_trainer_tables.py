"""Embedding tables at the trainer: which rows a minibatch needs, and gradients like those of plain Keras.

A dict of rows stands for the parameter servers.  In the plain twin of a model each table is a variable with the
same rows, and `tf.GradientTape` gives what the trainer's gradients must be.
"""

import numpy as np
import pytest

from edlz.services.worker.engine.keras_engine import KerasEngine
from tests.rounding import near
from tests.table_jobs import IDS, PAIR_FEED, SPARSE_FEED, job, rows_of, write_job

pytestmark = pytest.mark.filterwarnings("ignore:Seed .* from outer graph:UserWarning")


TO_RAGGED = "tf.ragged.boolean_mask(ids, ids % 3 > 0)"

MODELS = {
    "functional": """
        def custom_model():
            ids = keras.Input((6,), dtype="int64")
            x = L.Flatten()(Embedding(3, name="table")(ids))
            return keras.Model(ids, L.Dense(1)(L.Dense(4, activation="tanh")(x)))
        """,
    "sequential": """
        def custom_model():
            return keras.Sequential([Embedding(3, name="table"), L.Flatten(), L.Dense(1)])
        """,
    "subclassed, in a tf.function, two calls and two tables": """
        class CustomModel(keras.Model):
            def __init__(self):
                super().__init__(name="net")
                self.parts = {"first": Embedding(3, name="first"), "second": Embedding(5, name="second")}
                self.dense = L.Dense(1)
                self.drop = L.Dropout(0.5)

            @tf.function
            def looked_up(self, ids):
                if tf.shape(ids)[0] > 0:
                    ids = ids + 0
                return tf.concat([self.parts["first"](ids[:, :2]), self.parts["second"](ids[:, 1:3])], 2)

            def call(self, ids, training=False):
                x = tf.reduce_sum(self.looked_up(ids), 1) + tf.reduce_sum(self.looked_up(ids[:, 3:] * 2), 1)
                return self.dense(x * x)
        """,
    "tables of one length and another, in turns": """
        class CustomModel(keras.Model):
            def __init__(self):
                super().__init__(name="net")
                self.tables = [Embedding(dim, name=f"t{i}") for i, dim in enumerate((3, 5, 3, 5, 3))]
                self.tables[4].build((None,))
                self.dense = L.Dense(1)

            def call(self, ids):
                a, b, c, d, _ = self.tables  # the last one is never looked up
                x = [d(ids[:, 0]), b(ids[:, 1]), b(ids[:, 2] + 1), c(ids[:, 3]) * a(ids[:, 4]), c(ids[:, 5])]
                return self.dense(tf.concat(x, 1))
        """,
    "shared, scaled, with losses": """
        def custom_model():
            ids = keras.Input((6,), dtype="int64")
            table = Embedding(3, name="table", activity_regularizer="l2")
            one, two = table(ids[:, :4]), table(ids[:, 2:])
            x = L.Flatten()(L.Multiply()([one, two]))
            return keras.Model(ids, L.Dense(1, kernel_regularizer="l2")(x))
        """,
    "masked": """
        def custom_model():
            ids = keras.Input((6,), dtype="int64")
            x = Embedding(3, name="table", mask_zero=True)(ids)
            return keras.Model(ids, L.Dense(1)(L.GRU(4)(x)))
        """,
    "plain": """
        def custom_model():
            ids = keras.Input((6,), dtype="int64")
            x = L.Embedding(400_000, 3, name="table", mask_zero=True)(ids - 1)
            return keras.Model(ids, L.Dense(1)(L.GlobalAveragePooling1D()(x)))
        """,
    "plain, subclassed": """
        class CustomModel(keras.Model):
            def __init__(self):
                super().__init__(name="net")
                self.towers = [L.Embedding(400_000, 3, name="table"), L.Embedding(30, 3, name="small")]
                self.dense = L.Dense(1)

            def call(self, ids):
                return self.dense(tf.reduce_prod(self.towers[0](ids) + self.towers[1](ids), 1))
        """,
    "only tables": """
        class CustomModel(keras.Model):
            def __init__(self):
                super().__init__(name="net")
                self.table = Embedding(3, name="table")

            def call(self, ids):
                return tf.reduce_sum(self.table(ids[:, 0]) * self.table(ids[:, 1]), 1, keepdims=True)
        """,
    **{
        f"sparse, {combiner}": SPARSE_FEED
        + f"""
def custom_model():
    ids = keras.Input((6,), dtype="int64", sparse=True)
    x = Embedding(3, combiner="{combiner}", name="table")(ids)
    return keras.Model(ids, L.Dense(1)(x))
"""
        for combiner in ("sum", "mean", "sqrtn")
    },
    **{
        f"{form}, weighted {combiner}": feed
        + f"""
class CustomModel(keras.Model):
    def __init__(self):
        super().__init__(name="net")
        self.table = Embedding(3, combiner="{combiner}", name="table")
        self.dense = L.Dense(1)

    def call(self, ids):
        ids = {to_form}
        weights = {weights}
        return self.dense(self.table(ids, weights=weights))
"""
        for form, feed, to_form, weights in (
            ("sparse", SPARSE_FEED, "ids", "ids.with_values(1.0 / (2.5 + tf.cast(ids.values, tf.float32)))"),
            (
                "ragged",
                "",
                TO_RAGGED,
                "tf.ragged.map_flat_values(lambda x: 1.0 / (tf.cast(x, tf.float32) + 2), ids)",
            ),
        )
        for combiner in ("mean", "sqrtn")
    },
    "functional, weights as an input": PAIR_FEED
    + """
def custom_model():
    ids = keras.Input((6,), dtype="int64", sparse=True, name="ids")
    weights = keras.Input((6,), sparse=True, name="weights")
    x = Embedding(3, combiner="sum", name="table")(ids, weights=weights)
    return keras.Model({"ids": ids, "weights": weights}, L.Dense(1)(x))
""",
    "ragged, not combined": """
class CustomModel(keras.Model):
    def __init__(self):
        super().__init__(name="net")
        self.table = Embedding(3, name="table")
        self.dense = L.Dense(1)

    def call(self, ids):
        ids = tf.ragged.boolean_mask(ids, ids % 3 > 0)
        return self.dense(tf.reduce_sum(self.table(ids), 1))
""",
}


@pytest.fixture
def make(tmp_path):
    """make(source) -> (trainer, what it built); closed at the end."""
    made = []

    def build(source, *, partitions=1, evaluation=False, change=None):
        folder = tmp_path / f"job{len(made)}"
        write_job(folder, source, change or {})
        trainer = KerasEngine(*job(folder, evaluation), partitions)
        made.append(trainer)
        return trainer, trainer.build()

    yield build
    for trainer in made:
        trainer.close()


def gradients_by_id(groups, computed):
    return [
        dict(zip(group.ids.tolist(), gradient, strict=True))
        for group, gradient in zip(groups, computed.row_gradients, strict=True)
    ]


def plain_gradients(trainer, built, task, index):
    """Loss and gradients of the same minibatch by plain Keras: every table is one variable."""
    from edlz.services.worker.engine.feed.batch_structure import split_element
    from edlz.services.worker.engine.tensorflow.backend import tf

    parts = trainer._assembly
    model = parts.built.model
    features, labels, _ = split_element(parts.lanes.minibatch(task, index).element)
    tables = [tf.Variable(whole_table(number, table)) for number, table in enumerate(built.tables)]
    for layer, table in zip(parts.built.tables, tables, strict=True):
        layer.source = lambda layer, ids, table=table: tf.gather(table, (ids + 3) % (IDS * 2 + 3))
    try:
        with tf.GradientTape() as tape:
            predictions = model(features, training=True)
            loss = tf.reduce_mean(tf.square(predictions[:, 0] - labels))
            loss = tf.add_n([loss, *model.losses])
    finally:
        for layer in parts.built.tables:
            layer.source = None
    of_dense, of_tables = tape.gradient(
        loss, [list(model.trainable_variables), tables], unconnected_gradients="zero"
    )
    by_id = [
        {
            id_ - 3 if id_ - 3 <= IDS * 2 - 2 else id_: row
            for id_, row in enumerate(tf.convert_to_tensor(g).numpy())
        }
        for g in of_tables
    ]
    return float(loss), [tf.convert_to_tensor(g).numpy() for g in of_dense], by_id


def whole_table(number, table):
    """Rows of the ids from -3 on, in the order that (id + 3) gives."""
    ids = (i - 3 for i in range(IDS * 2 + 3))
    return np.stack([np.random.default_rng([number, i % 2**32]).normal(size=table.dim) for i in ids]).astype(
        np.float32
    )


def load_dense(trainer, built):
    """Give the model's variables the values of the loaded vector."""
    model = trainer._assembly.built.model
    layout = built.layout.dense
    for variable, place, offset in zip(
        model.trainable_variables, layout.variables, layout.offsets, strict=False
    ):
        variable.assign(built.dense[offset : offset + place.size].reshape(place.shape))


@pytest.mark.parametrize("kind", list(MODELS))
def test_gradients_are_those_of_plain_keras(make, kind):
    trainer, built = make(MODELS[kind], partitions=3)
    assert [table.dim for table in built.tables][:1] == [3]
    groups = trainer.find_ids(1, 0)
    for group in groups:
        assert len(set(group.ids.tolist())) == len(group.ids) == group.counts.sum()
        assert len(group.counts) == 3
    computed = trainer.compute(1, 0, rows_of(built, groups))
    load_dense(trainer, built)
    if kind == "plain":  # -1 is the last row
        return
    loss, dense, tables = plain_gradients(trainer, built, 1, 0)
    # As in test_trainer: some 100 operations from a record to a gradient and back, and some cancel.
    assert computed.loss == near(loss, 100)
    for expected, place, offset in zip(
        dense, built.layout.dense.variables, built.layout.dense.offsets, strict=False
    ):
        ours = computed.gradient[offset : offset + place.size].reshape(place.shape)
        assert ours == near(expected, 10 * 100, size=max(1.0, np.abs(expected).max()))
    for ours, expected in zip(gradients_by_id(groups, computed), tables, strict=True):
        for id_, gradient in ours.items():
            assert gradient == near(expected[id_], 10 * 100, size=max(1.0, np.abs(expected[id_]).max()))
        untouched = [gradient for id_, gradient in expected.items() if id_ not in ours]
        assert not np.any(untouched)
