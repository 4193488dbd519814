"""Data that several tests read: made once, from what ships with edlz."""

import gc
import os
import signal
import sys
from pathlib import Path

import hypothesis
import pytest

from edlz.model_zoo import datasets

# Run in the background of a shell, the tests would hand SIGINT on as ignored, and no job could be stopped by it;
# under nohup SIGHUP, which the tests themselves go on to outlive.
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
if signal.getsignal(signal.SIGHUP) == signal.SIG_IGN:
    signal.signal(signal.SIGHUP, lambda number, frame: None)


# Without byte code each service that a test starts would compile TensorFlow anew, 5 s of a processor's time; who
# wants none beside the sources gets it in a folder of its own.
if os.environ.pop("PYTHONDONTWRITEBYTECODE", ""):
    sys.dont_write_bytecode = False
    sys.pycache_prefix = os.environ["PYTHONPYCACHEPREFIX"] = str(
        Path(__file__).parents[1] / "build" / "bytecode"
    )


# What is collected, and what of TensorFlow is imported for that, comes to stay: to look for garbage in it, then and later,
# is in vain.
gc.disable()


# Files that take long come first, so that in the end none of two processes waits for a long one of the other.
LONG = ("cluster", "k8s", "unit/engine", "unit/export", "unit/zoo", "unit/simulated")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    def rank(item: pytest.Item) -> int:
        folder = item.path.parent.relative_to(Path(__file__).parent)
        return next((rank for rank, long in enumerate(LONG) if folder.is_relative_to(long)), len(LONG))

    items.sort(key=rank)


def pytest_collection_finish() -> None:
    gc.collect()
    gc.freeze()
    gc.enable()


# How long one example takes says more of the machine than of the code.
hypothesis.settings.register_profile("unhurried", deadline=None)
hypothesis.settings.load_profile("unhurried")


@pytest.fixture(scope="session")
def mnist_sample(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The 6,000 + 1,000 digits that ship with edlz, as RecordIO."""
    return datasets.built_in_sample(tmp_path_factory.mktemp("data") / "sample")


@pytest.fixture(scope="session")
def small_mnist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The first 1,200 + 200 of them, in several files."""
    folder = tmp_path_factory.mktemp("data") / "small"
    source = Path(datasets.__file__).parent / "data"
    datasets.convert("mnist", source, folder, records_per_shard=500, fraction=0.2)
    return folder
