"""The folder of an analysis: one file in place of all the tasks', whenever its master dies."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from edlz.services.errors import ConfigError
from edlz.services.predictions.kinds import STATISTICS
from edlz.services.predictions.output import check_free, claim, publish_made, write_part

PARTS = [(0, "part-00000-of-00002.statistics", 3), (1, "part-00001-of-00002.statistics", 3)]


def begun(folder: Path, run: str = "r", *, is_new: bool = True) -> None:
    claim(folder, "j", run, is_new=is_new, kind=STATISTICS)


def write(folder: Path, place: int, run: str = "r") -> None:
    write_part(folder, PARTS[place][1], run, "t", lambda path: _write(path, b"%03d" % place), STATISTICS)


def _write(path: Path, data: bytes) -> None:
    path.write_bytes(data)


def joined(paths: Sequence[Path]) -> bytes:
    return b"+".join(path.read_bytes() for path in paths)


def publish(folder: Path, run: str = "r") -> tuple[int, ...]:
    return publish_made(folder, run, STATISTICS, PARTS, joined)


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_the_tasks_files_give_way_to_one(tmp_path: Path) -> None:
    begun(tmp_path)
    for place in (1, 0):
        write(tmp_path, place)
    assert publish(tmp_path) == ()
    assert names(tmp_path) == ["statistics.json"]
    assert (tmp_path / "statistics.json").read_bytes() == b"000+001"


def test_files_that_are_not_there_are_named_and_nothing_is_made(tmp_path: Path) -> None:
    begun(tmp_path)
    write(tmp_path, 0)
    assert publish(tmp_path) == (1,)
    assert "statistics.json" not in names(tmp_path)


@pytest.mark.parametrize("dies_at", [".unfinished.json", PARTS[0][1], PARTS[1][1]])
def test_a_master_that_dies_while_it_publishes_has_a_successor(
    dies_at: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun(tmp_path)
    for place in (0, 1):
        write(tmp_path, place)
    real = Path.unlink

    def unlink(path: Path, missing_ok: bool = False) -> None:
        if path.name == dies_at:
            raise KeyboardInterrupt
        real(path, missing_ok)

    with monkeypatch.context() as patched:
        patched.setattr(Path, "unlink", unlink)
        with pytest.raises(KeyboardInterrupt):
            publish(tmp_path)
    begun(tmp_path, is_new=False)
    write(tmp_path, 0)  # by a worker that has outlived it
    assert publish(tmp_path) == ()
    assert names(tmp_path) == ["statistics.json"]
    assert (tmp_path / "statistics.json").read_bytes() == b"000+001"


def test_nothing_that_is_made_without_its_file_is_taken_for_whole(tmp_path: Path) -> None:
    begun(tmp_path)
    for place in (0, 1):
        write(tmp_path, place)

    def fails(_: Sequence[Path]) -> bytes:
        raise OSError(28, "No space left on device")

    with pytest.raises(OSError, match="No space left"):
        publish_made(tmp_path, "r", STATISTICS, PARTS, fails)
    assert publish(tmp_path) == ()


def test_a_folder_of_others_is_left_alone(tmp_path: Path) -> None:
    begun(tmp_path, "other")
    with pytest.raises(ConfigError, match=r'statistics_output ".*" is not this job\'s any more'):
        publish(tmp_path)
    with pytest.raises(ConfigError, match="is not the folder that the master has made here"):
        write(tmp_path, 0)
    (tmp_path / ".unfinished.json").unlink()
    (tmp_path / "statistics.json").write_bytes(b"{}")
    with pytest.raises(ConfigError, match="holds statistics already") as raised:
        check_free(tmp_path, "j", STATISTICS)
    assert "--statistics_output" in raised.value.help
