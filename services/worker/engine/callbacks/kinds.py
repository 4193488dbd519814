"""The user's callbacks by what becomes of them: some decide, some look on, some are edlz' own work already.

Owns the sorting and its refusals; it calls no hook.
"""

import inspect
import logging
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field, replace
from types import CodeType
from typing import Any

from edlz.api.callbacks import MaxStepsStopping, SavedModelExporter
from edlz.services.errors import ModelError
from edlz.services.worker.engine.contract.learning_rates import SCHEDULERS
from edlz.services.worker.engine.contract.model_module import ModelContract
from edlz.services.worker.engine.tensorflow.backend import keras

__all__ = ["BATCH_HOOKS", "SortedCallbacks", "check_monitors", "sort_callbacks"]

BATCH_HOOKS = ("on_train_batch_begin", "on_train_batch_end", "on_batch_begin", "on_batch_end")

_KERAS = keras.callbacks
_OURS_ALREADY = {
    _KERAS.BackupAndRestore: "jobs go on after any loss by themselves",
    _KERAS.History: "edlz status has the metrics of all rounds",
    _KERAS.ProgbarLogger: "edlz shows the progress",
    _KERAS.TensorBoard: "edlz status has losses and metrics",
}
_REFUSED = {
    _KERAS.SwapEMAWeights: "averaged weights would have to be kept on parameter servers",
    _KERAS.OrbaxCheckpoint: "checkpoints are edlz' own: use --checkpoint_steps",
}
# What callbacks that decide speak of; a class says `decides = True` or `decides = False` if that is wrong of it.
_DECIDING_NAMES = frozenset({"stop_training", "learning_rate", "lr"})

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class SortedCallbacks:
    """One list of callbacks, as `callbacks()` has made it.

    Attributes
    ----------
    deciders : list of object
        They may stop the job, set the learning rate or keep a version: functions of what they are shown.
    observers : list of object
        Called once for each round.
    schedulers : list of object
        The learning rate by version.
    exporters : list of object
        They say where the finished model is exported to.
    max_steps : int
        Minibatches after which the job ends; 0: none.
    stops_on_nan : bool
        Whether a loss that is not finite ends the job.
    """

    deciders: list[Any] = field(default_factory=list)
    observers: list[Any] = field(default_factory=list)
    schedulers: list[Any] = field(default_factory=list)
    exporters: list[Any] = field(default_factory=list)
    max_steps: int = 0
    stops_on_nan: bool = False

    @property
    def with_batches(self) -> list[Any]:
        """Those that want to be called at each minibatch."""
        return [callback for callback in (*self.deciders, *self.observers) if _has_batch_hook(callback)]


def sort_callbacks(contract: ModelContract, *, is_sync: bool, is_told: bool = False) -> SortedCallbacks:
    """Make the user's callbacks and sort them.

    Parameters
    ----------
    is_sync : bool
        Whether the job trains in synchronous mode.
    is_told : bool, optional
        Whether the log says what is not run.

    Raises
    ------
    ModelError
        If the code raises, or a callback is of a kind that cannot be run.
    """
    found = SortedCallbacks()
    max_steps, stops_on_nan = 0, False
    for callback in contract.make_callbacks():
        name = type(callback).__name__
        _check_kind(callback, name)
        if isinstance(callback, SCHEDULERS):
            found.schedulers.append(callback)
        elif isinstance(callback, SavedModelExporter):
            found.exporters.append(callback)
        elif isinstance(callback, MaxStepsStopping):
            max_steps = min(max_steps or callback.max_steps, callback.max_steps)
        elif isinstance(callback, _KERAS.TerminateOnNaN):
            stops_on_nan = True
        elif reason := _reason(callback, _OURS_ALREADY) or _is_plain_checkpoint(callback):
            if is_told:
                logger.info("callback=%s is not run: %s", name, reason)
        elif _decides(callback):
            _check_decider(callback, name, is_sync=is_sync, has_schedule=bool(found.schedulers))
            found.deciders.append(callback)
        else:
            found.observers.append(callback)
    sorted_ = replace(found, max_steps=max_steps, stops_on_nan=stops_on_nan)
    if is_told:
        _tell(sorted_)
    return sorted_


def _check_kind(callback: Any, name: str) -> None:
    if reason := _reason(callback, _REFUSED):
        raise ModelError(
            f"callbacks() has {name}, which edlz does not run: {reason}", "leave it out of callbacks()"
        )


def _tell(found: SortedCallbacks) -> None:
    for callback in found.with_batches:
        logger.warning(
            "callback=%s: its hooks for minibatches see those of their own worker only, and cannot decide",
            type(callback).__name__,
        )
    if found.deciders:
        names = ", ".join(type(callback).__name__ for callback in found.deciders)
        logger.info("callbacks=%s decide on what each evaluation shows", names)


def _reason(callback: Any, reasons: dict[Any, str]) -> str:
    return next((reason for kind, reason in reasons.items() if isinstance(callback, kind)), "")


def _is_plain_checkpoint(callback: Any) -> str:
    if not isinstance(callback, _KERAS.ModelCheckpoint) or callback.save_best_only:
        return ""
    return "checkpoints are taken by --checkpoint_steps=N, and exported by edlz export"


def _decides(callback: Any) -> bool:
    known = (_KERAS.EarlyStopping, _KERAS.ReduceLROnPlateau, _KERAS.ModelCheckpoint)
    if isinstance(callback, known):
        return True
    said = getattr(callback, "decides", None)
    if said is not None:
        return bool(said)
    return any(not _DECIDING_NAMES.isdisjoint(_names(code)) for code in _own_code(callback))


def _own_code(callback: Any) -> Iterator[CodeType]:
    """The functions of the user's own: of the classes that are not Keras', and those that a LambdaCallback was given."""
    owners = [
        kind for kind in type(callback).__mro__ if not kind.__module__.startswith(("keras.", "builtins"))
    ]
    functions = [value for kind in owners for value in vars(kind).values()] + list(vars(callback).values())
    for function in functions:
        code = getattr(inspect.unwrap(function), "__code__", None) if callable(function) else None
        if isinstance(code, CodeType) and "/keras/src/" not in code.co_filename:
            yield code


def _names(code: CodeType) -> set[str]:
    nested = [constant for constant in code.co_consts if isinstance(constant, CodeType)]
    return set(code.co_names).union(*(_names(inner) for inner in nested))


def _check_decider(callback: Any, name: str, *, is_sync: bool, has_schedule: bool) -> None:
    is_checkpoint = isinstance(callback, _KERAS.ModelCheckpoint)
    if is_checkpoint and callback.save_freq != "epoch":
        raise ModelError(
            f"callbacks() has ModelCheckpoint(save_best_only=True, save_freq={callback.save_freq})",
            'metrics are known at evaluations: use save_freq="epoch"',
        )
    keeps = is_checkpoint or (isinstance(callback, _KERAS.EarlyStopping) and callback.restore_best_weights)
    if keeps and not is_sync:
        what = "save_best_only" if is_checkpoint else "restore_best_weights"
        raise ModelError(
            f"callbacks() has {name}({what}=True), and the job trains in asynchronous mode",
            "there no version stands still to be kept: leave --use_async away, or the option",
        )
    if isinstance(callback, _KERAS.ReduceLROnPlateau) and has_schedule:
        raise ModelError(
            "callbacks() schedules the learning rate, and ReduceLROnPlateau sets it", "keep one of them"
        )


def check_monitors(found: SortedCallbacks, metrics: Collection[str] | None) -> SortedCallbacks:
    """Return the callbacks, each told whether more of what it monitors is better.

    Parameters
    ----------
    metrics : collection of str or None
        Names of the model's metrics on validation data; None where there is no such data.

    Raises
    ------
    ModelError
        If it monitors what there is not, or nobody can tell.
    """
    for callback in found.deciders:
        _find_direction(callback, type(callback).__name__, metrics)
    return found


def _find_direction(callback: Any, name: str, metrics: Collection[str] | None) -> None:
    monitor = getattr(callback, "monitor", None)
    if not isinstance(monitor, str) or not hasattr(callback, "mode"):
        return
    if metrics is not None or not monitor.startswith("val_"):
        known = ["loss", *(f"val_{metric}" for metric in metrics or ())]
        if not any(monitor == each or monitor.startswith(f"{each}_") for each in known):
            raise ModelError(
                f'{name} monitors "{monitor}", but the job has no metric of that name',
                f"it has: {', '.join(known)}",
            )
    else:
        raise ModelError(
            f'{name} monitors "{monitor}", but the job has no validation data',
            'name some: --validation_data=PATH, or monitor "loss"',
        )
    if callback.mode not in ("min", "max"):
        callback.mode = _direction(monitor.removeprefix("val_"), name)


def _direction(metric: str, name: str) -> str:
    if metric == "loss" or "loss" in metric or "error" in metric:
        return "min"
    if any(word in metric for word in ("acc", "auc", "precision", "recall", "f1")):
        return "max"
    raise ModelError(
        f'{name} cannot tell whether more of "{metric}" is better', 'say so: mode="max" or mode="min"'
    )


def _has_batch_hook(callback: Any) -> bool:
    return any(_is_own(callback, hook) for hook in BATCH_HOOKS)


def _is_own(callback: Any, hook: str) -> bool:
    """Whether a hook is the user's, not what Keras has for everybody."""
    function: Callable[..., Any] = getattr(callback, hook)
    code = getattr(inspect.unwrap(function), "__code__", None)
    return code is not None and "/keras/src/" not in code.co_filename
