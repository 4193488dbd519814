"""Converts image data sets of the MNIST family to RecordIO.

    python -m edlz.model_zoo.datasets mnist --source DIR --output DIR

Each record is a `tf.train.Example` with `image`, 784 floats from 0 to 255, and `label`, an integer from
0 to 9; they lie in OUTPUT/train/data-00000, ... and OUTPUT/test/data-00000, ...  What is there is never
overwritten.  The IDX format is `idx`'s business.
"""

import argparse
import errno
import filecmp
import math
import os
import secrets
import shutil
import socket
import sys
from collections.abc import Iterator, Sequence
from contextlib import redirect_stdout
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from edlz.api.example import encode_example
from edlz.api.recordio import Reader, RecordIOError, Writer, count_records
from edlz.model_zoo.idx import DatasetError, Images, Splits, read_idx_folder, read_npz

__all__ = ["DATASETS", "Converted", "DatasetError", "built_in_sample", "convert", "main"]

DATASETS = ("mnist", "fashion_mnist")
SAMPLE_FOLDER = Path(__file__).parent / "data"
SAMPLE_RECORDS = {"train": 6_000, "test": 1_000}
_DOWNLOAD_TIMEOUT_S = 30.0  # without a byte
_COMPARED_RECORDS = 512  # at a time, when an output that is already there is checked


@dataclass(frozen=True, kw_only=True)
class Converted:
    """What a conversion gave.

    Attributes
    ----------
    train_records, test_records : int
    paths : tuple of Path
        The shards, those of the training data first.
    origin : str
        Where the images came from, for people to read.
    was_there : bool
        The same records were there already; nothing was written.
    """

    train_records: int
    test_records: int
    paths: tuple[Path, ...]
    origin: str
    was_there: bool


def convert(
    name: str,
    source: str | os.PathLike[str] | None,
    output: str | os.PathLike[str],
    *,
    records_per_shard: int = 4096,
    fraction: float = 1.0,
) -> Converted:
    """Write a data set as RecordIO; a second run over the same output finds it done.

    Parameters
    ----------
    name : {"mnist", "fashion_mnist"}
    source : path or None
        Folder of the four IDX files.  None: Keras' copy in the home directory; else a download through
        Keras; else, for mnist, the built-in sample.  `origin` of the result tells which.
    output : path
        Gets the folders `train` and `test`, each of which appears when it is whole.
    records_per_shard : int, > 0
    fraction : float, in (0, 1]
        How much of each split to take, from its beginning.

    Raises
    ------
    DatasetError
        If the source is not as expected, or the output has other content or cannot be written.
    """
    if name not in DATASETS:
        raise DatasetError(f'no data set "{name}"', f"use one of {', '.join(DATASETS)}")
    if records_per_shard < 1:
        raise DatasetError(f"records_per_shard={records_per_shard} is not positive", "e.g. 4096")
    if not 0 < fraction <= 1:
        raise DatasetError(f"fraction={fraction} is not above 0 and at most 1", "e.g. 0.1 for a tenth")
    output = Path(output)
    splits, origin = _load(name, Path(source) if source is not None else None)
    parts = {"train": _first(splits.train, fraction), "test": _first(splits.test, fraction)}
    was_there = {part: _is_there(output / part, parts[part], records_per_shard) for part in parts}
    if not all(was_there.values()):
        missing = {part: parts[part] for part in parts if not was_there[part]}
        try:
            _write(missing, output, records_per_shard)
        except OSError as error:
            raise DatasetError(
                f"cannot write {error.filename or output}: {error.strerror}", "choose another --output"
            ) from error
    return Converted(
        train_records=len(parts["train"].labels),
        test_records=len(parts["test"].labels),
        paths=tuple(
            path
            for part, images in parts.items()
            for path in _shards(output / part, images, records_per_shard)
        ),
        origin=origin,
        was_there=all(was_there.values()),
    )


def built_in_sample(output: str | os.PathLike[str]) -> Path:
    """Convert the sample of MNIST that edlz carries (6,000 and 1,000 digits), unless it is there.

    Any number of processes may do so at once.

    Returns
    -------
    Path
        `output`; it holds `train` and `test`.

    Raises
    ------
    DatasetError
        If the output has other content or cannot be written.
    """
    output = Path(output)
    if not all(_record_count(output / part) == count for part, count in SAMPLE_RECORDS.items()):
        convert("mnist", SAMPLE_FOLDER, output)
    return output


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; return its exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m edlz.model_zoo.datasets", description="Convert a data set of images to RecordIO."
    )
    parser.add_argument("name", choices=DATASETS, help="the data set")
    parser.add_argument("--source", help="folder of its IDX files (default: Keras' copy, or a download)")
    parser.add_argument("--output", required=True, help="folder to write train/ and test/ to")
    parser.add_argument("--records_per_shard", type=int, default=4096, help="records a file (default: 4096)")
    parser.add_argument("--fraction", type=float, default=1.0, help="part to take, 0 to 1 (default: 1)")
    options = parser.parse_args(arguments)
    try:
        done = convert(
            options.name,
            options.source,
            options.output,
            records_per_shard=options.records_per_shard,
            fraction=options.fraction,
        )
    except DatasetError as error:
        print(f"error: {error.message}\nhelp: {error.help}", file=sys.stderr)
        return 1
    print(
        f"{options.name}: {done.train_records:,} training and {done.test_records:,} test records "
        f"{'are already' if done.was_there else 'written'} in {options.output} (from {done.origin})"
    )
    return 0


# --- where images come from ---


def _load(name: str, source: Path | None) -> tuple[Splits, str]:
    if source is not None:
        return read_idx_folder(source), str(source)
    cache = Path(os.environ.get("KERAS_HOME", "~/.keras")).expanduser() / "datasets"
    if name == "mnist" and (cache / "mnist.npz").is_file():
        return read_npz(cache / "mnist.npz"), f"Keras' copy {cache / 'mnist.npz'}"
    if name == "fashion_mnist" and (cache / "fashion-mnist").is_dir():
        return read_idx_folder(cache / "fashion-mnist"), f"Keras' copy {cache / 'fashion-mnist'}"
    try:
        return _download(name), "a download through Keras"
    except Exception as error:
        # Keras raises plain Exception where the network fails; whatever the reason, it is passed on.
        if name == "mnist":
            return read_idx_folder(SAMPLE_FOLDER), (
                "the built-in sample of 7,000 digits, as the whole set could not be downloaded: "
                f"{error}; with its IDX files at hand: --source"
            )
        raise DatasetError(
            f"{name} could not be downloaded: {error}", "give the folder of its IDX files as --source"
        ) from error


def _download(name: str) -> Splits:
    os.environ.setdefault("KERAS_BACKEND", "tensorflow")
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    from keras import datasets

    timeout_s = socket.getdefaulttimeout()
    socket.setdefaulttimeout(_DOWNLOAD_TIMEOUT_S)  # Keras sets none, and would wait for ever
    try:
        with redirect_stdout(sys.stderr):  # Keras' progress bar
            (x_train, y_train), (x_test, y_test) = getattr(datasets, name).load_data()
    finally:
        socket.setdefaulttimeout(timeout_s)
    return Splits(Images(x_train, y_train), Images(x_test, y_test))


def _first(split: Images, fraction: float) -> Images:
    count = max(1, math.floor(len(split.labels) * fraction))
    return Images(split.images[:count], split.labels[:count])


# --- records ---


def _shards(folder: Path, split: Images, records_per_shard: int) -> list[Path]:
    count = -(-len(split.labels) // records_per_shard)
    return [folder / f"data-{i:05d}" for i in range(count)]


def _records(split: Images, first: int, stop: int) -> Iterator[bytes]:
    pixels = split.images[first:stop].reshape(-1, 28 * 28).astype(np.float32)
    for image, label in zip(pixels, split.labels[first:stop].tolist(), strict=True):
        yield encode_example({"image": image, "label": label})


def _record_count(folder: Path) -> int | None:
    """Return how many records a folder has by its chunk headers, or None if a file is damaged."""
    try:
        return sum(count_records(path) for path in folder.glob("data-*"))
    except RecordIOError:
        return None


def _is_there(folder: Path, split: Images, records_per_shard: int) -> bool:
    """Return whether a folder has exactly these records; False if it is empty or missing.

    Raises
    ------
    DatasetError
        If it has something else.
    """
    if not folder.is_dir():
        if folder.exists():
            raise DatasetError(f"{folder} is not a folder", "remove it, or choose another --output")
        return False
    found = sorted(folder.iterdir())
    if not found:
        return False
    expected = _shards(folder, split, records_per_shard)
    # Names first: comparing records is for the case that everything looks right.
    if found != expected or not all(
        _has_records(path, split, i * records_per_shard, records_per_shard) for i, path in enumerate(expected)
    ):
        raise DatasetError(
            f"{folder} already has other content ({len(found)} files, first {found[0].name})",
            "remove it, or choose another --output",
        )
    return True


def _has_records(path: Path, split: Images, first: int, count: int) -> bool:
    stop = min(first + count, len(split.labels))
    try:
        with Reader(path) as reader:
            if len(reader) != stop - first:
                return False
            for lo in range(first, stop, _COMPARED_RECORDS):
                hi = min(lo + _COMPARED_RECORDS, stop)
                if reader.read(lo - first, hi - lo) != list(_records(split, lo, hi)):
                    return False
    except RecordIOError:
        return False
    return True


def _write(parts: dict[str, Images], output: Path, records_per_shard: int) -> None:
    """Write splits into a folder beside their places, then move them there whole."""
    output.mkdir(parents=True, exist_ok=True)
    staging = output / f".converting-{os.getpid()}-{secrets.token_hex(4)}"
    staging.mkdir()
    try:
        for part, split in parts.items():
            (staging / part).mkdir()
            for i, path in enumerate(_shards(staging / part, split, records_per_shard)):
                with Writer(path) as writer:
                    first = i * records_per_shard
                    for record in _records(split, first, first + records_per_shard):
                        writer.write(record)
            _publish(staging / part, output / part)
    finally:
        shutil.rmtree(staging)


def _publish(staged: Path, place: Path) -> None:
    try:
        os.rename(staged, place)
    except OSError as error:
        if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
            raise
        # Another process was faster; that is fine if it wrote the same.
        names = sorted(path.name for path in staged.iterdir())
        _, differing, missing = filecmp.cmpfiles(staged, place, names, shallow=False)
        if differing or missing or names != sorted(path.name for path in place.iterdir()):
            raise DatasetError(
                f"{place} got other content in the meantime", "remove it, or choose another --output"
            ) from error


if __name__ == "__main__":
    sys.exit(main())
