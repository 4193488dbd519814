"""The job's journal: one SQLite file that survives the master.

It holds the truth about the job (plan, term, decisions, results); the truth about work lies in the
partitions' ledgers.  Every transaction is durable when it returns, and checks that no younger master has
begun: an older one must not speak any more (PROTOCOL: section 6).
"""

import sqlite3
from contextlib import closing
from pathlib import Path
from urllib.parse import quote

import msgspec

from edlz.services import strict_json
from edlz.services.errors import DataError, LocalProtocolError
from edlz.services.master.entries import JournalState
from edlz.services.messages import Job

__all__ = ["Journal", "TermLost", "planned_job"]

SCHEMA_VERSION = 1


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
        If the file is no journal, or one of a newer edlz.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        try:
            self._database = sqlite3.connect(path, isolation_level=None, timeout=10)
        except sqlite3.Error as error:
            raise self._unusable(error) from error
        try:
            self._prepare()
        except sqlite3.Error as error:
            self._database.close()
            raise self._unusable(error) from error
        except DataError:
            self._database.close()
            raise

    def _unusable(self, error: sqlite3.Error) -> DataError:
        reason = f"{self._path} cannot be used as the job's journal: {error}"
        return DataError(reason, "use another --job_dir")

    def _prepare(self) -> None:
        database = self._database
        database.execute("PRAGMA journal_mode=WAL")
        database.execute("PRAGMA synchronous=FULL")
        version = database.execute("PRAGMA user_version").fetchone()[0]
        if version > SCHEMA_VERSION:
            raise DataError(
                f"{self._path} was written by a newer edlz", "use that version, or another --job_dir"
            )
        database.execute("CREATE TABLE IF NOT EXISTS facts (name TEXT PRIMARY KEY, value BLOB NOT NULL)")
        database.execute(f"PRAGMA user_version={SCHEMA_VERSION}")

    def __enter__(self) -> "Journal":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._database.close()

    def job(self) -> Job | None:
        """Return the job as it was planned, or None before it was."""
        row = self._database.execute("SELECT value FROM facts WHERE name = 'job'").fetchone()
        return strict_json.decode(row[0], Job) if row else None

    def state(self) -> JournalState:
        """Return what earlier masters left."""
        rows = self._database.execute("SELECT name, value FROM facts WHERE name != 'job'").fetchall()
        fields = {
            name: msgspec.json.decode(value)
            for name, value in rows
            if name in JournalState.__dataclass_fields__
        }
        return strict_json.convert(fields, JournalState)

    def begin(self, job: Job) -> None:
        """Enter a new job's plan, before its first term."""
        self._database.execute("INSERT INTO facts VALUES ('job', ?)", (strict_json.encode(job),))

    def change_job(self, job: Job) -> None:
        """Enter other settings of the job, before the next master's term; its plan stays."""
        self._database.execute("UPDATE facts SET value = ? WHERE name = 'job'", (strict_json.encode(job),))

    def write(self, term: int, fields: dict[str, object]) -> None:
        """Write facts in one durable transaction.

        Parameters
        ----------
        term : int
            The writer's.  A transaction that has `term` among its facts begins it.

        Raises
        ------
        TermLost
            If the stored term is not the writer's; nothing was written.
        """
        database = self._database
        database.execute("BEGIN IMMEDIATE")
        try:
            row = database.execute("SELECT value FROM facts WHERE name = 'term'").fetchone()
            stored = int(msgspec.json.decode(row[0])) if row else 0
            if (term <= stored) if "term" in fields else (term != stored):
                raise TermLost(f"{self._path} belongs to a master of term {stored}, this one has term {term}")
            for name, value in fields.items():
                database.execute(
                    "INSERT OR REPLACE INTO facts VALUES (?, ?)", (name, strict_json.encode(value))
                )
        except BaseException:
            database.execute("ROLLBACK")
            raise
        database.execute("COMMIT")


def planned_job(path: Path) -> Job | None:
    """Return the job of a journal that may be another process', writing nothing; None if there is none."""
    try:
        with closing(sqlite3.connect(f"file:{quote(str(path))}?mode=ro", uri=True, timeout=1)) as database:
            row = database.execute("SELECT value FROM facts WHERE name = 'job'").fetchone()
        return strict_json.decode(row[0], Job) if row else None
    except (sqlite3.Error, msgspec.DecodeError):
        return None
