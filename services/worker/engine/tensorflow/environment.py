"""What is to be done before TensorFlow and Keras are imported, and around it."""

import gc
import logging
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from edlz.services.configuration.job_config import JobConfig

__all__ = ["importing_tensorflow"]


@contextmanager
def importing_tensorflow(config: JobConfig) -> Iterator[None]:
    """Prepare for the import that is made inside, and make it without searches for garbage.

    Half a million objects come to stay.  Looking through them again and again takes a quarter of the import's time, so
    none of them is looked at, then or later.
    """
    _prepare_environment(config)
    if "tensorflow" in sys.modules:
        yield
        return
    was_collecting = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        if was_collecting:
            gc.enable()


def _prepare_environment(config: JobConfig) -> None:
    """Choose kernels as the job says, and keep TensorFlow's remarks on its start from the terminal.

    What is imported already stays as it is.
    """
    for name in ("tensorflow", "absl"):
        logging.getLogger(name).setLevel(logging.WARNING)  # of an export they tell how they name things
    if "tensorflow" not in sys.modules:
        os.environ["TF_ENABLE_ONEDNN_OPTS"] = "1" if config.onednn else "0"
        os.environ["KERAS_BACKEND"] = "tensorflow"
        os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")  # errors come as exceptions as well
