"""The files of a SavedModel's variables, written a block of rows at a time.

A block is a *slice* of one variable in TensorFlow's checkpoint format: loaders put the slices together.  So no
process ever holds a table in order to write it.
"""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from edlz.services.export.tensorflow_errors import as_os_error
from edlz.services.worker.engine.tensorflow.backend import tf

__all__ = ["Slice", "VariableFiles", "key_of"]

_COPY_BYTES = 32 << 20  # of variables that are in one file


class Slice(NamedTuple):
    """Rows [first, first + len(values)) of a variable of `row_count` rows."""

    key: str
    row_count: int
    first: int
    values: Any


def key_of(path: str) -> str:
    """Return the name in the files of the variable that is this attribute of the saved object: `tables/0/rows`."""
    return f"{path}/.ATTRIBUTES/VARIABLE_VALUE"


class VariableFiles:
    """The variables of a SavedModel, on their way to the disk.

    Parameters
    ----------
    saved_model : Path
        Saved with all variables; those that are written here were empty then.

    Raises
    ------
    OSError
        If the disk is full or fails, as of every method.
    """

    def __init__(self, saved_model: Path) -> None:
        self._folder = saved_model / "variables"
        self._scratch = saved_model / "parts"
        self._scratch.mkdir()
        self._prefixes: list[str] = []
        self._written: set[str] = set()

    def write(self, slices: Sequence[Slice]) -> None:
        """Write slices of variables to one file; every row of a variable must be in one slice in the end."""
        self._written.update(one.key for one in slices)
        self._save(
            [one.key for one in slices], [_place(one) for one in slices], [one.values for one in slices]
        )

    def finish(self) -> None:
        """Write all other variables too, and put the files into place."""
        before = str(self._folder / "variables")
        with as_os_error(self._folder):
            reader = tf.train.load_checkpoint(before)
            names: list[str] = []
            size = 0
            for name in sorted(reader.get_variable_to_shape_map()):
                if name not in self._written:
                    names.append(name)
                    size += _bytes_of(reader, name)
                if size > _COPY_BYTES:
                    self._copy(reader, names)
                    names, size = [], 0
            self._copy(reader, names)
            joined = self._scratch / "joined"
            joined.mkdir()
            tf.raw_ops.MergeV2Checkpoints(
                checkpoint_prefixes=self._prefixes,
                destination_prefix=str(joined / "variables"),
                delete_old_dirs=False,
            )
        for old in self._folder.iterdir():
            old.unlink()
        for new in joined.iterdir():
            os.replace(new, self._folder / new.name)
        joined.rmdir()
        self._scratch.rmdir()

    def _copy(self, reader: Any, names: Sequence[str]) -> None:
        if names:
            self._save(names, [""] * len(names), [reader.get_tensor(name) for name in names])

    def _save(self, names: Sequence[str], places: Sequence[str], tensors: Sequence[Any]) -> None:
        prefix = str(self._scratch / f"part-{len(self._prefixes):05d}")
        with as_os_error(self._scratch):
            tf.raw_ops.SaveV2(
                prefix=prefix, tensor_names=names, shape_and_slices=places, tensors=list(tensors)
            )
        self._prefixes.append(prefix)


def _place(one: Slice) -> str:
    """Return what TensorFlow calls a shape and slice: `11 4 3,5:0,4`."""
    count, *dims = one.values.shape
    whole = "".join(f":0,{dim}" for dim in dims)
    shape = " ".join(str(dim) for dim in (one.row_count, *dims))
    return f"{shape} {one.first},{count}{whole}"


def _bytes_of(reader: Any, name: str) -> int:
    shape = reader.get_variable_to_shape_map()[name]
    dtype = reader.get_variable_to_dtype_map()[name]
    size = 1
    for dim in shape:
        size *= int(dim)
    return size * int(dtype.size or 1)
