"""A `statistics.json` as part of a plan: packed, in pieces that fit a message."""

import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from edlz.services import strict_json
from edlz.services.errors import ConfigError
from edlz.services.statistics.figures import Statistics

__all__ = ["pack", "unpack"]

FLAG = "statistics"
MOST_BYTES = 8 << 20  # of all pieces: half of what an answer of the master's may have
_PIECE = 1 << 16
_HELP = "name the statistics.json of an analysis: edlz analyze DATA"


def pack(path: Path) -> tuple[bytes, ...]:
    """Return the content of a file, as a plan has it.

    Raises
    ------
    ConfigError
        If it is none of statistics, or too large.
    """
    flag = f'{FLAG} "{path}"'
    try:
        data = path.read_bytes()
        strict_json.decode(data, Statistics)
    except FileNotFoundError as error:
        raise ConfigError(f"{flag} does not exist", _HELP) from error
    except IsADirectoryError as error:
        file = path / "statistics.json"
        raise ConfigError(f"{flag} is a folder", f"--{FLAG}={file}" if file.is_file() else _HELP) from error
    except OSError as error:
        raise ConfigError(f"{flag} cannot be read: {error.strerror or error}", _HELP) from error
    except msgspec.DecodeError as error:
        raise ConfigError(f"{flag} is no file of statistics: {error}", _HELP) from error
    packed = zlib.compress(data, 6)
    if len(packed) > MOST_BYTES:
        raise ConfigError(
            f"{flag} has {len(packed) >> 20} MB, packed: more than the {MOST_BYTES >> 20} MB that fit a plan",
            "edlz analyze with a smaller --vocabulary_size, or with the --columns that the model needs",
        )
    return tuple(packed[start : start + _PIECE] for start in range(0, len(packed), _PIECE))


def unpack(pieces: Sequence[bytes]) -> dict[str, dict[str, Any]]:
    """Return the figures of each column; none, if a plan has no statistics."""
    if not pieces:
        return {}
    statistics = strict_json.decode(zlib.decompress(b"".join(pieces)), Statistics)
    found: dict[str, dict[str, Any]] = msgspec.to_builtins(statistics.columns)
    return found
