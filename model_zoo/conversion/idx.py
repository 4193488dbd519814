"""Reads image data sets of the MNIST family: four IDX files in a folder, or Keras' copy of them.

An IDX file is two zero bytes, a type (8 for uint8), the number of dimensions, each dimension as a
big-endian uint32, then the numbers.  Making records of them is the business of `images`.
"""

import gzip
import struct
import zipfile
import zlib
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from edlz.model_zoo.conversion.shards import DatasetError

__all__ = ["CLASSES", "IMAGE_SHAPE", "DatasetError", "Images", "Splits", "read_idx_folder", "read_npz"]

IMAGE_SHAPE = (28, 28)
CLASSES = 10
_UINT8 = 8


class Images(NamedTuple):
    """One split: images (n, 28, 28) and labels (n,), both uint8."""

    images: npt.NDArray[np.uint8]
    labels: npt.NDArray[np.uint8]


class Splits(NamedTuple):
    """A data set."""

    train: Images
    test: Images


def read_idx_folder(folder: Path) -> Splits:
    """Read the four IDX files of a folder, plain or gzipped, under any of their usual names.

    Raises
    ------
    DatasetError
        If the folder or a file is missing, damaged, or does not fit the others.
    """
    if not folder.exists():
        raise DatasetError(f"{folder} does not exist", "give the folder that holds the IDX files as --source")
    if not folder.is_dir():
        raise DatasetError(
            f"{folder} is not a folder", "give the folder that holds the IDX files as --source"
        )
    return Splits(_read_split(folder, "train"), _read_split(folder, "t10k"))


def read_npz(path: Path) -> Splits:
    """Read a data set as Keras keeps it: arrays x_train, y_train, x_test, y_test in one .npz file.

    Raises
    ------
    DatasetError
        If the file is damaged or holds something else.
    """
    try:
        # NumPy leaves a path it has opened itself open when the content is no archive.
        with open(path, "rb") as opened, np.load(opened, allow_pickle=False) as file:
            arrays = {name: np.asarray(file[name]) for name in ("x_train", "y_train", "x_test", "y_test")}
    except (OSError, ValueError, KeyError, TypeError, EOFError, zipfile.BadZipFile, zlib.error) as error:
        raise DatasetError(f"{path} cannot be read ({error})", "remove it, or give --source") from error
    for name, array in arrays.items():
        if array.dtype != np.uint8:
            raise DatasetError(
                f"{path}: {name} is {array.dtype}, not uint8", "remove the file, or give --source"
            )
    return Splits(
        _checked(Images(arrays["x_train"], arrays["y_train"]), f"{path} (x_train)", f"{path} (y_train)"),
        _checked(Images(arrays["x_test"], arrays["y_test"]), f"{path} (x_test)", f"{path} (y_test)"),
    )


def _read_split(folder: Path, prefix: str) -> Images:
    images_path = _find(folder, f"{prefix}-images", 3)
    labels_path = _find(folder, f"{prefix}-labels", 1)
    split = Images(_read_idx(images_path, 3), _read_idx(labels_path, 1))
    return _checked(split, str(images_path), str(labels_path))


def _checked(split: Images, images_name: str, labels_name: str) -> Images:
    images, labels = split
    if images.shape[1:] != IMAGE_SHAPE or not len(images):
        raise DatasetError(
            f"{images_name} holds an array of {images.shape}, not images of 28 x 28",
            "use the files of MNIST or Fashion-MNIST",
        )
    if labels.shape != (len(images),):
        raise DatasetError(
            f"{images_name} has {len(images)} images, but {labels_name} has {len(labels)} labels",
            "take both files from the same place",
        )
    if int(labels.max()) >= CLASSES:
        place = int(np.flatnonzero(labels >= CLASSES)[0])
        raise DatasetError(
            f"{labels_name}: label {place} is {labels[place]}, not 0 to {CLASSES - 1}",
            "use the files of MNIST or Fashion-MNIST",
        )
    return split


def _find(folder: Path, stem: str, dimensions: int) -> Path:
    names = [f"{stem}{dot}idx{dimensions}-ubyte{end}" for end in ("", ".gz") for dot in ("-", ".")]
    for name in names:
        if (folder / name).is_file():
            return folder / name
    raise DatasetError(
        f"{folder} has none of {', '.join(names)}", "put the four IDX files there, or give another --source"
    )


def _read_idx(path: Path, dimensions: int) -> npt.NDArray[np.uint8]:
    content = _unpacked(path)
    header_bytes = 4 + 4 * dimensions
    magic = bytes((0, 0, _UINT8, dimensions))
    if content[:4] != magic:
        raise DatasetError(
            f"{path} is not an IDX file of {dimensions} dimensions "
            f"(starts with {content[:4].hex(' ') or 'nothing'}, not {magic.hex(' ')})",
            "copy the file again from where it came",
        )
    if len(content) < header_bytes:
        raise DatasetError(f"{path} is cut off inside of its header", "copy the file again")
    shape = struct.unpack_from(f">{dimensions}I", content, 4)
    expected = header_bytes + int(np.prod(shape, dtype=object))
    if len(content) != expected:
        raise DatasetError(
            f"{path} has {len(content)} bytes, but for {' x '.join(map(str, shape))} it should have {expected}",
            "copy the file again from where it came",
        )
    return np.frombuffer(content, np.uint8, offset=header_bytes).reshape(shape)


def _unpacked(path: Path) -> bytes:
    """Return the content; whether it is gzipped is told by its bytes, as names are often wrong."""
    try:
        content = path.read_bytes()
        return gzip.decompress(content) if content.startswith(b"\x1f\x8b") else content
    except (OSError, EOFError, zlib.error) as error:
        raise DatasetError(f"{path} cannot be read ({error})", "copy the file again") from error
