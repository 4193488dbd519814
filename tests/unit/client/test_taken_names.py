"""A new job with the name of one that was stopped: refused, unless it is wanted."""

from pathlib import Path

import pytest

from edlz.client.cli import main
from edlz.client.job_files.job_index import LocalJob
from edlz.client.local import beginning as local
from edlz.client.local.job_directory import open_job_directory
from edlz.client.local.job_view import look_at
from edlz.services.configuration.job_config import JobConfig
from edlz.services.master.journal.journal import Journal
from edlz.services.protocol import named_status
from edlz.services.protocol.job_status import FailureView, JobState, JobStatus
from tests import builders


@pytest.fixture
def command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Begins a job "mnist"."""
    monkeypatch.setenv("EDLZ_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(local, "run_local", lambda config: 0)
    source = "def custom_model(): ...\ndef loss(labels, predictions): ...\n"
    source += "def optimizer(): ...\ndef feed(dataset, mode, metadata): ...\n"
    (tmp_path / "model.py").write_text(source)
    (tmp_path / "data").mkdir()
    from edlz.api.recordio import Writer

    with Writer(tmp_path / "data" / "part-0") as writer:
        writer.write(b"x")
    return [
        "train",
        f"--model_file={tmp_path}/model.py",
        f"--training_data={tmp_path}/data",
        "--job_name=mnist",
    ]


def leave(folder: Path, state: JobState | None, version: int = 9) -> None:
    """Leave a job that has ended so; None: its supervisor was killed."""
    config = builders.settings(job_name="mnist", job_dir=str(folder))
    with open_job_directory(config) as directory:
        (directory.path / "journal.sqlite").touch()
        if state is None:
            return
        status = JobStatus(
            name="mnist",
            state=state,
            mode="sync",
            slots=1,
            started_at=1.0,
            now=2.0,
            ratio=0.59,
            version=version,
        )
        (directory.path / "status.json").write_bytes(named_status.encode(status))


def home_folder(tmp_path: Path) -> Path:
    return tmp_path / "home" / "jobs" / "mnist"


def test_a_stopped_job_is_not_moved_aside_by_the_way(
    command: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    leave(home_folder(tmp_path), "Stopped")
    assert main(command) == 2
    printed = capsys.readouterr().err
    assert (
        'error: job "mnist" exists: Stopped at 59 %\nhelp: edlz resume mnist; or begin anew: --fresh (its files are moved aside)'
        in printed
    )
    assert main([*command, "--dry_run"]) == 2
    assert main([*command, "--fresh"]) == 0


def test_one_that_was_killed_is_not_either(
    command: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    leave(home_folder(tmp_path), None)
    assert main(command) == 2
    assert 'error: job "mnist" exists: Stopped, interrupted\n' in capsys.readouterr().err


def test_one_that_was_never_planned_gives_way(command: list[str], tmp_path: Path) -> None:
    """Its master has refused what it was given: a journal without a plan is all that it left."""
    leave(home_folder(tmp_path), None)
    Journal(home_folder(tmp_path) / "journal.sqlite").close()
    (home_folder(tmp_path) / "logs" / "master.log").write_text(
        "error: no good checkpoint\nhelp: another one\n"
    )
    (view,) = look_at([LocalJob("mnist", home_folder(tmp_path), "mnist")])
    assert (view.status.state, view.note) == ("Failed", "never began")
    assert view.status.failure == FailureView(text="no good checkpoint", help="another one")
    assert main(command) == 0


def test_one_in_a_folder_of_its_own_is_named_by_it(
    command: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    leave(tmp_path / "jobs", "Stopped")
    assert main(command) == 0
    assert main([*command, f"--job_dir={tmp_path}/jobs"]) == 2
    assert f"help: edlz resume {tmp_path}/jobs; or begin anew: --fresh" in capsys.readouterr().err


@pytest.mark.parametrize(("state", "version"), [("Succeeded", 9), ("Failed", 9), ("Stopped", 0)])
def test_what_has_ended_gives_way(command: list[str], tmp_path: Path, state: JobState, version: int) -> None:
    leave(home_folder(tmp_path), state, version)
    assert main(command) == 0


def test_a_new_job_is_wanted_once(tmp_path: Path) -> None:
    """Not by everybody who repeats the job from its settings."""
    assert "fresh" not in JobConfig(model_def="a.b", training_data="x", fresh=True).to_yaml()
