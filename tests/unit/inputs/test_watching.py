"""Which files a job whose data grows takes, and when."""

import os
import time
from pathlib import Path

import pytest

from edlz.services.errors import ConfigError, DataError
from edlz.services.inputs.data import RecordSource
from edlz.services.inputs.job_data import list_job_data
from edlz.services.inputs.listing import Listed
from edlz.services.inputs.reading.records import Columns
from edlz.services.inputs.watching import SETTLED_S, FileWatch, settled_files
from edlz.services.protocol.growing_plan import Piece
from edlz.services.protocol.plan import TaskRange
from tests import builders

HEADER = "a,b\n"


def put(path: Path, text: str = f"{HEADER}1,2.5\n", age_s: float = 60.0) -> Path:
    """Write a file that was last written so long ago."""
    path.write_text(text)
    os.utime(path, (time.time() - age_s,) * 2)
    return path


def begun(folder: Path, **more: object) -> Listed:
    config = builders.settings(training_data=str(folder), watch_data=True, **more)
    return list_job_data(config, str(folder), "training_data")


def watch(listed: Listed) -> FileWatch:
    return FileWatch(listed.source, [shard.name for shard in listed.shards])


def names(piece: Piece) -> list[str]:
    return [Path(shard.name).name for shard in piece.shards]


def test_each_file_is_taken_once_in_the_order_of_names(tmp_path: Path) -> None:
    put(tmp_path / "m.csv")
    watching = watch(begun(tmp_path))
    assert watching.look() == Piece(shards=())
    put(tmp_path / "z.csv", f"{HEADER}1,1\n2,2\n")
    put(tmp_path / "b.csv")
    piece = watching.look()
    assert names(piece) == ["b.csv", "z.csv"]
    assert [shard.count for shard in piece.shards] == [1, 2]
    assert [file.name for file in piece.files] == [shard.name for shard in piece.shards]
    put(tmp_path / "b.csv", f"{HEADER}3,3\n4,4\n")  # who reads it finds that
    assert watching.look().shards == ()


@pytest.mark.parametrize("name", [".x.csv", "_x.csv", "x.csv.tmp", "x.csv.part", "x.csv~", "x.csv.partial"])
def test_what_is_not_whole_yet_by_its_name_waits_to_be_renamed(name: str, tmp_path: Path) -> None:
    put(tmp_path / "a.csv")
    watching = watch(begun(tmp_path))
    put(tmp_path / name).rename(put(tmp_path / name))
    assert watching.look().shards == ()
    (tmp_path / name).rename(tmp_path / "x.csv")
    assert names(watching.look()) == ["x.csv"]


def test_a_file_that_is_written_in_place_is_taken_when_it_rests(tmp_path: Path) -> None:
    put(tmp_path / "a.csv")
    watching = watch(begun(tmp_path))
    growing = put(tmp_path / "x.csv", age_s=0)
    assert watching.look().shards == ()
    put(growing, f"{HEADER}1,1\n1,1\n", age_s=0)
    assert watching.look().shards == ()
    os.utime(growing, (time.time() - 2 * SETTLED_S,) * 2)
    (shard,) = watching.look().shards
    assert shard.count == 2


def test_what_cannot_be_read_is_left_out_until_it_is_put_right(tmp_path: Path) -> None:
    put(tmp_path / "a.csv")
    watching = watch(begun(tmp_path))
    bad = put(tmp_path / "bad.csv", "a,c\n1,2\n")
    put(tmp_path / "empty.csv", "")
    put(tmp_path / "good.csv")
    (tmp_path / "folder").mkdir()
    (tmp_path / "nowhere.csv").symlink_to(tmp_path / "nothing")
    assert names(watching.look()) == ["good.csv"]
    (reason,) = watching.take_refused()
    assert f"{bad} has the columns a (int64), c (int64), the job's data a (int64), b (float32)" in reason
    assert watching.look().shards == ()
    assert watching.take_refused() == []
    put(bad, age_s=30)
    put(tmp_path / "empty.csv", age_s=30)
    assert names(watching.look()) == ["bad.csv", "empty.csv"]


def test_a_name_that_is_not_utf_8_is_told_in_letters_that_can_be_sent(tmp_path: Path) -> None:
    put(tmp_path / "a.csv")
    watching = watch(begun(tmp_path))
    put(tmp_path / os.fsdecode(b"caf\xe9.csv"))
    assert watching.look().shards == ()
    [told] = watching.take_refused()
    assert told == (
        f"{tmp_path}/caf\\xe9.csv has a name that is not UTF-8, and cannot be told to other processes; "
        "it is left out until it changes"
    )


def test_a_job_does_not_begin_with_a_name_that_is_not_utf_8(tmp_path: Path) -> None:
    put(tmp_path / os.fsdecode(b"caf\xe9.csv"))
    with pytest.raises(DataError, match=r"caf\\xe9.csv has a name that is not UTF-8"):
        begun(tmp_path)


def test_columns_may_come_in_another_order_and_among_others(tmp_path: Path) -> None:
    put(tmp_path / "a.csv")
    listed = begun(tmp_path)
    watching = watch(listed)
    put(tmp_path / "b.csv", "more,b,a\nx,7.5,8\n")
    piece = watching.look()
    assert (names(piece), watching.take_refused()) == (["b.csv"], [])
    (shard,), (facts,) = piece.shards, piece.files
    task = TaskRange(name=shard.name, first=0, count=1, file=facts)
    rows = RecordSource(listed.source).read(task)
    assert isinstance(rows, Columns)
    assert rows.rows() == [{"a": 8, "b": 7.5}]


def test_a_folder_that_is_gone_has_nothing_new(tmp_path: Path) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    put(folder / "a.csv")
    watching = watch(begun(folder))
    for _ in range(2):
        folder.rename(tmp_path / "away")
        assert watching.look().shards == ()
        assert watching.take_refused() == [f"{folder} is gone: nothing comes from it until it is back"]
        assert watching.look().shards == ()
        assert watching.take_refused() == []
        (tmp_path / "away").rename(folder)
        assert watching.look().shards == ()  # it is known
        assert watching.take_refused() == []


def test_a_file_that_was_taken_may_go(tmp_path: Path) -> None:
    put(tmp_path / "a.csv")
    watching = watch(begun(tmp_path / "a.csv"))
    (tmp_path / "a.csv").unlink()
    assert watching.look().shards == ()
    assert watching.take_refused() == []


def test_a_relative_path_is_the_same_folder_from_anywhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(tmp_path / "a.csv")
    monkeypatch.chdir(tmp_path.parent)
    listed = begun(Path(tmp_path.name))
    assert listed.shards[0].name == str(tmp_path / "a.csv")
    monkeypatch.chdir("/")
    assert watch(listed).look().shards == ()


def test_patterns_and_several_folders(tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
    put(tmp_path / "one" / "a.csv")
    given = f"{tmp_path}/two/*.csv,{tmp_path}/one"
    watching = watch(begun(Path(given)))
    put(tmp_path / "one" / "b.csv")
    put(tmp_path / "two" / "c.csv")
    put(tmp_path / "two" / "d.txt")
    assert names(watching.look()) == ["c.csv", "b.csv"]


def test_a_folder_that_never_was_is_a_slip(tmp_path: Path) -> None:
    (tmp_path / "inbox").mkdir()
    with pytest.raises(ConfigError, match='inbx" does not exist') as refused:
        settled_files(f"{tmp_path}/inbx")
    assert refused.value.help == f"nearest: {tmp_path}/inbox"


def test_a_job_begins_with_some_file(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no files in it yet"):
        settled_files(str(tmp_path))
    fresh = put(tmp_path / "a.csv", age_s=0)
    waited: list[float] = []

    def wait(seconds: float) -> None:
        waited.append(seconds)
        os.utime(fresh, (time.time() - SETTLED_S,) * 2)

    assert settled_files(str(tmp_path), wait) == [str(fresh)]
    assert waited
