"""Python that TensorFlow calls back: `tf.py_function` and `tf.numpy_function`, in a feed or a model.

TensorFlow takes the text of an error from there as UTF-8.  Where it cannot be that (it cites the name of a file whose
bytes are something else), a `numpy_function`'s error loses its text, and a `py_function`'s ends the process: the text
that was not to be had is read all the same.  So the texts of such errors are made valid before TensorFlow sees them.
"""

from typing import Any

from tensorflow.python.ops import script_ops

from edlz.services.valid_text import is_valid_text, valid_text
from edlz.services.worker.engine.user_code.user_code import message_of

__all__ = ["make_errors_readable"]

_call = script_ops.FuncRegistry.__call__


def make_errors_readable() -> None:
    """Let errors of Python code come through TensorFlow whatever their text is, in this process from now on."""
    script_ops.FuncRegistry.__call__ = _call_readably


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
