"""Which files a flag means: paths, directories and patterns, here or elsewhere."""

import glob
import os
from collections.abc import Callable
from pathlib import Path, PurePosixPath

from edlz.services.configuration.data_addresses import check_address, is_address, scheme_of
from edlz.services.configuration.nearest import nearest
from edlz.services.errors import ConfigError, DataError
from edlz.services.inputs.places.store import Store
from edlz.services.inputs.reading.format import unreadable
from edlz.services.valid_text import is_valid_text, valid_text

__all__ = ["WRITE", "check_name", "find_files", "is_left_out", "nearest_path"]

WRITE = "what can be read: edlz data --help; how to write RecordIO: python -m pydoc edlz.api.recordio"

_COPIES = ("~", ".bak", ".orig")  # how the names of files end that editors keep beside those that they write
_UNFINISHED = (
    ".tmp",
    ".part",
    ".partial",
    ".crdownload",
    ".filepart",
)  # and those of files that are being written
_MOST_NAMED = 3


def find_files(given: str, flag: str, tell: Callable[[str], None]) -> list[str]:
    """Return the files that a flag names: a file, all in a directory, what a pattern fits, or several of these.

    In a directory files come in the order of their names, and so do those that fit a pattern.  Those whose name begins
    with a dot or an underscore are left out, as it is the custom for what is no data.  So are folders, and the copies that
    editors keep, but that is told: somebody may miss them.

    Parameters
    ----------
    given : str
        As the user gave it; the files' names begin with it.  Commas stand between several paths.

    Raises
    ------
    ConfigError
        If there is no such path, or no file in a directory; or a file is named twice.
    DataError
        If something is there that is no file at all, or that may not be looked at.
    """
    check_address(given, flag)
    is_one = os.path.lexists(given) or "," not in given
    paths = [given] if is_one else [path.strip() for path in given.split(",")]
    if not any(map(str.strip, paths)):
        raise ConfigError(
            f'{flag} "{given}" names no path', "name a file, a directory, or a pattern in quotes"
        )
    try:
        names = [name for path in paths if path for name in _files_of(path, flag, tell)]
    except OSError as error:
        raise unreadable(str(error.filename or given), error) from error
    places = [name if is_address(name) else os.path.abspath(name) for name in names]
    twice = (
        next(name for name, place in zip(names, places, strict=True) if places.count(place) > 1)
        if len(set(places)) < len(places)
        else None
    )
    if twice is not None:
        raise ConfigError(
            f"{flag} names {twice} twice: its records would be read twice an epoch",
            "name each file once; for more passes over the data: --num_epochs",
        )
    return names


def check_name(name: str) -> None:
    """Refuse a file that other processes could not be told of.

    Raises
    ------
    DataError
        If its name is not UTF-8.
    """
    if not is_valid_text(name):
        shown = valid_text(name)
        message = f"{shown} has a name that is not UTF-8, and cannot be told to other processes"
        raise DataError(message, f"rename it: mv $'{shown}' …")


def is_left_out(name: str) -> bool:
    """Whether a file of this name is none of those that come: hidden, a copy, or not whole yet."""
    return name[:1] in "._" or name.endswith((*_COPIES, *_UNFINISHED))


def _files_of(path: str, flag: str, tell: Callable[[str], None]) -> list[str]:
    if is_address(path):
        return _files_elsewhere(path, flag, tell)
    place = Path(path)
    if place.is_file():
        return [path]
    if place.is_dir():
        return _files_in(path, flag, tell)
    if os.path.lexists(path):
        _check_file(place, "name a file, a directory, or a pattern: a task reads from the middle of a file")
    if not glob.has_magic(path):
        raise ConfigError(f'{flag} "{path}" does not exist', nearest_path(place))
    names = [name for name in sorted(glob.glob(path, recursive=True)) if not Path(name).is_dir()]
    for name in names:
        _check_file(Path(name), _all_is_read(flag))
    if not names:
        raise ConfigError(
            f'{flag} "{path}" fits no file', "put it in quotes, so that the shell leaves it alone"
        )
    return names


def _files_elsewhere(address: str, flag: str, tell: Callable[[str], None]) -> list[str]:
    """Return the files that an address means, by the rules of paths."""
    scheme, _, rest = address.partition("://")
    address = f"{scheme.lower()}://{rest}"
    store = Store(address)
    is_web = scheme_of(address) in ("http", "https")  # where ? begins a query, and a folder is a page
    if any(letter in address for letter in ("*[" if is_web else "*?[")):
        names = store.fitting(address)
        if not names:
            raise ConfigError(
                f'{flag} "{address}" fits no file',
                "list the folder with that store's own tools, or correct the address",
            )
        return names
    kind = "file" if is_web else store.kind(address)
    if not kind:
        raise ConfigError(
            f'{flag} "{address}" does not exist',
            "list the folder with that store's own tools, or correct the address",
        )
    if kind == "file":
        return [address]
    entries = [one for one in store.entries(address) if PurePosixPath(one[0]).name[0] not in "._"]
    folders = [name for name, is_folder in entries if is_folder]
    copies = [name for name, is_folder in entries if name.endswith(_COPIES) and not is_folder]
    names = [name for name, is_folder in entries if not is_folder and name not in copies]
    if not names:
        some = f"it has folders: {', '.join(folders[:_MOST_NAMED])}" if folders else WRITE
        raise ConfigError(f'{flag} "{address}" has no files in it', some)
    _tell_left_out(address, flag, tell, [PurePosixPath(one).name for one in folders], copies)
    return names


def _files_in(path: str, flag: str, tell: Callable[[str], None]) -> list[str]:
    place = Path(path)
    entries = sorted(entry.name for entry in place.iterdir() if entry.name[0] not in "._")
    folders = [name for name in entries if (place / name).is_dir()]
    copies = [name for name in entries if name.endswith(_COPIES) and name not in folders]
    names = [name for name in entries if name not in folders and name not in copies]
    if not names:
        inside = [os.path.join(path, name) for name in folders]
        raise ConfigError(
            f'{flag} "{path}" has no files in it',
            f"it has folders: {', '.join(inside[:_MOST_NAMED])}" if inside else WRITE,
        )
    for name in names:
        _check_file(place / name, _all_is_read(flag))
    _tell_left_out(path, flag, tell, folders, copies)
    return [os.path.join(path, name) for name in names]


def _tell_left_out(
    path: str, flag: str, tell: Callable[[str], None], folders: list[str], copies: list[str]
) -> None:
    for what, left_out in (("folder", folders), ("copy", copies)):
        if left_out:
            tell(f'{flag} "{path}": {_named(left_out, what)} in it {_is(left_out)} left out')


def _all_is_read(flag: str) -> str:
    return f"remove it, or put a file there: all of {flag} is read"


def _check_file(path: Path, advice: str) -> None:
    """Refuse what is no file, or cannot be named: leaving it out would be training on other data."""
    check_name(str(path))
    shown = str(path)
    if path.is_file():
        return
    if path.is_symlink() and not path.exists():
        message = f"{shown} is a link to {valid_text(os.readlink(path))}, which does not exist"
        raise DataError(message, advice)
    raise DataError(f"{shown} is no regular file", advice)


def _named(names: list[str], what: str) -> str:
    """Return `the folder a`, or `5 folders (a, b, c, …)`."""
    if len(names) == 1:
        return f"the {what} {valid_text(names[0])}"
    plural = "copies" if what == "copy" else f"{what}s"
    more = ", …" if len(names) > _MOST_NAMED else ""
    return f"{len(names)} {plural} ({', '.join(map(valid_text, names[:_MOST_NAMED]))}{more})"


def _is(names: list[str]) -> str:
    return "is" if len(names) == 1 else "are"


def nearest_path(place: Path) -> str:
    """Return `nearest: …` with a path that exists: the first part that is missing is looked up among its neighbours."""
    for parent in place.parents:
        if parent.is_dir():
            missing, *rest = place.relative_to(parent).parts
            for name in nearest(missing, (entry.name for entry in parent.iterdir())):
                if parent.joinpath(name, *rest).exists():
                    return f"nearest: {parent.joinpath(name, *rest)}"
            return ""
    return ""
