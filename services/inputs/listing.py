"""What data a job has: the files that a flag names, how they are read, and the records in each.

Done once, when a job is planned; from then on the plan says it.
"""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from edlz.services.errors import ConfigError
from edlz.services.inputs.known_formats import format_named, format_of_files
from edlz.services.inputs.paths import WRITE, find_files
from edlz.services.inputs.places.store import looking_once
from edlz.services.inputs.reading.format import Request
from edlz.services.inputs.reading.params import parse_params
from edlz.services.protocol.plan import Column, DataSource, Shard

__all__ = ["Listed", "list_data", "list_files", "list_shards"]

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Listed:
    """The records of a job: shards, in the order of the files, and how they are read.

    `is_counted`: the shards have their records; else they are large files, of which only the beginning was looked at.
    """

    shards: tuple[Shard, ...]
    source: DataSource
    is_counted: bool = True


def list_data(
    given: str,
    flag: str = "training_data",
    params: str = "",
    tell: Callable[[str], None] = logger.info,
    columns: tuple[Column, ...] = (),
    *,
    is_quick: bool = False,
    leaves_out: bool = False,
) -> Listed:
    """Return the shards of the files that a flag names: one for each file with records.

    Parameters
    ----------
    given : str
        As the user gave it; see `find_files`.
    flag : str
        The flag that it came from, for the message.
    params : str
        `--data_reader_params`.
    tell : callable
        Called with a sentence that says what is left out.
    columns : tuple of Column
        Of the training data, if these records are for the same model: the same columns have the same types.
    is_quick : bool
        Large files need not be counted.
    leaves_out : bool
        Columns of types that are not read are left out, and that is told; else they are errors.

    Raises
    ------
    ConfigError
        If there is no such path, no file in the directory, or no record in any of the files; or the parameters do not
        fit the format.
    DataError
        If a file cannot be read or is of another format, or something in the directory is no file at all.
    """
    files = find_files(given, flag, tell)
    return list_files(files, given, flag, params, tell, columns, is_quick=is_quick, leaves_out=leaves_out)


def list_files(
    files: Sequence[str],
    given: str,
    flag: str,
    params: str,
    tell: Callable[[str], None],
    columns: tuple[Column, ...] = (),
    *,
    is_quick: bool = False,
    leaves_out: bool = False,
) -> Listed:
    """Return the shards of these files; see `list_data`."""
    with looking_once():
        return _listed(files, given, flag, params, tell, columns, is_quick=is_quick, leaves_out=leaves_out)


def _listed(
    files: Sequence[str],
    given: str,
    flag: str,
    params: str,
    tell: Callable[[str], None],
    columns: tuple[Column, ...],
    *,
    is_quick: bool,
    leaves_out: bool,
) -> Listed:
    parsed = parse_params(params)
    chosen = format_named(parsed.reader_type) if parsed.reader_type else format_of_files(files)
    parsed.check_names(chosen.params, chosen.name)
    request = Request(
        files=files, params=parsed, columns=columns, tell=tell, is_quick=is_quick, leaves_out=leaves_out
    )
    found = chosen.find(request)
    filled = [i for i, count in enumerate(found.counts) if count]
    if not filled:
        empty = f"{len(files)} empty file{'' if len(files) == 1 else 's'}"
        raise ConfigError(f'{flag} "{given}" has no records: {empty}', WRITE)
    return Listed(
        shards=tuple(Shard(name=files[i], first=0, count=found.counts[i]) for i in filled),
        source=DataSource(
            format=chosen.name,
            params=params,
            form="columns" if found.columns else "bytes",
            columns=found.columns,
            files=tuple(found.facts[i] for i in filled),
        ),
        is_counted=found.is_counted,
    )


def list_shards(
    path: str, flag: str = "training_data", tell: Callable[[str], None] = logger.info
) -> tuple[Shard, ...]:
    """Return the shards of files whose names alone say how they are read; see `list_data`."""
    return list_data(path, flag, tell=tell).shards
