"""Which formats of data there are, and which one files have.

Knows no format by name but the default: a format is whatever module of `formats/` has a FORMAT.
"""

import importlib
import pkgutil
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path

from edlz.services.configuration.nearest import did_you_mean, nearest
from edlz.services.errors import ConfigError, DataError
from edlz.services.inputs import formats
from edlz.services.inputs.reading.content import open_stored
from edlz.services.inputs.reading.format import Format
from edlz.services.inputs.reading.params import FLAG

__all__ = ["DEFAULT", "GZIP", "format_named", "format_of_files", "known_formats"]

DEFAULT = "RecordIO"
_RECORDIO_MAGIC = b"\x04\x03\x02\x01"
GZIP = ".gz"


@cache
def known_formats() -> Mapping[str, Format]:
    """Return the formats by their names in lower case."""
    found: dict[str, Format] = {}
    for module in pkgutil.iter_modules(formats.__path__):
        of_module: Format = importlib.import_module(f"{formats.__name__}.{module.name}").FORMAT
        found[of_module.name.lower()] = of_module
    return found


def format_named(name: str) -> Format:
    """Return a format by the name that `reader_type` gives it, in whatever case.

    Raises
    ------
    ConfigError
        If there is none.
    """
    found = known_formats().get(name.lower())
    if found is None:
        names = [known.name for known in known_formats().values()]
        raise ConfigError(
            f"{FLAG}: reader_type={name} is none of {', '.join(names)}",
            did_you_mean(nearest(name, names))
            or "anything else is read by the model's own custom_data_reader()",
        )
    return found


def format_of_files(files: Sequence[str]) -> Format:
    """Return the format of files by the ends of their names; without a known one they are RecordIO.

    A file that begins as RecordIO does is RecordIO whatever it is called.

    Raises
    ------
    DataError
        If they differ.
    """
    first = _format_of_file(files[0])
    for name in files[1:]:
        other = _format_of_file(name)
        if other is not first:
            raise DataError(
                f"{files[0]} is {first.name} by its name, {name} is {other.name}",
                f"name those of one format alone; edlz data convert writes one as another, "
                f'{FLAG}="reader_type=…" says what names do not',
            )
    return first


def _format_of_file(name: str) -> Format:
    plain = Path(name.lower().removesuffix(GZIP)).name
    for known in known_formats().values():
        if plain.endswith(known.suffixes) and not _is_recordio(name):
            return known
    return known_formats()[DEFAULT.lower()]


def _is_recordio(name: str) -> bool:
    try:
        with open_stored(name) as file:
            return file.read(len(_RECORDIO_MAGIC)) == _RECORDIO_MAGIC
    except (OSError, DataError):
        return False  # whoever opens it next says so
