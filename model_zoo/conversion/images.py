"""The MNIST family as records: where the images come from, and what a record of them is.

A record is a `tf.train.Example` with `image`, 784 floats from 0 to 255, and `label`, an integer from 0 to 9.
"""

import math
import os
import socket
import sys
from collections.abc import Iterator
from contextlib import redirect_stdout
from pathlib import Path

import numpy as np

from edlz.api.example import encode_example
from edlz.model_zoo.conversion.idx import Images, Splits, read_idx_folder, read_npz
from edlz.model_zoo.conversion.shards import SAMPLE_FOLDER, DatasetError, Piece, Source

__all__ = ["image_records", "read_images"]

_DOWNLOAD_TIMEOUT_S = 30.0  # without a byte
_PIECE_RECORDS = 512


def read_images(name: str, folder: Path | None, fraction: float) -> Source:
    """Read the images of `mnist` or `fashion_mnist`.

    Parameters
    ----------
    folder : Path or None
        Folder of the four IDX files.  None: Keras' copy in the home directory; else a download through
        Keras; else, for mnist, the built-in sample.
    fraction : float, in (0, 1]
        How much of each split to take, from its beginning.

    Raises
    ------
    DatasetError
        If the images are not as expected, or nowhere.
    """
    splits, origin = _load(name, folder)
    counts = [_count(split, fraction) for split in (splits.train, splits.test)]
    return Source(origin, _pieces(splits, fraction), sum(counts))


def image_records(split: Images, first: int, stop: int) -> list[bytes]:
    """Return the records of images `first` to `stop - 1`."""
    pixels = split.images[first:stop].reshape(-1, 28 * 28).astype(np.float32)
    labels = split.labels[first:stop].tolist()
    return [
        encode_example({"image": image, "label": label}) for image, label in zip(pixels, labels, strict=True)
    ]


def _pieces(splits: Splits, fraction: float) -> Iterator[Piece]:
    for part, split in (("train", splits.train), ("test", splits.test)):
        count = _count(split, fraction)
        for first in range(0, count, _PIECE_RECORDS):
            yield Piece(part, image_records(split, first, min(first + _PIECE_RECORDS, count)))


def _count(split: Images, fraction: float) -> int:
    return max(1, math.floor(len(split.labels) * fraction))


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
