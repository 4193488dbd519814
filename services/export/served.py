"""The user's model as an object that TensorFlow saves: its variables, its tables, and functions that call it.

Three functions do the same: `serve` takes features as the feed yields them, `serving_default` takes them as named
dense tensors, and `examples` takes records, which the feed parses (if it can be part of a graph).
"""

import logging
from collections.abc import Callable, Sequence
from typing import Any

from tensorflow.python.checkpoint import trackable_view
from tensorflow.python.saved_model import save as saving
from tensorflow.python.trackable import resource

from edlz.api.feeds import Mode
from edlz.services.errors import ModelError
from edlz.services.export.signature import FlatSignature, named_outputs
from edlz.services.worker.engine.feed.batch_structure import shown, split_element
from edlz.services.worker.engine.feed.pipeline import plain_batches
from edlz.services.worker.engine.model.job_model import JobModel
from edlz.services.worker.engine.model.lookups import inlined_functions, serving
from edlz.services.worker.engine.tensorflow.autograph import to_be_traced
from edlz.services.worker.engine.tensorflow.backend import tf
from edlz.services.worker.engine.user_code.user_code import brief

__all__ = ["Served"]

logger = logging.getLogger(__name__)

_PARSERS = frozenset(
    {"ParseExample", "ParseExampleV2", "ParseExampleDataset", "ParseExampleDatasetV2", "ParseSingleExample"}
)
_PYTHON = frozenset({"PyFunc", "PyFuncStateless", "EagerPyFunc"})


class _Saved(tf.Module):  # type: ignore[misc]
    """What TensorFlow saves: all that the functions use, by the names that it has in the files."""

    def __init__(self, tables: Sequence[Any], serve: Any, variables: list[Any], resources: list[Any]) -> None:
        super().__init__()
        self.tables, self.serve = list(tables), serve
        self.variables_of_model, self.resources = variables, resources


class Served:
    """The model, traced.

    Parameters
    ----------
    model : JobModel
        Its variables have the values to be saved.
    tables : sequence of IdTable and WholeTable
        The source of each of the model's tables.

    Attributes
    ----------
    signatures : dict of str to ConcreteFunction

    Raises
    ------
    ModelError
        If the user's code raises while it is traced.
    """

    def __init__(self, model: JobModel, tables: Sequence[Any]) -> None:
        spec = split_element(model.feed.spec)[0]
        serve = to_be_traced(_prediction(model, tables), [spec])
        traced = serve.get_concrete_function()
        flat = FlatSignature(model.built.model, spec)

        def by_names(**tensors: Any) -> Any:
            return named_outputs(serve(flat.packed(tensors)))

        self.signatures = {
            "serving_default": tf.function(by_names, autograph=False).get_concrete_function(**flat.specs)
        }
        examples = _of_examples(model, spec, serve)
        if examples is not None:
            self.signatures["examples"] = examples
        variables = _variables(model.built.model, traced, tables)
        self._saved = _Saved(tables, serve, variables, _resources(model.built.model))

    def save(self, folder: str, *, with_variables: bool = True) -> None:
        """Save it; tables are empty.

        Parameters
        ----------
        with_variables : bool
            Or only the graph, to see whether that can be done.

        Raises
        ------
        ModelError
            If the model uses something that cannot be saved.
        """
        try:
            saving.save_and_return_nodes(
                self._saved,
                folder,
                signatures=self.signatures,
                experimental_skip_checkpoint=not with_variables,
            )
        except (AssertionError, ValueError, TypeError) as e:
            raise ModelError(
                f"the model cannot be saved: {brief(e)}",
                "what its call() uses (tables, variables) must be attributes of the model or of its layers",
            ) from e


def _prediction(model: JobModel, tables: Sequence[Any]) -> Callable[[Any], Any]:
    """Return the function from features to predictions, as evaluation computes them."""
    built, code = model.built, model.contract.code
    sources = {id(layer): table for layer, table in zip(built.tables, tables, strict=True)}

    def source(layer: Any, ids: Any) -> Any:
        return sources[id(layer)](layer, ids)

    def predict(features: Any) -> Any:
        with serving(built.tables, source), inlined_functions(), code.running("the model's call()"):
            return built.model(features, training=False)

    return predict


def _variables(model: Any, traced: Any, tables: Sequence[Any]) -> list[Any]:
    """Return the variables of the model, and those that its call() uses besides."""
    of_tables = {id(variable) for table in tables for variable in table.variables}
    found = {id(variable.value): variable.value for variable in model.variables}
    found.update({id(v): v for v in traced.graph.variables if id(v) not in of_tables})
    return list(found.values())


def _resources(model: Any) -> list[Any]:
    """Return the lookup tables of the model's layers, and what else has to be made anew when it is loaded."""
    everything = trackable_view.TrackableView(model).descendants()
    return [one for one in everything if isinstance(one, resource.CapturableResource)]


def _of_examples(model: JobModel, spec: Any, serve: Callable[[Any], Any]) -> Any:
    """Return the function from serialised tf.Examples to predictions; None if the feed parses none in a graph."""
    if model.contract.feed_form != "dataset":
        return None
    settings = model.feed_settings(Mode.PREDICTION)
    if not settings.form.is_bytes:
        return None

    def by_records(examples: Any) -> Any:
        size = tf.size(examples, out_type=tf.int64)
        batches, _ = plain_batches(model.contract, settings, examples, size)
        features = _features_of(batches, spec)
        return named_outputs(serve(features))

    try:
        traced = tf.function(by_records, autograph=False).get_concrete_function(
            examples=tf.TensorSpec([None], tf.string, name="examples")
        )
    except Exception as e:  # whatever the user's code raises in prediction mode
        logger.info(
            "the export has no signature examples: the feed does not parse records to predict (%s)", brief(e)
        )
        return None
    obstacle = _obstacle(_all_ops(traced.graph))
    if obstacle:
        logger.info("the export has no signature examples: the feed %s", obstacle)
        return None
    return traced


def _obstacle(ops: set[str]) -> str:
    """Return why a feed with these operations cannot parse records for a served model, or nothing."""
    if ops & _PYTHON:
        return "calls Python"
    if any("Shuffle" in op for op in ops):
        return "shuffles the records to predict"
    return "" if ops & _PARSERS else "parses no tf.train.Example"


def _features_of(batches: Any, spec: Any) -> Any:
    """Return the features of the one batch that a feed gives in prediction mode."""
    found = batches.element_spec
    if not _is_like(found, spec):
        if not (isinstance(found, tuple) and len(found) >= 1 and _is_like(found[0], spec)):
            raise ModelError(f"feed() yields {shown(found)} in prediction mode, in training {shown(spec)}")
        batches = batches.map(lambda features, *_: features)
    return batches.get_single_element()


def _is_like(found: Any, spec: Any) -> bool:
    try:
        tf.nest.assert_same_structure(found, spec, expand_composites=False)
    except (TypeError, ValueError):
        return False
    pairs = zip(tf.nest.flatten(found), tf.nest.flatten(spec), strict=True)
    return all(theirs.is_compatible_with(ours) for ours, theirs in pairs)


def _all_ops(graph: Any) -> set[str]:
    definition = graph.as_graph_def()
    nodes = [*definition.node, *(node for f in definition.library.function for node in f.node_def)]
    return {node.op for node in nodes}
