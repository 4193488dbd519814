"""Damaged files of each kind that edlz reads: only declared errors, no hang, no memory without end."""

import contextlib
import os
import random
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import numpy as np
import pytest

from edlz.api.recordio import Reader, RecordIOError, Writer, count_records
from edlz.client.cli import OUR_BUG, main
from edlz.client.local.share.share_file import LocalSlots
from edlz.k8s.container_end import read_mark, write_mark
from edlz.services import strict_json
from edlz.services.configuration.arguments import read_config
from edlz.services.errors import EdlzError
from edlz.services.master.core.vocabulary.records import FleetRecord
from edlz.services.master.journal.journal import Journal, planned_job
from edlz.services.protocol.job_status import EvaluationView, EventView, FailureView, JobStatus, PartitionView
from edlz.services.protocol.ledger import LedgerRecord
from edlz.services.statistics import columns as columns_of
from edlz.services.statistics.figures import encode, merged
from edlz.services.statistics.kept import pack, unpack
from edlz.services.statistics.parts import TaskStatistics, write_statistics
from edlz.services.storage.checkpoint_reading import read_partition
from edlz.services.storage.snapshots import SnapshotFolder
from edlz.services.storage.state import MemoryRows
from edlz.services.storage.versions import list_versions, newest_good, newest_run
from edlz.services.transport.keys import ROLES, load_job_keys, load_keys, make_job_keys, write_keys
from tests import builders
from tests.command_logging import logging_restored
from tests.fuzz.fuzzing import cases, damaged, every_case
from tests.states import make_state, save

pytestmark = pytest.mark.fuzz

FULL = 10_000
PLAN = builders.plan(18, records_per_task=4, minibatch_size=2)
JOB = builders.job(PLAN, name="mnist", config={"job_name": "mnist", "num_epochs": 2})
STATUS = JobStatus(
    name="mnist",
    state="Succeeded",
    mode="sync",
    slots=1,
    started_at=1.0,
    now=9.0,
    version=9,
    epochs=2,
    evaluations=(EvaluationView(version=9, metrics={"loss": float("nan"), "accuracy": 0.5}),),
    partitions=(PartitionView(id="0", state="sealed", version=9, expected=9, applied=9),),
    events=(EventView(seq=1, at=2.0, kind="worker", text="worker-0 joined."),),
    failure=FailureView(text="it failed", where="task 3", error="ValueError: no", help="mend it"),
)
LOG = """\
[2026-05-04 09:12:14,170] [INFO] [worker.py:201:log_loss] Loss = 0.08, steps = 100
[2026-05-04 09:12:15,170] [WARNING] [master.py:1:f] worker=1 task=3
Traceback (most recent call last):
  File "x.py", line 1, in <module>
ValueError: no
{"time": "2026-05-04T09:12:16.000Z", "level": "info", "message": "as JSON", "task": 3}
"""
SETTINGS = """\
job_name: mnist
model_def: mnist.mnist_functional_api.custom_model
num_workers: 2
minibatch_size: 32
use_async: false
training_data: "data/train"
"""


@pytest.fixture(autouse=True)
def _place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("EDLZ_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("EDLZ_DEBUG", raising=False)
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)
    monkeypatch.chdir(tmp_path)
    with logging_restored():
        yield


def damage_every_file(
    folder: Path, seeds: range, read: Callable[[Path], object], declared: type[Exception] = EdlzError
) -> None:
    """Read copies of a folder of which one file, or two, are damaged.

    Parameters
    ----------
    read : callable
        Returns nothing, or the exit code of a command.
    """
    files = sorted(path.relative_to(folder) for path in folder.rglob("*") if path.is_file())
    contents = {name: (folder / name).read_bytes() for name in files}
    copy = folder.with_name(f"{folder.name}-damaged")

    def play(chance: random.Random) -> None:
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(folder, copy)
        for name in {chance.choice(files) for _ in range(chance.choice((1, 1, 2)))}:
            (copy / name).write_bytes(damaged(chance, contents[name]))
        with contextlib.suppress(declared):
            read(copy)

    assert not read(folder), "what is not damaged is read without complaint"
    every_case(seeds, play)


def run_edlz(*arguments: str) -> int:
    """Run a command in this process: it may fail, but not by a bug of ours; return its exit code."""
    code = main(arguments)
    assert code != OUR_BUG
    return code


# ---------------------------------------------------------------- statistics


def test_statistics(tmp_path: Path) -> None:
    folder = tmp_path / "statistics"
    folder.mkdir()
    columns = {"x": "float64", "n": "int64", "t": "string"}
    values = {"x": np.arange(9.0), "n": np.arange(9), "t": np.array([b"a", b"b", b""] * 3, object)}
    for place in range(2):
        states = {name: columns_of.make_state(kind) for name, kind in columns.items()}
        for name, state in states.items():
            state.add(values[name])
        write_statistics(folder / f"part-{place}", TaskStatistics(9, states))
    (folder / "statistics.json").write_bytes(encode(merged(sorted(folder.iterdir()), 9)))

    def read(place: Path) -> None:
        merged([place / "part-0", place / "part-1"], 9)
        unpack(pack(place / "statistics.json"))

    damage_every_file(folder, cases(few=100, full=FULL), read)


# ---------------------------------------------------------------- a job's folder


def make_job_folder(folder: Path) -> Path:
    (folder / "logs").mkdir(parents=True)
    (folder / ".edlz-job").touch()
    (folder / "job.yaml").write_text(SETTINGS)
    (folder / "status.json").write_bytes(strict_json.encode(STATUS))
    (folder / "logs" / "master.log").write_text(LOG)
    (folder / "logs" / "worker-0.log").write_text(LOG)
    return folder


def write_journal(path: Path) -> None:
    facts = {
        "term": 3,
        "is_complete": False,
        "digest": "d",
        "evaluations": ((9, {"loss": float("nan")}),),
        "fleet": FleetRecord(asked=2, target=2, next_id=4, crew=(1, 3)),
        "ends": ((1, 2),),
        "skipped_evaluations": (1,),
    }
    with Journal(path) as journal:
        journal.begin(JOB)
        journal.write(3, facts)


def test_journals(tmp_path: Path) -> None:
    (tmp_path / "job").mkdir()
    write_journal(tmp_path / "job" / "journal.sqlite")

    def read(folder: Path) -> None:
        planned_job(folder / "journal.sqlite")
        with Journal(folder / "journal.sqlite") as journal:
            journal.job()
            term = journal.state().term
            journal.write(term + 1, {"term": term + 1})

    damage_every_file(tmp_path / "job", cases(few=100, full=FULL), read)


@pytest.mark.parametrize("command", [("status",), ("status", "-o", "json"), ("logs",), ("ls",)])
def test_folders_of_jobs(tmp_path: Path, command: tuple[str, ...]) -> None:
    """The status, the settings, the logs, the marks: what the commands read of a job that is not led."""
    folder = make_job_folder(tmp_path / "job")
    files = folder if command[0] != "ls" else ""

    def read(place: Path) -> int:
        return run_edlz(*command, *([str(place)] if files else []))

    damage_every_file(folder, cases(few=20, full=FULL // 5), read)


@pytest.mark.parametrize("name", ["status.json", "job.yaml", "logs/master.log"])
def test_files_of_a_job(tmp_path: Path, name: str) -> None:
    folder = make_job_folder(tmp_path / "job")
    data = (folder / name).read_bytes()
    command = "logs" if name.startswith("logs") else "status"

    def play(chance: random.Random) -> None:
        (folder / name).write_bytes(damaged(chance, data))
        run_edlz(command, str(folder))

    assert run_edlz(command, str(folder)) == 0
    every_case(cases(few=30, full=FULL), play)


def test_config_files(tmp_path: Path) -> None:
    path = tmp_path / "job.yaml"

    def play(chance: random.Random) -> None:
        path.write_bytes(damaged(chance, SETTINGS.encode()))
        with contextlib.suppress(EdlzError):
            read_config([f"--config={path}"], "train", {}).checked()

    every_case(cases(few=100, full=FULL), play)


def test_ended_marks(tmp_path: Path) -> None:
    (tmp_path / "job").mkdir()
    write_mark(tmp_path / "job", "uid", 1, STATUS)

    def read(folder: Path) -> None:
        read_mark(folder, "uid")

    mark = read_mark(tmp_path / "job", "uid")
    assert mark is not None
    assert mark[0] == 1
    damage_every_file(tmp_path / "job", cases(few=100, full=FULL), read)


def test_slot_files(tmp_path: Path) -> None:
    def slots(home: Path) -> LocalSlots:
        return LocalSlots(home, "mnist", 4, minimum=1, say=lambda text: None)

    mine = slots(tmp_path / "home")
    mine.room(2, 0)

    def read(home: Path) -> None:
        again = slots(home)
        assert 0 <= again.room(2, 0) <= 4
        again.leave()

    damage_every_file(tmp_path / "home", cases(few=100, full=FULL), read)


def test_key_files(tmp_path: Path) -> None:
    write_keys(tmp_path / "keys", make_job_keys())

    def read(folder: Path) -> None:
        for path in folder.iterdir():
            path.chmod(0o600)
        for role in ROLES:
            load_keys(folder, role)
        load_job_keys(folder)

    damage_every_file(tmp_path / "keys", cases(few=100, full=FULL), read)


# ---------------------------------------------------------------- states and checkpoints


def test_snapshots(tmp_path: Path) -> None:
    folder = SnapshotFolder(0, tmp_path / "job")
    folder.open(JOB)
    for version in (0, 5):
        state = make_state(version=version)
        folder.write(msgspec.structs.replace(state, ledger=LedgerRecord(finished=(0, 2))), (1, 1))

    good: list[int] = []

    def read(place: Path) -> None:
        snapshots = SnapshotFolder(0, place)
        snapshots.open(JOB)
        good.clear()
        for name in snapshots.names():
            with contextlib.suppress(EdlzError):
                state = snapshots.load(name)
                with contextlib.closing(state):
                    for rows in state.rows:
                        MemoryRows.of(rows)
                good.append(state.version)

    read(tmp_path / "job")
    assert sorted(good) == [0, 5]
    damage_every_file(tmp_path / "job", cases(few=60, full=FULL), read)


def test_checkpoints(tmp_path: Path) -> None:
    for version in (5, 7):
        save(tmp_path / "checkpoints", version, partitions=2)

    def read(folder: Path) -> None:
        list_versions(folder)
        newest_run(folder)
        for partitions in (2, 3):
            with contextlib.closing(read_partition(newest_good(folder), 1, partitions)) as state:
                for rows in state.rows:
                    MemoryRows.of(rows)

    damage_every_file(tmp_path / "checkpoints", cases(few=40, full=FULL), read)


@pytest.mark.parametrize("command", ["ls", "show", "verify"])
def test_checkpoints_as_they_are_shown(tmp_path: Path, command: str) -> None:
    for version in (5, 7):
        save(tmp_path / "checkpoints", version, partitions=2)

    def read(folder: Path) -> int:
        return run_edlz("checkpoint", command, str(folder))

    damage_every_file(tmp_path / "checkpoints", cases(few=10, full=FULL // 10), read)


# ---------------------------------------------------------------- RecordIO


# By version 0.0.7, framed, and by 0.0.4, as one block.
WRITTEN_BY_PYRECORDIO = {
    "snappy": bytes.fromhex(
        "04030201470ac66f010000002600000003000000ff060000734e6150705900180000964b1be9"
        "3538010000006100000000280000006263960200"
    ),
    "legacy": bytes.fromhex(
        "04030201030000007c28c57e02000000140000003538010000006100000000280000006263960200"
    ),
}


def read_records(path: Path) -> None:
    with contextlib.suppress(RecordIOError):
        count_records(path)
    with Reader(path) as reader:
        for first in range(0, min(len(reader), 1000), 100):
            reader.read(first, min(100, len(reader) - first))
        reader.take(np.arange(min(len(reader), 10)))


@pytest.mark.parametrize("kind", ["none", "gzip", "snappy", "legacy"])
def test_record_files(tmp_path: Path, kind: str) -> None:
    chance = random.Random(3)
    (tmp_path / "data").mkdir()
    path = tmp_path / "data" / "part"
    if kind in WRITTEN_BY_PYRECORDIO:
        path.write_bytes(WRITTEN_BY_PYRECORDIO[kind] * 3)
    else:
        with Writer(path, compressor=kind, chunk_bytes=200) as writer:  # type: ignore[arg-type]
            for length in (0, 1, 40, 300, 7):
                writer.write(chance.randbytes(length))
    seeds = cases(few=100, full=FULL)
    damage_every_file(tmp_path / "data", seeds, lambda folder: read_records(folder / "part"), RecordIOError)
