"""Initial values in a graph: the bits of the compiled core, also behind TensorFlow's graph optimizer."""

from pathlib import Path

import numpy as np
import pytest

from edlz.core_ext.table import EmbeddingTable, Initializer

DIM, SEED = 16, 2**64 - 3
IDS = np.concatenate(
    [
        np.random.default_rng(1).integers(-(2**63), 2**63 - 1, 2000, np.int64),
        np.array([-(2**63), -1, 0, 1, 2**63 - 1], np.int64),
    ]
)


@pytest.mark.parametrize(
    "initializer",
    [
        Initializer("uniform", -0.05, 0.05),
        Initializer("uniform", 0.1, 0.7),
        Initializer("uniform", 0.25, 0.25),
        Initializer("normal", 0.3, 1.7),
        Initializer("truncated_normal", 0.0, 0.05),
    ],
    ids=lambda initializer: f"{initializer.kind}-{initializer.a}-{initializer.b}",
)
def test_the_bits_are_those_of_the_core(initializer: Initializer, tmp_path: Path) -> None:
    from edlz.services.export.tables.initial_values import InitialValues
    from edlz.services.worker.engine.tensorflow.backend import tf

    expected = np.empty(len(IDS) * DIM, np.float32)
    EmbeddingTable(DIM, [], initializer, SEED).gather(IDS, expected)
    module = tf.Module()
    module.values = InitialValues(initializer, SEED, DIM)
    module.rows = tf.function(module.values.__call__, input_signature=[tf.TensorSpec([None], tf.int64)])
    assert module.rows(IDS).numpy().tobytes() == expected.tobytes()
    tf.saved_model.save(module, str(tmp_path))
    loaded = tf.saved_model.load(str(tmp_path))
    assert loaded.rows(tf.constant(IDS)).numpy().tobytes() == expected.tobytes()
    assert loaded.rows(tf.zeros([0], tf.int64)).shape == (0, DIM)
