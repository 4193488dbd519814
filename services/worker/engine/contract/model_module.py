"""The user's model module, in whatever spelling, as one contract.

Owns finding the names and normalising their forms; it builds nothing, and knows no vectors or minibatches.
"""

import dataclasses
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any, Literal

from edlz.api.callbacks import LearningRateScheduler
from edlz.api.feeds import batched, takes_batches
from edlz.services.configuration.job_config import JobConfig
from edlz.services.errors import ModelError
from edlz.services.inputs.model_location import (
    FEED_NAMES,
    MODEL_NAMES,
    ModelLocation,
    locate_attribute,
    locate_model,
    model_zoo_directory,
)
from edlz.services.worker.engine.contract.data_reader import CustomReader
from edlz.services.worker.engine.contract.loss_function import LossFunction
from edlz.services.worker.engine.contract.model_file import load_file, module_name
from edlz.services.worker.engine.contract.optimizer import accept_older_spellings
from edlz.services.worker.engine.contract.signatures import parameter_names, positional_count
from edlz.services.worker.engine.tensorflow.backend import keras
from edlz.services.worker.engine.user_code.user_code import UserCode, UserCodeError, describe

__all__ = [
    "FeedForm",
    "ModelContract",
    "code_of",
    "custom_reader",
    "load_contract",
]

FeedForm = Literal["dataset", "records"]

_OUTPUTS_PROCESSOR = "PredictionOutputsProcessor"  # where no flag names another one


@dataclass(frozen=True)
class ModelContract:
    """What a model module defines.

    Attributes
    ----------
    name : str
        The module, as messages call it.
    feed : callable
        `feed_form` "dataset": (dataset, mode, metadata) -> dataset of single records' features and labels.
        "records": (list of decoded records) -> features and labels of one minibatch.
    metrics : callable or None
        The user's `eval_metrics_fn`, as it is.
    columns : callable or None
        () -> the columns that `tf_example` records are parsed by.
    outputs_processor : class or None
        The user's `PredictionOutputsProcessor`, as it is.
    data_reader : callable or None
        The user's `custom_data_reader`, as it is.
    """

    name: str
    code: UserCode
    loss: LossFunction
    feed: Callable[..., Any]
    feed_form: FeedForm
    metrics: Callable[..., Any] | None
    columns: Callable[[], list[Any]] | None
    _model: Any
    _model_name: str
    _optimizer: Callable[..., Any]
    outputs_processor: Any = None
    _callbacks: Callable[..., Any] | None = None
    _arguments: Mapping[str, Any] = field(default_factory=dict)
    _loss_path: str = ""
    data_reader: Callable[..., Any] | None = None

    @property
    def is_batched(self) -> bool:
        """Whether the feed takes minibatches, as `edlz.api.batched` marks it."""
        return takes_batches(self.feed)

    @property
    def model_place(self) -> str:
        """Where the model is defined, for messages."""
        return self.code.place(self.model_definition)

    @property
    def model_definition(self) -> Any:
        """The function or the class that the model is made by."""
        return type(self._model) if isinstance(self._model, keras.Model) else self._model

    @property
    def loss_place(self) -> str:
        """Where the loss is defined, for messages: an object of Keras, where the module names it."""
        return self.code.place(self.loss.function) or self.code.place_of_name(self._loss_path, "loss")

    def build(self) -> Any:
        """Return the user's model: from its function, its class, or as it stands in the module.

        Raises
        ------
        ModelError
            If the code raises, or gives no Keras model.
        """
        if isinstance(self._model, keras.Model):
            return self._model
        self._check_call(self._model_name, self._model, "without arguments", **self._model_arguments)
        with self.code.running(f"{self._model_name}()", self._model):
            model = self._model(**self._model_arguments)
        if not isinstance(model, keras.Model):
            raise UserCodeError(
                f"{self._model_name}() returned {type(model).__name__}, not a keras.Model",
                "build it with keras.Model(inputs, outputs), keras.Sequential or a subclass of keras.Model",
                where=self.model_place,
            )
        return model

    @property
    def _model_arguments(self) -> dict[str, Any]:
        """The arguments of the model's function: all but those that only the optimizer's names."""
        ours, others = parameter_names(self._model), parameter_names(self._optimizer)
        return {name: value for name, value in self._arguments.items() if name in ours or name not in others}

    @property
    def optimizer(self) -> Any:
        """The user's `optimizer`, as it is."""
        return self._optimizer

    def make_optimizer(self) -> Any:
        """Return the user's optimizer: a new one, or the one in the module.

        It gets those of the model's arguments that it names, e.g. `learning_rate`.

        Raises
        ------
        ModelError
            If the code raises.
        """
        if isinstance(self._optimizer, keras.optimizers.Optimizer):
            return self._optimizer
        names = parameter_names(self._optimizer)
        own = {name: value for name, value in self._arguments.items() if name in names}
        self._check_call("optimizer", self._optimizer, "without arguments", **own)
        with self.code.running("optimizer()", self._optimizer):
            return self._optimizer(**own)

    @property
    def callbacks(self) -> Any:
        """The user's `callbacks`, as it is; None if there is none."""
        return self._callbacks

    def make_callbacks(self) -> list[Any]:
        """Return what the user's `callbacks()` gives: instances of keras.callbacks.Callback.

        Raises
        ------
        ModelError
            If the code raises, or gives something else.
        """
        if self._callbacks is None:
            return []
        self._check_call("callbacks", self._callbacks, "without arguments")
        with self.code.running("callbacks()", self._callbacks):
            found = self._callbacks()
        callbacks = list(found) if isinstance(found, list | tuple) else [] if found is None else [found]
        for callback in callbacks:
            if not isinstance(callback, keras.callbacks.Callback):
                raise UserCodeError(
                    f"callbacks() gives {callback!r}, which is no callback",
                    "return a list of keras.callbacks.Callback objects",
                    where=self.code.place(self._callbacks),
                )
        return callbacks

    def with_feed_of(self, reader: CustomReader) -> "ModelContract":
        """Return the contract with the feed that the reader brings, if the model has none."""
        if self.feed is not _no_feed or reader.default_feed is None:
            return self
        feed, form = _normal_feed(reader.default_feed)
        return dataclasses.replace(self, feed=feed, feed_form=form)

    def check_loss(self) -> None:
        """Raise ModelError if `loss` takes other parameters than labels, predictions and perhaps weights."""
        count = 3 if self.loss.takes_weights else 2
        self._check_call("loss", self.loss.function, "as loss(labels, predictions)", *[None] * count)

    def _check_call(self, name: str, function: Any, how: str, /, *args: Any, **kwargs: Any) -> None:
        """Raise ModelError if a function of the user's cannot be called with these arguments."""
        try:
            signature = inspect.signature(function)
        except (TypeError, ValueError):  # a builtin, or nothing that can be called
            return
        try:
            signature.bind(*args, **kwargs)
        except TypeError as e:
            raise UserCodeError(
                f"{name}{signature} cannot be called {how}: {e}",
                "write loss(labels, predictions)"
                if args
                else "give its parameters defaults, or set --model_params",
                where=self.code.place(function),
            ) from e


def load_contract(config: JobConfig) -> ModelContract:
    """Load the model module that the configuration names, and those that its dotted flags name.

    Raises
    ------
    ModelError
        If a module or a name in it is missing, or the code raises.
    """
    accept_older_spellings()
    names = _Names(config)
    model_name, model = names.model()
    feed, form = names.feed()
    contract = ModelContract(
        name=names.title,
        code=names.code,
        loss=LossFunction(names.required("loss", "loss(labels, predictions)")),
        feed=feed,
        feed_form=form,
        metrics=names.flagged("eval_metrics_fn"),
        columns=_all_columns([names.plain(name) for name in ("feature_columns", "label_columns")]),
        _model=model,
        _model_name=model_name,
        _optimizer=names.required("optimizer", "optimizer()"),
        outputs_processor=names.outputs_processor(),
        _callbacks=names.callbacks(),
        _arguments=config.model_arguments,
        _loss_path=str(names.path),
        data_reader=names.data_reader(),
    )
    contract.check_loss()
    return contract


def custom_reader(config: JobConfig, origin: str) -> CustomReader:
    """Make the model's own reader, without anything else of its module.

    Raises
    ------
    ModelError
        If there is none, or its code raises.
    """
    names = _Names(config)
    make = names.data_reader()
    if make is None:
        raise ModelError(f"{names.title} defines no {config.custom_data_reader}(data_origin, **params)")
    return CustomReader(make, names.code, config, origin)


def code_of(config: JobConfig) -> UserCode:
    """Return the folder of the user's code.

    Raises
    ------
    ModelError
        If there is no such module.
    """
    path = locate_model(config).path
    return UserCode(_zoo_of(config, path) or path.parent)


class _Names:
    """Looks names up in the model's module, or where a dotted flag says."""

    def __init__(self, config: JobConfig) -> None:
        self._config = config
        self._location = locate_model(config)
        self.path = self._location.path
        zoo = _zoo_of(config, self._location.path)
        self.title = module_name(self._location.path, zoo)
        self.code = code_of(config)
        self._modules: dict[Path, ModuleType] = {}
        self._module = self._load(self._location.path)

    def model(self) -> tuple[str, Any]:
        symbol = self._location.symbol
        for name in (symbol,) if symbol else MODEL_NAMES:
            found = self.plain(name)
            if callable(found) or isinstance(found, keras.Model):
                return name, found
        raise self._missing(f"{symbol or MODEL_NAMES[0]}()")

    def feed(self) -> tuple[Callable[..., Any], FeedForm]:
        """Return the feed and its form, which its number of parameters tells."""
        names = FEED_NAMES if self._config.feed == FEED_NAMES[0] else (self._config.feed,)
        for name in names:
            found = self._lookup("feed", name)
            if callable(found):
                return _normal_feed(found)
        if self.data_reader() is not None:
            return _no_feed, "dataset"
        raise self._missing("feed(dataset, mode, metadata)")

    def callbacks(self) -> Callable[[], Any] | None:
        """Return `callbacks`; or one for the older `learning_rate_scheduler(model_version)`."""
        found = self._lookup("callbacks", getattr(self._config, "callbacks", "callbacks"))
        schedule = self.plain("learning_rate_scheduler")
        if found is None and callable(schedule):
            return lambda: [LearningRateScheduler(schedule)]
        return found if callable(found) else None

    def data_reader(self) -> Callable[..., Any] | None:
        """Return the function that makes the model's own reader."""
        found = self.flagged("custom_data_reader")
        return found if callable(found) else None

    def outputs_processor(self) -> Any:
        """Return the class that takes predictions; there must be one only if a flag names it."""
        flag = "prediction_outputs_processor"
        name = getattr(self._config, flag)
        found = self._lookup(flag, name)
        if found is None and name != _OUTPUTS_PROCESSOR:
            raise self._missing(name)
        return found

    def required(self, flag: str, signature: str) -> Any:
        found = self.flagged(flag)
        if found is None:
            value = getattr(self._config, flag)
            raise self._missing(signature if value == flag else value)
        return found

    def flagged(self, flag: str) -> Any:
        return self._lookup(flag, getattr(self._config, flag))

    def plain(self, name: str) -> Any:
        return getattr(self._module, name, None)

    def _lookup(self, flag: str, name: str) -> Any:
        if "." not in name:
            return self.plain(name)
        location: ModelLocation = locate_attribute(self._config, flag, self._location)
        found = getattr(self._load(location.path), str(location.symbol), None)
        if found is None:
            raise ModelError(f"{name.rpartition('.')[0]} defines no {location.symbol} (for --{flag}={name})")
        return found

    def _load(self, path: Path) -> ModuleType:
        path = path.resolve()
        if path not in self._modules:
            self._modules[path] = load_file(path, _zoo_of(self._config, path), self.code)
        return self._modules[path]

    def _missing(self, signature: str) -> ModelError:
        own = self._module.__name__
        defined = [
            name
            for name, value in vars(self._module).items()
            if not name.startswith("_")
            and (isinstance(value, keras.Model) or getattr(value, "__module__", None) == own)
        ]
        return ModelError(
            f"{self.title} defines no {signature}",
            f"it defines: {', '.join(defined)}" if defined else "it defines nothing",
        )


def _zoo_of(config: JobConfig, path: Path) -> Path | None:
    """The model zoo, if the file lies in it."""
    if config.model_file:
        return None
    zoo = model_zoo_directory(config).resolve()
    return zoo if path.resolve().is_relative_to(zoo) else None


def _normal_feed(function: Callable[..., Any]) -> tuple[Callable[..., Any], FeedForm]:
    count = positional_count(function)
    if count >= 3:
        return function, "dataset"
    if count == 2:
        return _without_metadata(function), "dataset"
    if count == 1:
        return function, "records"
    raise ModelError(
        f"{describe(function)}() takes no parameters",
        "write feed(dataset, mode, metadata), or input_fn(records)",
    )


def _no_feed(dataset: Any, mode: Any, metadata: Any) -> Any:
    raise ModelError(
        "the model defines no feed(), and its reader has no default_feed",
        "write feed(dataset, mode, metadata)",
    )


def _without_metadata(function: Callable[..., Any]) -> Callable[..., Any]:
    def feed(dataset: Any, mode: Any, metadata: Any) -> Any:
        return function(dataset, mode)

    feed.__wrapped__ = function  # type: ignore[attr-defined]  # messages name the user's own
    if takes_batches(function):
        batched(feed)
    return feed


def _all_columns(parts: list[Any]) -> Callable[[], list[Any]] | None:
    functions = [part for part in parts if callable(part)]
    if not functions:
        return None
    return lambda: [column for function in functions for column in function()]
