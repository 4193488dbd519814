"""Exports appear whole, under a number that was free, and leave nothing of those that were killed."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from edlz.services.export.publishing import publish_file, publish_folder, staging, versions_in


def export(root: Path, text: str = "x") -> Path:
    with staging(root) as folder:
        (folder / "saved_model.pb").write_text(text)
        (folder / "variables").mkdir()
        return publish_folder(folder, root)


def names(root: Path) -> list[str]:
    return sorted(entry.name for entry in root.iterdir())


def test_numbers_rise_and_what_is_there_stays(tmp_path: Path) -> None:
    root = tmp_path / "a" / "out"
    assert export(root, "one") == root / "1"
    (root / "5").mkdir()  # empty: a rename would replace it
    (root / "notes").mkdir()
    assert export(root, "two") == root / "6"
    assert (root / "1" / "saved_model.pb").read_text() == "one"
    assert names(root) == ["1", "5", "6", "notes"]
    assert sorted(versions_in(root)) == [1, 5, 6]


def test_of_two_at_once_each_gets_a_number(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with staging(tmp_path) as one, staging(tmp_path) as two:
        (one / "f").touch()
        (two / "f").touch()
        from edlz.services.export import publishing

        monkeypatch.setattr(
            publishing, "versions_in", lambda root: []
        )  # both have looked before either renamed
        assert {publish_folder(one, tmp_path).name, publish_folder(two, tmp_path).name} == {"1", "2"}
    assert names(tmp_path) == ["1", "2"]


def test_of_two_tries_of_one_export_one_gets_a_number(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whichever instant the second one has lost in: it has looked for a number before the first was there, or not."""

    def is_same(folder: Path) -> bool:
        return (folder / "ours").exists()

    def publish(staged: Path) -> Path:
        (staged / "ours").touch()
        return publish_folder(staged, tmp_path, is_same)

    export(tmp_path, "another's")
    with staging(tmp_path) as first, staging(tmp_path) as second:
        from edlz.services.export import publishing

        real = publishing.versions_in

        def stalls(root: Path) -> list[int]:
            found = real(root)
            monkeypatch.undo()
            assert publish(first).name == "2"
            return found

        monkeypatch.setattr(publishing, "versions_in", stalls)
        assert publish(second).name == "2"
    with staging(tmp_path) as third:
        assert publish(third).name == "2"
    assert names(tmp_path) == ["1", "2"]


def test_an_error_leaves_nothing(tmp_path: Path) -> None:
    def fail() -> None:
        with staging(tmp_path) as folder:
            (folder / "f").touch()
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert names(tmp_path) == []


def test_what_a_killed_process_left_is_removed_and_nothing_else(tmp_path: Path) -> None:
    program = (
        "import os, sys, pathlib\n"
        "from edlz.services.export.publishing import staging\n"
        "with staging(pathlib.Path(sys.argv[1])) as folder:\n"
        "    (folder / 'half').touch()\n"
        "    os.kill(os.getpid(), 9)\n"
    )
    subprocess.run([sys.executable, "-c", program, str(tmp_path)], check=False)
    (left,) = names(tmp_path)
    assert left.startswith(".tmp-edlz-")
    (tmp_path / ".tmp-other").mkdir()
    (tmp_path / ".tmp-edlz-notours").mkdir()
    target = tmp_path / "target"
    target.mkdir()
    (tmp_path / ".tmp-edlz-0123456789ab").symlink_to(target)
    with staging(tmp_path) as living:
        assert left not in names(tmp_path)
        export(tmp_path)
        assert living.exists()  # another one's, who is still at work
    assert names(tmp_path) == [".tmp-edlz-0123456789ab", ".tmp-edlz-notours", ".tmp-other", "1", "target"]


def test_a_file_takes_the_place_of_another(tmp_path: Path) -> None:
    place = tmp_path / "m.keras"
    place.write_text("old")
    with staging(tmp_path) as folder:
        (folder / "m.keras").write_text("new")
        publish_file(folder / "m.keras", place)
    assert place.read_text() == "new"
    assert names(tmp_path) == ["m.keras"]


def test_a_place_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(OSError), staging(tmp_path / "file" / "out"):
        pass
    assert os.listdir(tmp_path) == ["file"]
