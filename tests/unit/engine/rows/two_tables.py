"""A model with two embedding tables, and steps of it whose rows a test serves."""

from tests.table_jobs import rows_of

__all__ = ["TWO_TABLES", "bits", "compute", "compute_all", "find_all", "model", "plain"]

TWO_TABLES = """
class CustomModel(keras.Model):
    def __init__(self):
        super().__init__(name="net")
        self.users = Embedding(3, name="users", optimizer=keras.optimizers.Adagrad(
            keras.optimizers.schedules.PiecewiseConstantDecay([1], [0.5, 0.25])))
        self.items = Embedding(5, 60, "glorot_uniform", name="items")
        self.drop = L.Dropout(0.5)
        self.norm = L.BatchNormalization()
        self.dense = L.Dense(1)

    def call(self, ids, training=False):
        x = tf.concat([self.users(ids), self.items(ids)], 2)
        x = self.drop(self.norm(tf.reduce_sum(x, 1), training=training), training=training)
        return self.dense(x + tf.reduce_sum(self.users(ids[:, :1]), 1, keepdims=False)[:, :1])
"""


def bits(groups, computed):
    """What a minibatch gave, row gradients by id."""
    rows = [
        sorted(zip(group.ids.tolist(), (row.tobytes() for row in gradient), strict=True))
        for group, gradient in zip(groups, computed.row_gradients, strict=True)
    ]
    return computed.gradient.tobytes(), computed.state.tobytes(), computed.loss, rows


def compute(trainer, built, task, index):
    groups = trainer.find_ids(task, index)
    return bits(groups, trainer.compute(task, index, rows_of(built, groups)))


def find_all(trainer, task):
    return [trainer.find_ids(task, index) for index in range(3)]


def compute_all(trainer, built, task):
    return [compute(trainer, built, task, index) for index in range(3)]


def model(body, init=""):
    return f"""
class CustomModel(keras.Model):
    def __init__(self):
        super().__init__(name="net")
        self.table = Embedding(3, name="table")
        self.other = Embedding(3, name="other")
        self.dense = L.Dense(1)
        {init}

    def call(self, ids, training=False):
        {body}
"""


def plain(options="", size=4_000, body="return self.dense(self.table(ids[:, 0]))", init=""):
    return f"""
class Own(L.Embedding):
    pass

class CustomModel(keras.Model):
    def __init__(self):
        super().__init__(name="net")
        self.table = L.Embedding({size}, 3, name="table"{options})
        self.dense = L.Dense(1)
        {init}

    def call(self, ids):
        {body}
"""
