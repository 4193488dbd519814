"""TensorFlow and Keras, as the worker uses them: imported here, and nowhere before.

Importing this module takes seconds, so only what runs in the compute thread imports it, and modules
that import it are themselves imported there.  Settings are the process's: TensorFlow knows no others.
"""

import logging
import os
import warnings

# Without this, ~/.keras/keras.json decides, and is written.
os.environ["KERAS_BACKEND"] = "tensorflow"
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")  # errors come as exceptions as well

import keras
import tensorflow as tf

from edlz.services.worker.engine.tensorflow.python_ops import make_errors_readable

__all__ = ["configure", "keras", "tf"]

logger = logging.getLogger(__name__)

make_errors_readable()

# TensorFlow's remark on a feed whose random ops take the global seed: they are meant to.
warnings.filterwarnings(
    "ignore", message="Seed .* from outer graph might be getting used", category=UserWarning
)


def configure(threads: int) -> None:
    """Fix what the bits of a step depend on: the number of threads, and deterministic kernels.

    Must come before TensorFlow's first operation.  Later, the number of threads stays what it is, and a
    warning says so: this process's gradients may then differ from other workers' in their last bits.

    Parameters
    ----------
    threads : int
        For the kernels, and for operations side by side.
    """
    threading = tf.config.threading
    try:
        threading.set_intra_op_parallelism_threads(threads)
        threading.set_inter_op_parallelism_threads(threads)
    except RuntimeError:
        has = threading.get_intra_op_parallelism_threads()
        if has != threads:
            logger.warning("TensorFlow runs already, with threads=%d (0: all cores) not %d", has, threads)
    tf.config.experimental.enable_op_determinism()
