"""Commands on a job whose folder is damaged, cannot be written, or is full: what they say, and never a traceback."""

import subprocess
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from edlz.client.cli import main
from edlz.client.local.job_directory import open_job_directory
from edlz.services.master.journal.journal import Journal
from edlz.services.protocol.job_status import JobStatus
from tests import builders
from tests.small_disk import fill, small_disk

PLAN = builders.plan(9, records_per_task=2)
ENDED = JobStatus(name="mnist", state="Stopped", mode="sync", slots=1, started_at=1.0, now=2.0)
GARBAGE = b"\x00\xff\xfe{[: \x80" * 50
COMMANDS = (["ls"], ["ls", "-o", "json"], ["status", "mnist"], ["logs", "mnist"], ["wait", "mnist"])
COMMANDS += (["stop", "mnist"], ["stop", "mnist", "--now"], ["scale", "mnist", "--workers=2"])
COMMANDS += (["checkpoint", "ls", "mnist"], ["resume", "mnist"])


@pytest.fixture
def job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of a job that was stopped."""
    monkeypatch.setenv("EDLZ_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    return tmp_path / "home" / "jobs" / "mnist"


def make(job: Path) -> None:
    with open_job_directory(builders.settings(job_name="mnist")) as folder:
        (folder.logs / "master.log").write_text("error: it ended\n")
    with Journal(job / "journal.sqlite") as journal:
        journal.begin(builders.job(PLAN, name="mnist"))
    (job / "status.json").write_bytes(msgspec.json.encode(ENDED))


def answers(capsys: pytest.CaptureFixture[str], *commands: list[str]) -> None:
    """Every command says what it sees, or what is wrong; `edlz itself failed` is exit code 70."""
    for command in commands:
        code = main(command)
        printed = capsys.readouterr()
        assert code != 70, f"{command}: {printed.err}"
        assert "Traceback" not in printed.err + printed.out, command
        assert code == 0 or "error: " in printed.err or printed.out, command


def as_folder(path: Path) -> None:
    path.unlink(missing_ok=True)
    path.mkdir()


DAMAGES: dict[str, Callable[[Path], object]] = {
    "empty": lambda path: path.write_bytes(b""),
    "garbage": lambda path: path.write_bytes(GARBAGE),
    "half": lambda path: path.write_bytes(
        path.read_bytes()[: path.stat().st_size // 2] if path.exists() else b"{"
    ),
    "a folder": as_folder,
    "a dangling link": lambda path: (path.unlink(missing_ok=True), path.symlink_to("nowhere")),
}
QUICK = ("garbage", "a folder")
NAMES = ("job.yaml", "status.json", "journal.sqlite", "logs/master.log", "lock", "master.lock")


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    "damage", [pytest.param(how, marks=() if how in QUICK else pytest.mark.slow) for how in DAMAGES]
)
def test_a_file_that_is_damaged(
    damage: str, name: str, job: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    make(job)
    DAMAGES[damage](job / name)
    answers(capsys, *COMMANDS, ["rm", "mnist", "--force"], ["ls"])


def test_logs_that_are_a_file(job: Path, capsys: pytest.CaptureFixture[str]) -> None:
    make(job)
    (job / "logs" / "master.log").unlink()
    (job / "logs").rmdir()
    (job / "logs").touch()
    answers(capsys, *COMMANDS, ["rm", "mnist"])


@pytest.mark.parametrize("text", [b"", b"relative/path\n", GARBAGE, b"/nowhere\n"])
def test_an_index_that_is_damaged(text: bytes, job: Path, capsys: pytest.CaptureFixture[str]) -> None:
    make(job)
    (job.parent.parent / "index").mkdir(exist_ok=True)
    (job.parent.parent / "index" / "mnist").write_bytes(text)
    answers(capsys, *COMMANDS, ["rm", "mnist"])
    assert not job.exists()


def test_a_folder_that_cannot_be_written(
    job: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with small_disk(job.parent, 4 * 1024):
        make(job)
        subprocess.run(["mount", "-o", "remount,ro", str(job.parent)], check=True)
        answers(capsys, *COMMANDS, ["rm", "mnist"])
        assert main(["rm", "mnist"]) == 2
        assert f"error: {job} cannot be used: Read-only file system" in capsys.readouterr().err
        subprocess.run(["mount", "-o", "remount,rw", str(job.parent)], check=True)


def test_a_folder_on_a_full_disk_can_be_looked_at_and_removed(
    job: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with small_disk(job.parent, 4 * 1024) as disk:
        make(job)
        with fill(disk):
            answers(capsys, *COMMANDS)
            assert main(["rm", "mnist"]) == 0
        assert not job.exists()


def test_a_job_that_begins_on_a_full_disk(job: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with (
        small_disk(job.parent, 4 * 1024) as disk,
        fill(disk),
        pytest.raises(Exception, match="No space") as raised,
    ):
        make(job)
    assert "make room on its disk" in getattr(raised.value, "help", "")
