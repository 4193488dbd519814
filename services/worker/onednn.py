"""Which kernels TensorFlow takes: it reads that from the environment when it is imported."""

import os
import sys

from edlz.services.config import JobConfig

__all__ = ["choose_kernels"]


def choose_kernels(config: JobConfig) -> None:
    """Let TensorFlow, unless it has been imported, have oneDNN's kernels or not, as the job says."""
    if "tensorflow" not in sys.modules:
        os.environ["TF_ENABLE_ONEDNN_OPTS"] = "1" if config.onednn else "0"
