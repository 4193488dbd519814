"""The facts of a journal as they stand in its file, for its master and for those who only look at it.

Knows no message: who looks at many jobs does not import what they are made of.
"""

import sqlite3
import zlib
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import quote

import msgspec

from edlz.services import strict_json
from edlz.services.protocol.concluded_rounds import ConcludedRound
from edlz.services.protocol.job_status import JobStatus

__all__ = [
    "ENTRY",
    "UNREADABLE",
    "DamagedFact",
    "beginning",
    "checksum_of",
    "entry_name",
    "fact",
    "final_status",
    "has_plan",
    "job_end",
    "looked_up",
    "text_of",
]

LOOK_S = 1.0  # for another process' transaction
ENTRY = "/"  # between the name of a fact and an entry's number
UNREADABLE = (sqlite3.Error, UnicodeDecodeError)  # SQLite's module decodes names of a damaged schema itself

_T = TypeVar("_T")


class DamagedFact(Exception):
    """What a journal holds is not what was written."""


def final_status(path: Path) -> JobStatus | None:
    """Return how a job looked when it was complete, writing nothing; None if its journal does not say so."""

    def look(database: sqlite3.Connection) -> JobStatus | None:
        return fact(database, "final", JobStatus) if fact(database, "is_complete", bool) else None

    return looked_up(path, look)


def job_end(path: Path) -> tuple[int, int]:
    """Return where callbacks have ended a job, writing nothing.

    Returns
    -------
    task_count : int
        Behind so many tasks; 0: the plan's.
    result : int
        The version whose checkpoint is the result, in place of what is sealed; -1: none.
    """

    def look(database: sqlite3.Connection) -> tuple[int, int]:
        last = _last(database, "rounds", ConcludedRound)
        return fact(database, "task_count", int) or 0, last.decision.result if last is not None else -1

    return looked_up(path, look) or (0, -1)


def has_plan(path: Path) -> bool:
    """Whether a job was planned, as far as can be told: not if its journal is missing, or says that there is no plan."""

    def look(database: sqlite3.Connection) -> bool:
        return fact(database, "job", msgspec.Raw) is not None

    return path.exists() and looked_up(path, look) is not False


def beginning(path: Path) -> float:
    """Return when a job was planned, in seconds since the epoch, writing nothing; 0 if its journal does not say so."""
    return looked_up(path, lambda database: fact(database, "began", float)) or 0.0


def looked_up(path: Path, look: Callable[[sqlite3.Connection], _T | None]) -> _T | None:
    """Open a journal for reading; what cannot be read counts as not there."""
    try:
        address = f"file:{quote(str(path))}?mode=ro"
        with closing(sqlite3.connect(address, uri=True, timeout=LOOK_S)) as database:
            return look(database)
    except (*UNREADABLE, DamagedFact):
        return None


def fact(database: sqlite3.Connection, name: str, kind: type[_T]) -> _T | None:
    """Return one fact; None if it is not there.

    Raises
    ------
    DamagedFact
    """
    row = database.execute("SELECT * FROM facts WHERE name = ?", (name,)).fetchone()
    if row is None:
        return None
    text = text_of(row)
    try:
        return strict_json.decode(text, kind)
    except msgspec.DecodeError as error:
        raise DamagedFact(f'"{name}" is no {kind.__name__} ({error})') from error


def entry_name(name: str, number: int) -> str:
    """Return the name of an entry of a fact; such names are in the numbers' order."""
    return f"{name}{ENTRY}{number:09}"


def _last(database: sqlite3.Connection, name: str, kind: type[_T]) -> _T | None:
    """Return the last value of a fact that only becomes longer; earlier versions wrote it whole."""
    bounds = (f"{name}{ENTRY}", f"{name}{chr(ord(ENTRY) + 1)}")
    (entry,) = database.execute("SELECT max(name) FROM facts WHERE name > ? AND name < ?", bounds).fetchone()
    if entry is not None:
        return fact(database, entry, kind)
    whole = fact(database, name, tuple[kind, ...])  # type: ignore[valid-type]
    return whole[-1] if whole else None


def text_of(row: tuple[Any, ...]) -> bytes:
    """Return the JSON of a row, if it is what was written; earlier versions wrote no checksum.

    Raises
    ------
    DamagedFact
    """
    name, text, checksum = (*row, None)[:3]
    is_whole = isinstance(name, str) and isinstance(text, bytes)
    if not is_whole or (checksum is not None and checksum != checksum_of(name, text)):
        raise DamagedFact(f'the checksum of "{name}" is another one')
    assert isinstance(text, bytes)
    return text


def checksum_of(name: str, text: bytes) -> int:
    """Return what stands beside a fact."""
    return zlib.crc32(text, zlib.crc32(name.encode(errors="replace")))
