"""What goes when checkpoints are pruned, and what never does."""

import errno
import os
from pathlib import Path

import pytest

from edlz.services.storage.pruning import prune, remove_version
from edlz.services.storage.versions import list_versions, newest_good
from tests.states import make_cut, save, write_parts


@pytest.fixture(autouse=True)
def _fast(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)  # no machine crashes here


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def test_the_oldest_go_and_the_newest_good_stays(tmp_path: Path) -> None:
    for version in (100, 200, 300, 400):
        save(tmp_path, version)
    assert prune(tmp_path, 0) == ()
    assert set(prune(tmp_path, 2)) == {100, 200}
    assert names(tmp_path) == {"version-300", "version-400"}
    (tmp_path / "version-400" / "part-0-of-1.json").unlink()
    assert prune(tmp_path, 1) == ()  # 400 is no good, so 300 is all there is
    assert names(tmp_path) == {"version-300", "version-400"}
    save(tmp_path, 500)
    assert set(prune(tmp_path, 1)) == {300, 400}
    assert newest_good(tmp_path).name == "version-500"


def test_what_was_never_finished_goes_when_it_is_older_than_the_newest_good(tmp_path: Path) -> None:
    write_parts(tmp_path, make_cut(2, version=100)[:1])
    write_parts(tmp_path, make_cut(2, version=300)[:1])
    assert prune(tmp_path, 0) == ()  # without a good one nothing goes
    folder = save(tmp_path, 200)
    (folder / ".part-0-of-1.safetensors.b00t.tmp").write_bytes(b"half")
    write_parts(tmp_path, make_cut(2, version=300)[1:])
    assert prune(tmp_path, 0) == (100,)
    assert names(tmp_path) == {"version-200", "version-300"}
    assert names(folder) == {"part-0-of-1.safetensors", "part-0-of-1.json", "manifest.json"}


def test_what_the_job_may_need_stays_beyond_those_that_are_kept(tmp_path: Path) -> None:
    """Such as the checkpoint that the job began from: a parameter server that lost its disk reads it again."""
    save(tmp_path, 100, run="before")
    for version in (110, 120):
        save(tmp_path, version, run="this")
        prune(tmp_path, 1, needed=(100,), finished=version)
    assert names(tmp_path) == {"version-100", "version-120"}
    assert prune(tmp_path, 1) == (100,)


def test_a_version_of_another_job_is_not_removed(tmp_path: Path) -> None:
    """A job that was resumed with another --checkpoint_dir lets go of what it has kept in the one before."""
    save(tmp_path, 7)
    remove_version(tmp_path, 7, "another")
    assert names(tmp_path) == {"version-7"}
    remove_version(tmp_path, 7, "mnist")
    remove_version(tmp_path, 8, "mnist")
    assert names(tmp_path) == set()


def test_parts_of_a_version_that_is_still_written_stay(tmp_path: Path) -> None:
    """A synchronous job that went back cuts its versions again, below the newest of the history before."""
    save(tmp_path, 300)
    write_parts(tmp_path, make_cut(2, version=200)[:1])
    save(tmp_path, 100)
    assert prune(tmp_path, 0, finished=100) == ()
    assert names(tmp_path) == {"version-100", "version-200", "version-300"}


def test_nothing_is_removed_that_is_not_known_by_name(tmp_path: Path) -> None:
    folder = save(tmp_path, 100)
    (folder / "notes.txt").write_text("mine")
    (folder / "part-0-of-1.json.bak").write_text("mine too")
    (folder / "part-9-of-9.json").mkdir()
    outside = tmp_path.parent / "outside"
    outside.mkdir(exist_ok=True)
    (outside / "manifest.json").write_text("elsewhere")
    (tmp_path / "version-50").symlink_to(outside)
    (tmp_path / "model").mkdir()
    save(tmp_path, 200)
    assert prune(tmp_path, 1) == (100,)
    assert names(folder) == {"notes.txt", "part-0-of-1.json.bak", "part-9-of-9.json"}
    assert names(tmp_path) == {"version-50", "version-100", "version-200", "model"}
    assert (outside / "manifest.json").exists()
    assert newest_good(tmp_path).name == "version-200"


def test_pruning_that_dies_midway_never_shows_a_good_version(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    save(tmp_path, 100)
    save(tmp_path, 200)
    real = Path.unlink

    def unlink(path: Path, missing_ok: bool = False) -> None:
        if path.name.startswith("part"):
            raise OSError(errno.EIO, "Input/output error")
        real(path, missing_ok)

    monkeypatch.setattr(Path, "unlink", unlink)
    with pytest.raises(OSError, match="Input/output"):
        prune(tmp_path, 1)
    monkeypatch.undo()
    assert [info.state for info in list_versions(tmp_path)] == ["good", "incomplete"]
    assert prune(tmp_path, 1) == (100,)
