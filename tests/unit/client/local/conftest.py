"""The folders of a job that runs on this machine."""

from pathlib import Path

import pytest

from edlz.client.local import supervisor
from edlz.client.local.job_directory import JobDirectory
from edlz.services.supervision import loop


@pytest.fixture
def folder(tmp_path: Path) -> JobDirectory:
    job = JobDirectory(tmp_path / "job", tmp_path / "sockets", None)
    job.logs.mkdir(parents=True)
    job.scratch.mkdir(parents=True)
    return job


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A supervisor that looks often and waits for nobody for long."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(loop, "POLL_S", 0.01)
    monkeypatch.setattr(supervisor, "STOP_S", 0.3)
