"""What callbacks see as `self.model`: the user's model, without the values that parameter servers hold.

A callback that takes the weights, or saves the model, has the job keep that version as a checkpoint; one that puts
weights back names the version which is the job's result.
"""

from typing import Any

import numpy as np

from edlz.services.errors import ModelError
from edlz.services.worker.engine.tensorflow.backend import keras

__all__ = ["ModelView", "OptimizerView"]

_ELSEWHERE = frozenset(
    {
        *("weights", "trainable_weights", "non_trainable_weights"),
        *("variables", "trainable_variables", "non_trainable_variables"),
        *("fit", "evaluate", "predict", "predict_on_batch", "test_on_batch", "train_on_batch"),
    }
)


class OptimizerView:
    """The user's optimizer with a learning rate that callbacks may set; it is the job's from the next version on.

    Parameters
    ----------
    optimizer : keras.optimizers.Optimizer
        Whatever else is asked for is its.
    rate : float
        That was used last.
    """

    def __init__(self, optimizer: Any, rate: float) -> None:
        self.__dict__["_optimizer"] = optimizer
        self.__dict__["_rate"] = keras.Variable(rate, dtype="float32", trainable=False)

    @property
    def rate(self) -> float:
        return float(self._rate.numpy())

    def __getattr__(self, name: str) -> Any:
        return self._rate if name in ("learning_rate", "lr") else getattr(self._optimizer, name)

    def __setattr__(self, name: str, value: Any) -> None:
        if name in ("learning_rate", "lr"):
            self._rate.assign(float(value))
        else:
            setattr(self._optimizer, name, value)


class ModelView:
    """The model, as one callback sees it.

    Parameters
    ----------
    model : keras.Model
    optimizer : OptimizerView
    name : str
        What messages call the callback.
    decides : bool
        Whether it may stop training, and keep versions.
    is_sync : bool
        Whether training stands still at the version that it is shown: no other one can be kept.

    Attributes
    ----------
    version : int
        The one that the callback is shown.
    kept : int or None
        The one whose weights it has taken last, or saved; None: none.
    result : int or None
        The one whose weights it has put back.
    """

    def __init__(
        self, model: Any, optimizer: OptimizerView, name: str, *, decides: bool, is_sync: bool = True
    ) -> None:
        self._model, self.optimizer, self._name, self._decides = model, optimizer, name, decides
        self._is_sync = is_sync
        self._stops = False
        self.version = 0
        self.kept: int | None = None
        self.result: int | None = None

    def __getattr__(self, name: str) -> Any:
        if name in _ELSEWHERE:
            raise ModelError(
                f"callback {self._name} uses model.{name}, but the values are on the parameter servers",
                "let it work on its logs; edlz export and edlz.api.load give the model with its values",
            )
        return getattr(self._model, name)

    @property
    def stop_training(self) -> bool:
        return self._stops

    @stop_training.setter
    def stop_training(self, value: bool) -> None:
        if value:
            self._check("stops training")
        self._stops = bool(value)

    def get_weights(self) -> list[Any]:
        """Have this version kept; what is returned stands for its weights."""
        self._check_keeping("takes the model's weights")
        self.kept = self.version
        return _Weights(self.version)

    def set_weights(self, weights: Any) -> None:
        """Make the version of these weights the result."""
        self._check("sets the model's weights")
        if not isinstance(weights, _Weights):
            raise ModelError(
                f"callback {self._name} sets weights that it did not take by model.get_weights()",
                "the values are on the parameter servers",
            )
        self.result = weights.version

    def save(self, *_: Any, **__: Any) -> None:
        """Have this version kept as a checkpoint, in place of a file."""
        self._check_keeping("saves the model")
        self.kept = self.version

    save_weights = save

    def _check_keeping(self, what: str) -> None:
        self._check(what)
        if not self._is_sync:
            raise ModelError(
                f"callback {self._name} {what}, and the job trains in asynchronous mode",
                "there no version stands still to be kept: leave --use_async away, or that callback",
            )

    def _check(self, what: str) -> None:
        if not self._decides:
            raise ModelError(
                f"callback {self._name} {what}, which nobody could see from its code",
                "write `decides = True` in its class: then training waits for it",
            )


class _Weights(list[Any]):
    """Stands for the weights of a version."""

    def __init__(self, version: int) -> None:
        super().__init__([np.array(version)])
        self.version = version
