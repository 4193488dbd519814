"""A feed that gives lists of ids of different lengths: ragged minibatches of a table with a combiner."""

import numpy as np

from edlz.services.worker.engine.keras_engine import KerasEngine
from tests.table_jobs import BATCH, job, rows_of, write_job

MODEL = """
def custom_model():
    ids = keras.Input((None,), dtype="int64", ragged=True)
    pooled = Embedding(3, combiner="mean", name="words")(ids)
    return keras.Model(ids, L.Dense(1)(pooled))

def feed(dataset, mode, metadata):
    def parse_list(record):
        ids, label = parse(record)
        ids = tf.boolean_mask(ids, ids % 2 == 0)
        return tf.RaggedTensor.from_row_lengths(ids, [tf.size(ids)]), label
    return dataset.map(parse_list)
"""


def test_a_records_ragged_value_is_a_row_of_the_minibatch(tmp_path) -> None:
    write_job(tmp_path, MODEL, {0: b"1,3,5,7,9,11,0.5"})  # a record without ids
    trainer = KerasEngine(*job(tmp_path), partitions=2)
    built = trainer.build()
    trainer.load(built.dense, built.state, built.counters)
    (groups,) = trainer.find_ids(0, 0)
    assert len(groups.ids) > 0
    assert not (groups.ids % 2).any()
    computed = trainer.compute(0, 0, rows_of(built, [groups]))
    assert computed.records == BATCH
    assert computed.row_gradients[0].shape == (len(groups.ids), 3)
    assert np.abs(computed.row_gradients[0]).sum() > 0
    trainer.close()
