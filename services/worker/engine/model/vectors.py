"""Between the flat vectors that travel and the variables of the model, without copying where it can be.

TensorFlow takes a 64-byte aligned buffer as it is, and a variable assigned a piece of it *is* that piece:
the buffer must not change while a step runs.  Steps assign before they read, so it may change between them.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from edlz.core_ext.memory import ALIGNMENT_BYTES, aligned_zeros
from edlz.services.errors import LocalProtocolError
from edlz.services.protocol.layout import Variable, VectorLayout
from edlz.services.worker.engine.tensorflow.backend import tf

__all__ = ["assign", "flatten", "initial_vector", "shared_array", "shared_tensor", "vector_layout"]

Vector = npt.NDArray[np.float32] | npt.NDArray[np.int64]


def vector_layout(variables: Sequence[Any]) -> VectorLayout:
    """Return the places of Keras variables, one after another, in a flat vector."""
    return VectorLayout(
        variables=tuple(Variable(path=v.path, shape=tuple(int(n) for n in v.shape)) for v in variables)
    )


def initial_vector(variables: Sequence[Any], layout: VectorLayout, dtype: type[Any]) -> npt.NDArray[Any]:
    """Return the variables' present values.

    Returns
    -------
    ndarray, shape (layout.size,), 64-byte aligned; padding is 0
    """
    vector = aligned_zeros(layout.size, dtype)
    for variable, place, offset in zip(variables, layout.variables, layout.offsets, strict=False):
        vector[offset : offset + place.size] = np.ravel(variable.numpy())
    return vector


def shared_tensor(vector: Vector) -> Any:
    """Return a tensor that is this array's memory; the array lives as long as the tensor.

    Parameters
    ----------
    vector : ndarray, one-dimensional, C-contiguous, writable, 64-byte aligned

    Raises
    ------
    LocalProtocolError
        If the array is not so: TensorFlow would kill the process over its alignment.
    """
    flags, past = vector.flags, vector.ctypes.data % ALIGNMENT_BYTES
    if past or not flags.c_contiguous or not flags.writeable:
        raise LocalProtocolError(
            f"a vector of {vector.size} {vector.dtype}, {past} bytes past a cache line, "
            f"contiguous={flags.c_contiguous}, writeable={flags.writeable}, cannot be shared with TensorFlow"
        )
    return tf.experimental.dlpack.from_dlpack(vector.__dlpack__())


def shared_array(tensor: Any) -> npt.NDArray[Any]:
    """Return a read-only array that is this eager tensor's memory; the tensor lives as long as the array."""
    array: npt.NDArray[Any] = np.from_dlpack(tensor)
    return array


def assign(variables: Sequence[Any], vector: Any, layout: VectorLayout) -> None:
    """Assign the pieces of a vector to variables; in a graph that is being traced.

    A piece is shared with the vector, not copied, if its variable's size is a multiple of 16.
    """
    for variable, place, offset in zip(variables, layout.variables, layout.offsets, strict=False):
        # Start and length at 64-byte bounds, or the slice is a copy.
        piece = tf.slice(vector, [offset], [place.padded_size])
        if place.padded_size != place.size:
            piece = piece[: place.size]
        variable.assign(tf.reshape(tf.cast(piece, variable.dtype), place.shape))


def flatten(tensors: Sequence[Any], layout: VectorLayout, dtype: Any) -> Any:
    """Return tensors as one padded vector; in a graph that is being traced.

    The result shares memory with none of them.
    """
    parts: list[Any] = []
    for tensor, place in zip(tensors, layout.variables, strict=True):
        parts.append(tf.cast(tf.reshape(tf.convert_to_tensor(tensor), [-1]), dtype))
        if place.padded_size != place.size:
            parts.append(tf.zeros([place.padded_size - place.size], dtype))
    if not parts:
        return tf.zeros([0], dtype)
    # Joining one tensor gives that tensor itself, which may be a variable's own buffer.
    return tf.concat(parts, 0) if len(parts) > 1 else tf.raw_ops.DeepCopy(x=parts[0])
