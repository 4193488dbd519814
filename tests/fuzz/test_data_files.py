"""Damaged files of training data, and damaged indexes of them in a plan: only declared errors, no hang, no memory without end."""

import contextlib
import itertools
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from edlz.services.errors import DataError, EdlzError
from edlz.services.inputs.data import RecordSource
from edlz.services.inputs.listing import list_data
from edlz.services.inputs.reading import spans
from edlz.services.protocol.plan import DataSource, FileFacts, TaskRange
from tests.fuzz.fuzzing import cases, damaged, every_case
from tests.same_rows import FORMATS, write_rows

pytestmark = pytest.mark.fuzz

FULL = 10_000
COUNT = 60  # records of a file
NAMES = (*FORMATS, "rows.txt", "rows.tsv")


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("rows")
    write_rows(folder, COUNT)
    (folder / "rows.txt").write_bytes(b"".join(b"line %d\r\n" % i for i in range(COUNT)))
    (folder / "rows.tsv").write_bytes((folder / "quoted.csv").read_bytes().replace(b",", b"\t"))
    return folder


@pytest.fixture(autouse=True)
def _small_spans(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spans, "_LEAST_BYTES", 256)  # many spans in small files


def read_all(source: DataSource, ranges: list[TaskRange]) -> None:
    reading = RecordSource(source)
    with contextlib.closing(reading):
        for task_range in ranges:
            with contextlib.suppress(DataError):
                reading.read(task_range)


def planned(path: Path) -> tuple[DataSource, list[TaskRange]]:
    """Return how a file is read, and ranges of the records that it is said to have."""
    listed = list_data(str(path))
    (shard,) = listed.shards
    count = min(shard.count, 1000)
    bounds = [0, count // 3, count // 2, count]
    ranges = [TaskRange(name=shard.name, first=a, count=b - a) for a, b in itertools.pairwise(bounds)]
    return listed.source, ranges


def fuzz(path: Path, tmp_path: Path, play: Callable[[Path, bytes, random.Random], None], few: int) -> None:
    content = path.read_bytes()
    copy = tmp_path / path.name

    def one(chance: random.Random) -> None:
        copy.write_bytes(content)
        play(copy, content, chance)

    every_case(cases(few=few, full=FULL), one)


@pytest.mark.parametrize("name", NAMES)
def test_a_file_that_is_damaged_before_it_is_planned(rows: Path, tmp_path: Path, name: str) -> None:
    def play(copy: Path, content: bytes, chance: random.Random) -> None:
        copy.write_bytes(damaged(chance, content))
        with contextlib.suppress(EdlzError):
            read_all(*planned(copy))

    fuzz(rows / name, tmp_path, play, few=40)


@pytest.mark.parametrize("name", NAMES)
def test_a_file_that_is_damaged_later(rows: Path, tmp_path: Path, name: str) -> None:
    def play(copy: Path, content: bytes, chance: random.Random) -> None:
        about = planned(copy)
        copy.write_bytes(damaged(chance, content))
        read_all(*about)

    fuzz(rows / name, tmp_path, play, few=20)


@pytest.mark.parametrize("name", NAMES)
def test_a_plan_whose_index_is_damaged(rows: Path, tmp_path: Path, name: str) -> None:
    def play(copy: Path, content: bytes, chance: random.Random) -> None:
        source, ranges = planned(copy)
        files = tuple(_damaged_facts(facts, chance) for facts in source.files)
        read_all(msgspec.structs.replace(source, files=files), ranges)

    fuzz(rows / name, tmp_path, play, few=20)


def _damaged_facts(facts: FileFacts, chance: random.Random) -> FileFacts:
    changes: dict[str, Any] = {"index": damaged(chance, facts.index or b"\0" * 12)}
    if chance.random() < 0.3:
        changes["checksum"] = chance.choice((0, 1, 2**32 - 1, -1))
    if chance.random() < 0.1:
        changes["size_bytes"] = chance.choice((0, -1, 2**62))
    return msgspec.structs.replace(facts, **changes)
