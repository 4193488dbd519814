"""What Keras' own training would do with a model and cannot be done here: refused by name before anything is trained."""

from typing import Any

from edlz.services.worker.engine.contract.model_module import ModelContract
from edlz.services.worker.engine.tensorflow.backend import keras
from edlz.services.worker.engine.user_code.user_code import UserCodeError

__all__ = ["check_features", "computes_in_float16"]

_NEVER_CALLED = {
    "train_step": "compute in call(), add_loss() or loss(labels, predictions), which are called",
    "compute_loss": "write it as loss(labels, predictions), or add parts with add_loss() in call()",
    "test_step": "measure in eval_metrics_fn()",
    "compute_metrics": "measure in eval_metrics_fn()",
    "predict_step": "compute in call(x, training=False)",
    "make_train_function": "compute in call() and loss(labels, predictions)",
    "make_test_function": "measure in eval_metrics_fn()",
}


def check_features(contract: ModelContract, model: Any) -> None:
    """Look for what `fit` would heed and a job would not.

    Parameters
    ----------
    model : keras.Model
        As the user's code gives it.

    Raises
    ------
    ModelError
        With the line of the user's code and what to write instead.
    """
    for name, advice in _NEVER_CALLED.items():
        method = getattr(type(model), name, None)
        if method is not None and not _is_keras(method):
            raise UserCodeError(
                f"{type(model).__name__}.{name}() would never be called: workers compute gradients, and parameter "
                "servers apply them",
                advice,
                where=contract.code.place(method),
            )
    if model.compiled:
        raise UserCodeError(
            "the model is compiled, but edlz would ignore what its compile() sets: optimizer, loss, metrics, "
            "jit_compile, steps_per_execution",
            "leave compile() out: optimizer(), loss() and eval_metrics_fn() are used; load_model(…, compile=False)",
            where=contract.model_place,
        )
    for layer in model._flatten_layers(include_self=False):
        if getattr(layer, "stateful", False) and isinstance(layer, keras.layers.RNN):
            raise UserCodeError(
                f"layer {layer.name} is stateful: it would go on where the minibatch before ended, and minibatches of "
                "a job have no such order",
                "use stateful=False, and let a record hold a whole sequence",
                where=contract.model_place,
            )


def computes_in_float16(model: Any) -> bool:
    """Whether gradients of some layer are small numbers of 16 bits with 5 of exponent, which lose small ones."""
    return any(layer.compute_dtype == "float16" for layer in model._flatten_layers())


def _is_keras(method: Any) -> bool:
    return str(getattr(method, "__module__", "")).partition(".")[0] == "keras"
