"""What TensorFlow and Keras read from the environment when they are imported: to be set before."""

import logging
import os
import sys

from edlz.services.configuration.job_config import JobConfig

__all__ = ["prepare_environment"]


def prepare_environment(config: JobConfig) -> None:
    """Choose kernels as the job says, and keep TensorFlow's remarks on its start from the terminal.

    What is imported already stays as it is.
    """
    for name in ("tensorflow", "absl"):
        logging.getLogger(name).setLevel(logging.WARNING)  # of an export they tell how they name things
    if "tensorflow" not in sys.modules:
        os.environ["TF_ENABLE_ONEDNN_OPTS"] = "1" if config.onednn else "0"
        os.environ["KERAS_BACKEND"] = "tensorflow"
        os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")  # errors come as exceptions as well
