"""Listing shards and reading tasks: order, hidden files, mistakes in paths, damage, many threads."""

import os
import threading
from pathlib import Path

import numpy as np
import pytest

from edlz.api.recordio import Writer
from edlz.services.errors import ConfigError, DataError
from edlz.services.inputs.data import RecordSource
from edlz.services.inputs.listing import list_shards
from edlz.services.protocol.plan import Shard, TaskRange
from tests.rights import without_rights


def write(path: Path, count: int) -> list[bytes]:
    records = [f"{path.name}:{i}".encode() for i in range(count)]
    path.parent.mkdir(exist_ok=True)
    with Writer(path) as writer:
        for record in records:
            writer.write(record)
    return records


def test_a_directory_is_listed_in_the_order_of_its_names(tmp_path):
    for name, count in (("b", 3), ("a", 5), (".hidden", 1), ("_index", 1), ("empty", 0)):
        write(tmp_path / name, count)
    (tmp_path / "folder").mkdir()
    assert list_shards(str(tmp_path)) == (
        Shard(name=f"{tmp_path}/a", first=0, count=5),
        Shard(name=f"{tmp_path}/b", first=0, count=3),
    )


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda path: path.symlink_to("/nowhere/part-9"),
            "is a link to /nowhere/part-9, which does not exist",
        ),
        (os.mkfifo, "is no regular file"),
    ],
)
def test_what_is_no_file_is_refused_and_never_left_out(tmp_path, make, message):
    write(tmp_path / "part-0", 3)
    make(tmp_path / "part-1")
    with pytest.raises(DataError, match=f"^{tmp_path}/part-1 {message}$") as error:
        list_shards(str(tmp_path))
    assert "all of training_data is read" in error.value.help


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda path: path.symlink_to("/nowhere/part-9"),
            "is a link to /nowhere/part-9, which does not exist",
        ),
        (os.mkfifo, "is no regular file"),
    ],
)
def test_what_is_no_file_is_refused_if_it_is_named_itself(tmp_path, make, message):
    make(tmp_path / "part-1")
    with pytest.raises(DataError, match=f"^{tmp_path}/part-1 {message}$") as error:
        list_shards(f"{tmp_path}/part-1")
    assert error.value.help.startswith("name a file, a directory, or a pattern")


@pytest.mark.parametrize("given", ["", " ", ",", " , ,"])
def test_nothing_is_no_path(given):
    with pytest.raises(ConfigError, match=f'^training_data "{given}" names no path$'):
        list_shards(given)


def test_a_path_that_the_system_refuses_is_named(tmp_path):
    name = "x" * 300
    with pytest.raises(DataError, match=f"{name} cannot be read: File name too long"):
        list_shards(f"{tmp_path}/{name}")


@pytest.mark.parametrize("given", ["", "/a", "/*.csv", "/none,x"])
def test_what_may_not_be_looked_at_names_the_right_that_is_missing(tmp_path, given):
    write(tmp_path / "closed" / "a", 3)
    with without_rights(tmp_path / "closed"), pytest.raises(DataError, match=r"Permission denied$") as error:
        list_shards(f"{tmp_path}/closed{given}")
    assert "chmod a+rX" in error.value.help


def test_folders_and_copies_of_editors_are_left_out_and_that_is_told(tmp_path):
    for name in ("part-0", "part-0~", "part-1.bak", "part-2.orig", "x~", "_SUCCESS", ".part-0.swp"):
        write(tmp_path / name, 3)
    (tmp_path / "sub").mkdir()
    (tmp_path / ".cache").mkdir()
    told: list[str] = []
    assert [shard.name for shard in list_shards(str(tmp_path), "validation_data", told.append)] == [
        f"{tmp_path}/part-0"
    ]
    assert told == [
        f'validation_data "{tmp_path}": the folder sub in it is left out',
        f'validation_data "{tmp_path}": 4 copies (part-0~, part-1.bak, part-2.orig, …) in it are left out',
    ]


def test_a_file_is_one_shard_under_the_name_it_was_given(tmp_path, monkeypatch):
    write(tmp_path / "data", 2)
    monkeypatch.chdir(tmp_path)
    assert list_shards("data") == (Shard(name="data", first=0, count=2),)


def test_a_missing_path_names_the_nearest(tmp_path):
    (tmp_path / "mnist" / "train").mkdir(parents=True)
    with pytest.raises(ConfigError) as error:
        list_shards(f"{tmp_path}/mnits/train", "validation_data")
    assert error.value.message == f'validation_data "{tmp_path}/mnits/train" does not exist'
    assert error.value.help == f"nearest: {tmp_path}/mnist/train"


def test_a_directory_without_files_names_its_folders(tmp_path):
    (tmp_path / "train").mkdir()
    with pytest.raises(ConfigError, match="has no files") as error:
        list_shards(str(tmp_path))
    assert f"{tmp_path}/train" in error.value.help


def test_files_without_any_record_are_an_error(tmp_path):
    write(tmp_path / "a", 0)
    with pytest.raises(ConfigError, match=r"has no records: 1 empty file$"):
        list_shards(str(tmp_path))


def test_a_file_of_another_format_is_named(tmp_path):
    (tmp_path / "part-0").write_bytes(b"PK\x03\x04 and so on, a zip file")
    with pytest.raises(DataError, match="part-0"):
        list_shards(str(tmp_path))


def test_records_are_read_in_the_order_asked_for(tmp_path):
    records = write(tmp_path / "a", 20)
    source = RecordSource()
    task = TaskRange(name=str(tmp_path / "a"), first=5, count=4)
    assert source.read(task) == records[5:9]
    assert source.read(task, np.array([3, 0, 2, 1])) == [records[i] for i in (8, 5, 7, 6)]


def test_more_files_than_may_be_open_at_once(tmp_path):
    written = {name: write(tmp_path / name, 3) for name in "abcdef"}
    source = RecordSource(max_open_files=2)
    for name in "abcdefabcfed":
        task = TaskRange(name=str(tmp_path / name), first=0, count=3)
        assert source.read(task) == written[name]
    assert len(source._readers) == 2


def test_many_threads_read_at_once(tmp_path):
    written = {name: write(tmp_path / name, 50) for name in "abcd"}
    source = RecordSource(max_open_files=2)
    wrong: list[str] = []

    def work(name: str) -> None:
        task = TaskRange(name=str(tmp_path / name), first=0, count=50)
        for _ in range(30):
            if source.read(task) != written[name]:
                wrong.append(name)

    threads = [threading.Thread(target=work, args=(name,)) for name in "abcdabcd"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_a_file_that_became_shorter_is_named_with_the_records(tmp_path):
    write(tmp_path / "a", 3)
    with pytest.raises(DataError, match=r"records 2 to 5 of .*/a are not there: it has 3"):
        RecordSource().read(TaskRange(name=str(tmp_path / "a"), first=2, count=4))


def test_a_file_that_went_away_is_named_with_the_records(tmp_path):
    with pytest.raises(DataError, match=r"/gone cannot be read: No such file.*records 0 to 3") as error:
        RecordSource().read(TaskRange(name=str(tmp_path / "gone"), first=0, count=4))
    assert "put it back, or start a new job" in error.value.help


def test_a_damaged_file_is_named_with_the_records(tmp_path):
    write(tmp_path / "a", 30)
    content = bytearray((tmp_path / "a").read_bytes())
    content[-4] ^= 1
    (tmp_path / "a").write_bytes(content)
    with pytest.raises(DataError, match=r"/a.*records 0 to 29"):
        RecordSource().read(TaskRange(name=str(tmp_path / "a"), first=0, count=30))


def test_a_closed_source_reads_nothing(tmp_path):
    write(tmp_path / "a", 3)
    source = RecordSource()
    source.close()
    with pytest.raises(ValueError, match="closed"):
        source.read(TaskRange(name=str(tmp_path / "a"), first=0, count=3))
