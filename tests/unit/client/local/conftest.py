"""The folders of a job that runs on this machine."""

from pathlib import Path

import pytest

from edlz.client.local.job_directory import JobDirectory


@pytest.fixture
def folder(tmp_path: Path) -> JobDirectory:
    job = JobDirectory(tmp_path / "job", tmp_path / "sockets", None)
    job.logs.mkdir(parents=True)
    job.scratch.mkdir(parents=True)
    return job
