"""A sparse training step without a network: edlz's kernels beside TensorFlow's own ops.

A step looks up the rows of a batch, adds up the gradients of equal ids, and takes an Adagrad step on the rows
of the ids that are there.  Both sides run in one process, which is a child of this one so that TensorFlow
weighs on no other benchmark; TensorFlow has one thread.  Counted is the CPU time of all threads.
"""

import json
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from benchmarks.interleaving import Figures, process_cpu_s, take_turns
from benchmarks.processes import quiet_environment
from benchmarks.rows import Row

__all__ = ["measure"]

ROWS, BATCH, DIM = 1_000_000, 8_192, 16
BATCHES = 16
DISTRIBUTIONS = ("uniform", "zipf")
LEAST = 5.0
LEARNING_RATE, INITIAL_SUM, EPSILON = 0.01, 0.1, 1e-7
# Makes neighbours in rank strangers in the table, as they are where ids are hashes.
SCATTER = 2_654_435_761

_Call = Callable[[int], object]


def measure() -> list[Row]:
    """Measure steps on uniform and on zipf-distributed ids; takes about half a minute."""
    command = [sys.executable, "-m", "benchmarks.sparse_step"]
    output = subprocess.run(
        command, env=quiet_environment(), check=True, stdout=subprocess.PIPE, text=True
    ).stdout
    medians = json.loads(output.splitlines()[-1])
    return [
        Row(
            f"lookup + sum + Adagrad, {BATCH} {name} ids, dim {DIM}: TensorFlow's time / ours",
            _ms(medians[name]["edlz"]),
            f"TensorFlow {_ms(medians[name]['tensorflow'])}",
            medians[name]["ratio"],
            LEAST,
            True,
        )
        for name in DISTRIBUTIONS
    ]


def _measure_here() -> dict[str, dict[str, float]]:
    """Return both sides' medians in seconds and their ratio, by distribution."""
    tensorflow = _tensorflow_step()
    medians = {}
    for name in DISTRIBUTIONS:
        ids = _ids(name)
        gradients = np.random.default_rng(8).standard_normal((BATCH, DIM), np.float32)
        figures = _figures(_edlz_step(ids, gradients), tensorflow(ids, gradients))
        medians[name] = {side: figures.median(side) for side in ("edlz", "tensorflow")}
        medians[name]["ratio"] = figures.ratio("tensorflow", "edlz")
    return medians


def _figures(edlz: _Call, tensorflow: _Call) -> Figures:
    return take_turns(
        {
            "edlz": lambda: process_cpu_s(edlz, 4 * BATCHES),
            "tensorflow": lambda: process_cpu_s(tensorflow, 2 * BATCHES),
        }
    )


def _ids(distribution: str) -> npt.NDArray[np.int64]:
    generator = np.random.default_rng(7)
    if distribution == "uniform":
        return generator.integers(0, ROWS, (BATCHES, BATCH))
    share = np.cumsum(1 / np.arange(1, ROWS + 1))
    ranks = np.searchsorted(share / share[-1], generator.random((BATCHES, BATCH)))
    return ranks.astype(np.int64) * SCATTER % ROWS


def _edlz_step(ids: npt.NDArray[np.int64], gradients: npt.NDArray[np.float32]) -> _Call:
    from benchmarks.filled_table import filled_table, packed_step
    from edlz.core_ext.ids import group_ids, sum_rows

    table, step = filled_table("Adagrad", ROWS, DIM), packed_step("Adagrad")
    out = np.empty(BATCH * DIM, np.float32)

    def run(number: int) -> None:
        batch = ids[number % BATCHES]
        table.gather(batch, out)
        unique, _, places = group_ids(batch, 1)
        table.apply(step, unique, sum_rows(gradients, places, len(unique)).reshape(-1))

    return run


def _tensorflow_step() -> Callable[[npt.NDArray[np.int64], npt.NDArray[np.float32]], _Call]:
    import tensorflow as tf

    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(1)
    rows = tf.Variable(tf.random.uniform((ROWS, DIM), -0.05, 0.05))
    sums = tf.Variable(tf.fill((ROWS, DIM), INITIAL_SUM))

    def step(ids: Any, gradients: Any) -> Any:
        looked_up = tf.nn.embedding_lookup(rows, ids)
        unique, places = tf.unique(ids)
        summed = tf.math.unsorted_segment_sum(gradients, places, tf.size(unique))
        tf.raw_ops.ResourceSparseApplyAdagradV2(
            var=rows.handle, accum=sums.handle, lr=LEARNING_RATE, epsilon=EPSILON, grad=summed, indices=unique
        )
        return looked_up[-1, -1]  # so that the lookup is not left out

    signature = [tf.TensorSpec([None], tf.int64), tf.TensorSpec([None, DIM], tf.float32)]
    traced = tf.function(step, input_signature=signature)

    def bind(ids: npt.NDArray[np.int64], gradients: npt.NDArray[np.float32]) -> _Call:
        batches, gradient = [tf.constant(batch) for batch in ids], tf.constant(gradients)
        return lambda number: traced(batches[number % BATCHES], gradient).numpy()

    return bind


def _ms(seconds: float) -> str:
    return f"{seconds * 1e3:.2f} ms"


if __name__ == "__main__":
    sys.stdout.write(json.dumps(_measure_here()) + "\n")
