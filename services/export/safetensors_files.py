"""The values of a model as safetensors: for whoever has no TensorFlow, or wants numbers alone.

    model-00001-of-00003.safetensors        at most 2 GB each
    model.safetensors.index.json            which tensor is in which file

Dense variables have their Keras paths.  A table of any ids is two tensors, `<path>.ids` (n,) and `<path>.rows` (n, dim), in the
order of the ids; one that does not fit a file is in several pieces, `<path>.rows.00001-of-00002`.  Slots are left out.
"""

import os
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from edlz.services.errors import ConfigError
from edlz.services.export.loaded_model import LoadedModel
from edlz.services.export.tables.table_content import TableContent
from edlz.services.storage.durable import write_all
from edlz.services.worker.engine.model.keras_model import BuiltModel

__all__ = ["refuse_unfit_variables", "write_safetensors"]

FILE_BYTES = 2 * 10**9
_ALIGNMENT = 64
_DTYPES = {
    "float64": "F64",
    "float32": "F32",
    "float16": "F16",
    "bfloat16": "BF16",
    "bool": "BOOL",
    **{f"int{bits}": f"I{bits}" for bits in (8, 16, 32, 64)},
    **{f"uint{bits}": f"U{bits}" for bits in (8, 16, 32, 64)},
}

Array = npt.NDArray[Any]


class _Tensor(msgspec.Struct):
    name: str
    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    file: int = 0
    begin: int = 0

    @property
    def size_bytes(self) -> int:
        return int(np.prod(self.shape, dtype=np.int64)) * self.dtype.itemsize


class _Pieces:
    """A tensor of rows, in as many pieces as files need.

    Parameters
    ----------
    shape : of the whole
    """

    def __init__(self, name: str, dtype: npt.DTypeLike, shape: tuple[int, ...], file_bytes: int) -> None:
        kind = np.dtype(dtype)
        self.row_bytes = int(np.prod(shape[1:], dtype=np.int64)) * kind.itemsize
        self._rows = max(1, file_bytes // max(1, self.row_bytes))
        count = max(1, -(-shape[0] // self._rows))
        endings = [""] if count == 1 else [f".{i + 1:05d}-of-{count:05d}" for i in range(count)]
        self.tensors = [
            _Tensor(f"{name}{ending}", kind, (min(self._rows, shape[0] - place * self._rows), *shape[1:]))
            for place, ending in enumerate(endings)
        ]

    def parts(self, first: int, values: Array) -> Iterator[tuple[_Tensor, int, Array]]:
        """Return where rows from `first` on go: tensor, bytes from its beginning, and which rows."""
        while len(values):
            piece, skipped = divmod(first, self._rows)
            part = values[: self._rows - skipped]
            yield self.tensors[piece], skipped * self.row_bytes, part
            first, values = first + len(part), values[len(part) :]


def write_safetensors(model: LoadedModel, folder: Path, scratch: Path, file_bytes: int = FILE_BYTES) -> None:
    """Write the files.

    Parameters
    ----------
    folder : Path
        Exists.
    scratch : Path
        A folder with room for the largest table.

    Raises
    ------
    ConfigError
        If the format has no such variables.
    DataError
        If the state's files are damaged.
    OSError
        If the disk is full or fails.
    """
    refuse_unfit_variables(model.job.built)
    names = _distinct([variable.path for variable in _variables(model)])
    dense = [_dense(name, v, file_bytes) for name, v in zip(names, _variables(model), strict=True)]
    tables = [_of_table(model, content, file_bytes) for content in model.tables]
    tensors = [tensor for pieces in (*dense, *(p for ps in tables for p in ps)) for tensor in pieces.tensors]
    files = _place(tensors, file_bytes)
    with ExitStack() as stack:
        writers = [
            stack.enter_context(_File(folder / _name(number, len(files)), inside))
            for number, inside in enumerate(files)
        ]

        def write(pieces: _Pieces, first: int, values: Array) -> None:
            for tensor, offset, part in pieces.parts(first, values):
                writers[tensor.file].write(tensor.begin + offset, part)

        for pieces, variable in zip(dense, _variables(model), strict=True):
            write(pieces, 0, np.atleast_1d(variable.numpy()))
        for content, of_table in zip(model.tables, tables, strict=True):
            _write_table(model, content, of_table, scratch, write)
    _write_index(folder, tensors, len(files))


def _write_index(folder: Path, tensors: Sequence[_Tensor], count: int) -> None:
    """Write which of so many files has which tensor."""
    index = {
        "metadata": {"total_size": sum(tensor.size_bytes for tensor in tensors)},
        "weight_map": {tensor.name: _name(tensor.file, count) for tensor in tensors},
    }
    (folder / "model.safetensors.index.json").write_bytes(msgspec.json.format(msgspec.json.encode(index)))


def _write_table(
    model: LoadedModel, content: TableContent, pieces: Sequence[_Pieces], scratch: Path, write: Any
) -> None:
    if model.is_plain(content):
        for first, values in content.whole(model.size_of(content), scratch):
            write(pieces[0], first, values)
        return
    first = 0
    for ids, values in content.rows(scratch):
        write(pieces[0], first, ids)
        write(pieces[1], first, values)
        first += len(ids)


def refuse_unfit_variables(built: BuiltModel) -> None:
    """Check that the format has all variables of a model; it need not be trained yet.

    Raises
    ------
    ConfigError
        If it has not.
    """
    for variable in _variables_of(built):
        kind = np.dtype(variable.value.dtype.as_numpy_dtype).name
        if kind not in _DTYPES:
            raise ConfigError(
                f"safetensors cannot have this model: variable {variable.path} is {kind}",
                "a SavedModel takes any model: leave safetensors out of --output_format",
            )


def _variables(model: LoadedModel) -> list[Any]:
    return _variables_of(model.job.built)


def _variables_of(built: BuiltModel) -> list[Any]:
    """Return the model's variables but for the states of its random seeds."""
    seeds = {id(seed) for seed in built.seeds}
    return [variable for variable in built.model.variables if id(variable) not in seeds]


def _dense(name: str, variable: Any, file_bytes: int) -> _Pieces:
    values = np.atleast_1d(variable.numpy())
    return _Pieces(name, values.dtype, values.shape, file_bytes)


def _of_table(model: LoadedModel, content: TableContent, file_bytes: int) -> list[_Pieces]:
    if model.is_plain(content):
        return [_Pieces(content.path, "<f4", (model.size_of(content), content.dim), file_bytes)]
    return [
        _Pieces(f"{content.path}.ids", "<i8", (content.row_count,), file_bytes),
        _Pieces(f"{content.path}.rows", "<f4", (content.row_count, content.dim), file_bytes),
    ]


def _place(tensors: Sequence[_Tensor], file_bytes: int) -> list[list[_Tensor]]:
    """Give each tensor its file and its place there."""
    files: list[list[_Tensor]] = [[]]
    for tensor in tensors:
        end = files[-1][-1].begin + files[-1][-1].size_bytes if files[-1] else 0
        if files[-1] and end + tensor.size_bytes > file_bytes:
            files.append([])
            end = 0
        tensor.file, tensor.begin = len(files) - 1, end
        files[-1].append(tensor)
    return files


class _File:
    """One file, of known length; its tensors are written in any order."""

    def __init__(self, path: Path, tensors: Sequence[_Tensor]) -> None:
        self._path = path
        header: dict[str, object] = {"__metadata__": {"written_by": "edlz"}}
        for tensor in tensors:
            header[tensor.name] = {
                "dtype": _DTYPES[tensor.dtype.name],
                "shape": tensor.shape,
                "data_offsets": (tensor.begin, tensor.begin + tensor.size_bytes),
            }
        text = msgspec.json.encode(header)
        text += b" " * (-(8 + len(text)) % _ALIGNMENT)
        self._head = len(text).to_bytes(8, "little") + text
        self._descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o666)
        write_all(self._descriptor, memoryview(self._head), path)

    def __enter__(self) -> "_File":
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._descriptor)

    def write(self, offset: int, values: Array) -> None:
        os.lseek(self._descriptor, len(self._head) + offset, os.SEEK_SET)
        data = memoryview(np.ascontiguousarray(values))  # type: ignore[arg-type]
        write_all(self._descriptor, data.cast("B") if data.nbytes else memoryview(b""), self._path)


def _name(number: int, count: int) -> str:
    return f"model-{number + 1:05d}-of-{count:05d}.safetensors"


def _distinct(names: Sequence[str]) -> list[str]:
    """Return the names, those that come again with a number: paths of Keras may be equal."""
    found: list[str] = []
    for name in names:
        free, number = name, 1
        while free in found:
            free, number = f"{name}.{number}", number + 1
        found.append(free)
    return found
