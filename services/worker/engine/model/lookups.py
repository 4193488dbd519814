"""Lookups in embedding tables while a model is traced: who serves them, and what each one asks for.

Table layers get their rows from a `source`: (layer, flat int64 ids) -> float32 rows.  Which one depends on
what the trace is for: zeros while the model is built, a recorder that notes the ids, the rows of a step.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from tensorflow.python.eager.polymorphic_function import autograph_util, polymorphic_function

from edlz.api.embedding import Embedding, Source
from edlz.services.errors import ModelError
from edlz.services.worker.engine.tensorflow.backend import tf

__all__ = [
    "Gathered",
    "Lookups",
    "Recorder",
    "inlined_functions",
    "serving",
    "without_rows",
    "zeros",
]

ROWS = "edlz_rows"
"""The name, in a recording, of operations whose values are not known before the step."""


def zeros(layer: Any, ids: Any) -> Any:
    """Serve rows of zeros: for traces and calls that ask for nothing but shapes."""
    return tf.zeros([tf.size(ids), layer.output_dim])


@contextmanager
def serving(layers: Sequence[Any], source: Source) -> Iterator[None]:
    """Let this source serve these layers; afterwards none does."""
    for layer in layers:
        layer.source = source
    try:
        yield
    finally:
        for layer in layers:
            layer.source = None


@contextmanager
def inlined_functions() -> Iterator[None]:
    """Let the user's tf.functions be traced as part of the trace that calls them.

    By themselves they would keep their first trace, with the source of that time, and their tensors would
    be out of reach.
    """
    cls = polymorphic_function.Function
    original = cls.__call__

    def inlined(self: Any, *args: Any, **kwargs: Any) -> Any:
        function = self._python_function
        if self._autograph and not tf.executing_eagerly():
            function = autograph_util.py_func_from_autograph(function)
        return function(*args, **kwargs)

    cls.__call__ = inlined
    try:
        yield
    finally:
        cls.__call__ = original


@contextmanager
def without_rows() -> Iterator[None]:
    """Serve zeros to whatever has no source yet: the user's code may call a model in order to build it."""

    Embedding.default_source = staticmethod(zeros)
    try:
        with inlined_functions():
            yield
    finally:
        Embedding.default_source = None


class Lookups:
    """Counts lookups of a trace in their order, which is what two traces of a model must agree on.

    Parameters
    ----------
    layers : sequence of table layers; a table's number is its place here

    Attributes
    ----------
    tables : list of int
        The table of each lookup so far.
    """

    def __init__(self, layers: Sequence[Any]) -> None:
        self._layers = layers
        self._numbers = {id(layer): number for number, layer in enumerate(layers)}
        self._graph: Any = None
        self.tables: list[int] = []

    def begin(self) -> None:
        """Expect lookups in the graph that is being traced now."""
        self._graph, self.tables = tf.compat.v1.get_default_graph(), []

    def _note(self, layer: Any) -> int:
        if tf.compat.v1.get_default_graph() is not self._graph:
            raise ModelError(
                f"layer {layer.name} is called inside a tf.cond, tf.while_loop or tf.map_fn: which ids it "
                "looks up is not known before the step",
                "call it outside, on all ids, and choose from its output inside",
            )
        table = self._numbers[id(layer)]
        self.tables.append(table)
        return table


class Recorder(Lookups):
    """A source that notes the ids of each lookup, and serves rows that are marked as unknown.

    Attributes
    ----------
    ids : list of int64 tensors, shape (n,)
    """

    def __init__(self, layers: Sequence[Any]) -> None:
        super().__init__(layers)
        self.ids: list[Any] = []

    def begin(self) -> None:
        super().begin()
        self.ids = []

    def __call__(self, layer: Any, ids: Any) -> Any:
        self._note(layer)
        self.ids.append(tf.identity(ids))
        return tf.identity(zeros(layer, ids), name=ROWS)


class Gathered(Lookups):
    """A source that serves the rows of one minibatch.

    Parameters
    ----------
    tables : sequence of int
        What the recording saw: the table of each lookup.
    rows : sequence of float32 tensors, shape (n, dim)
        What each lookup gets.
    """

    def __init__(self, layers: Sequence[Any], tables: Sequence[int], rows: Sequence[Any]) -> None:
        super().__init__(layers)
        self._expected, self._rows = list(tables), rows
        self.begin()

    def __call__(self, layer: Any, ids: Any) -> Any:
        place, table = len(self.tables), self._note(layer)
        if self._expected[place : place + 1] != [table]:
            raise self._disagreement()
        return self._rows[place]

    def finish(self) -> None:
        """Check that every lookup of the recording was made.

        Raises
        ------
        ModelError
            If not.
        """
        if self.tables != self._expected:
            raise self._disagreement()

    def _disagreement(self) -> ModelError:
        def names(tables: Sequence[int]) -> str:
            return ", ".join(self._layers[table].name for table in tables) or "nothing"

        return ModelError(
            f"the model looked up {names(self.tables)}, but {names(self._expected)} when it was traced before",
            "its call() must make the same lookups each time it is traced",
        )
