"""The folder of predictions and the formats of its files."""

import csv
import errno
import hashlib
import json
import os
import queue
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edlz.api import recordio
from edlz.services.errors import ConfigError, DataError, ModelError
from edlz.services.predictions.formats import write_table
from edlz.services.predictions.output import (
    CLAIM,
    MANIFEST,
    Part,
    PredictionManifest,
    check_free,
    claim,
    part_name,
    publish,
    read_manifest,
    write_part,
)
from edlz.services.predictions.table import Column, PredictionTable, Ragged
from edlz.services.protocol.messages import PartFile
from edlz.services.worker.part_writer import PartWriter
from tests import builders

NAME = part_name(0, 2, "jsonl")


def text(content: str) -> Callable[[Path], object]:
    return lambda path: path.write_text(content)


def put(folder: Path, content: str = "x", *, run: str = "r", name: str = NAME) -> PartFile:
    return write_part(folder, name, run, "me", text(content))


def manifest(*parts: PartFile, job: str = "j") -> PredictionManifest:
    entries = tuple(
        Part(
            file=part_name(task, 2, "jsonl"),
            task=task,
            shard="data/a",
            first=4 * task,
            records=4,
            bytes=part.bytes,
            checksum=part.checksum,
        )
        for task, part in enumerate(parts)
    )
    return PredictionManifest(
        job=job, checkpoint="c/version-7", version=7, format="jsonl", records=8, tasks=2, parts=entries
    )


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


# ---------------------------------------------------------------- the folder


def test_parts_then_the_manifest(tmp_path: Path) -> None:
    out = tmp_path / "new" / "out"
    claim(out, "j", "r", is_new=True)
    first, again, second = put(out), put(out), put(out, "yz", name=part_name(1, 2, "jsonl"))
    assert first == again == PartFile(bytes=1, checksum=f"sha256:{hashlib.sha256(b'x').hexdigest()}")
    assert read_manifest(out) is None
    (out / "part-00009-of-00010.csv").touch()  # of a task that was left out, and whose worker died
    (out / f".{NAME}.dead-worker.tmp").touch()
    whole = manifest(first, second)
    assert publish(out, whole, "r") == ()
    assert read_manifest(out) == whole
    assert names(out) == [MANIFEST, NAME, part_name(1, 2, "jsonl")]
    assert publish(out, whole, "r") == (), "a master that was lost right after it does it again"
    assert put(out, "late") is not None
    assert (out / NAME).read_text() == "x", "what is whole is not touched"
    assert names(out) == [MANIFEST, NAME, part_name(1, 2, "jsonl")]


def test_a_file_that_is_not_as_reported_is_missing(tmp_path: Path) -> None:
    claim(tmp_path, "j", "r", is_new=True)
    first, second = put(tmp_path), put(tmp_path, "yz", name=part_name(1, 2, "jsonl"))
    (tmp_path / NAME).write_text("longer")
    (tmp_path / part_name(1, 2, "jsonl")).unlink()
    assert publish(tmp_path, manifest(first, second), "r") == (0, 1)
    assert read_manifest(tmp_path) is None


def test_an_unfinished_run_gives_way_to_the_next_one_of_its_job(tmp_path: Path) -> None:
    claim(tmp_path, "j", "old", is_new=True)
    put(tmp_path, run="old")
    (tmp_path / "README").write_text("mine")
    claim(tmp_path, "j", "old", is_new=False)
    assert NAME in names(tmp_path), "what a run goes on with stays"
    with pytest.raises(ConfigError, match='unfinished predictions of job "j"'):
        claim(tmp_path, "other", "r", is_new=True)
    claim(tmp_path, "j", "new", is_new=True)
    assert names(tmp_path) == [CLAIM, "README"]
    with pytest.raises(ConfigError, match="not the folder that the master has made"):
        put(tmp_path, "of a zombie", run="old")
    assert names(tmp_path) == [CLAIM, "README"]


def test_a_worker_that_sees_another_folder_is_told(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as told:
        put(tmp_path / "elsewhere")
    assert "one folder that the master and all workers share" in told.value.help


def test_two_jobs_in_one_folder(tmp_path: Path) -> None:
    claim(tmp_path, "j", "r", is_new=True)
    part = put(tmp_path)
    (tmp_path / CLAIM).unlink()
    claim_of_other = tmp_path / CLAIM
    claim_of_other.write_text('{"job": "other", "run": "s"}')
    with pytest.raises(ConfigError, match="is not this job's any more"):
        publish(tmp_path, manifest(part), "r")
    claim_of_other.unlink()
    (tmp_path / MANIFEST).write_text("{}")
    with pytest.raises(ConfigError, match="is not this job's any more"):
        publish(tmp_path, manifest(part), "r")


def test_a_manifest_of_something_else_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / MANIFEST).write_text('{"name": "an app"}')
    with pytest.raises(ConfigError, match="is no manifest of predictions"):
        check_free(tmp_path, "j")
    with pytest.raises(DataError):
        read_manifest(tmp_path)


@pytest.mark.parametrize("name", ["part-x.csv", "part-00000-of-00001.csv", "notes.txt", "data", CLAIM])
def test_a_folder_with_files_of_others_is_refused(name: str, tmp_path: Path) -> None:
    (tmp_path / ".hidden").touch()
    (tmp_path / "lost+found").mkdir()
    check_free(tmp_path, "j")
    (tmp_path / name).touch()
    with pytest.raises(ConfigError, match=f"holds {name}, which no unfinished run of this job") as told:
        check_free(tmp_path, "j")
    assert "name an empty or a new folder" in told.value.help
    with pytest.raises(ConfigError):
        claim(tmp_path, "j", "r", is_new=True)


def test_files_that_could_be_taken_for_predictions_are_refused_in_a_jobs_own_folder(tmp_path: Path) -> None:
    claim(tmp_path, "j", "r", is_new=True)
    put(tmp_path)
    check_free(tmp_path, "j")
    (tmp_path / "part-x.csv").touch()
    (tmp_path / "part-y.csv").touch()
    with pytest.raises(ConfigError, match=r"holds part-x\.csv and 1 more, which"):
        check_free(tmp_path, "j")


@pytest.mark.parametrize("content", ["", "{}", "[]", "\xff"])
def test_a_manifest_that_says_nothing_is_left_alone(content: str, tmp_path: Path) -> None:
    (tmp_path / MANIFEST).write_text(content, encoding="latin-1")
    with pytest.raises(ConfigError, match="is no manifest of predictions") as told:
        check_free(tmp_path, "j")
    assert "name an empty or a new folder" in told.value.help
    assert (tmp_path / MANIFEST).read_text(encoding="latin-1") == content


def test_a_failed_write_leaves_nothing(tmp_path: Path) -> None:
    claim(tmp_path, "j", "r", is_new=True)

    def fail(path: Path) -> None:
        path.write_text("half")
        raise OSError(errno.EIO, "broken")

    with pytest.raises(OSError, match="broken"):
        write_part(tmp_path, NAME, "r", "me", fail)
    assert names(tmp_path) == [CLAIM]


# ---------------------------------------------------------------- the formats

NUMBERS = np.array([[0.5, 1.0], [np.nan, np.inf], [-np.inf, 3.0]], np.float32)
FLAT: dict[str, Column] = {
    "score": np.array([0.25, 1.5, -2.0], np.float32),
    "class": np.array([1, 2, 3], np.int64),
    "sure": np.array([True, False, True]),
    "name": np.array([b"a", "\u00e4,b".encode(), b""], object),
    "vector": NUMBERS,
}
RAGGED = Ragged([[1, 2], [], [3]], np.dtype(np.int64), 1)
TEXTS = Ragged([[b"x", b"y"], [], [b"z"]], np.dtype(object), 1)


def table(**columns: Column) -> PredictionTable:
    return PredictionTable([f"a:{number}" for number in (4, 5, 6)], columns)


def written(folder: Path, name: str, what: PredictionTable) -> bytes:
    write_table(folder / "1", name, what)
    write_table(folder / "2", name, what)
    assert (folder / "1").read_bytes() == (folder / "2").read_bytes()
    return (folder / "1").read_bytes()


def test_jsonl(tmp_path: Path) -> None:
    cube = np.arange(6.0).reshape(3, 2, 1)
    lines = written(tmp_path, "jsonl", table(**FLAT, lists=RAGGED, texts=TEXTS, cube=cube)).splitlines()
    assert json.loads(lines[0]) == {
        "record": "a:4",
        "score": 0.25,
        "class": 1,
        "sure": True,
        "name": "a",
        "vector": [0.5, 1.0],
        "lists": [1, 2],
        "texts": ["x", "y"],
        "cube": [[0.0], [1.0]],
    }
    assert json.loads(lines[1])["vector"] == ["NaN", "Infinity"]
    assert json.loads(lines[1])["name"] == "\u00e4,b"
    odd = Ragged([[1.0], [float("nan")], []], np.dtype(np.float32), 1)
    assert b'"odd":["NaN"]' in written(tmp_path, "jsonl", table(odd=odd))


def test_csv(tmp_path: Path) -> None:
    found = list(csv.reader(written(tmp_path, "csv", table(**FLAT)).decode().splitlines()))
    assert found[0] == ["record", "score", "class", "sure", "name", "vector_0", "vector_1"]
    assert found[2] == ["a:5", "1.5", "2", "False", "\u00e4,b", "nan", "inf"]
    one = written(tmp_path, "csv", table(logit=NUMBERS[:, :1])).decode()
    assert one.splitlines()[:2] == ["record,logit", "a:4,0.5"]
    for column in (RAGGED, np.zeros((3, 2, 2))):
        with pytest.raises(ModelError, match=r'output "x" has .*csv takes numbers and vectors') as told:
            written(tmp_path, "csv", table(x=column))
        assert told.value.help == "--prediction_format=jsonl"


def test_recordio(tmp_path: Path) -> None:
    tf = pytest.importorskip("tensorflow")
    written(tmp_path, "recordio", table(**FLAT, lists=RAGGED, texts=TEXTS))
    with recordio.Reader(tmp_path / "1") as reader:
        examples = [tf.train.Example.FromString(record).features.feature for record in reader.read(0, 3)]
    assert [example["record"].bytes_list.value[0] for example in examples] == [b"a:4", b"a:5", b"a:6"]
    assert list(examples[0]["vector"].float_list.value) == [0.5, 1.0]
    assert list(examples[1]["lists"].int64_list.value) == []
    assert list(examples[0]["texts"].bytes_list.value) == [b"x", b"y"]
    assert examples[2]["class"].int64_list.value[0] == 3
    with pytest.raises(ModelError, match="ragged in 2 dimensions"):
        written(tmp_path, "recordio", table(x=Ragged([[[1]], [], []], np.dtype(np.int64), 2)))
    with pytest.raises(ModelError, match="does not fit int64"):
        written(tmp_path, "recordio", table(x=np.array([0, 1, 2**64 - 1], np.uint64)))


def test_parquet(tmp_path: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    cube = np.arange(12.0).reshape(3, 2, 2)
    written(tmp_path, "parquet", table(**FLAT, lists=RAGGED, texts=TEXTS, cube=cube))
    found = parquet.read_table(tmp_path / "1")
    assert found.column_names == ["record", *FLAT, "lists", "texts", "cube"]
    assert str(found.schema.field("vector").type) == "fixed_size_list<element: float>[2]"
    assert found["lists"].to_pylist() == [[1, 2], [], [3]]
    assert found["texts"].to_pylist() == [["x", "y"], [], ["z"]]
    assert found["name"].to_pylist() == ["a", "\u00e4,b", ""]
    assert found["cube"].to_pylist() == cube.tolist()


@pytest.mark.parametrize("name", ["jsonl", "csv"])
def test_texts_that_are_none(name: str, tmp_path: Path) -> None:
    with pytest.raises(ModelError, match='output "x" has bytes that are no UTF-8 text'):
        written(tmp_path, name, table(x=np.array([b"\xff", b"", b""], object)))


# ---------------------------------------------------------------- the writer's thread


def writer(
    folder: Path, patience_s: float = 300.0, tell: Callable[[str], None] = lambda _: None
) -> PartWriter:
    plan = builders.plan(records_per_task=3, minibatch_size=3, epochs=0, evaluated=6, predicts=True)
    return PartWriter(folder, "jsonl", plan, "r", patience_s, tell=tell)


def test_a_full_disk_is_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("edlz.services.worker.part_writer.PAUSE_S", 0.01)
    claim(tmp_path, "j", "r", is_new=True)
    left, real = [errno.ENOSPC, errno.EDQUOT], os.replace

    def replace(source: Path, target: Path) -> None:
        if left and target.name.startswith("part-"):
            raise OSError(left.pop(), "full")
        real(source, target)

    monkeypatch.setattr(os, "replace", replace)
    told: list[str] = []
    own = writer(tmp_path, tell=told.append)
    part = own.write(1, table(**FLAT))
    own.close()
    assert left == []
    assert told == [f"no room on the disk for {tmp_path}: it is waited for", ""]
    assert (tmp_path / part_name(1, 2, "jsonl")).stat().st_size == part.bytes


@pytest.mark.parametrize(
    ("number", "message"), [(errno.ENOSPC, "had no room within 0s"), (errno.EACCES, "cannot be written")]
)
def test_a_disk_that_cannot_be_written(
    number: int, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("edlz.services.worker.part_writer.PAUSE_S", 0.01)
    claim(tmp_path, "j", "r", is_new=True)

    def replace(source: Path, target: Path) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "replace", replace)
    told: list[str] = []
    own = writer(tmp_path, 0.0, told.append)
    with pytest.raises(ConfigError, match=message):
        own.write(1, table(**FLAT))
    own.close()
    assert "".join(told[-1:]) == "", "nothing is waited for any more"
    assert names(tmp_path) == [CLAIM]


def test_several_files_that_wait_are_one_wait(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is told when the first one begins to wait, and when the last one has its room."""
    monkeypatch.setattr("edlz.services.worker.part_writer.PAUSE_S", 0.01)
    claim(tmp_path, "j", "r", is_new=True)
    waiting, has_room, real = {0: threading.Event(), 1: threading.Event()}, threading.Event(), os.replace

    def replace(source: Path, target: Path) -> None:
        if target.name.startswith("part-") and not has_room.is_set():
            waiting[int(target.name[5:10])].set()
            raise OSError(errno.ENOSPC, "full")
        real(source, target)

    monkeypatch.setattr(os, "replace", replace)
    told: list[str] = []
    own, written_files = writer(tmp_path, tell=told.append), queue.SimpleQueue[object]()
    for task in range(2):
        own.submit(task, table(**FLAT), written_files.put, written_files.put)
    for event in waiting.values():
        assert event.wait(30.0)
    has_room.set()
    assert all(isinstance(written_files.get(timeout=30.0), PartFile) for _ in range(2))
    own.close()
    assert told in ([told[0], ""], [told[0], "", told[0], ""])  # one may have its room before the other waits
    assert told[0].startswith("no room on the disk")


def in_the_middle(monkeypatch: pytest.MonkeyPatch, happens: Callable[[], object]) -> None:
    """Let something happen while a task's file is written for the first time."""
    left = [happens]

    def write(path: Path, **about: Any) -> None:
        write_table(path, **about)
        if left:
            left.pop()()

    monkeypatch.setattr("edlz.services.worker.part_writer.write_table", write)


def test_a_master_that_is_started_again_leaves_what_is_being_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    claim(tmp_path, "j", "r", is_new=True)
    own, there = writer(tmp_path), []

    def begin_again() -> None:
        before = names(tmp_path)
        claim(tmp_path, "j", "r", is_new=False)
        there.extend((before, names(tmp_path)))

    in_the_middle(monkeypatch, begin_again)
    own.write(1, table(**FLAT))
    own.close()
    assert there[0] == there[1]
    assert names(tmp_path) == [CLAIM, part_name(1, 2, "jsonl")]


def test_a_task_may_be_written_twice_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is leased anew by a master that was started again, while the worker waits for its disk."""
    claim(tmp_path, "j", "r", is_new=True)
    own, parts = writer(tmp_path), []
    in_the_middle(monkeypatch, lambda: parts.append(own.write(1, table(**FLAT))))
    parts.append(own.write(1, table(**FLAT)))
    own.close()
    assert parts[0] == parts[1]
    assert names(tmp_path) == [CLAIM, part_name(1, 2, "jsonl")]


def test_what_is_written_late_may_be_cleared_away(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another worker was quicker, and all is whole: that is no failure of the job."""
    claim(tmp_path, "j", "r", is_new=True)
    own, name = writer(tmp_path), part_name(1, 2, "jsonl")
    first, second = own.write(0, table(**FLAT)), own.write(1, table(**FLAT))
    in_the_middle(monkeypatch, lambda: publish(tmp_path, manifest(first, second), "r"))
    assert own.write(1, table(**FLAT)) == second
    own.close()
    assert names(tmp_path) == [MANIFEST, part_name(0, 2, "jsonl"), name]
