"""The journal: durable, and closed to a master whose time is over."""

import math
import sqlite3
import tracemalloc
from contextlib import closing
from pathlib import Path

import msgspec
import pytest

from edlz.services.errors import DataError
from edlz.services.master.core.vocabulary.records import Added
from edlz.services.master.journal.journal import Journal, TermLost, planned_job
from edlz.services.master.journal.journal_facts import job_end
from edlz.services.protocol.concluded_rounds import ConcludedRound, Decision
from edlz.services.protocol.growing_plan import Piece
from edlz.services.protocol.plan import FileFacts, Shard
from tests import builders

PLAN = builders.plan(9, records_per_task=2)
JOB = builders.job(PLAN, config={"num_epochs": 1, "use_async": False}, partitions=2)


def test_facts_survive_the_process(tmp_path: Path) -> None:
    path = tmp_path / "journal.sqlite"
    with Journal(path) as journal:
        assert journal.job() is None
        assert journal.state().term == 0
        journal.begin(JOB)
        journal.write(1, {"term": 1})
        journal.write(1, {"evaluations": ((50, {"accuracy": 0.5}),), "sealed": ((1, 2),)})
    with Journal(path) as journal:
        assert journal.job() == JOB
        assert journal.state().term == 1
        assert journal.state().evaluations == ((50, {"accuracy": 0.5}),)
        assert not journal.state().is_complete


def test_what_was_skipped_survives_the_process(tmp_path: Path) -> None:
    path = tmp_path / "journal.sqlite"
    with Journal(path) as journal:
        journal.begin(JOB)
        journal.write(1, {"term": 1})
        journal.write(1, {"ends": ((3, 1), (8, 0)), "skipped_evaluations": (2,)})
    with Journal(path) as journal:
        assert journal.state().ends == ((3, 1), (8, 0))
        assert journal.state().skipped_evaluations == (2,)


def test_rounds_are_added_behind_those_of_before(tmp_path: Path) -> None:
    """The first ones as earlier versions wrote them: all in one fact."""
    path = tmp_path / "journal.sqlite"
    rounds = tuple(
        ConcludedRound(task=n, version=10 * n, decision=Decision(logs={"loss": math.inf}, result=n))
        for n in range(5)
    )
    metrics = tuple((n, {"accuracy": n / 10}) for n in range(3))
    with Journal(path) as journal:
        journal.begin(JOB)
        journal.write(1, {"term": 1, "rounds": rounds[:2]})
        assert job_end(path) == (0, 1)
        journal.write(
            1, {"task_count": 7}, {"rounds": Added(2, rounds[2:4]), "evaluations": Added(0, metrics)}
        )
        assert job_end(path) == (7, 3)
        for _ in range(2):  # a transaction that is made twice counts once
            journal.write(1, {}, {"rounds": Added(4, rounds[4:])})
    with Journal(path) as journal:
        assert journal.state().rounds == rounds
        assert journal.state().evaluations == metrics
    assert job_end(path) == (7, 4)


def test_many_files_that_have_come_are_read_in_little_room(tmp_path: Path) -> None:
    names = [f"/data/incoming/part-{number:05d}.csv" for number in range(4000)]
    pieces = tuple(
        Piece(
            shards=tuple(Shard(name=name, first=0, count=1000) for name in some),
            files=tuple(FileFacts(name=name, size_bytes=9999, index=b"12 bytes of it") for name in some),
        )
        for some in (names[at : at + 200] for at in range(0, len(names), 200))
    )
    with Journal(tmp_path / "journal.sqlite") as journal:
        journal.begin(JOB)
        journal.write(1, {"term": 1}, {"pieces": Added(0, pieces)})
        tracemalloc.start()
        found = journal.state().pieces
        kept_bytes, peak_bytes = tracemalloc.get_traced_memory()
        tracemalloc.stop()
    assert found == pieces
    assert peak_bytes < kept_bytes + 250 * len(names)  # the text and little else


def test_a_round_that_is_missing_is_damage(tmp_path: Path) -> None:
    path = tmp_path / "journal.sqlite"
    with Journal(path) as journal:
        journal.begin(JOB)
        journal.write(1, {"term": 1})
        journal.write(1, {}, {"evaluations": Added(0, ((1, {}), (2, {})))})
        with closing(sqlite3.connect(path, isolation_level=None)) as database:
            database.execute("DELETE FROM facts WHERE name LIKE 'evaluations/%0'")
        with pytest.raises(DataError, match='is damaged: entry 0 of "evaluations" is missing'):
            journal.state()


def test_an_older_master_cannot_write(tmp_path: Path) -> None:
    path = tmp_path / "journal.sqlite"
    with Journal(path) as old, Journal(path) as new:
        old.begin(JOB)
        old.write(1, {"term": 1})
        new.write(2, {"term": 2})
        with pytest.raises(TermLost, match="term 2"):
            old.write(1, {"is_complete": True})
        assert not new.state().is_complete
        with pytest.raises(TermLost):
            old.write(2, {"term": 2})


def test_an_older_master_cannot_change_the_job(tmp_path: Path) -> None:
    path = tmp_path / "journal.sqlite"
    with Journal(path) as old, Journal(path) as new:
        old.begin(JOB, "first")
        with pytest.raises(TermLost, match="another master"):
            new.begin(JOB)
        new.write(1, {"term": 1})
        with pytest.raises(TermLost, match="term 1"):
            old.begin(JOB)
        with pytest.raises(TermLost, match="term 1"):
            old.change_job(msgspec.structs.replace(JOB, run="other"), term=0)
        assert (new.job(), new.state().launch) == (JOB, "first")
        changed = msgspec.structs.replace(JOB, run="other")
        new.change_job(changed, term=1, launch="second")
        assert (old.job(), old.state().launch) == (changed, "second")


def test_another_file_is_refused_by_name(tmp_path: Path) -> None:
    path = tmp_path / "journal.sqlite"
    path.write_bytes(b"this is no database, only some text that is long enough for a header" * 20)
    with pytest.raises(DataError, match=r"journal\.sqlite cannot be used"):
        Journal(path)


def test_others_may_read_what_is_planned(tmp_path: Path) -> None:
    path = tmp_path / "journal #1?.sqlite"
    assert planned_job(path) is None
    assert not path.exists()
    path.write_text("no journal, but longer than the head of a database would be" * 20)
    assert planned_job(path) is None
    path.unlink()
    with Journal(path) as journal:
        assert planned_job(path) is None
        journal.begin(JOB)
        assert planned_job(path) == JOB
    assert planned_job(path) == JOB
