"""The user's callbacks: which are run, what they are shown, and what they decide."""

import csv
import math
import re
from pathlib import Path

import pytest

from edlz.services.configuration.job_config import JobConfig
from edlz.services.errors import ModelError
from edlz.services.protocol.concluded_rounds import ConcludedRound, LossSum, ShownRound
from edlz.services.worker.engine.callbacks.calls import CallbackCalls
from edlz.services.worker.engine.callbacks.kinds import SortedCallbacks, check_monitors, sort_callbacks
from edlz.services.worker.engine.contract.model_module import ModelContract, load_contract
from edlz.services.worker.engine.user_code.user_code import UserCodeError

# Keras' own, of its variables and of a log file that only the end of training closes.
pytestmark = [
    pytest.mark.filterwarnings(f"ignore:{text}")
    for text in ("__array__ implementation", "unclosed file", "Exception ignored in")
]

MODEL = """
import keras
from keras.callbacks import *
from edlz.api.callbacks import LearningRateScheduler as ByVersion, MaxStepsStopping

def custom_model():
    return keras.Sequential([keras.Input((1,)), keras.layers.Dense(1)])

def loss(labels, predictions):
    return 0.0

def optimizer():
    return keras.optimizers.SGD(0.5)

def feed(dataset, mode, metadata):
    return dataset

SEEN = []

{classes}

def callbacks():
    return [{callbacks}]
"""


@pytest.fixture
def contract(tmp_path: Path):
    def load(callbacks: str, classes: str = "") -> ModelContract:
        path = tmp_path / "model.py"
        path.write_text(MODEL.format(callbacks=callbacks, classes=classes))
        return load_contract(JobConfig(model_file=str(path)))

    return load


@pytest.fixture
def calls(contract):
    """Makes the calls of what one worker has: another one begins anew."""

    def make(callbacks: str, classes: str = "", *, is_sync: bool = True) -> CallbackCalls:
        module = contract(callbacks, classes)

        def sorted_ones() -> SortedCallbacks:
            return check_monitors(sort_callbacks(module, is_sync=is_sync), ("loss", "accuracy"))

        about = (module.build(), module.make_optimizer(), 0.5, 9)
        return CallbackCalls(module.code, sorted_ones, *about, is_sync=is_sync)

    return make


def play(calls: CallbackCalls, losses: list[float], *, end: int = 99, anew=None) -> list[ConcludedRound]:
    """Conclude rounds with these losses, as versions 10, 20, …; `anew`: makes another worker for each."""
    rounds: list[ConcludedRound] = []
    for number, value in enumerate(losses):
        version = 10 * (number + 1)
        shown = ShownRound(version=version, loss=value, is_end=number == end, before=tuple(rounds))
        worker = calls if anew is None else anew()
        decision = worker.conclude(shown, {"loss": value, "accuracy": 1 - value})
        rounds.append(ConcludedRound(task=number, version=version, decision=decision, losses=LossSum()))
        if decision.stop:
            break
    return rounds


LOSSES = [0.9, 0.5, 0.6, 0.7, 0.55, 0.8]
BOTH = "ReduceLROnPlateau(patience=1, factor=0.5), EarlyStopping(patience=3, restore_best_weights=True)"


def test_decisions_of_keras_own_callbacks(calls) -> None:
    rounds = play(calls(BOTH), LOSSES)
    assert [round_.decision.learning_rate for round_ in rounds] == [None, None, 0.25, 0.125, 0.0625]
    assert [round_.decision.stop for round_ in rounds] == [False] * 4 + [True]
    assert [round_.decision.kept for round_ in rounds] == [(10,), *[(20,)] * 4]
    assert [round_.decision.result for round_ in rounds] == [-1] * 4 + [20]
    assert rounds[0].decision.logs == {"loss": 0.9, "val_loss": 0.9, "val_accuracy": pytest.approx(0.1)}


def test_another_worker_decides_the_same_each_time(calls) -> None:
    assert play(calls(BOTH), LOSSES, anew=lambda: calls(BOTH)) == play(calls(BOTH), LOSSES)


def test_a_worker_that_concludes_a_round_twice_decides_the_same(calls) -> None:
    worker = calls(BOTH)
    rounds = play(worker, LOSSES)
    shown = ShownRound(version=30, loss=0.6, before=tuple(rounds[:2]))
    assert worker.conclude(shown, {"loss": 0.6, "accuracy": 0.4}) == rounds[2].decision


def test_the_best_version_of_a_model_checkpoint_is_kept_but_is_not_the_result(calls) -> None:
    rounds = play(calls('ModelCheckpoint("best.keras", save_best_only=True)'), LOSSES, end=5)
    assert [round_.decision.kept for round_ in rounds] == [(10,), *[(20,)] * 5]
    assert rounds[-1].decision.result == -1


def test_a_callback_of_the_users_own_decides(calls) -> None:
    classes = """
class Mine(keras.callbacks.Callback):
    def on_epoch_end(self, epoch, logs=None):
        self.model.optimizer.learning_rate = 0.1 / (epoch + 1)
        if logs["val_loss"] < 0.6:
            self.model.stop_training = True
"""
    rounds = play(calls("Mine()", classes), LOSSES)
    assert [round_.decision.learning_rate for round_ in rounds] == [
        pytest.approx(0.1, rel=1e-6),
        pytest.approx(0.05, rel=1e-6),
    ]
    assert rounds[-1].decision.stop


def test_observers_are_called_once_for_each_round_and_not_for_those_before(
    calls, monkeypatch, tmp_path
) -> None:
    monkeypatch.chdir(tmp_path)
    worker = calls('CSVLogger("rounds.csv")')
    assert not worker.decides
    rounds = play(worker, LOSSES[:3])
    again = ShownRound(version=30, loss=0.6, before=tuple(rounds[:2]))
    worker.conclude(again, {"loss": 0.6})
    other = ShownRound(version=40, loss=0.7, is_end=True, before=tuple(rounds))
    calls('CSVLogger("rounds.csv")').conclude(other, {"loss": 0.7, "accuracy": 0.3})
    with Path("rounds.csv").open() as file:
        assert [row["epoch"] for row in csv.DictReader(file)] == ["0", "1", "2", "3"]


@pytest.mark.parametrize(
    ("hook", "message"),
    [
        ("setattr(self.model, 'stop_' + 'training', True)", "Sly stops training"),
        ("self.model.get_weights()", "Sly takes the model's weights"),
        ("self.model.trainable_weights", "Sly uses model.trainable_weights"),
        (
            "raise ValueError('no')",
            r"Sly.on_epoch_end\(\) raised ValueError: no \(.*model.py:\d+ in on_epoch_end",
        ),
    ],
)
def test_what_an_observer_cannot_do_is_said(calls, hook: str, message: str) -> None:
    classes = f"""
class Sly(keras.callbacks.Callback):
    def on_epoch_end(self, epoch, logs=None):
        {hook}
"""
    with pytest.raises(ModelError, match=message):
        play(calls("Sly()", classes), [0.5])


@pytest.mark.parametrize("keep", ["get_weights()", "save('x.keras')"])
def test_a_version_that_is_over_is_not_kept(calls, keep: str) -> None:
    classes = f"""
class Keeper(keras.callbacks.Callback):
    decides = True

    def on_epoch_end(self, epoch, logs=None):
        self.model.{keep}
"""
    with pytest.raises(ModelError, match=r"Keeper .* asynchronous mode"):
        play(calls("Keeper()", classes, is_sync=False), [0.5])


def test_a_learning_rate_that_is_none(calls) -> None:
    classes = """
class Odd(keras.callbacks.Callback):
    def on_epoch_end(self, epoch, logs=None):
        self.model.optimizer.learning_rate = float("nan")
"""
    with pytest.raises(ModelError, match="sets the learning rate to nan"):
        play(calls("Odd()", classes), [0.5])


def test_a_learning_rate_before_training_is_the_optimizers(calls) -> None:
    classes = """
class Early(keras.callbacks.Callback):
    def on_train_begin(self, logs=None):
        self.model.optimizer.learning_rate = 0.25
"""
    with pytest.raises(ModelError, match="sets the learning rate before training"):
        calls("Early()", classes)


def test_hooks_for_minibatches_are_called_with_versions(calls) -> None:
    classes = """
class Watching(keras.callbacks.Callback):
    def on_train_batch_begin(self, batch, logs=None):
        SEEN.append(("begin", batch))
    def on_train_batch_end(self, batch, logs=None):
        SEEN.append(("end", batch, logs["loss"]))
        if batch == 8:
            raise ValueError(SEEN)
"""
    worker = calls("Watching()", classes)
    assert worker.sees_batches
    worker.on_batch_begin(7)
    worker.on_batch_end(7, 0.5)
    with pytest.raises(UserCodeError, match=r"\('begin', 7\), \('end', 7, 0.5\), \('end', 8, 0.25\)"):
        worker.on_batch_end(8, 0.25)


def test_training_begins_once_for_an_observer_of_minibatches(calls, tmp_path: Path) -> None:
    classes = f"""
class Counting(keras.callbacks.Callback):
    def on_train_begin(self, logs=None):
        self.count = getattr(self, "count", 0) + 100
    def on_train_batch_end(self, batch, logs=None):
        self.count += 1
    def on_epoch_end(self, epoch, logs=None):
        open({str(tmp_path / "count")!r}, "w").write(str(self.count))
"""
    worker = calls("Counting()", classes)
    for version in range(3):
        worker.on_batch_begin(version)
        worker.on_batch_end(version, 0.5)
    play(worker, [0.5, 0.4])
    assert (tmp_path / "count").read_text() == "103"


def test_kinds(contract) -> None:
    found = sort_callbacks(
        contract(
            "EarlyStopping(), CSVLogger('x'), ByVersion(float), MaxStepsStopping(7), MaxStepsStopping(5), TerminateOnNaN(),"
            "TensorBoard(), BackupAndRestore('x'), History(), ProgbarLogger(), ModelCheckpoint('x.keras'),"
            "LambdaCallback(on_epoch_end=lambda epoch, logs: None), LambdaCallback(on_epoch_end=stop)",
            "def stop(epoch, logs):\n    SEEN.stop_training = True",
        ),
        is_sync=True,
    )
    assert [type(each).__name__ for each in found.deciders] == ["EarlyStopping", "LambdaCallback"]
    assert [type(each).__name__ for each in found.observers] == ["CSVLogger", "LambdaCallback"]
    assert (len(found.schedulers), found.max_steps, found.stops_on_nan) == (1, 5, True)


def test_callbacks_that_are_not_run_are_named_once(contract, caplog) -> None:
    module = contract("History(), ModelCheckpoint('x.keras'), TerminateOnNaN()")
    with caplog.at_level("INFO"):
        sort_callbacks(module, is_sync=True, is_told=True)
        sort_callbacks(module, is_sync=True)
    assert re.findall(r"callback=(\w+) is not run: \w+", caplog.text) == ["History", "ModelCheckpoint"]


@pytest.mark.parametrize(
    ("callbacks", "message"),
    [
        ("SwapEMAWeights()", "SwapEMAWeights, which edlz does not run"),
        ("ModelCheckpoint('x.keras', save_best_only=True, save_freq=9)", "save_freq=9"),
        ("ByVersion(float), ReduceLROnPlateau()", "keep one of them|ReduceLROnPlateau sets it"),
        ("EarlyStopping(monitor='val_acc')", '"val_acc", but the job has no metric of that name'),
        ("EarlyStopping(monitor='val_odd')", 'whether more of "odd" is better'),
    ],
)
def test_what_cannot_be_run_is_refused_by_name(contract, callbacks: str, message: str) -> None:
    with pytest.raises(ModelError, match=message):
        check_monitors(sort_callbacks(contract(callbacks), is_sync=True), ("accuracy", "odd"))


def test_a_monitor_without_validation_data(contract) -> None:
    assert check_monitors(sort_callbacks(contract("EarlyStopping(monitor='loss')"), is_sync=True), None)
    with pytest.raises(ModelError, match="no validation data"):
        check_monitors(sort_callbacks(contract("EarlyStopping()"), is_sync=True), None)


def test_no_version_is_kept_in_asynchronous_mode(contract) -> None:
    assert sort_callbacks(contract("EarlyStopping()"), is_sync=False).deciders
    with pytest.raises(ModelError, match="asynchronous"):
        sort_callbacks(contract("EarlyStopping(restore_best_weights=True)"), is_sync=False)


def test_losses_add_up_from_one_barrier_to_the_next() -> None:
    first = LossSum().plus(1.0, is_finite=True).plus(2.0, is_finite=True)
    second = first.plus(4.0, is_finite=True)
    bad = second.plus(math.nan, is_finite=False)
    assert (first.mean_since(LossSum()), second.mean_since(first), first.mean_since(first)) == (
        1.5,
        4.0,
        None,
    )
    assert math.isnan(bad.mean_since(second))
    assert bad.plus(3.0, is_finite=True).mean_since(bad) == 3.0
