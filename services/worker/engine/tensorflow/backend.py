"""TensorFlow and Keras, as the worker uses them: imported here, and nowhere before.

Importing this module takes seconds, so only what runs in the compute thread imports it, and modules
that import it are themselves imported there.  Settings are the process's: TensorFlow knows no others.
"""

import logging
import os
import warnings
from typing import Any

# Without this, ~/.keras/keras.json decides, and is written.
os.environ["KERAS_BACKEND"] = "tensorflow"
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")  # errors come as exceptions as well

import keras
import tensorflow as tf
from tensorflow.python.ops import script_ops

from edlz.services.valid_text import is_valid_text, valid_text
from edlz.services.worker.engine.user_code.user_code import message_of

__all__ = ["configure", "keras", "tf"]

logger = logging.getLogger(__name__)

_call = script_ops.FuncRegistry.__call__

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


def _call_readably(self: Any, token: Any, device: Any, args: Any) -> Any:
    try:
        return _call(self, token, device, args)
    except Exception as error:
        if _is_readable(error):
            raise
        error.args = tuple(valid_text(each) if isinstance(each, str) else each for each in error.args)
        if _is_readable(error):
            raise
        raise RuntimeError(f"{type(error).__name__}: {message_of(error)}") from error


def _is_readable(error: Exception) -> bool:
    try:
        return is_valid_text(str(error))
    except Exception:  # the text of the user's own error is their code, too
        return False


# Python that TensorFlow calls back, `tf.py_function` and `tf.numpy_function`, in a feed or a model.  TensorFlow takes the
# text of an error from there as UTF-8.  Where it cannot be that (it cites the name of a file whose bytes are something
# else), a `numpy_function`'s error loses its text, and a `py_function`'s ends the process: the text that was not to be
# had is read all the same.  So the texts of such errors are made valid before TensorFlow sees them, in this process
# from now on.
script_ops.FuncRegistry.__call__ = _call_readably
