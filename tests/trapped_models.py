"""Models with a trap: whoever reads one certain record of their data is killed, or held until the test lets it go on."""

import zlib
from pathlib import Path

from edlz.api.recordio import Reader
from tests.processes import MODELS

__all__ = ["write_holding_model", "write_lethal_model"]

TRAP = """

_plain_feed = feed


def _trap(record):
    import os, signal, time, zlib

    if zlib.crc32(record) == {mark}:
        {action}
    return record


def feed(dataset, mode, metadata):
    import tensorflow as tf

    checked = dataset.map(lambda record: tf.ensure_shape(tf.numpy_function(_trap, [record], tf.string), []))
    return _plain_feed(checked, mode, metadata)
"""


def write_lethal_model(path: Path, model: str, data: Path, record: int) -> Path:
    """Write a model whose readers of that record are killed, as by the kernel when there is no memory left.

    Parameters
    ----------
    path : Path
        Where it is written; returned.
    model : str
        Its name among the tests' models.
    data : Path
        A folder of RecordIO files.
    record : int
        A number in the first of them.
    """
    return _write(path, model, data, record, "os.kill(os.getpid(), signal.SIGKILL)")


def write_holding_model(path: Path, model: str, data: Path, record: int, gate: Path) -> Path:
    """Write a model whose readers of that record wait until the gate, a file, is there; see `write_lethal_model`."""
    return _write(path, model, data, record, f"while not os.path.exists({str(gate)!r}): time.sleep(0.02)")


def _write(path: Path, model: str, data: Path, record: int, action: str) -> Path:
    with Reader(sorted(data.iterdir())[0]) as reader:
        mark = zlib.crc32(reader.read(record, 1)[0])
    path.write_text((MODELS / f"{model}.py").read_text() + TRAP.format(mark=mark, action=action))
    return path
