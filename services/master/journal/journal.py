"""The job's journal: one SQLite file that survives the master.

It holds the truth about the job (plan, term, decisions, results); the truth about work lies in the
partitions' ledgers.  Every transaction is durable when it returns, and checks that no younger master has
begun: an older one must not speak any more (PROTOCOL: section 6).  Each fact has a checksum, so that a damaged
file is named, and nothing that it says is believed.  Facts that only become longer are written entry by entry, as
"name/number": a job of many rounds does not write all of them again at each.
"""

import dataclasses
import sqlite3
import typing
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import msgspec

from edlz.services import strict_json
from edlz.services.errors import DataError, LocalProtocolError
from edlz.services.master.core.vocabulary.records import Added, FleetRecord, JournalState
from edlz.services.master.journal.full_disk import FullDisk
from edlz.services.master.journal.journal_facts import (
    ENTRY,
    UNREADABLE,
    DamagedFact,
    checksum_of,
    entry_name,
    fact,
    looked_up,
    text_of,
)
from edlz.services.protocol.job_status import FailureView
from edlz.services.protocol.messages import Job

__all__ = ["Journal", "TermLost", "planned_job"]

SCHEMA_VERSION = 3  # since 2 there are checksums, since 3 entries of their own
WAIT_S = 10.0  # for another process' transaction


class TermLost(LocalProtocolError):
    """A younger master has written to the journal; this one must stop at once."""

    code = "term-lost"
    exit_code = 1


class Journal:
    """Keys and JSON values, written in transactions that check the term.

    Parameters
    ----------
    path : Path
        The file; its folder exists.

    Raises
    ------
    DataError
        If the file is no journal, one of a newer edlz, or damaged: this holds for every method.
    """

    def __init__(self, path: Path) -> None:
        self._path, self._disk = path, FullDisk(path)
        with self._usable():
            self._database = self._disk.wait_for(self._open)

    @property
    def waited_s(self) -> float:
        """Seconds that were spent waiting for room on the disk."""
        return self._disk.waited_s

    def _open(self) -> sqlite3.Connection:
        database = sqlite3.connect(self._path, isolation_level=None, timeout=WAIT_S)
        try:
            self._prepare(database)
        except BaseException:
            database.close()
            raise
        return database

    def _prepare(self, database: sqlite3.Connection) -> None:
        database.execute("PRAGMA journal_mode=WAL")
        database.execute("PRAGMA synchronous=FULL")
        database.execute("BEGIN IMMEDIATE")
        version = database.execute("PRAGMA user_version").fetchone()[0]
        if version > SCHEMA_VERSION:
            raise DataError(
                f"{self._path} was written by a newer edlz", "use that version, or another --job_dir"
            )
        database.execute(
            "CREATE TABLE IF NOT EXISTS facts (name TEXT PRIMARY KEY, value BLOB NOT NULL, checksum INTEGER)"
        )
        if version == 1:
            database.execute("ALTER TABLE facts ADD COLUMN checksum INTEGER")
        database.execute(f"PRAGMA user_version={SCHEMA_VERSION}")
        database.execute("COMMIT")

    @contextmanager
    def _usable(self) -> Iterator[None]:
        """Turn what a file that cannot be read or written raises into an error that names it."""
        try:
            yield
        except UNREADABLE as error:
            raise DataError(
                f"{self._path} cannot be used as the job's journal: {error}", "use another --job_dir"
            ) from error
        except DamagedFact as error:
            raise DataError(
                f"{self._path} is damaged: {error}",
                "train on from a checkpoint in another folder: edlz train … --checkpoint_dir_for_init=DIR",
            ) from error

    def __enter__(self) -> "Journal":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._database.close()

    # -- reading

    def job(self) -> Job | None:
        """Return the job as it was planned, or None before it was."""
        with self._usable():
            return fact(self._database, "job", Job)

    def state(self) -> JournalState:
        """Return what earlier masters left."""
        with self._usable():
            rows = self._database.execute("SELECT * FROM facts WHERE name != 'job'")
            return _state({str(row[0]): text_of(row) for row in rows})

    # -- writing

    def begin(self, job: Job, launch: str = "", at: float = 0.0) -> None:
        """Enter a new job's plan, before its first term.

        Parameters
        ----------
        launch : str
            Which start of the job this is.
        at : float
            Now, in seconds since the epoch: what the age of the job is told from.

        Raises
        ------
        TermLost
            If another master has entered one.
        """
        self._write(0, {"job": job, "launch": launch, "began": at}, is_first=True)

    def change_job(
        self,
        job: Job,
        term: int,
        launch: str = "",
        fleet: FleetRecord | None = None,
        refusal: FailureView | None = None,
    ) -> None:
        """Enter other settings of the job, before the next master's term; its plan stays.

        Parameters
        ----------
        term : int
            Of the last master, as `state` told it.
        launch : str
            Which start of the job this is.
        fleet : FleetRecord, optional
            What it begins with of the processes of the start before.
        refusal : FailureView, optional
            The mistake that this start has found before.

        Raises
        ------
        TermLost
            If there is another one by now.
        """
        self._write(term, {"job": job, "launch": launch, "fleet": fleet, "refusal": refusal})

    def write(
        self,
        term: int,
        fields: dict[str, object],
        added: Mapping[str, Added] | None = None,
        *,
        patience_s: float | None = None,
    ) -> None:
        """Write facts in one durable transaction; wait for room where the disk is full.

        Parameters
        ----------
        term : int
            The writer's.  A transaction that has `term` among its facts begins it.
        added : mapping of str to Added, optional
            What comes behind the values of a fact; its name is not among the other facts.
        patience_s : float, optional
            How long a full disk is waited for, if not as long as `FullDisk` does.

        Raises
        ------
        TermLost
            If the stored term is not the writer's; nothing was written.
        DiskFull
            If there was no room for too long; nothing was written.
        """
        facts = fields | {
            entry_name(name, number): value
            for name, more in (added or {}).items()
            for number, value in enumerate(more.values, more.first)
        }
        self._write(term, facts, begins="term" in fields, patience_s=patience_s)

    def _write(
        self,
        term: int,
        facts: dict[str, object],
        *,
        begins: bool = False,
        is_first: bool = False,
        patience_s: float | None = None,
    ) -> None:
        with self._usable():
            self._disk.wait_for(
                lambda: self._transact(term, facts, begins=begins, is_first=is_first), patience_s
            )

    def _transact(self, term: int, facts: dict[str, object], *, begins: bool, is_first: bool) -> None:
        """Make facts durable, all or none, if it is the turn of a master of this term."""
        database = self._database
        database.execute("BEGIN IMMEDIATE")
        try:
            stored = fact(database, "term", int) or 0
            if (term <= stored) if begins else (term != stored):
                raise TermLost(f"{self._path} belongs to a master of term {stored}, this one has term {term}")
            if is_first and fact(database, "job", msgspec.Raw) is not None:
                raise TermLost(f"{self._path} holds the plan of another master by now")
            for name, value in facts.items():
                text = strict_json.encode(value)
                row = (name, text, checksum_of(name, text))
                database.execute("INSERT OR REPLACE INTO facts VALUES (?, ?, ?)", row)
            database.execute("COMMIT")
        except BaseException:
            with suppress(sqlite3.Error):  # SQLite has done so itself after some errors
                database.execute("ROLLBACK")
            raise


def planned_job(path: Path) -> Job | None:
    """Return the job of a journal that may be another process', writing nothing; None if there is none."""
    return looked_up(path, lambda database: fact(database, "job", Job))


def _state(facts: dict[str, bytes]) -> JournalState:
    """Return the state that facts tell; those that are entries of others are taken out of them."""
    known = typing.get_type_hints(JournalState)
    try:
        fields = {name: strict_json.parse(text, object) for name, text in facts.items() if name in known}
        state = strict_json.convert(fields, JournalState)
        longer: dict[str, list[Any]] = {}
        # Each becomes a record, and is let go, before the next: files that came in weeks are many.
        for entry in sorted(name for name in facts if name.partition(ENTRY)[0] in known and ENTRY in name):
            name = entry.partition(ENTRY)[0]
            kind = known[name]
            if typing.get_origin(kind) is not tuple:
                raise DamagedFact(f'"{name}" is no list')
            values = longer.setdefault(name, list(getattr(state, name)))
            if entry != entry_name(name, len(values)):
                raise DamagedFact(f'entry {len(values)} of "{name}" is missing')
            values.append(strict_json.decode(facts.pop(entry), typing.get_args(kind)[0]))
        more: dict[str, Any] = {name: tuple(values) for name, values in longer.items()}
        return dataclasses.replace(state, **more)
    except msgspec.DecodeError as error:
        raise DamagedFact(str(error)) from error
