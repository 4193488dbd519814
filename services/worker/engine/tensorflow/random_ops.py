"""Random operations that count their calls, which would make a step depend on what ran before it.

Keras' own random layers draw from seed variables that the step sets.  `tf.random.*` and `tf.nn.dropout`
do not: their kernels count calls.  While a step is traced the common ones are replaced by stateless
ones; whatever is left is found by name.
"""

import itertools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from tensorflow.python.ops import gen_random_ops

from edlz.services.worker.engine.tensorflow.backend import tf

__all__ = ["STATEFUL", "stateful_random_ops", "stateless"]

# Kernels with a counter.  Ops with "Stateless" in their names, and seed generators of tf.data's shuffle
# (fresh for each task), are not among them.
STATEFUL = frozenset(
    {
        "Multinomial",
        "NonDeterministicInts",
        "ParameterizedTruncatedNormal",
        "RandomCrop",
        "RandomDataset",
        "RandomDatasetV2",
        "RandomGamma",
        "RandomPoisson",
        "RandomPoissonV2",
        "RandomShuffle",
        "RandomStandardNormal",
        "RandomUniform",
        "RandomUniformInt",
        "RngReadAndSkip",
        "RngSkip",
        "SampleDistortedBoundingBox",
        "SampleDistortedBoundingBoxV2",
        "StatefulRandomBinomial",
        "StatefulStandardNormalV2",
        "StatefulTruncatedNormal",
        "StatefulUniform",
        "StatefulUniformFullInt",
        "StatefulUniformInt",
        "TruncatedNormal",
    }
)


@contextmanager
def stateless(seed: Any) -> Iterator[None]:
    """While this lasts, draws that are traced depend on `seed` and on their place in the trace alone.

    Parameters
    ----------
    seed : int64 scalar tensor
        In the graph that is being traced.
    """
    places = itertools.count()

    def key() -> Any:
        return tf.stack([seed, tf.constant(next(places), tf.int64)])

    replaced = _draws_by(key)
    originals = {name: getattr(gen_random_ops, name) for name in replaced}
    for name, replacement in replaced.items():
        setattr(gen_random_ops, name, _outside_loops(originals[name], replacement))
    try:
        yield
    finally:
        for name, original in originals.items():
            setattr(gen_random_ops, name, original)


def _draws_by(key: Callable[[], Any]) -> dict[str, Callable[..., Any]]:
    """Return what takes the place of TensorFlow's ops, by their names: draws by the next key."""
    random = tf.random

    def uniform(shape: Any, dtype: Any, seed: int = 0, seed2: int = 0, name: str | None = None) -> Any:
        return random.stateless_uniform(shape, key(), dtype=dtype, name=name)

    def normal(shape: Any, dtype: Any, seed: int = 0, seed2: int = 0, name: str | None = None) -> Any:
        return random.stateless_normal(shape, key(), dtype=dtype, name=name)

    def truncated(shape: Any, dtype: Any, seed: int = 0, seed2: int = 0, name: str | None = None) -> Any:
        return random.stateless_truncated_normal(shape, key(), dtype=dtype, name=name)

    def integers(
        shape: Any, minval: Any, maxval: Any, seed: int = 0, seed2: int = 0, name: str | None = None
    ) -> Any:
        return random.stateless_uniform(shape, key(), minval, maxval, dtype=minval.dtype, name=name)

    return {
        "random_uniform": uniform,
        "random_standard_normal": normal,
        "truncated_normal": truncated,
        "random_uniform_int": integers,
    }


def stateful_random_ops(graph: Any) -> list[str]:
    """Return the random ops of a traced function that keep state, as `type (name)`, those of its inner
    functions included.

    Parameters
    ----------
    graph : FuncGraph
    """
    definition = graph.as_graph_def()
    nodes = itertools.chain(definition.node, *(f.node_def for f in definition.library.function))
    return sorted({f"{node.op} ({node.name})" for node in nodes if node.op in STATEFUL})


def _outside_loops(original: Any, replacement: Any) -> Any:
    """In a loop's body one place in the trace is many draws: they would all be the same numbers."""

    def choose(*args: Any, **kwargs: Any) -> Any:
        chosen = original if _is_in_loop(tf.compat.v1.get_default_graph()) else replacement
        return chosen(*args, **kwargs)

    return choose


def _is_in_loop(graph: Any) -> bool:
    while graph is not None:
        if type(graph).__name__.startswith("While"):
            return True
        graph = getattr(graph, "outer_graph", None)
    return False
