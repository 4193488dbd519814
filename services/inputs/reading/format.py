"""The protocol of a format of data.

A format plans once, at submission: it lists what is in the files, and fixes how they are read.  After that it opens
files in the workers, which give any range of records.  What a range holds follows from the file, the range and the
plan alone; a file that is not what it was when the job was planned is refused by name.

A new format is one module in `formats/` with an object FORMAT.
"""

import errno
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from edlz.services.errors import DataError
from edlz.services.inputs.reading.params import Params
from edlz.services.inputs.reading.records import Order, Records
from edlz.services.protocol.plan import Column, DataSource, FileFacts

__all__ = ["CHANGED_HELP", "Format", "Found", "Reader", "changed", "unreadable"]

CHANGED_HELP = "the file has changed since the job began: put it back, or start a new job"


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """What a format has found in files.

    Attributes
    ----------
    counts : sequence of int
        Records of each file.
    facts : sequence of FileFacts
        Of each file.
    columns : tuple of Column
        Of the records; (): they are byte strings.
    is_counted : bool
        Whether the counts are exact; else only where a file begins was looked at.
    """

    counts: Sequence[int]
    facts: Sequence[FileFacts]
    columns: tuple[Column, ...] = ()
    is_counted: bool = True


class Reader(Protocol):
    """An open file; any thread may call it."""

    def __len__(self) -> int:
        """How many records it has."""

    def read(self, first: int, count: int, order: Order | None = None) -> Records:
        """Return records.

        Parameters
        ----------
        order : ndarray, shape (count,), int64
            In which order, as places in the range; None for that of the file.

        Raises
        ------
        DataError
            If they cannot be read.
        IndexError
            If the file does not have all of them.
        """

    def close(self) -> None:
        """Let go of the file.  A read that is under way in another thread still ends."""


class Format(Protocol):
    """A format of data.

    Attributes
    ----------
    name : str
        As `reader_type` names it.
    suffixes : tuple of str
        How the names of its files end.
    params : mapping of str to str
        The parameters that it takes, each with a line of help.
    """

    name: str
    suffixes: tuple[str, ...]
    params: Mapping[str, str]

    def find(self, request: "Request") -> Found:
        """Look at files at submission.

        Raises
        ------
        DataError
            If one of them is damaged or of another format.
        ConfigError
            If the parameters do not fit it.
        """

    def open(self, name: str, source: DataSource, facts: FileFacts | None) -> Reader:
        """Open one of them in a worker.

        Parameters
        ----------
        facts : FileFacts, optional
            What it must be like; None: the job was planned before that was kept.

        Raises
        ------
        DataError
            If it is not so.
        OSError
            If it cannot be opened.
        """


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What a format is to look at.

    Attributes
    ----------
    files : sequence of str
        Their paths.
    params : Params
    columns : tuple of Column
        Those of the job's training data, if these records are for the same model.
    tell : callable (str)
        Called with a sentence about what a user may not expect.
    is_quick : bool
        It must take no longer than a second or so: large files need not be counted.
    leaves_out : bool
        Columns of types that are not read are left out, and that is told; else they are errors.
    """

    files: Sequence[str]
    params: Params
    columns: tuple[Column, ...] = ()
    tell: Callable[[str], None] = field(default=lambda text: None)
    is_quick: bool = False
    leaves_out: bool = False


def changed(name: str, facts: FileFacts, found_bytes: int | None = None) -> DataError:
    """Return the error for a file that is not what it was."""
    if found_bytes is not None and found_bytes != facts.size_bytes:
        text = f"{name} has {found_bytes} bytes, and had {facts.size_bytes} when the job was planned"
    else:
        text = f"{name} has another content than when the job was planned"
    return DataError(text, CHANGED_HELP)


def unreadable(name: str, error: OSError) -> DataError:
    """Return the error for a file that the system does not give."""
    advice = {
        errno.EACCES: f"whoever runs edlz needs the right to read it, workers too: chmod a+rX {name}",
        errno.ENOENT: "the file was there before: put it back, or start a new job",
    }
    return DataError(f"{name} cannot be read: {error.strerror or error}", advice.get(error.errno or 0, ""))
