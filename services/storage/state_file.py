"""A partition's state as two files: the tensors as safetensors, and a JSON head beside them.

The first is a plain safetensors file that other tools open; it is written and read in blocks, so a table
is never twice in memory.  The head holds all the rest, with the checksums of the first; it is written last
and says what the tensors must be.  Nothing is handed out unverified: a damaged table shows itself while its
rows are read, and the error means that whatever was made of them must be thrown away.

    dense, state, counters, counts, slot.<name>     the vectors
    table.<t>.ids    int64 [n]                      ids of table t's rows, none twice
    table.<t>.rows   float32 [n, width]             values, then optimizer slots, as `__metadata__` says

Where the files lie and what they are called is the snapshots' and the checkpoints' affair.
"""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import msgspec
import numpy as np
import numpy.typing as npt

from edlz.services import strict_json
from edlz.services.storage.blocks import BlockReader, BlockWriter, DamagedFile, checksum
from edlz.services.storage.durable import write_file
from edlz.services.storage.file_rows import FileRows, OnDamage
from edlz.services.storage.state import State, TableRows
from edlz.services.storage.state_head import body_of, head_data, read_head, table_heads

__all__ = ["StateFile", "Written", "read_state", "verify_state", "write_state"]

CHUNK_BYTES = 4 << 20  # of rows that are copied at a time
HEADER_ALIGNMENT = 64  # bytes: where the tensors begin
_DTYPES: dict[str, np.dtype[Any]] = {"F32": np.dtype("<f4"), "I64": np.dtype("<i8"), "I32": np.dtype("<i4")}
_NAMES = {dtype: name for name, dtype in _DTYPES.items()}

Array = npt.NDArray[Any]


class Written(msgspec.Struct, frozen=True, kw_only=True):
    """Two files that were written: what identifies them."""

    body_bytes: int
    body_checksum: str
    head_bytes: int
    head_checksum: str


@runtime_checkable
class _Releasing(Protocol):
    """Rows that keep copies of what changes meanwhile, until they are told that it was read."""

    def release_below(self, stop: int) -> None: ...


class _Tensor(msgspec.Struct, frozen=True):
    """An entry of a safetensors header; the offsets count from its end."""

    dtype: str
    shape: tuple[int, ...]
    data_offsets: tuple[int, int]


# ---------------------------------------------------------------- writing


def write_state(state: State, body: Path, head: Path) -> Written:
    """Write a state to two files, durable under the names given, which the caller then makes good ones.

    Raises
    ------
    OSError
        If the disk is full or fails; the caller removes what there is of the files.
    """
    vectors = _vectors(state)
    with BlockWriter(body) as writer:
        writer.write(_header(state, vectors))
        for vector in vectors.values():
            writer.write(np.ascontiguousarray(vector))
        for rows in state.rows:
            writer.write(np.ascontiguousarray(rows.ids, _DTYPES["I64"]))
        for rows in state.rows:
            for chunk in _chunks(rows):
                writer.write(chunk)
        checksums = writer.finish()
    data = head_data(state, checksums)
    write_file(head, data)
    return Written(
        body_bytes=checksums.file_bytes,
        body_checksum=checksums.digest,
        head_bytes=len(data),
        head_checksum=checksum(data),
    )


def _vectors(state: State) -> dict[str, Array]:
    return {
        "counters": np.asarray(state.counters, _DTYPES["I64"]),
        "dense": np.asarray(state.dense, _DTYPES["F32"]),
        "state": np.asarray(state.state, _DTYPES["F32"]),
        **{f"slot.{name}": np.asarray(slot, _DTYPES["F32"]) for name, slot in state.slots.items()},
        "counts": np.asarray(state.counts, _DTYPES["I32"]),
    }


def _header(state: State, vectors: dict[str, Array]) -> bytes:
    """Return the head of a safetensors file: its length (8 bytes), then JSON, padded with blanks."""
    shapes = [(name, _NAMES[vector.dtype], vector.shape) for name, vector in vectors.items()]
    shapes += [(f"table.{t}.ids", "I64", (rows.row_count,)) for t, rows in enumerate(state.rows)]
    shapes += [(f"table.{t}.rows", "F32", (rows.row_count, rows.width)) for t, rows in enumerate(state.rows)]
    about = {"written_by": "edlz", "partition": f"{state.partition} of {state.partitions}"}
    for t, table in enumerate(table_heads(state)):
        about[f"table.{t}"] = f"{table.spec.path}: dim {table.spec.dim}, a row is {', '.join(table.columns)}"
    header: dict[str, object] = {"__metadata__": about}
    end = 0
    for name, dtype, shape in shapes:
        begin, end = end, end + int(np.prod(shape, dtype=np.int64)) * _DTYPES[dtype].itemsize
        header[name] = _Tensor(dtype, shape, (begin, end))
    text = msgspec.json.encode(header)
    text += b" " * (-(8 + len(text)) % HEADER_ALIGNMENT)
    return len(text).to_bytes(8, "little") + text


def _chunks(rows: TableRows) -> Iterator[Array]:
    count = max(1, CHUNK_BYTES // (4 * max(1, rows.width)))
    buffer = np.empty(min(count, rows.row_count) * rows.width, _DTYPES["F32"])
    for first in range(0, rows.row_count, count):
        chunk = buffer[: min(count, rows.row_count - first) * rows.width]
        rows.read(first, len(chunk) // rows.width, chunk)
        if isinstance(rows, _Releasing):
            rows.release_below(first + len(chunk) // rows.width)
        yield chunk


# ---------------------------------------------------------------- reading


def read_state(head: Path, on_damage: OnDamage | None = None) -> State:
    """Read a state: its vectors now, its tables as they are asked for (and verified: see FileRows).

    Parameters
    ----------
    head : Path
        The head; the tensors lie beside it.
    on_damage : callable, optional
        Told if the rows of a table turn out to be damaged later, before the error is raised.

    Raises
    ------
    DamagedFile
        If anything that was read is not what was written.
    """
    with StateFile(head, on_damage) as file:
        about = file.head
        return State(
            plan_hash=about.plan_hash,
            base_digest=about.base_digest,
            partition=about.partition,
            partitions=about.partitions,
            layout=about.layout,
            optimizer=about.optimizer,
            era=about.era,
            version=about.version,
            iterations=about.iterations,
            ledger=about.ledger,
            counts=file.vector("counts"),
            dense=file.vector("dense"),
            state=file.vector("state"),
            counters=file.vector("counters"),
            slots={name: file.vector(f"slot.{name}") for name in about.slots},
            tables=tuple(table.spec for table in about.tables),
            rows=tuple(file.rows(t) for t in range(len(about.tables))),
            losses=about.losses,
            folded=about.folded,
        )


def verify_state(head: Path, on_read: Callable[[int], None] = lambda _: None) -> None:
    """Read both files to their ends.

    Parameters
    ----------
    on_read : callable, optional
        Told of so many bytes more that are good.

    Raises
    ------
    DamagedFile
        If any byte of them is not what was written.
    """
    with StateFile(head) as file:
        file.verify(on_read)


class StateFile:
    """The two files of a state, open for reading.

    Parameters
    ----------
    head : Path
        The smaller one; the other is named by it.
    on_damage : callable, optional
        Told of damage that is found later, while rows are read.

    Raises
    ------
    DamagedFile
        If either is missing, has another length, or what it says of itself is damaged.
    """

    def __init__(self, head: Path, on_damage: OnDamage | None = None) -> None:
        self.head, self.head_data = read_head(head)
        self.path = body_of(head)
        self._on_damage = on_damage
        self._reader = BlockReader(self.path, self.head.body)
        try:
            self._tensors, self._begin = _directory(self._reader)
        except BaseException:
            self._reader.close()
            raise

    def __enter__(self) -> "StateFile":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Let go of the file; the rows that were given out stay readable."""
        self._reader.close()

    def vector(self, name: str, first: int = 0, count: int | None = None) -> Array:
        """Return `count` elements of a vector, from `first` on; all of them when not given."""
        offset, dtype, shape = self._place(name)
        out = np.empty(shape[0] - first if count is None else count, dtype)
        self._reader.read(offset + first * dtype.itemsize, out)
        return out

    def rows(self, table: int) -> FileRows:
        """Return the rows of a table, for the caller to close."""
        ids, _, (count,) = self._place(f"table.{table}.ids")
        rows, _, (_, width) = self._place(f"table.{table}.rows")
        return FileRows(self._reader.again(), ids, rows, count, width, self._on_damage)

    def verify(self, on_read: Callable[[int], None] = lambda _: None) -> None:
        """Read the tensors' file to its end; raises DamagedFile.  `on_read`: told of so many bytes more."""
        self._reader.verify(on_read)

    def _place(self, name: str) -> tuple[int, np.dtype[Any], tuple[int, ...]]:
        try:
            tensor = self._tensors[name]
        except KeyError:
            raise DamagedFile(self.path, f"it holds no {name}") from None
        return self._begin + tensor.data_offsets[0], _DTYPES[tensor.dtype], tensor.shape


def _directory(reader: BlockReader) -> tuple[dict[str, _Tensor], int]:
    """Return the tensors that a safetensors file says it holds, and where the first one begins."""
    if reader.file_bytes < 8:
        raise DamagedFile(reader.path, "size")
    length = bytearray(8)
    reader.read(0, memoryview(length))
    text = bytearray(min(int.from_bytes(length, "little"), reader.file_bytes - 8))
    reader.read(8, memoryview(text))
    try:
        entries = strict_json.parse(text, dict[str, msgspec.Raw])
        entries.pop("__metadata__", None)
        tensors = {name: strict_json.parse(entry, _Tensor) for name, entry in entries.items()}
    except msgspec.DecodeError as e:
        raise DamagedFile(reader.path, f"not safetensors: {e}") from e
    return tensors, 8 + len(text)
