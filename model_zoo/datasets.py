"""Converts published data sets to RecordIO or CSV: which there are, and the command.

    python -m edlz.model_zoo.datasets mnist --source DIR --output DIR

Records lie in OUTPUT/train/data-00000, ... and OUTPUT/test/data-00000, ...; what is there is never overwritten.
What a record holds stands in each data set's own module: `conversion.images`, `census.converter`, `movielens.converter`,
`criteo.layout`, `heart.converter`, `iris.converter`, `frappe.converter`.
"""

import argparse
import os
import sys
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path

from edlz.api.recordio import RecordIOError, count_records
from edlz.model_zoo.census.converter import read_adult, read_adult_as_csv
from edlz.model_zoo.conversion.images import read_images
from edlz.model_zoo.conversion.shards import SAMPLE_FOLDER, DatasetError, Source, write_shards
from edlz.model_zoo.criteo.converter import read_criteo
from edlz.model_zoo.criteo.generator import generate_criteo
from edlz.model_zoo.dataset_names import DATASETS, GENERATED, IMAGES
from edlz.model_zoo.frappe.converter import read_frappe
from edlz.model_zoo.heart.converter import read_heart
from edlz.model_zoo.iris.converter import read_iris
from edlz.model_zoo.movielens.converter import read_movielens

__all__ = ["DATASETS", "SAMPLE_FOLDER", "Converted", "DatasetError", "built_in_sample", "convert", "main"]

Watch = Callable[[int], AbstractContextManager[Callable[[int], None]]]

SAMPLE_RECORDS = {"train": 6_000, "test": 1_000}

_READERS = {
    "adult": read_adult,
    "adult-csv": read_adult_as_csv,
    "movielens": read_movielens,
    "criteo": read_criteo,
    "heart": read_heart,
    "iris": read_iris,
    "frappe": read_frappe,
}

_RECORDS_PER_SHARD = 4_096
_CRITEO_RECORDS_PER_SHARD = 65_536  # 45 million would be 11,000 files
_GENERATED_RECORDS = 1_000_000


@dataclass(frozen=True, kw_only=True)
class Converted:
    """What a conversion gave.

    Attributes
    ----------
    train_records, test_records : int
    paths : tuple of Path
        The shards, those of the training data first.
    origin : str
        Where the records came from, for people to read.
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
    records_per_shard: int | None = None,
    fraction: float = 1.0,
    records: int | None = None,
    seed: int | None = None,
    watch: Watch = lambda _: nullcontext(lambda _: None),
) -> Converted:
    """Write a data set as RecordIO, or CSV; a second run over the same output finds it done.

    Parameters
    ----------
    name : one of DATASETS
    source : path or None
        Folder of the published files.  Else images come from Keras, mnist and adult from a built-in sample.
    output : path
        Gets the folders `train` and `test`, each of which appears when it is whole.
    records_per_shard : int, > 0
        4,096, but 65,536 for criteo.
    fraction : float, in (0, 1], images only
        How much of each split to take, from its beginning.
    records, seed : int
        criteo-generated only: how many records, 1,000,000 unless told; and which ones.
    watch : callable, optional
        Given how many records there will be, 0 if nobody knows; what its block yields is told of each piece's.

    Raises
    ------
    DatasetError
        If the source is not as expected, or the output has other content or cannot be written.
    """
    if name not in DATASETS:
        raise DatasetError(f'no data set "{name}"', f"use one of {', '.join(DATASETS)}")
    if records_per_shard is None:
        records_per_shard = _CRITEO_RECORDS_PER_SHARD if name.startswith("criteo") else _RECORDS_PER_SHARD
    elif records_per_shard < 1:
        raise DatasetError(f"records_per_shard={records_per_shard} is not positive", "e.g. 4096")
    folder = None if source is None else Path(source)
    _check_options(name, folder, fraction, records, seed)
    found = _opened(name, folder, fraction, records, seed or 0)
    with watch(found.records) as on_records:
        return _written(found, Path(output), records_per_shard, on_records)


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
        prog="python -m edlz.model_zoo.datasets", description="Convert a data set to RecordIO."
    )
    parser.add_argument("name", choices=DATASETS, help="the data set")
    parser.add_argument("--source", help="folder of its published files (default for images: Keras' copy)")
    parser.add_argument("--output", required=True, help="folder to write train/ and test/ to")
    parser.add_argument("--records_per_shard", type=int, help="records a file")
    parser.add_argument("--fraction", type=float, default=1.0, help="images: part to take (default: 1)")
    parser.add_argument("--records", type=int, help=f"{GENERATED}: made-up records (default: 1000000)")
    parser.add_argument("--seed", type=int, help=f"{GENERATED}: which ones (default: 0)")
    options = vars(parser.parse_args(arguments))
    name, output = options["name"], options["output"]
    try:
        done = convert(options.pop("name"), options.pop("source"), options.pop("output"), **options)
    except DatasetError as error:
        print(f"error: {error.message}\nhelp: {error.help}", file=sys.stderr)
        return 1
    print(
        f"{name}: {done.train_records:,} training and {done.test_records:,} test records "
        f"{'are already' if done.was_there else 'written'} in {output} (from {done.origin})"
    )
    return 0


def _opened(name: str, folder: Path | None, fraction: float, records: int | None, seed: int) -> Source:
    if name in IMAGES:
        return read_images(name, folder, fraction)
    if name == GENERATED:
        return generate_criteo(_GENERATED_RECORDS if records is None else records, seed)
    return _READERS[name](folder)


def _check_options(
    name: str, folder: Path | None, fraction: float, records: int | None, seed: int | None
) -> None:
    if not 0 < fraction <= 1:
        raise DatasetError(f"fraction={fraction} is not above 0 and at most 1", "e.g. 0.1 for a tenth")
    if fraction != 1 and name not in IMAGES:
        raise DatasetError(f"fraction={fraction} is for images, not for {name}", "leave it out")
    if name == GENERATED:
        if folder is not None:
            raise DatasetError(f"{name} is made up, not read from {folder}", "without --source, or criteo")
        return
    for option, value in (("records", records), ("seed", seed)):
        if value is not None:
            raise DatasetError(f"{option}={value} is for {GENERATED}, not for {name}", "leave it out")


def _written(
    source: Source, output: Path, records_per_shard: int, on_records: Callable[[int], None]
) -> Converted:
    try:
        written = write_shards(source, output, records_per_shard, on_records)
    except OSError as error:
        raise DatasetError(
            f"cannot write {error.filename or output}: {error.strerror}", "choose another --output"
        ) from error
    return Converted(
        train_records=written.counts["train"],
        test_records=written.counts["test"],
        paths=written.paths,
        origin=source.origin,
        was_there=written.was_there,
    )


def _record_count(folder: Path) -> int | None:
    """Return how many records a folder has by its chunk headers, or None if a file is damaged."""
    try:
        return sum(count_records(path) for path in folder.glob("data-*"))
    except RecordIOError:
        return None


if __name__ == "__main__":
    sys.exit(main())
