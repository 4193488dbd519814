"""Calls the user's callbacks outside of `fit`, and finds out what they have decided.

Theory of operation.  Callbacks that decide are functions of what they have been shown, so whoever concludes a round
makes them anew, shows them all rounds before in order, as the master tells them, and then this one: any worker comes
to the same decision.  One that has concluded just the rounds before goes on with those it has.  Observers are called
for the round alone, once in a process.  Hooks come as `fit` calls them, where each round of evaluation is the end of an
epoch: `on_epoch_begin` of the next one follows at once, so a learning rate that it sets holds from there on.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any

from edlz.services.errors import ModelError
from edlz.services.protocol.concluded_rounds import Decision, ShownRound
from edlz.services.worker.engine.callbacks.kinds import SortedCallbacks
from edlz.services.worker.engine.callbacks.model_view import ModelView, OptimizerView
from edlz.services.worker.engine.tensorflow.backend import keras
from edlz.services.worker.engine.user_code.user_code import UserCode

__all__ = ["CallbackCalls"]

Logs = dict[str, float]


class CallbackCalls:
    """The callbacks of one job, in one worker.

    Parameters
    ----------
    code : UserCode
    make : callable () -> SortedCallbacks
        Makes them, new ones each time.
    model, optimizer : keras.Model, keras.optimizers.Optimizer
        The user's own.
    rate : float or None
        The learning rate before any decision; None where it follows from the version.
    epochs : int
        Of the job.
    is_sync : bool
        Whether it trains in synchronous mode.

    Raises
    ------
    ModelError
        If `callbacks()` raises, or has callbacks that cannot be run.
    """

    def __init__(
        self,
        code: UserCode,
        make: Callable[[], SortedCallbacks],
        model: Any,
        optimizer: Any,
        rate: float | None,
        epochs: int,
        *,
        is_sync: bool = True,
    ) -> None:
        self._code, self._make, self._model, self._optimizer = code, make, model, optimizer
        self._is_sync = is_sync
        self._rate, self._params = rate, {"epochs": epochs, "steps": None, "verbose": 0}
        self._own = make()  # the observers, and those of the deciders that want to see minibatches
        if self._own.deciders:  # what they do before training is found out at once
            self._new_cast(make().deciders, decides=True)
        self._cast: _Cast | None = None  # those that have decided last
        self._observers: _Cast | None = None
        self._observed = -1  # the last round that observers were called for
        self._batches = self._own.with_batches
        for callback in self._batches:
            self._introduce(callback, decides=False)
        # Those for whom training begins with the first minibatch; for others it does with their first round.
        self._begins: _Cast | None = _Cast(code, self._batches, (), OptimizerView(optimizer, rate or 0.0))

    @property
    def decides(self) -> bool:
        """Whether some of them may decide anything."""
        return bool(self._own.deciders)

    def conclude(self, shown: ShownRound, metrics: Logs) -> Decision:
        """Show a round to all callbacks; return what those that decide have decided.

        Raises
        ------
        ModelError
            If a callback raises, or does what it cannot do.
        """
        logs = {} if shown.loss is None else {"loss": shown.loss}
        logs |= {f"val_{name}": value for name, value in metrics.items()}
        decision, seen = self._decide(shown, logs)
        if self._own.observers and self._observed < len(shown.before):
            self._observed = len(shown.before)
            self._observe(shown, seen, is_over=shown.is_end or decision.stop)
        return decision

    def _decide(self, shown: ShownRound, logs: Logs) -> tuple[Decision, Logs]:
        """Return the decision, and the logs as the callbacks have left them."""
        if not self._own.deciders:
            return Decision(logs=logs), dict(logs)
        before_it = [(round_.version, round_.decision.logs) for round_ in shown.before]
        cast, self._cast = self._cast, None  # should one raise, they are made anew
        if cast is None or cast.shown != before_it:
            cast = self._new_cast(self._make().deciders, decides=True)
            for number, (version, past) in enumerate(before_it):
                cast.play(number, version, dict(past))
        before, seen = cast.optimizer.rate, dict(logs)
        stop = cast.play(len(shown.before), shown.version, seen, is_end=shown.is_end)
        rate = cast.optimizer.rate
        if rate != before and self._rate is None:
            raise ModelError(
                "a callback sets the learning rate, which follows from a schedule", "keep one of them"
            )
        if not (math.isfinite(rate) and rate >= 0):
            raise ModelError(f"a callback sets the learning rate to {rate}", "let it set a number from 0 on")
        decision = Decision(
            logs=logs,
            stop=stop,
            learning_rate=None if rate == before else rate,
            kept=cast.kept,
            result=cast.result,
        )
        cast.shown = [*before_it, (shown.version, logs)]
        self._cast = cast
        return decision, seen

    def _observe(self, shown: ShownRound, logs: Logs, *, is_over: bool) -> None:
        self._observing(len(shown.before)).play(len(shown.before), shown.version, logs, is_end=is_over)

    def _observing(self, number: int) -> "_Cast":
        """Return the observers, for whom training begins with this round if it has not."""
        if self._observers is None:
            for callback in self._own.observers:
                if isinstance(callback, keras.callbacks.CSVLogger):
                    callback.append = callback.append or number > 0  # another worker began it
            fresh = [callback for callback in self._own.observers if callback not in self._batches]
            self._observers = self._new_cast(self._own.observers, decides=False, beginning=fresh)
            self._observers.begin_epoch(number)
        return self._observers

    # -- minibatches

    @property
    def sees_batches(self) -> bool:
        """Whether some callback wants to be called at each minibatch."""
        return bool(self._batches)

    def on_batch_begin(self, version: int) -> None:
        """A minibatch of this worker is about to be computed on the parameters of a version."""
        if self._begins is not None:
            self._begins.begin()
            self._begins = None
        for callback in self._batches:
            with self._code.running(f"{type(callback).__name__}.on_train_batch_begin()"):
                callback.on_train_batch_begin(version, {})

    def on_batch_end(self, version: int, loss: float) -> None:
        """It has been."""
        for callback in self._batches:
            with self._code.running(f"{type(callback).__name__}.on_train_batch_end()"):
                callback.on_train_batch_end(version, {"loss": loss})

    # -- casts

    def _introduce(
        self, callback: Any, *, decides: bool, optimizer: OptimizerView | None = None
    ) -> ModelView:
        optimizer = optimizer or OptimizerView(self._optimizer, self._rate or 0.0)
        name = type(callback).__name__
        view = ModelView(self._model, optimizer, name, decides=decides, is_sync=self._is_sync)
        callback.set_params(dict(self._params))
        callback.set_model(view)
        return view

    def _new_cast(
        self, callbacks: Sequence[Any], *, decides: bool, beginning: Sequence[Any] | None = None
    ) -> "_Cast":
        """Let training begin, for those of `beginning` if not for all."""
        optimizer = OptimizerView(self._optimizer, self._rate or 0.0)
        views = [self._introduce(callback, decides=decides, optimizer=optimizer) for callback in callbacks]
        cast = _Cast(self._code, callbacks, views, optimizer)
        cast.begin(beginning)
        if decides:
            cast.begin_epoch(0)
        if optimizer.rate != OptimizerView(None, self._rate or 0.0).rate:
            raise ModelError(
                "a callback sets the learning rate before training",
                "give the optimizer that rate; callbacks set it at evaluations",
            )
        return cast


class _Cast:
    """Callbacks that are shown the same rounds, and share the optimizer that they see.

    Attributes
    ----------
    shown : list of (int, dict)
        Version and logs of those rounds, as far as somebody keeps count.
    """

    def __init__(
        self, code: UserCode, callbacks: Sequence[Any], views: Sequence[ModelView], optimizer: OptimizerView
    ) -> None:
        self._code, self._callbacks, self._views = code, list(callbacks), list(views)
        self.optimizer = optimizer
        self.shown: list[tuple[int, Logs]] = []

    @property
    def kept(self) -> tuple[int, ...]:
        return tuple(sorted({view.kept for view in self._views if view.kept is not None}))

    @property
    def result(self) -> int:
        return next((view.result for view in self._views if view.result is not None), -1)

    def begin(self, those: Sequence[Any] | None = None) -> None:
        """Let training begin, for some of them or for all."""
        for callback in self._callbacks if those is None else those:
            with self._code.running(f"{type(callback).__name__}.on_train_begin()"):
                callback.on_train_begin({})

    def begin_epoch(self, number: int) -> None:
        self._call("on_epoch_begin", number, {})

    def play(self, number: int, version: int, logs: Logs, *, is_end: bool = False) -> bool:
        """Show them a round; return whether one of them stops the job."""
        for view in self._views:
            view.version = version
        tested = {name.removeprefix("val_"): value for name, value in logs.items() if name[:4] == "val_"}
        self._call("on_test_begin", {})
        self._call("on_test_end", tested)
        self._call("on_epoch_end", number, logs)
        stop = any(view.stop_training for view in self._views)
        if stop or is_end:
            self._call("on_train_end", logs)
        else:
            self.begin_epoch(number + 1)
        return stop

    def _call(self, hook: str, *arguments: Any) -> None:
        for callback in self._callbacks:
            with self._code.running(f"{type(callback).__name__}.{hook}()"):
                getattr(callback, hook)(*arguments)
